"""Pooling and its gradient from strided parts of the array, one for each position in the window."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from tfdist_jax._cpu_kernels._windows import interleave, pad, positions, take

# Programs grow with the window; beyond this, XLA's loop is used. So it is for few positions, for which XLA has no loop.
_MAX_POSITIONS = 36
_MIN_POSITIONS = 5
_EXACT_SUMS = (np.float32, np.float64)


class _Windows(NamedTuple):
    """The windows of an operation: their size, how far they lie apart, and what lies around the array, by axis."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, params: dict[str, Any]) -> "_Windows":
        """Return the windows that a primitive's parameters tell of."""
        return cls(params["window_dimensions"], params["window_strides"], params["padding"])

    @property
    def are_small(self) -> bool:
        return math.prod(self.size) <= _MAX_POSITIONS

    @property
    def overlap(self) -> bool:
        return any(size > stride for size, stride in zip(self.size, self.strides, strict=True))

    def count_along(self, shape: Sequence[int]) -> list[int]:
        """Return how many there are along each axis of a padded array."""
        axes = zip(shape, self.size, self.strides, strict=True)
        return [(length - size) // stride + 1 for length, size, stride in axes]


def choose_gradient(
    source: ShapedArray, operand: ShapedArray, *, select_prim: Primitive, **params: Any
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Choose for `select_and_scatter_add`, the gradient of the largest (`ge`) or smallest (`le`) element of each window."""
    windows, dtype = _Windows.of(params), operand.dtype
    is_real = jnp.issubdtype(dtype, np.integer) or jnp.issubdtype(dtype, np.floating)
    # Gradients of overlapping windows are added, which XLA does for 16 bits with more precision between additions.
    if not windows.are_small or not is_real or (windows.overlap and dtype not in _EXACT_SUMS):
        return None
    identity = _lowest(dtype) if select_prim is lax.ge_p else _highest(dtype)
    return functools.partial(_scatter_to_selected, windows=windows, select=select_prim.bind, identity=identity)


def choose_max(operand: ShapedArray, **params: Any) -> Callable[[jax.Array], jax.Array] | None:
    """Choose for `reduce_window_max`."""
    return _choose_fold(operand, lax.max, _lowest(operand.dtype), params)


def choose_min(operand: ShapedArray, **params: Any) -> Callable[[jax.Array], jax.Array] | None:
    """Choose for `reduce_window_min`."""
    return _choose_fold(operand, lax.min, _highest(operand.dtype), params)


def choose_sum(operand: ShapedArray, **params: Any) -> Callable[[jax.Array], jax.Array] | None:
    """Choose for `reduce_window_sum`."""
    return _choose_fold(operand, lax.add, 0, params)


def _choose_fold(
    operand: ShapedArray, fold: Callable[..., jax.Array], identity: float, params: dict[str, Any]
) -> Callable[[jax.Array], jax.Array] | None:
    windows = _Windows.of(params)
    is_dilated = {*params["base_dilation"], *params["window_dilation"]} != {1}
    # XLA is as fast where each element is in one window.
    is_slow = windows.overlap and windows.are_small and math.prod(windows.size) >= _MIN_POSITIONS
    if not is_slow or is_dilated or operand.dtype not in _EXACT_SUMS:
        return None
    return functools.partial(_fold_windows, windows=windows, fold=fold, identity=identity)


def _lowest(dtype: Any) -> float:
    return -np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> float:
    return np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).max


def _fold_windows(
    operand: jax.Array, *, windows: _Windows, fold: Callable[..., jax.Array], identity: float
) -> jax.Array:
    padded = pad(operand, windows.padding, identity)
    counts = windows.count_along(padded.shape)
    return functools.reduce(fold, (take(padded, offset, counts, windows.strides) for offset in positions(windows.size)))


def _scatter_to_selected(
    source: jax.Array, operand: jax.Array, *, windows: _Windows, select: Callable[..., jax.Array], identity: float
) -> jax.Array:
    padded = pad(operand, windows.padding, identity)
    chosen = _select(padded, source.shape, windows, select)
    # Element `i * strides + phase` gets gradients of the windows that have it at an offset of that phase.
    sizes = [-(-size // stride) for size, stride in zip(padded.shape, windows.strides, strict=True)]
    phases = {phase: lax.full(sizes, 0, source.dtype) for phase in positions(windows.strides)}
    for number, offset in reversed([*enumerate(positions(windows.size))]):  # As XLA adds: of the first window first.
        gradient = lax.select(lax.eq(chosen, np.int8(number)), source, lax.full_like(source, 0))
        shifts = [at // stride for at, stride in zip(offset, windows.strides, strict=True)]
        moved = pad(gradient, [(n, size - n - m) for n, size, m in zip(shifts, sizes, source.shape, strict=True)])
        phase = tuple(at % stride for at, stride in zip(offset, windows.strides, strict=True))
        phases[phase] = lax.add(phases[phase], moved)
    whole = interleave([*phases.values()], windows.strides)
    return take(whole, [low for low, _ in windows.padding], operand.shape, [1] * operand.ndim)


def _select(padded: jax.Array, shape: Sequence[int], windows: _Windows, select: Callable[..., jax.Array]) -> jax.Array:
    """Return the number of the position that each window selects.

    As XLA goes through a window, what is selected so far stays if `select` says so, which for NaN it never does.
    """
    first, *others = positions(windows.size)
    best, chosen = take(padded, first, shape, windows.strides), lax.full(shape, 0, np.int8)
    for number, offset in enumerate(others, 1):
        part = take(padded, offset, shape, windows.strides)
        stays = select(best, part)
        best = lax.select(stays, best, part)
        chosen = lax.select(stays, chosen, lax.full_like(chosen, number))
    return chosen
