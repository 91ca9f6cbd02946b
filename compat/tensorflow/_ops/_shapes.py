"""Shapes: asking for them, and giving tensors new ones."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import (
    axes,
    carries_texts,
    compute,
    invalid,
    keeps_static,
    static_axis,
    static_int,
    static_ints,
)
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def shape(input: Any, out_type: Any = None, name: str | None = None) -> HostTensor:
    """Return the sizes of a tensor as a tensor, int32 by default.

    It is a host tensor: its numbers are known while a function is traced.
    See https://www.tensorflow.org/api_docs/python/tf/shape.
    """
    return _host(convert_to_tensor(input).shape, out_type)


def shape_n(input: Any, out_type: Any = _dtypes.int32, name: str | None = None) -> list[HostTensor]:
    """Return the shapes of several tensors, as `shape` does."""
    return [shape(tensor, out_type) for tensor in input]


def size(input: Any, out_type: Any = None, name: str | None = None) -> HostTensor:
    """Return the number of elements, as a host tensor."""
    return _host(convert_to_tensor(input).size, out_type)


def rank(input: Any, name: str | None = None) -> HostTensor:
    """Return the number of axes, as a host tensor."""
    return _host(convert_to_tensor(input).ndim, None)


def _host(value: Any, out_type: Any) -> HostTensor:
    sizes = HostTensor.of(value)
    return sizes if sizes.has_symbols else HostTensor.of(np.asarray(value, as_dtype(out_type or _dtypes.int32).dtype))


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Any:
    """Return `x`, or raise if its shape does not fit."""
    tensor = convert_to_tensor(x)
    if not TensorShape(shape).is_compatible_with(tensor.shape):
        raise invalid(f"Shape of tensor x {tuple(tensor.shape)} is not compatible with expected shape {shape}.")
    return tensor


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Return the shape that two shapes broadcast to; a ValueError if they do not."""
    return TensorShape(np.broadcast_shapes(tuple(TensorShape(shape_x)), tuple(TensorShape(shape_y))))


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> HostTensor:
    """Return the shape, as a tensor, that two shapes broadcast to."""
    return _host(np.broadcast_shapes(static_ints(shape_x, "shape_x"), static_ints(shape_y, "shape_y")), None)


@keeps_static
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Return the same elements in another shape; one size may be -1, to be whatever is left.

    See https://www.tensorflow.org/api_docs/python/tf/reshape.
    """
    values, sizes = convert_to_tensor(tensor), static_ints(shape, "shape")
    if isinstance(values, HostTensor):
        return HostTensor.of(np.reshape(values, sizes))
    return compute(jnp.reshape, values, _resolved(values, sizes))


def _resolved(values: jax.Array, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sizes for an empty tensor without -1; of others and those with symbols, as they are, once they are checked."""
    if not all(isinstance(size, int) for size in (*values.shape, *sizes)) or sizes.count(-1) > 1:
        return sizes
    wanted, is_open = math.prod(size for size in sizes if size != -1), -1 in sizes
    if is_open and wanted == values.size == 0:
        # As TensorFlow has it: from all sizes but zeros.
        missing = math.prod(filter(None, values.shape)) // math.prod(size for size in sizes if size > 0)
        return tuple(missing if size == -1 else size for size in sizes)
    if is_open and wanted > 0 and values.size % wanted:
        requested = f"the requested shape requires a multiple of {wanted}"
    elif not is_open and values.size != wanted:
        requested = f"the requested shape has {wanted}"
    else:
        return sizes
    raise invalid(f"Input to reshape is a tensor with {values.size} values, but {requested}: {list(sizes)}.")


@carries_texts
@keeps_static
def expand_dims(input: Any, axis: Any, name: str | None = None) -> Any:
    """Return the tensor with a new axis of size 1."""
    return compute(jnp.expand_dims, convert_to_tensor(input), static_int(axis, "axis"))


@carries_texts
@keeps_static
def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return the tensor without the given axes, or all axes, of size 1."""
    return compute(jnp.squeeze, convert_to_tensor(input), axes(axis) if axis != [] else None)


@carries_texts
def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = "transpose") -> jax.Array:
    """Return the tensor with its axes in another order, the opposite one by default."""
    order = None if perm is None else static_ints(perm, "perm")
    turned = compute(jnp.transpose, convert_to_tensor(a), order)
    return jnp.conj(turned) if conjugate and jnp.iscomplexobj(turned) else turned


@carries_texts
@keeps_static
def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Return the tensor repeated as a whole, `multiples[i]` times along axis i."""
    tensor, counts = convert_to_tensor(input), static_ints(multiples, "multiples")
    if len(counts) != tensor.ndim:
        raise invalid(
            f"Expected multiples argument to be a vector of length {tensor.ndim} but got length {len(counts)}."
        )
    return jnp.tile(tensor, counts)


