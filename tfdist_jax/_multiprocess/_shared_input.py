"""Batches of several processes: which rows each of them gives its replicas, agreed one step ahead."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._cluster import Background, Exchange, waiting
from tfdist_jax._sharding._input import PaddedBatch, add_mask, num_rows, pad_to_equal, prefetch, split_sizes
from tfdist_jax._sharding._mesh import SEQUENCE, batch_spec, num_replicas, replica_groups, replicas
from tfdist_jax._sharding._placement import batch_shardings, local, local_replicas, put_own, spans_processes
from tfdist_jax._sharding._values import PerReplica

Sizes = tuple[int, ...]
"""How many rows each replica of every process has."""

Shard = tuple[Any, list[Sizes]]
"""The rows of this process's replicas, `[replicas * p, ...]`, filled up with zeros to `p` for each, where `p` is the most
that any replica has; and how many of them are real, for each array. Arrays of objects, such as strings, are not filled up."""


def shards_of_global_batches(batches: Iterable[Any], mesh: Mesh) -> Iterator[Shard]:
    """Yield this process's shard of batches that all processes have: the rows of its replicas, by `split_sizes`.

    Where there is one process, it is asked for no batch before its turn.

    Args:
        batches: Pytrees of host arrays `[rows, ...]`, which may have different numbers of rows.
        mesh: The replicas.

    Raises:
        ValueError: If the processes' batches differ in structure or size; it names a process that differs.
    """
    if not spans_processes(mesh):
        padded = (pad_to_equal(batch, num_replicas(mesh)) for batch in batches)
        yield from ((batch, [sizes]) for batch, sizes in padded)
        return
    _check_shared_replicas(mesh)
    mine = local_replicas(mesh)
    rounds = ((batch, sizes_of(batch, num_replicas(mesh))) for batch in batches)
    with contextlib.closing(_Ahead(rounds)) as steps:
        for batch, told in steps:
            _check(told, own=False)
            everyone = [tuple(sizes) for sizes in told[0]["sizes"]]
            leaves, tree = jax.tree.flatten(batch)
            own = [_blocks(leaf, sizes, mine) for leaf, sizes in zip(leaves, everyone, strict=True)]
            yield (
                tree.unflatten(map(_padded, own, [[sizes[i] for i in mine] for sizes in everyone], everyone)),
                everyone,
            )


def _check_shared_replicas(mesh: Mesh) -> None:
    """Require that processes have the same replicas or others, and all tokens of their rows.

    Raises:
        NotImplementedError: If they do not.
    """
    if SEQUENCE in mesh.shape:
        replicas(mesh)
    owners = {frozenset(device.process_index for device in group) for group in replica_groups(mesh)}
    for one, other in itertools.combinations(owners, 2):
        if not one.isdisjoint(other):
            raise NotImplementedError(
                f"Some replicas lie on devices of the processes {sorted(one)}, and others on those of {sorted(other)}: processes have to "
                "share all of their replicas, or none. Give each batch to `strategy.put`, or let other axes go over the processes."
            )


def _blocks(rows: Any, sizes: Sizes, replicas: Sequence[int]) -> Any:
    """Return the rows of some replicas, which have the sizes told of them."""
    ends = list(itertools.accumulate(sizes))
    first, last = replicas[0], replicas[-1]
    if len(replicas) == last - first + 1:
        return rows[ends[first] - sizes[first] : ends[last]]
    # The replicas of one process need not lie next to each other: on TPU slices a mesh follows the wires.
    return np.concatenate([rows[ends[i] - sizes[i] : ends[i]] for i in replicas])


def sizes_of(batch: Any, parts: int) -> list[Sizes]:
    """Return how the rows of each array are shared out over a number of parts, by `split_sizes`."""
    return [split_sizes(num_rows(leaf), parts) for leaf in jax.tree.leaves(batch)]


def equal_sizes(sizes: Sequence[Sizes]) -> Sizes:
    """Return the numbers of rows of a batch in which all arrays have the same.

    Raises:
        ValueError: If they have not.
    """
    if len(set(sizes)) != 1:
        raise ValueError(
            f"A batch needs one or more arrays with the same number of rows, got those of the replicas: {sizes}. Put the "
            "examples on the first axis of every array."
        )
    return sizes[0]


def shards_of_local_rounds(rounds: Iterable[tuple[Any, Sequence[Sizes]]], mesh: Mesh, *, like: Any) -> Iterator[Shard]:
    """Yield batches that are this process's alone, each part of a step that all processes take.

    A process whose batches have ended gives no rows until all have ended.

    Args:
        rounds: Pytrees of host arrays `[rows, ...]`, and how many rows of each array each of this process's replicas gets.
        mesh: The replicas, as many for each process.
        like: Anything of the batches' structure, for a process that may have none.

    Raises:
        ValueError: If the processes' batches differ in structure; it names a process that differs.
    """
    nothing = [(0,) * len(local_replicas(mesh))] * len(jax.tree.leaves(like))
    with contextlib.closing(_Ahead(rounds)) as steps:
        for batch, told in steps:
            _check(told, own=True)
            sizes = [one["sizes"] if one else nothing for one in told]
            everyone = [_by_replica(column, mesh) for column in zip(*sizes, strict=True)]
            own = told[jax.process_index()]
            leaves, tree = jax.tree.flatten(_rows_of_none(told, like) if own is None else batch)
            yield tree.unflatten(map(_padded, leaves, sizes[jax.process_index()], everyone)), everyone


def _by_replica(sizes: Sequence[Sequence[int]], mesh: Mesh) -> Sizes:
    """Return the sizes that the processes have told of their own replicas in the order of all replicas."""
    told = [iter(own) for own in sizes]
    return tuple(next(told[device.process_index]) for device in replicas(mesh))


def shards_of_local_batches(batches: Iterable[Any], mesh: Mesh) -> Iterator[Shard]:
    """Yield batches that are this process's alone, as `shards_of_local_rounds`, each split over its replicas by `split_sizes`.

    Raises:
        ValueError: If this process has no batch at all, so that it does not know what a batch looks like.
        NotImplementedError: If devices of several processes share the rows of a replica.
    """
    if not spans_processes(mesh):
        return shards_of_global_batches(batches, mesh)
    replicas(mesh)  # Each replica's rows come from one process.
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        raise ValueError(
            "This process has no batches of its own, so it cannot take part in the others' steps: it does not know what "
            "their batches look like. Give it one without rows, such as {'x': np.zeros((0, 784))}."
        )
    count = len(local_replicas(mesh))
    rounds = ((batch, sizes_of(batch, count)) for batch in itertools.chain([first], batches) if num_rows(batch))
    return shards_of_local_rounds(rounds, mesh, like=first)


def put_shard_rows(shard: Shard, mesh: Mesh, mask: str | None = None) -> Any:
    """Bring a shard to the devices: arrays over all of them, in a `PaddedBatch` if replicas differ in their rows.

    Args:
        shard: The rows of this process's replicas.
        mesh: The replicas.
        mask: Where in the batch to put which rows are real, instead of making a `PaddedBatch`.

    Raises:
        ValueError: If the arrays of a batch have different numbers of rows.
    """
    data, everyone = shard
    sizes = equal_sizes(everyone)
    if mask is not None:
        data, sizes = (
            add_mask(data, mask, [sizes[i] for i in local_replicas(mesh)], max(sizes)),
            (max(sizes),) * len(sizes),
        )
    rows = put_own(data, batch_shardings(data, mesh))
    return rows if len(set(sizes)) == 1 else PaddedBatch(rows, sizes)


def put_shard(shard: Shard, mesh: Mesh) -> Any:
    """Bring a shard to the devices.

    Returns:
        The tree of the batch with a `PerReplica` for each array. If the replicas have different numbers of rows, every
        process gets copies of all. Arrays of objects stay on the host: other processes' parts are None.
    """
    data, everyone = shard
    leaves, tree = jax.tree.flatten(data)
    return tree.unflatten(_placed(leaf, sizes, mesh) for leaf, sizes in zip(leaves, everyone, strict=True))


def _placed(rows: np.ndarray, sizes: Sizes, mesh: Mesh) -> PerReplica:
    if rows.dtype == object:
        mine = local_replicas(mesh)
        ends = list(itertools.accumulate((sizes[i] for i in mine), initial=0))
        own = {i: rows[start:end] for i, (start, end) in zip(mine, itertools.pairwise(ends), strict=True)}
        return PerReplica.uneven([own.get(i) for i in range(len(sizes))])
    array = put_own(rows, NamedSharding(mesh, batch_spec(mesh)))
    if len(set(sizes)) == 1:
        return PerReplica(array, len(sizes), is_rows=True)
    blocks = [slice(i * max(sizes), i * max(sizes) + size) for i, size in enumerate(sizes)]
    whole = local(array)
    return PerReplica.uneven([whole[block] for block in blocks])


@final
class _Ahead:
    """The batches of this process and what all say of theirs, asked one batch ahead; until nobody has any."""

    def __init__(self, rounds: Iterable[tuple[Any, Sequence[Sizes]]]) -> None:
        self._rounds = rounds
        self._exchange = Exchange("the next batch")
        self._background = Background()

    def __iter__(self) -> Iterator[tuple[Any, list[Any]]]:
        for batch, told in prefetch(self._said(), lambda item: item, depth=1):
            with waiting("the next batch", self._exchange):
                everything = told.result()
            if not any(everything):
                return
            yield batch, everything

    def _said(self) -> Iterator[tuple[Any, Future[list[Any]]]]:
        for batch, sizes in self._rounds:
            leaves, tree = jax.tree.flatten(batch)
            types = [[list(leaf.shape[1:]), str(leaf.dtype)] for leaf in leaves]
            yield batch, self._say({"sizes": list(sizes), "types": types, "structure": str(tree)})
        while True:
            yield None, self._say(None)

    def _say(self, value: Any) -> Future[list[Any]]:
        return self._background.submit(lambda: self._exchange.allgather(value))

    def close(self) -> None:
        self._background.end()


def _check(told: Sequence[Any], *, own: bool) -> None:
    """Compare what processes say of their batches: that they have one, and its size, only if all should have the same."""
    fields = ("structure", "types") if own else ("structure", "types", "sizes")
    hint = "Processes may have batches of different sizes, but of one structure." if own else _SAME
    process, first = next((i, one) for i, one in enumerate(told) if one)
    for i, one in enumerate(told):
        if one is None and not own:
            raise ValueError(f"Process {i} has no more batches where process {process} has one. {hint}")
        for field in fields:
            if one and one[field] != first[field]:
                raise ValueError(
                    f"The batches of processes {process} and {i} differ in their {field}: {first[field]} and {one[field]}. "
                    f"{hint}"
                )


_SAME = (
    "All processes need the same batches, of which each takes its rows: give random orders a seed. If the processes have "
    "different data, use `distribute_datasets_from_function`, a dataset with AutoShardPolicy.OFF, or `prefetch(own=True)`."
)


def _rows_of_none(told: Sequence[Any], like: Any) -> Any:
    """Return a batch without rows, as others have theirs."""
    types = next(one["types"] for one in told if one)
    leaves = [np.zeros((0, *shape), dtype) for shape, dtype in types]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _padded(rows: np.ndarray, sizes: Sequence[int], everyone: Sequence[int]) -> np.ndarray:
    """Give each replica of this process as many rows as any replica has: its own, and zeros."""
    length = max(everyone)
    if rows.dtype == object or all(size == length for size in sizes):
        return rows
    padded = np.zeros((len(sizes), length, *rows.shape[1:]), rows.dtype)
    start = 0
    for i, size in enumerate(sizes):
        padded[i, :size] = rows[start : start + size]
        start += size
    return padded.reshape(-1, *rows.shape[1:])
