"""Datasets as Keras input: ours, distributed ones and TensorFlow's, as NumPy batches."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from types import GeneratorType
from typing import Any, final

import jax
import keras
import numpy as np

from tfdist_jax._multiprocess._shared_input import Shard, equal_sizes
from tfdist_jax._sharding._placement import spans_processes
from tfdist_jax.compat.tensorflow._platform._context import current_strategy
from tfdist_jax.compat.tensorflow._tensors._ordered import restore_dict_order
from tfdist_jax.compat.tensorflow.data._dataset import Dataset, device_batches
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import (
    DataAdapter,
    PyDatasetAdapter,
    class_weight_to_sample_weights,
    data_adapters,
)
from tfdist_jax.compat.tensorflow.keras._training._dataset_creator import DatasetCreator

_KNOWN_LIBRARIES = ("grain", "jax", "jaxlib", "numpy", "pandas", "scipy", "tensorflow", "torch")


class OwnRows(np.ndarray[Any, Any]):
    """An array of a batch of which each process brings its own rows; Keras sees an array like any other.

    Attributes:
        sizes: How many rows are real, for each replica of every process.
    """

    sizes: tuple[int, ...]


def _marked(shard: Shard, weighted: Callable[[Any], Any]) -> Any:
    data, everyone = shard
    sizes = equal_sizes(everyone)

    def mark(leaf: np.ndarray) -> OwnRows:
        marked = leaf.view(OwnRows)
        marked.sizes = sizes
        return marked

    return jax.tree.map(mark, weighted(restore_dict_order(data)))


def _of_processes(dataset: Any) -> Any:
    """Share a dataset out to the processes of the strategy, if it says that each has its own."""
    strategy = current_strategy()
    if strategy is None or hasattr(dataset, "shards") or not spans_processes(strategy.native.mesh):
        return dataset
    return strategy.experimental_distribute_dataset(dataset)


@final
class DatasetAdapter(DataAdapter):
    """Hands out the batches of a dataset, from the start for each epoch."""

    def __init__(self, dataset: Any, class_weight: Mapping[int, float] | None = None) -> None:
        """Adapt `dataset`; `class_weight` weighs examples by their class."""
        self._dataset = _of_processes(dataset)
        self._class_weight = class_weight
        # Negative: infinite, or not known before the end.
        # A method of datasets, a property of distributed ones.
        cardinality = getattr(self._dataset, "cardinality", -1)
        count: Any = cardinality() if callable(cardinality) else cardinality
        self._num_batches = int(count) if int(count) >= 0 else None

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Iterate over the batches; an iteration begins with its first batch, since Keras makes more than it uses."""
        weighted = self._weighted if self._class_weight is not None else lambda batch: batch
        if getattr(self._dataset, "is_own", False):
            yield from (_marked(shard, weighted) for shard in self._dataset.shards())
        else:
            is_ours = isinstance(self._dataset, Dataset)
            yield from map(weighted, device_batches(self._dataset) if is_ours else self._dataset.as_numpy_iterator())

    def begin_again(self) -> None:
        """Begin an iteration and leave it: the next one has the order that comes after."""
        next(self.get_numpy_iterator(), None)

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return an iterator over the batches, which stay on the host."""
        return self.get_numpy_iterator()

    @property
    def pipelines(self) -> int:
        """How many processes have each its own data; 1 if all have the same."""
        return jax.process_count() if getattr(self._dataset, "is_own", False) else 1

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch, if it is known and finite."""
        return self._num_batches

    @property
    def batch_size(self) -> int | None:
        """Not known before the first batch."""
        return None

    def _weighted(self, batch: Any) -> tuple[Any, Any, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        if sample_weight is not None:
            raise ValueError(
                "`class_weight` was passed with a dataset whose batches hold sample weights already. "
                "Leave one of the two out."
            )
        if isinstance(y, (dict, list, tuple)):
            raise ValueError("`class_weight` is only supported for Models with a single output.")
        return x, y, class_weight_to_sample_weights(y, self._class_weight)


@final
class _Batches:
    """An iterable of the user's own, as a dataset: each iteration is an epoch."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def cardinality(self) -> int:
        return len(self._batches) if isinstance(self._batches, Sized) else -1

    def as_numpy_iterator(self) -> Iterator[Any]:
        for batch in self._batches:
            yield jax.tree.map(np.asarray, batch)


def _is_own_iterable(x: Any) -> bool:
    """Tell whether `x` gives batches and is of a class that neither Keras nor a library it knows has made."""
    known = (GeneratorType, Mapping, Sequence, keras.utils.PyDataset)
    if not isinstance(x, Iterable) or isinstance(x, known) or hasattr(x, "as_numpy_iterator"):
        return False
    libraries = {base.__module__.partition(".")[0] for base in type(x).__mro__}
    return libraries.isdisjoint(_KNOWN_LIBRARIES) and not hasattr(x, "__array__")


def _knowing_datasets(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_data_adapter(
        x: Any, y: Any = None, sample_weight: Any = None, *args: Any, class_weight: Any = None, **kwargs: Any
    ) -> Any:
        if isinstance(x, DatasetCreator):
            x = x.distribute(current_strategy())
        if _is_own_iterable(x):
            x = (batch for batch in x) if isinstance(x, Iterator) else _Batches(x)
        if not hasattr(x, "as_numpy_iterator"):
            return original(x, y, sample_weight, *args, class_weight=class_weight, **kwargs)
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"`{name}` was passed beside the dataset `x`, but a dataset's elements hold it themselves: "
                    "(inputs, targets) or (inputs, targets, sample_weights). Leave it out."
                )
        return DatasetAdapter(x, class_weight)

    return get_data_adapter


def _beginning_anew(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Begin a `PyDataset` that has workers with its first batch, not with those fetched while the model was built."""

    @functools.wraps(original)
    def batches(self: Any) -> Iterator[Any]:
        left = self.enqueuer.ready_queue
        with left.mutex:
            left.queue.clear()
        yield from original(self)

    return batches


CHANGES = (
    Hook(
        data_adapters,
        "get_data_adapter",
        _knowing_datasets,
        "x y sample_weight",
        "datasets, distributed ones and own iterables",
    ),
    Hook(
        PyDatasetAdapter,
        "_finite_enqueuer_generator",
        _beginning_anew,
        "self",
        "begin with the first batch if workers fetched some",
    ),
)
