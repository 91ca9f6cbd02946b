"""Gathers and scatters in NumPy."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from jax import lax


@final
@dataclasses.dataclass(frozen=True)
class _Windows:
    """What each start takes of an array.

    Attributes:
        axes: Which axis each number of a start is of.
        batching: Pairs of an axis of the array and one of the starts: the n-th starts along the latter are at n along the former.
        sizes: How much is taken from a start on, along each axis.
        inner: The axes whose positions vary within what a start takes.
        mode: What is done about starts outside.
    """

    axes: Sequence[int]
    batching: Sequence[tuple[int, int]]
    sizes: Sequence[int]
    inner: Sequence[int]
    mode: Any

    def positions(self, shape: Sequence[int], indices: Any) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
        """Return positions along each axis, `[*starts, *inner]`, and which starts lie inside where others are left out.

        Args:
            shape: Of the array.
            indices: The starts, `[..., len(axes)]`.
        """
        indices = np.asarray(indices)
        if indices.dtype == np.uint64:
            indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
        starts = np.zeros((*indices.shape[:-1], len(shape)), np.int64)
        starts[..., list(self.axes)] = indices
        for axis, along in self.batching:
            numbers = np.arange(shape[axis])
            starts[..., axis] = numbers.reshape([-1 if other == along else 1 for other in range(indices.ndim - 1)])
        last = np.asarray(shape, np.int64) - np.asarray(self.sizes, np.int64)
        is_inside = None
        if self.mode == lax.GatherScatterMode.FILL_OR_DROP:
            is_inside = self._beside(np.all((starts >= 0) & (starts <= last), axis=-1))
        starts = np.clip(starts, 0, last)
        return tuple(self._beside(starts[..., axis]) + self._offsets(axis) for axis in range(len(shape))), is_inside

    def _beside(self, of_starts: np.ndarray) -> np.ndarray:
        return of_starts.reshape((*of_starts.shape, *[1] * len(self.inner)))

    def _offsets(self, axis: int) -> Any:
        if axis not in self.inner:
            return 0
        along = [1] * len(self.inner)
        along[self.inner.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis]).reshape(along)


def choose_gather(equation: Any) -> Callable[..., Any]:
    """Return how NumPy gathers `slice_sizes` from each start in `indices[..., axes]`."""
    params = equation.params
    numbers, sizes, mode = params["dimension_numbers"], params["slice_sizes"], params["mode"]
    out = equation.outvars[0].aval
    missing = _fill_value(out.dtype) if params["fill_value"] is None else params["fill_value"]
    batching = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    single = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    inner = [axis for axis in range(len(sizes)) if axis not in single]
    windows = _Windows(numbers.start_index_map, batching, sizes, inner, mode)
    places = [axis for axis in range(out.ndim) if axis not in numbers.offset_dims] + list(numbers.offset_dims)

    def compute(x: Any, indices: Any) -> Any:
        where, is_inside = windows.positions(np.shape(x), indices)
        result = x[where]
        if is_inside is not None:
            result = np.where(is_inside, result, np.asarray(missing, out.dtype))
        return np.moveaxis(result, range(out.ndim), places)

    return compute


def choose_scatter(equation: Any) -> Callable[..., Any]:
    """Return how NumPy writes updates; as `choose_scatter_add`."""

    def put(result: Any, where: Any, updates: Any) -> None:
        result[where] = updates

    return _choose_scatter(equation, put)


def choose_scatter_add(equation: Any) -> Callable[..., Any]:
    """Return how NumPy adds updates, each after the one before."""
    return _choose_scatter(equation, np.add.at)


def _choose_scatter(equation: Any, write: Callable[[Any, Any, Any], None]) -> Callable[..., Any]:
    params = equation.params
    numbers, mode = params["dimension_numbers"], params["mode"]
    x, _, updates = (var.aval for var in equation.invars)
    batching = list(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    single = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    inner = [axis for axis in range(x.ndim) if axis not in single]
    sizes = [1] * x.ndim
    for axis, in_updates in zip(inner, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[in_updates]
    outer = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    order = (*outer, *numbers.update_window_dims)
    windows = _Windows(numbers.scatter_dims_to_operand_dims, batching, sizes, inner, mode)

    def compute(x: Any, indices: Any, updates: Any) -> Any:
        where, is_inside = windows.positions(np.shape(x), indices)
        result, updates = np.array(x), np.transpose(updates, order)
        if is_inside is not None:
            is_inside = np.broadcast_to(is_inside, updates.shape)
            where = tuple(np.broadcast_to(positions, updates.shape)[is_inside] for positions in where)
            updates = updates[is_inside]
        write(result, where, updates)
        return result

    return compute


def _fill_value(dtype: np.dtype) -> Any:
    """Return what JAX fills in for what lies outside."""
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min
