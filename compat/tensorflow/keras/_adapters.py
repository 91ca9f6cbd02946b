"""Datasets as Keras input: ours, distributed ones and TensorFlow's, as NumPy batches."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import keras

from tfdist_jax.compat.tensorflow.keras._internals import DataAdapter, class_weight_to_sample_weights, data_adapters


def install() -> None:
    """Let `fit`, `evaluate` and `predict` take every dataset that has `as_numpy_iterator`."""
    data_adapters.get_data_adapter = _knowing_datasets(data_adapters.get_data_adapter)


@final
class DatasetAdapter(DataAdapter):
    """Hands out the batches of a dataset, from the start for each epoch."""

    def __init__(self, dataset: Any, class_weight: Mapping[int, float] | None = None) -> None:
        """Adapt `dataset`; `class_weight` weighs examples by their class."""
        self._dataset = dataset
        self._class_weight = class_weight
        # Negative: infinite, or not known before the end.
        cardinality = int(dataset.cardinality()) if hasattr(dataset, "cardinality") else -1
        self._num_batches = cardinality if cardinality >= 0 else None

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Iterate over the batches; an iteration begins with its first batch, since Keras makes more than it uses."""
        batches = self._dataset.as_numpy_iterator()
        yield from batches if self._class_weight is None else map(self._weighted, batches)

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return an iterator over the batches, which stay on the host."""
        return self.get_numpy_iterator()

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


def _knowing_datasets(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_data_adapter(
        x: Any, y: Any = None, sample_weight: Any = None, *args: Any, class_weight: Any = None, **kwargs: Any
    ) -> Any:
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
