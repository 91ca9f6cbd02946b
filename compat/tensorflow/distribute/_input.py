"""Distributed datasets: each batch split over the replicas and sent to their devices ahead of the step."""

from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import numpy as np

from tfdist_jax import PerReplica
from tfdist_jax._input import ahead
from tfdist_jax._replica import is_per_replica, split_batch


@final
class InputContext:
    """What a `dataset_fn` is told: which input pipeline it makes, of how many, for how many replicas.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/InputContext
    """

    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        """Describe one input pipeline."""
        self.num_input_pipelines = num_input_pipelines
        self.input_pipeline_id = input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the share of one replica.

        Raises:
            ValueError: If the replicas' number does not divide `global_batch_size`.
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size!r} is not divisible by `num_replicas_in_sync` "
                f"{self.num_replicas_in_sync!r}."
            )
        return global_batch_size // self.num_replicas_in_sync


@final
class DistributedDataset:
    """The batches of a dataset, split over a strategy's replicas.

    Each step gives every replica ceil(n / replicas) rows of a batch of n until they are used up; replicas may get
    fewer rows or none at the end, no row is dropped.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/DistributedDataset
    """

    def __init__(self, strategy: Any, dataset: Any) -> None:
        """Split the batches of `dataset`: ours, TensorFlow's or any iterable of batches."""
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self) -> "DistributedIterator":
        place = lambda batch: _place(batch, self._strategy)
        return DistributedIterator(ahead(self.as_numpy_iterator(), place))

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the whole batches as NumPy arrays."""
        iterate = getattr(self._dataset, "as_numpy_iterator", None)
        batches = self._dataset if iterate is None else iterate()
        return (jax.tree.map(np.asarray, batch) for batch in batches)

    @property
    def element_spec(self) -> Any:
        """Type of the dataset's batches, before they are split."""
        return self._dataset.element_spec

    def cardinality(self) -> int:
        """Number of batches: -1 if infinite, -2 if unknown."""
        return int(self._dataset.cardinality()) if hasattr(self._dataset, "cardinality") else -2

    def __len__(self) -> int:
        return len(self._dataset)


@final
class DistributedPerReplicaDataset:
    """Batches that are made for one replica each: every step takes one for each replica."""

    def __init__(self, strategy: Any, dataset: Any) -> None:
        """Deal the batches of `dataset` out to the replicas in turn."""
        self._strategy = strategy
        self._dataset = dataset

    def __iter__(self) -> "DistributedIterator":
        place = lambda parts: _place_parts(parts, self._strategy)
        return DistributedIterator(ahead(self._rounds(), place))

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the batches of one step joined, as NumPy arrays."""
        return (jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts) for parts in self._rounds())

    def _rounds(self) -> Iterator[list[Any]]:
        parts: list[Any] = []
        for batch in self._dataset.as_numpy_iterator():
            parts.append(jax.tree.map(np.asarray, batch))
            if len(parts) == self._strategy.num_replicas_in_sync:
                yield parts
                parts = []
        if parts:
            # The last replicas have no batch left; they take part with no rows.
            nothing = jax.tree.map(lambda leaf: leaf[:0], parts[0])
            yield parts + [nothing] * (self._strategy.num_replicas_in_sync - len(parts))

    @property
    def element_spec(self) -> Any:
        """Type of one replica's batches."""
        return self._dataset.element_spec

    def cardinality(self) -> int:
        """Number of steps: -1 if infinite, -2 if unknown."""
        batches = int(self._dataset.cardinality())
        return batches if batches < 0 else -(-batches // self._strategy.num_replicas_in_sync)

    def __len__(self) -> int:
        return -(-len(self._dataset) // self._strategy.num_replicas_in_sync)


@final
class DistributedIterator:
    """Iterator over distributed batches."""

    def __init__(self, batches: Iterator[Any]) -> None:
        """Hand out `batches`."""
        self._batches = batches

    def __iter__(self) -> "DistributedIterator":
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def get_next(self) -> Any:
        """Return the next batch.

        Raises:
            tf.errors.OutOfRangeError: At the end of the data.
        """
        from tfdist_jax.compat.tensorflow._errors import OutOfRangeError

        try:
            return next(self._batches)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None


def distribute_from_function(strategy: Any, dataset_fn: Callable[[InputContext], Any]) -> DistributedPerReplicaDataset:
    """Make this process's dataset with `dataset_fn` and deal its batches out to the replicas."""
    return DistributedPerReplicaDataset(strategy, dataset_fn(InputContext(1, 0, strategy.num_replicas_in_sync)))


def _place(batch: Any, strategy: Any) -> Any:
    with jax.enable_x64(True):  # TensorFlow's tensors keep 64-bit dtypes.
        return _unwrapped(split_batch(batch, strategy.native.mesh), strategy)


def _place_parts(parts: list[Any], strategy: Any) -> Any:
    if len({tuple(np.shape(leaf) for leaf in jax.tree.leaves(part)) for part in parts}) == 1:
        return _place(jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts), strategy)
    with jax.enable_x64(True):
        placed = [jax.device_put(p, d) for p, d in zip(parts, strategy.native.mesh.devices.flat, strict=True)]
    return jax.tree.map(lambda *values: PerReplica.uneven(values), *placed)


def _unwrapped(batch: Any, strategy: Any) -> Any:
    if strategy.num_replicas_in_sync > 1:
        return batch
    return jax.tree.map(lambda leaf: leaf.values[0], batch, is_leaf=is_per_replica)