@carries_texts
def repeat(input: Any, repeats: Any, axis: Any = None, name: str | None = None) -> jax.Array:
    """Return the tensor with each entry along `axis` (of the flattened tensor, if None) repeated.

    `repeats` is one number or one for each entry; the latter must be known while a function is traced.
    """
    counts = static_ints(repeats, "repeats")
    along = None if axis is None else static_int(axis, "axis")
    tensor = convert_to_tensor(input)
    if len(counts) == 1:
        return compute(jnp.repeat, tensor, counts[0], along)
    return compute(jnp.repeat, tensor, np.asarray(counts), along, total_repeat_length=sum(counts))


@carries_texts
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> jax.Array:
    """Return the tensor broadcast to a shape."""
    return compute(jnp.broadcast_to, convert_to_tensor(input), static_ints(shape, "shape"))


def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    """Return the tensor with more entries before and after along each axis.

    Args:
        tensor: A tensor.
        paddings: `[rank, 2]` integers: how many before and after.
        mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in either case.
        constant_values: What to fill with.
        name: Unused.
    """
    values = convert_to_tensor(tensor)
    if holds_texts(values):
        return _padded_texts(values, paddings, mode, constant_values or b"")
    widths = _widths(values, paddings)
    kind = mode.upper()
    if kind == "CONSTANT":
        filler = convert_to_tensor(constant_values, as_dtype(values.dtype))
        return compute(jnp.pad, values, widths, constant_values=filler)
    if kind not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode!r}.")
    return compute(jnp.pad, values, widths, mode=kind.lower())


def _widths(values: Any, paddings: Any) -> list[Any]:
    """Return how many entries to add before and after along each axis; NumPy would give one pair to all axes."""
    widths = [static_ints(pair, "paddings") for pair in _rows(paddings)]
    if any(len(pair) != 2 for pair in widths):
        raise invalid(f"paddings must be a matrix with 2 columns, got {paddings}.")
    if len(widths) != values.ndim:
        raise invalid(f"paddings must have a row for each of the tensor's {values.ndim} axes, got {paddings}.")
    if any(isinstance(width, int) and width < 0 for pair in widths for width in pair):
        raise invalid(f"Paddings must be non-negative, got {paddings}.")
    return widths


def _padded_texts(texts: HostTensor, paddings: Any, mode: str, filler: Any) -> HostTensor:
    filled = [*np.asarray(texts).ravel(), *np.asarray(convert_to_tensor([filler], _dtypes.string))]
    with jax.ensure_compile_time_eval():
        numbers = pad(np.arange(texts.size).reshape(texts.numpy().shape), paddings, mode, texts.size)
    return HostTensor.of(np.array(filled, object)[np.asarray(numbers)])


def _rows(paddings: Any) -> Any:
    return list(paddings) if isinstance(paddings, list | tuple) else np.asarray(convert_to_tensor(paddings))


@carries_texts
@keeps_static
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """Return the tensor with its entries in opposite order along the given axes."""
    return compute(jnp.flip, convert_to_tensor(tensor), static_ints(axis, "axis"))


@carries_texts
def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> jax.Array:
    """Return the tensor with entries moved along axes, from the end back to the start."""
    return compute(jnp.roll, convert_to_tensor(input), convert_to_tensor(shift), axes(axis))


@carries_texts
def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: Any = None, batch_axis: Any = None, name: str | None = None
) -> jax.Array:
    """Return the tensor with the first entries of each sequence in opposite order.

    See https://www.tensorflow.org/api_docs/python/tf/reverse_sequence.

    Args:
        input: A tensor.
        seq_lengths: `[batch]` integers: how many entries of each sequence to turn round.
        seq_axis: The axis of the sequences' entries.
        batch_axis: The axis of the sequences, 0 if None.
        name: Unused.
    """
    tensor, lengths = convert_to_tensor(input), convert_to_tensor(seq_lengths)
    along = static_axis(seq_axis, tensor.ndim, "seq_axis")
    batch = static_axis(batch_axis or 0, tensor.ndim, "batch_axis")
    if tuple(lengths.shape) != (tensor.shape[batch],):
        raise invalid(f"Length of seq_lengths {tuple(lengths.shape)} != input.dims({batch}) = {tensor.shape[batch]}")
    place = jnp.arange(tensor.shape[along], dtype=lengths.dtype)
    turned = jnp.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    shape = [1] * tensor.ndim
    shape[along] = tensor.shape[along]
    shape[batch] = tensor.shape[batch]
    order = turned if batch < along else turned.T
    return jnp.take_along_axis(tensor, order.reshape(shape), along)


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> jax.Array:
    """Return where in a tensor of sizes `dims` the entries are that its flat form has at `indices`.

    See https://www.tensorflow.org/api_docs/python/tf/unravel_index.

    Returns:
        `[len(dims), *indices.shape]`.
    """
    flat, sizes = convert_to_tensor(indices), static_ints(dims, "dims")
    check_indices(flat, int(np.prod(sizes)))
    steps = np.cumprod([1, *reversed(sizes)])[-2::-1].astype(flat.dtype)
    return jnp.stack([flat // step % size for step, size in zip(steps, sizes, strict=True)])
