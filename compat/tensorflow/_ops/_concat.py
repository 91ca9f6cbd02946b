"""Tensors put together and taken apart."""

import builtins
import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import (
    all_same_type,
    carries_texts,
    compute,
    invalid,
    keeps_static,
    static_axis,
    static_int,
    static_ints,
)
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_values import is_of_numpy
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@keeps_static
def concat(values: Any, axis: Any, name: str | None = "concat") -> Any:
    """Return tensors joined along an axis that they have.

    See https://www.tensorflow.org/api_docs/python/tf/concat.
    """
    tensors = all_same_type(values if isinstance(values, list | tuple) else [values])
    where = static_int(axis, "axis")
    if isinstance(tensors[0], HostTensor):
        return HostTensor.of(np.concatenate(tensors, where))
    return compute(_joined, tensors, where)


_joined = jax.jit(jnp.concatenate, static_argnums=1)  # JAX's own is Python around one operation.


@keeps_static
def stack(values: Any, axis: Any = 0, name: str | None = "stack") -> Any:
    """Return tensors of one shape joined along a new axis."""
    where = static_int(axis, "axis")
    if where == 0 and isinstance(values, list | tuple) and values and all(map(_is_of_numbers, values)):
        # By the rules for lists, as in TensorFlow for this axis alone.
        with contextlib.suppress(ValueError):
            return convert_to_tensor(values)
    tensors = all_same_type(values if isinstance(values, list | tuple) else list(convert_to_tensor(values)))
    if tensors and isinstance(tensors[0], HostTensor):
        return HostTensor.of(np.stack(tensors, where))
    return compute(jnp.stack, tensors, where)


def _is_of_numbers(value: Any) -> bool:
    """Whether a value consists of Python's and NumPy's numbers and texts, and of no tensor."""
    if isinstance(value, list | tuple):
        return all(map(_is_of_numbers, value))
    return is_of_numpy(value) or isinstance(value, bool | int | float | complex | str | bytes)


@carries_texts
@keeps_static
def unstack(value: Any, num: int | None = None, axis: Any = 0, name: str | None = "unstack") -> list[Any]:
    """Return the entries along an axis as a list of tensors; `num`, if given, says how many there are."""
    tensor, where = convert_to_tensor(value), static_int(axis, "axis")
    if not -tensor.ndim <= where < tensor.ndim:
        raise ValueError(f"Argument `axis` = {where} not in range [{-tensor.ndim}, {tensor.ndim})")
    entries = tensor.shape[where]
    if num not in (None, entries):
        raise invalid(f"Input shape axis {where} must equal {num}, got shape {tuple(tensor.shape)}.")
    return [jnp.squeeze(part, where) for part in jnp.split(tensor, entries, where)] if entries else []


@carries_texts
@keeps_static
def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str | None = "split"
) -> list[Any]:
    """Return a tensor cut along an axis into a number of equal parts, or into parts of given sizes.

    See https://www.tensorflow.org/api_docs/python/tf/split.
    """
    tensor = convert_to_tensor(value)
    where = static_axis(axis, tensor.ndim)
    entries = tensor.shape[where]
    if np.ndim(num_or_size_splits) == 0:
        parts = static_int(num_or_size_splits, "num_or_size_splits")
        if parts < 1 or entries % parts:
            raise invalid(f"Number of ways to split should evenly divide the split dimension, got {entries} / {parts}.")
        return jnp.split(tensor, parts, where)
    sizes = _sizes(static_ints(num_or_size_splits, "num_or_size_splits"), entries)
    return jnp.split(tensor, np.cumsum(sizes)[:-1].tolist(), where)


def _sizes(sizes: tuple[int, ...], entries: int) -> list[int]:
    """Replace a -1 by what is left."""
    rest = entries - sum(size for size in sizes if size != -1)
    found = [rest if size == -1 else size for size in sizes]
    if sum(found) != entries or min(found) < 0:
        raise invalid(f"Split sizes {list(sizes)} do not add up to the {entries} entries of the axis.")
    return found


def parallel_stack(values: Any, name: str | None = "parallel_stack") -> jax.Array:
    """Return tensors of one shape joined along a new first axis."""
    return stack(values)


@carries_texts
@keeps_static
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Return the part of a tensor from `begin` on with sizes `size`, -1 meaning all that is left.

    `begin` may be a tensor that is not known while a function is traced; `size` may not.
    """
    tensor, sizes = convert_to_tensor(input_), static_ints(size, "size")
    if isinstance(begin, Tracer):
        return compute(jax.lax.dynamic_slice, tensor, list(begin), sizes)
    starts = static_ints(begin, "begin")
    ends = [n if wanted == -1 else first + wanted for first, wanted, n in zip(starts, sizes, tensor.shape, strict=True)]
    if any(not 0 <= a <= b <= n for a, b, n in zip(starts, ends, tensor.shape, strict=True)):
        raise invalid(f"tf.slice begin={starts} size={sizes} goes beyond the shape {tuple(tensor.shape)}.")
    return jax.lax.slice(tensor, starts, ends)


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> jax.Array:
    """Return `input_[begin[0]:end[0]:strides[0], ...]`; bit i of a mask changes what entry i means."""
    starts, ends = static_ints(begin, "begin"), static_ints(end, "end")
    steps = (1,) * len(starts) if strides is None else static_ints(strides, "strides")
    key: list[Any] = []
    for i, (first, last, step) in enumerate(zip(starts, ends, steps, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            key.append(Ellipsis)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(first)
        else:
            key.append(builtins.slice(None if begin_mask & bit else first, None if end_mask & bit else last, step))
    return convert_to_tensor(input_)[tuple(key)]
