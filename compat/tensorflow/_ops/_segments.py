"""Reductions over groups of entries that segment numbers define."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, require, static_int
from tfdist_jax.compat.tensorflow._ops._selection import gather, known
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/math"


def _counts(ids: jax.Array, data: jax.Array, number: int) -> jax.Array:
    """Return the segments' sizes, at least 1, shaped to divide the segments' sums by."""
    counts = jnp.maximum(jax.ops.segment_sum(jnp.ones(ids.shape, data.dtype), ids, number), 1)
    return counts.reshape(counts.shape + (1,) * (data.ndim - ids.ndim))


def _mean(data: jax.Array, ids: jax.Array, number: int) -> jax.Array:
    return jax.ops.segment_sum(data, ids, number) / _counts(ids, data, number)


def _sqrt_n(data: jax.Array, ids: jax.Array, number: int) -> jax.Array:
    return jax.ops.segment_sum(data, ids, number) / jnp.sqrt(_counts(ids, data, number))


def _extreme(how: str, empty: str) -> Callable[..., Any]:
    """Reduce to "max" or "min"; empty segments get the type's smallest or largest finite number, as in TensorFlow."""

    def reduce(data: jax.Array, ids: jax.Array, number: int) -> jax.Array:
        # Not `jax.ops.segment_max`: it cuts 64-bit integers while JAX's global 64-bit switch is off.
        dtype = as_dtype(data.dtype)
        nothing = convert_to_tensor(dtype.as_numpy_dtype(getattr(dtype, empty)), dtype)
        start = jnp.broadcast_to(nothing, (number, *data.shape[1:]))
        return getattr(start.at[ids], how)(data, mode="drop")

    return reduce


_REDUCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "sum": (jax.ops.segment_sum, "sums"),
    "prod": (jax.ops.segment_prod, "products"),
    "max": (_extreme("max", "min"), "largest elements"),
    "min": (_extreme("min", "max"), "smallest elements"),
    "mean": (_mean, "means"),
    "sqrt_n": (_sqrt_n, "sums divided by the square root of the number"),
}


def _unsorted(kind: str) -> Callable[..., Any]:
    function, what = _REDUCTIONS[kind]

    def operation(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> jax.Array:
        data, ids = convert_to_tensor(data), require(convert_to_tensor(segment_ids), "i", operation.__name__)
        # Negative numbers belong to no segment.
        number = static_int(num_segments, "num_segments")
        if tuple(ids.shape) != tuple(data.shape[: ids.ndim]):
            raise invalid(f"data.shape = {data.shape} does not start with segment_ids.shape = {ids.shape}")
        ids = jnp.where(ids < 0, number, ids).reshape(-1)
        rows = data.reshape(ids.shape[0], *data.shape[np.ndim(segment_ids) :])
        return compute(function, rows, ids, number)

    operation.__name__ = operation.__qualname__ = f"unsorted_segment_{kind}"
    operation.__doc__ = f"Return the {what} of each segment.\n\n    See {_PAGE}/unsorted_segment_{kind}.\n    "
    return operation


def _sorted(kind: str) -> Callable[..., Any]:
    function, what = _REDUCTIONS[kind]

    def operation(data: Any, segment_ids: Any, name: str | None = None) -> jax.Array:
        data, ids = convert_to_tensor(data), require(convert_to_tensor(segment_ids), "i", operation.__name__)
        if data.shape[:1] != ids.shape:
            raise invalid(
                "segment_ids should be the same size as dimension 0 of input, got segment_ids.shape = "
                f"{tuple(ids.shape)} and data.shape = {tuple(data.shape)}."
            )
        numbers = known(ids, f"tf.math.{operation.__name__}")
        if numbers.min(initial=0) < 0:
            raise invalid(f"segment ids must be >= 0, got {numbers.tolist()}.")
        if (np.diff(numbers) < 0).any():
            raise invalid(f"segment ids are not increasing: {numbers.tolist()}. Use `tf.math.unsorted_segment_{kind}`.")
        number = int(numbers.max(initial=-1)) + 1
        result = compute(function, data, ids, number)
        if kind not in ("max", "min", "prod"):
            return result
        empty = jnp.zeros(number, bool).at[ids].set(True).reshape((-1,) + (1,) * (result.ndim - 1))
        return jnp.where(empty, result, jnp.full_like(result, 1 if kind == "prod" else 0))

    operation.__name__ = operation.__qualname__ = f"segment_{kind}"
    operation.__doc__ = (
        f"Return the {what} of each segment; the numbers are sorted and known while a function is traced.\n\n"
        f"    See {_PAGE}/segment_{kind}.\n    "
    )
    return operation


def _of_rows(kind: str) -> Callable[..., Any]:
    """Make the reduction of rows that are looked up."""
    unsorted, in_order = _unsorted(kind), _sorted(kind)

    def operation(
        data: Any,
        indices: Any,
        segment_ids: Any,
        num_segments: Any = None,
        name: str | None = None,
        sparse_gradient: bool = False,
    ) -> jax.Array:
        rows = gather(data, indices)
        return in_order(rows, segment_ids) if num_segments is None else unsorted(rows, segment_ids, num_segments)

    operation.__name__ = operation.__qualname__ = f"segment_{kind}"
    operation.__doc__ = (
        f"Return the {_REDUCTIONS[kind][1]} of each segment of the rows of `data` at `indices`.\n\n"
        f"    See https://www.tensorflow.org/api_docs/python/tf/sparse/segment_{kind}.\n    "
    )
    return operation


segment_sum = _sorted("sum")
segment_prod = _sorted("prod")
segment_max = _sorted("max")
segment_min = _sorted("min")
segment_mean = _sorted("mean")
unsorted_segment_sum = _unsorted("sum")
unsorted_segment_prod = _unsorted("prod")
unsorted_segment_max = _unsorted("max")
unsorted_segment_min = _unsorted("min")
unsorted_segment_mean = _unsorted("mean")
unsorted_segment_sqrt_n = _unsorted("sqrt_n")
sparse_segment_mean = _of_rows("mean")
sparse_segment_sqrt_n = _of_rows("sqrt_n")
sparse_segment_sum = _of_rows("sum")
