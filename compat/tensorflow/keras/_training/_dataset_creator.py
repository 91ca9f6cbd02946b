"""`tf.keras.utils.experimental.DatasetCreator`: data that each worker of a strategy makes for itself."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, final

import jax
import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax._coordinator import Worker, being_worker
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.distribute._input import InputContext
from tfdist_jax.compat.tensorflow.distribute._parameter_server import ParameterServerStrategy
from tfdist_jax.compat.tensorflow.keras._change import Addition

_STEPS = {"fit": "steps_per_epoch", "evaluate": "steps", "predict": "steps"}


@final
class DatasetCreator:
    """Drop-in for `tf.keras.utils.experimental.DatasetCreator`, which Keras 3 no longer has.

    Ref: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/utils/experimental/DatasetCreator
    """

    def __init__(self, dataset_fn: Callable[[InputContext], Dataset], input_options: Any = None) -> None:
        """Let `dataset_fn` make the dataset of a worker, which is told by a `tf.distribute.InputContext`.

        Raises:
            TypeError: If `dataset_fn` is no function.
        """
        if not callable(dataset_fn):
            raise TypeError(f"`dataset_fn` for `DatasetCreator` must be a `callable`. Received: {dataset_fn!r}")
        self._dataset_fn, self._input_options = dataset_fn, input_options

    def __call__(self, *args: Any, **kwargs: Any) -> Dataset:
        """Make a dataset.

        Raises:
            TypeError: If `dataset_fn` returns something else.
        """
        dataset = self._dataset_fn(*args, **kwargs)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"The `callable` provided to `DatasetCreator` must return a Dataset. It returns {dataset!r}"
            )
        return dataset

    def distribute(self, strategy: Any) -> Any:
        """Return what `fit` takes its batches from under a strategy, or without one."""
        if strategy is None:
            return self(InputContext())
        if isinstance(strategy, ParameterServerStrategy):
            return _OfWorkers(self, strategy.workers)
        return strategy.distribute_datasets_from_function(self, self._input_options)


@final
class _OfWorkers:
    """The batches of the workers' datasets, one of each in turn."""

    def __init__(self, make: DatasetCreator, workers: Sequence[Any]) -> None:
        self._make, self._workers = make, workers

    def cardinality(self) -> int:
        return -1

    def as_numpy_iterator(self) -> Iterator[Any]:
        iterators = [self._begin(worker) for worker in self._workers]
        for iterator in itertools.cycle(iterators):
            try:
                yield jax.tree.map(np.asarray, next(iterator))
            except StopIteration:
                return

    def _begin(self, worker: Worker) -> Iterator[Any]:
        with being_worker(worker):
            return iter(self._make(InputContext()))


def require_steps(method: str, given: Any) -> None:
    """Refuse a `DatasetCreator` for a method of training that is not told when to end.

    Raises:
        ValueError: If it is not.
    """
    for data, steps in (("x", _STEPS[method]), ("validation_data", "validation_steps")):
        if isinstance(given.get(data), DatasetCreator) and given.get(steps) is None:
            raise ValueError(
                f"When using a `tf.keras.utils.experimental.DatasetCreator` as `{data}`, `{steps}` must be provided in `Model.{method}`."
            )


_experimental = ModuleType("keras.utils.experimental", "Of Keras 2's experimental utilities those that are there.")
_experimental.DatasetCreator = DatasetCreator  # pyright: ignore[reportAttributeAccessIssue]

CHANGES = (
    Addition(keras.utils, "experimental", _experimental),
    Addition(tf_keras.utils, "experimental", _experimental),
)
