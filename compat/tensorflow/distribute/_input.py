"""Distributed datasets: each batch split over the replicas and sent to their devices ahead of the step."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from jax.sharding import Mesh

from tfdist_jax import PerReplica
from tfdist_jax._multiprocess._shared_input import (
    Shard,
    put_shard,
    shards_of_global_batches,
    shards_of_local_rounds,
    sizes_of,
)
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._input import num_rows, split_batch, split_rows
from tfdist_jax._sharding._mesh import num_replicas, replicas
from tfdist_jax._sharding._placement import local_replicas, processes, spans_processes
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_spec import PerReplicaSpec
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import per_replica_strings, strings_of_this_process
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data._elements import leaves, map_structure
from tfdist_jax.compat.tensorflow.data._failures import Failure, guarded, raising
from tfdist_jax.compat.tensorflow.data._step_rows import peek_first, rows_of
from tfdist_jax.compat.tensorflow.distribute._auto_shard import auto_sharded
from tfdist_jax.compat.tensorflow.distribute._iterator import (
    DistributedIterator,
    RoundRobin,
    prefetch_to_device,
    start_iteration,
)
from tfdist_jax.compat.tensorflow.distribute._options import InputOptions

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


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

    def __str__(self) -> str:
        """Describe it."""
        return (
            f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: {self.num_input_pipelines})"
        )

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the shard of one replica.

        Raises:
            ValueError: If the replicas' number does not divide `global_batch_size`.
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size!r} is not divisible by `num_replicas_in_sync` "
                f"{self.num_replicas_in_sync!r}."
            )
        return global_batch_size // self.num_replicas_in_sync


class _Distributed(abc.ABC):
    """Batches of a dataset for the replicas of a strategy."""

    is_own: bool
    """Whether this process's data is its own, rather than all processes'."""

    def __init__(self, strategy: "Strategy", dataset: Any, options: InputOptions | None = None) -> None:
        """Hand out the batches of `dataset`: ours, TensorFlow's or any iterable of batches."""
        self._strategy = strategy
        self._dataset = dataset
        self._mesh = strategy.native.mesh
        self.input_options = options or InputOptions()

    def __iter__(self) -> DistributedIterator:
        return DistributedIterator(self)

    @property
    def can_begin_again(self) -> bool:
        """Whether this process can begin an iteration anew without the others, and get the same elements."""
        return not isinstance(self._dataset, Iterator) and not spans_processes(self._mesh)

    def begin(self, seeds: Any = None) -> tuple[Iterator[Any], Any]:
        """Begin an iteration over the host's data of each step, and return it with the seeds that it has taken.

        Args:
            seeds: What an earlier iteration has taken, which is run again; as this has returned them.
        """
        batches, seeds = start_iteration(self._dataset, seeds)
        return self.rounds(batches), seeds

    def placed(self, rounds: Iterator[Any], note_rows: Callable[[int], None]) -> Iterator[Any]:
        """Bring the data of steps to the devices, a few steps ahead; `note_rows` is told the rows of the first one."""
        if spans_processes(self._mesh):
            shards = peek_first(self._shards(rounds), lambda shard: note_rows(sum(next(iter(shard[1]), ()))))
            # What other processes have is reached through devices alone.
            options = dataclasses.replace(self.input_options, experimental_fetch_to_device=True)
            return prefetch_to_device(shards, lambda shard: _place_shard(shard, self._strategy), options)
        noted = peek_first(rounds, lambda own: note_rows(self.own_rows(own)))
        return prefetch_to_device(noted, lambda batch: restore_dict_order(self._place(batch)), self.input_options)

    def shards(self) -> Iterator[Shard]:
        """Yield this process's part of each step's batch."""
        return self._shards(self.begin()[0])

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """Type of the batches."""

    @abc.abstractmethod
    def rounds(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield this process's data of each step, as NumPy arrays, from the dataset's batches."""

    @abc.abstractmethod
    def own_rows(self, own: Any) -> int:
        """Return how many rows this process's data of a step has."""

    @abc.abstractmethod
    def is_beyond_end(self, own: Any) -> bool:
        """Tell whether iterations end before this step, which only `get_next_as_optional` gives."""

    @abc.abstractmethod
    def _shards(self, rounds: Iterator[Any]) -> Iterator[Shard]:
        """Yield this process's part of each step's batch, where there are several processes."""

    @abc.abstractmethod
    def _place(self, batch: Any) -> Any:
        """Bring the data of a step to the devices, where there is one process."""


@final
class DistributedDataset(_Distributed):
    """The batches of a dataset, split over a strategy's replicas.

    Each step gives every replica ceil(n / replicas) rows of a batch of n until they are used up; replicas may get
    fewer rows or none at the end, no row is dropped.
    Where the dataset is this process's alone (`_auto_shard`), each process takes one batch after the other, in as many
    steps as there are processes.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/DistributedDataset
    """

    def __init__(self, strategy: "Strategy", dataset: Any, options: InputOptions | None = None) -> None:
        """Split the batches of `dataset`: ours, TensorFlow's or any iterable of batches."""
        if options is not None and options.per_replica:
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in `distribute_datasets_from_function`."
            )
        super().__init__(strategy, dataset, options)
        self._dataset, self.is_own = auto_sharded(dataset, processes(self._mesh))

    def rounds(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; or the parts of this process's own, one for each step."""
        whole = map(functools.partial(map_in_order, np.asarray), batches)
        if not self.is_own:
            return whole
        parts = len(processes(self._mesh))
        pieces = (piece for batch in whole for piece in _pieces(in_order(batch), parts))
        return (piece for piece in pieces if any(map(len, jax.tree.leaves(piece))))

    def own_rows(self, own: Any) -> int:
        """Return how many rows a batch, or a part of it, has."""
        return rows_of(own)

    def is_beyond_end(self, own: Any) -> bool:
        """Say no: every batch is a step."""
        return False

    def _shards(self, rounds: Iterator[Any]) -> Iterator[Shard]:
        if not self.is_own:
            return shards_of_global_batches(map(in_order, rounds), self._mesh)
        replicas = len(local_replicas(self._mesh))
        sized = ((piece, sizes_of(piece, replicas)) for piece in rounds)
        return shards_of_local_rounds(sized, self._mesh, like=in_order(self._dataset.element_spec))

    def _place(self, batch: Any) -> Any:
        return _place(in_order(batch), self._mesh)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the whole batches as NumPy arrays."""
        return (map_in_order(np.asarray, batch) for batch in start_iteration(self._dataset)[0])

    @property
    def element_spec(self) -> Any:
        """Type of the batches: a `TensorSpec` for each replica's part."""
        split = lambda spec: PerReplicaSpec.of_batch(spec, self._strategy.num_replicas_in_sync)
        return _spec_of_replicas(self._dataset.element_spec, split, self._strategy)

    @property
    def cardinality(self) -> int:
        """Number of batches: -1 if infinite, -2 if unknown, such as how many other processes have."""
        if self.is_own:
            return -2
        return int(self._dataset.cardinality()) if hasattr(self._dataset, "cardinality") else -2

    def __len__(self) -> int:
        return len(self._dataset)


@final
class DistributedPerReplicaDataset(_Distributed):
    """Batches that are made for one replica each: every step takes one for each replica.

    In the last step some replicas may have no batch left: they take part with no rows, and with zeros for scalars. In one
    process, if all shapes are known, iterations end before such a step, and `get_next_as_optional` gives it.
    """

    def __init__(self, strategy: "Strategy", dataset: Any, options: InputOptions | None = None) -> None:
        """Deal the batches of `dataset` out to the replicas in turn."""
        super().__init__(strategy, dataset, options)
        self.is_own = spans_processes(self._mesh)

    def rounds(self, batches: Iterator[Any]) -> Iterator[list[Any]]:
        """Return the batches of each step, one for each replica of this process; None where a replica has none left."""
        return raising(self._dealt(guarded(batches)))

    def _dealt(self, batches: Iterator[Any]) -> Iterator[list[Any] | Failure]:
        replicas = len(local_replicas(self._mesh))
        parts: list[Any] = []
        for batch in batches:
            if type(batch) is Failure:
                yield batch
                continue
            parts.append(None if batch is None else map_in_order(_array, batch))
            if len(parts) == replicas:
                yield parts
                parts = []
        if parts:
            yield parts + [None] * (replicas - len(parts))

    def own_rows(self, own: Any) -> int:
        """Return how many rows the batches of one step have together."""
        return sum(rows_of(part) for part in own if part is not None)

    def is_beyond_end(self, own: Any) -> bool:
        """Tell whether replicas lack a batch, and need not be waited for."""
        return any(part is None for part in own) and self._ends_with_first

    @functools.cached_property
    def _ends_with_first(self) -> bool:
        """Whether iterations end where the first replica has no batch left, rather than the last."""
        return not self.is_own and _has_known_shapes(self._dataset)

    def _shards(self, rounds: Iterator[Any]) -> Iterator[Shard]:
        """Yield the batches of one step for this process's replicas, joined, and the sizes of all replicas'."""
        sized = ((parts, _row_counts(parts)) for parts in map(_completed, rounds))
        joined = ((in_order(_joined(parts)), counts) for parts, counts in sized)
        return shards_of_local_rounds(joined, self._mesh, like=in_order(self._dataset.element_spec))

    def _place(self, batch: Any) -> Any:
        return _place_parts([in_order(part) for part in _completed(batch)], self._mesh)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the batches of one step joined, as NumPy arrays."""
        return (_joined(_completed(own)) for own in self.begin()[0] if not self.is_beyond_end(own))

    @property
    def element_spec(self) -> Any:
        """Type of the batches: a `TensorSpec` for each replica's."""
        repeated = lambda spec: PerReplicaSpec((spec,) * self._strategy.num_replicas_in_sync)
        return _spec_of_replicas(self._dataset.element_spec, repeated, self._strategy)

    @property
    def cardinality(self) -> int:
        """Number of steps: -1 if infinite, -2 if unknown, such as how many other processes have.

        TensorFlow gives the number of batches, of which each step takes several.
        """
        return -2 if self.is_own else self._steps(lambda dataset: int(dataset.cardinality()))

    def __len__(self) -> int:
        return self._steps(len)

    def _steps(self, count: Callable[[Any], int]) -> int:
        replicas = self._strategy.num_replicas_in_sync
        if isinstance(self._dataset, RoundRobin):
            counts = [count(dataset) for dataset in self._dataset.datasets]
        else:
            batches = count(self._dataset)
            counts = [len(range(i, batches, replicas)) for i in range(replicas)] if batches >= 0 else [batches]
        fewest, most = min(counts), max(counts)
        return fewest if fewest < 0 or fewest == most or self._ends_with_first else most


def _has_known_shapes(dataset: Any) -> bool:
    """Tell whether the shapes of all tensors in the dataset's elements are known."""
    specs = leaves(getattr(dataset, "element_spec", None))
    return all(hasattr(spec, "shape") and spec.shape.is_fully_defined() for spec in specs)


def _array(value: Any) -> np.ndarray:
    # NumPy would make one string an array of a type of its own, and cut off its zeros.
    return np.asarray(value, object if isinstance(value, bytes) else None)


def _completed(parts: Sequence[Any]) -> list[Any]:
    """Return the batches of a step with no rows, and zeros for scalars, where a replica has none left."""
    given = next(part for part in parts if part is not None)
    return [map_in_order(_nothing, given) if part is None else part for part in parts]


def _nothing(leaf: np.ndarray) -> np.ndarray:
    return leaf[:0] if leaf.ndim else np.full_like(leaf, b"" if _is_string(leaf) else 0)


def _spec_of_replicas(spec: Any, of_replicas: Callable[[TensorSpec], Any], strategy: "Strategy") -> Any:
    """Return what `of_replicas` makes of each tensor's spec; a single replica has plain tensors."""
    return map_structure(of_replicas, spec) if strategy.num_replicas_in_sync > 1 else spec


def distribute_from_function(
    strategy: "Strategy", dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
) -> DistributedPerReplicaDataset:
    """Make this process's dataset with `dataset_fn` and deal its batches out to the replicas.

    With one pipeline for each replica, `dataset_fn` makes a dataset for each of this process's, from which it gets its batches.
    """
    replicas = strategy.num_replicas_in_sync
    if options is not None:
        options.check_placement()
    if options is None or not options.per_replica:
        pipelines = processes(strategy.native.mesh)
        context = InputContext(len(pipelines), pipelines.index(jax.process_index()), replicas)
        return DistributedPerReplicaDataset(strategy, dataset_fn(context), options)
    datasets = [dataset_fn(InputContext(replicas, i, replicas)) for i in local_replicas(strategy.native.mesh)]
    return DistributedPerReplicaDataset(strategy, RoundRobin(datasets), options)


def _place(batch: Any, mesh: Mesh) -> Any:
    columns = jax.tree.leaves(batch)
    alike = len({np.shape(column)[:1] for column in columns}) == 1 and not any(map(_is_string, columns))
    with jax.enable_x64(True):  # TensorFlow's tensors keep 64-bit dtypes.
        split = split_batch(batch, mesh) if alike else jax.tree.map(functools.partial(_place_column, mesh), batch)
    return _unwrapped(split, mesh)


def _place_column(mesh: Mesh, column: Any) -> Any:
    """Split one column of a batch whose columns have different lengths, or are strings."""
    if not _is_string(column):
        return split_batch(column, mesh)
    return per_replica_strings([np.asarray(part).view(HostTensor) for part in split_rows(column, num_replicas(mesh))])


def _is_string(column: Any) -> bool:
    return np.asarray(column).dtype == object


def _place_shard(shard: Shard, strategy: "Strategy") -> Any:
    with jax.enable_x64(True):
        batch = put_shard(shard, strategy.native.mesh)
    return restore_dict_order(jax.tree.map(_with_strings, batch, is_leaf=is_per_replica))


def _with_strings(value: PerReplica) -> PerReplica:
    is_text = value.is_uneven and any(part is None for part in value.values)
    return strings_of_this_process(value.values) if is_text else value


def _pieces(batch: Any, count: int) -> list[Any]:
    """Cut the columns of a batch, which may have different lengths, into pieces of rows."""
    leaves, tree = jax.tree.flatten(batch)
    return [tree.unflatten(parts) for parts in zip(*(split_rows(leaf, count) for leaf in leaves), strict=True)]


def _row_counts(parts: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return how many rows each part has, for each column."""
    return [tuple(map(num_rows, column)) for column in zip(*map(jax.tree.leaves, parts), strict=True)]


def _joined(parts: Sequence[Any]) -> Any:
    return map_in_order(lambda *leaves: np.concatenate(leaves), *parts)


def _place_parts(parts: list[Any], mesh: Mesh) -> Any:
    with jax.enable_x64(True):
        placed = jax.tree.map(lambda *column: _place_parts_of_column(column, mesh), *parts)
    return _unwrapped(placed, mesh)


def _place_parts_of_column(parts: Sequence[Any], mesh: Mesh) -> Any:
    if _is_string(parts[0]):
        return per_replica_strings([np.asarray(part).view(HostTensor) for part in parts])
    if len({np.shape(part) for part in parts}) == 1 and np.ndim(parts[0]):
        return split_batch(np.concatenate(parts), mesh)
    placed = [jax.device_put(part, where) for part, where in zip(parts, replicas(mesh), strict=True)]
    return PerReplica.uneven(placed)


def _unwrapped(batch: Any, mesh: Mesh) -> Any:
    if num_replicas(mesh) > 1:
        return batch
    return jax.tree.map(lambda leaf: leaf.values[0], batch, is_leaf=is_per_replica)
