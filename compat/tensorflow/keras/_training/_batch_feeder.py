"""Batches of a `fit` on their way to the replicas: split, put together for several steps, sent ahead."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.experimental.sparse import JAXSparse
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax import DATA, PerReplica
from tfdist_jax._multiprocess._shared_input import equal_sizes, shards_of_global_batches
from tfdist_jax._sharding._input import prefetch
from tfdist_jax._sharding._placement import put_own, spans_processes
from tfdist_jax.compat.tensorflow.keras._training._adapters import OwnRows
from tfdist_jax.compat.tensorflow.keras._training._steps import Sizes

SPLIT_STEPS = PartitionSpec(None, DATA)
"""How batches of several steps, `[steps, rows, ...]`, lie on the devices."""

Run = tuple[Sizes, Any]
"""Batches that one program takes, `[steps, rows, ...]`, and how each of them is split."""


@final
class BatchFeeder:
    """Brings host batches to the replicas: on accelerators ahead of the steps that use them.

    On CPU (`ahead=0`) batches stay NumPy arrays until their step, which takes each device's rows from them.
    """

    def __init__(
        self,
        mesh: Mesh,
        steps_per_execution: int,
        most: int,
        *,
        ahead: int,
        is_bound: bool = True,
        prepare: Callable[[Any], Any] = lambda batch: batch,
    ) -> None:
        """Feed the devices of `mesh`.

        Args:
            mesh: The mesh of the strategy.
            steps_per_execution: How many batches a call of Keras's loop takes.
            most: How many of them one program takes.
            ahead: How many calls' transfers are started early.
            is_bound: Whether they go to the mesh, rather than where JAX puts what is bound to no device.
            prepare: Makes what steps take of each batch, on the host.
        """
        self._prepare = prepare
        self._steps, self._most = steps_per_execution, most
        self._mesh = mesh
        split = NamedSharding(mesh, SPLIT_STEPS)
        transfer = (lambda batches: put_own(batches, split)) if is_bound else jax.device_put
        placed = lambda runs: [(sizes, transfer(batches)) for sizes, batches in runs]
        # What other processes have is reached through devices alone.
        self._place = placed if ahead or spans_processes(mesh) else lambda runs: runs
        self._depth = ahead
        self._source: Any = None
        self._executions: Iterator[list[Run]] = iter(())

    def __call__(self, source: Iterable[Any]) -> Iterator[list[Run]]:
        """Return what is run in each call of Keras's loop; calls with the same source go on where it is."""
        if source is not self._source:
            self._source = source
            self._executions = prefetch(self._grouped(self._split(source)), self._place, depth=self._depth)
        return self._executions

    def _split(self, source: Iterable[Any]) -> Iterator[tuple[Any, Sizes]]:
        # A process may have no batch of its own at all, but then none has: shards of nothing come all the same.
        first = next(source := map(self._prepare, source), None)
        rest = () if first is None else itertools.chain([first], source)
        has_own_rows = isinstance(next(iter(jax.tree.leaves(first)), None), OwnRows)
        del first
        if has_own_rows:
            yield from ((_on_host(batch), jax.tree.leaves(batch)[0].sizes) for batch in rest)
        else:
            shards = shards_of_global_batches(map(_on_host, rest), self._mesh)
            yield from ((batch, equal_sizes(sizes)) for batch, sizes in shards)

    def _grouped(self, batches: Iterator[tuple[Any, Sizes]]) -> Iterator[list[Run]]:
        if self._steps == 1:
            yield from ([(sizes, stacked([data]))] for data, sizes in batches)
        while taken := list(itertools.islice(batches, self._steps)):
            yield list(_runs(taken, self._steps, self._most))


def stacked(batches: Sequence[Any]) -> Any:
    """Join host batches of equal shapes to `[steps, rows, ...]`: one transfer for all."""
    if len(batches) == 1:
        return jax.tree.map(lambda leaf: leaf[None], batches[0])
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)


def _on_host(batch: Any) -> Any:
    """Return a batch as NumPy arrays."""
    return jax.tree.map(_array, batch, is_leaf=lambda leaf: isinstance(leaf, JAXSparse | PerReplica))


def _array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, PerReplica):
        return np.concatenate([np.asarray(value) for value in leaf.values])
    # The parts of a sparse array have no rows to split.
    return np.asarray(leaf.todense() if isinstance(leaf, JAXSparse) else leaf)


def _runs(batches: Sequence[tuple[Any, Sizes]], steps: int, most: int) -> Iterator[Run]:
    """Group batches that one program can take: neighbours of equal shapes."""
    for (sizes, *_), group in itertools.groupby(batches, key=_shapes):
        alike = [data for data, _ in group]
        start = 0
        for length in _run_lengths(len(alike), steps, most):
            yield sizes, stacked(alike[start : start + length])
            start += length


def _run_lengths(count: int, steps: int, most: int) -> list[int]:
    """Return in which runs to take `count` batches, with few different lengths: each is a program to compile."""
    parts = -(-steps // most)
    if count == steps:
        return [steps * (i + 1) // parts - steps * i // parts for i in range(parts)]
    length = -(-steps // parts)
    return [length] * (count // length) + [1] * (count % length)


def _shapes(batch: tuple[Any, Sizes]) -> Any:
    data, sizes = batch
    leaves, tree = jax.tree.flatten(data)
    return sizes, tree, [(leaf.shape, leaf.dtype) for leaf in leaves]
