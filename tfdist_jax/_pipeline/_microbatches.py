"""The microbatches of a pipeline: what is computed of each, whatever number of rows it has."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._pipeline._stages import Mode, Stages
from tfdist_jax._sharding._entries import take
from tfdist_jax._sharding._keys import fold_keys


class Sums(Protocol):
    """How the results of microbatches are put together."""

    @property
    def keeps(self) -> bool:
        """Whether some results are the same whatever the rows."""
        ...

    def start(self, results: Any) -> Any:
        """Return that of none, from the shapes of one microbatch's."""
        ...

    def add(self, total: Any, results: Any, number: Any) -> Any:
        """Return the total with the results of a microbatch."""
        ...

    def of_none(self, results: Any) -> Any:
        """Return the results of a microbatch without rows, from those of any: what is the same for all has to be so here, too."""
        ...

    def add_seen(self, total: list[Any], seen: list[Any]) -> list[Any]:
        """Return the total of what a stage's layers have seen, with that of a microbatch."""
        ...

    def seen_by_none(self, seen: list[Any]) -> list[Any]:
        """Return what layers have seen of a microbatch without rows, from that of any."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Microbatches:
    """What the microbatches of a replica are computed with.

    Attributes:
        stages: The functions of stages, for each number of rows that some microbatch has.
        sizes: How many rows the microbatches of each replica have: `[replicas, microbatches]`.
        row_axes: The axes over which rows are split.
        sums: How the results of microbatches are put together.
        mode: How stages are run.
        data: The replica's rows, `[microbatches, rows, ...]`.
        extra: Other arguments, with the replica's own keys.
    """

    stages: Mapping[int, Stages]
    sizes: np.ndarray
    row_axes: tuple[str, ...]
    sums: Sums
    mode: Mode
    data: Any
    extra: Any

    @property
    def largest(self) -> Stages:
        """The functions for the most rows."""
        return self.stages[max(self.stages)]

    def choose(self, is_due: Any, is_any: Any, yes: Callable[..., Any], no: Callable[..., Any], *args: Any) -> Any:
        """Return `yes(*args)` if it is due, else `no(*args)`; where devices communicate, all compute it if it is due on any."""
        choose = self.mode.choose
        if not self.mode.is_uniform:
            return choose(is_due, yes, no, *args)
        return jax.lax.cond(is_any, lambda *args: choose(is_due, yes, no, *args), no, *args)

    def by_size(self, number: Any, name: str, like: Any, params: Any, *given: Any) -> Any:
        """Return what a function of stages gives for a microbatch, filled up to the shapes that it has for the most rows."""
        # One microbatch has the keys that one device would have.
        extra = fold_keys(self.extra, number) if self.sizes.shape[1] > 1 else self.extra
        rows = take(self.data, number)
        sizes = sorted({*self.sizes.flat})
        if len(sizes) == 1:
            return getattr(self.largest, name)(params, *given, rows, extra)

        def branch(size: int) -> Callable[..., Any]:
            if not size:
                return functools.partial(self._of_none, name, like, params, extra)
            stages = self.stages[size]
            shapes = [getattr(stages, kind, None) for kind in _GIVEN[name]]

            def compute(rows: Any, *given: Any) -> Any:
                rows = jax.tree.map(lambda leaf: leaf[:size], rows)
                cut = [
                    each if shape is None else cut_to(each, shape) for each, shape in zip(given, shapes, strict=True)
                ]
                return fill_up_to(getattr(stages, name)(params, *cut, rows, extra), like)

            return compute

        own = jnp.asarray(np.searchsorted(sizes, self.sizes))
        which = own[jax.lax.axis_index(self.row_axes), number]
        return jax.lax.switch(which, [branch(size) for size in sizes], rows, *given)

    def _of_none(self, name: str, like: Any, params: Any, extra: Any, _: Any, *given: Any) -> Any:
        """Return what a function of stages gives for a microbatch without rows, from what it gives for those of the first."""
        sums, none, rows = self.sums, zeros(like), take(self.data, 0)
        if name not in ("forward", "compute", "finish"):
            return none
        found = getattr(self.largest, name)(params, *given, rows, extra)
        if name == "compute":
            return sums.of_none(found)
        if name == "finish":
            return sums.of_none(found[0]), *none[1:]
        x, _, seen = found
        # Beside the rows, stages hand on what may be the same for all, such as a sum over the layers' parameters.
        return x if sums.keeps else none[0], none[1], sums.seen_by_none(seen)


_GIVEN = {
    "forward": ("stage", "x"),
    "compute": ("x",),
    "finish": ("x",),
    "backward": ("stage", "x", "saved", "floats"),
    "backward_first": ("floats",),
    "weight": ("stage", "kept"),
}
"""What functions of stages are given, by the names of what has the shapes of it."""


def zeros(shapes: Any) -> Any:
    """Return zeros of the shapes and types of a tree."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def cut_to(tree: Any, shapes: Any) -> Any:
    """Return the beginnings of arrays, of other shapes."""
    return jax.tree.map(lambda leaf, shape: leaf[tuple(slice(size) for size in shape.shape)], tree, shapes)


def fill_up_to(tree: Any, shapes: Any) -> Any:
    """Fill arrays up with zeros to other shapes.

    Raises:
        ValueError: If there is no room.
    """

    def fill(leaf: Any, shape: Any) -> Any:
        missing = [(0, wanted - has) for has, wanted in zip(leaf.shape, shape.shape, strict=True)]
        if leaf.dtype != shape.dtype or any(count < 0 for _, count in missing):
            raise ValueError(
                f"With fewer rows, what is kept of a microbatch has the shape {leaf.shape} and type {leaf.dtype} where it has "
                f"{shape.shape} and {shape.dtype} with more: it is another function. Give each replica a number of rows that "
                "the microbatches divide."
            )
        return jnp.pad(leaf, missing) if any(count for _, count in missing) else leaf

    return jax.tree.map(fill, tree, shapes)
