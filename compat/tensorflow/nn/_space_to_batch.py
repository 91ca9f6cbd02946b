"""Blocks of space moved to the batch axis and back, and patches of volumes."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints
from tfdist_jax.compat.tensorflow._ops._shapes import pad
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def space_to_batch(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> jax.Array:
    """Return the tensor with blocks of its axes from the second on moved into the batch.

    See https://www.tensorflow.org/api_docs/python/tf/space_to_batch.

    Args:
        input: `[batch, *space, ...]`.
        block_shape: The size of a block along each axis of space.
        paddings: `[len(block_shape), 2]`: zeros before and after each of these axes.
        name: Unused.

    Returns:
        `[batch * product of block_shape, *(padded space / block_shape), ...]`.
    """
    tensor = convert_to_tensor(input)
    block, around = _block(block_shape, tensor), _pairs(paddings)
    rest = tensor.ndim - 1 - len(block)
    padded = pad(tensor, [[0, 0], *around, *[[0, 0]] * rest])
    space = padded.shape[1 : 1 + len(block)]
    if any(size % width for size, width in zip(space, block, strict=True)):
        raise invalid(f"padded shape {space} is not divisible by block_shape {block}")
    batch, tail = padded.shape[0], padded.shape[1 + len(block) :]
    split = [number for size, width in zip(space, block, strict=True) for number in (size // width, width)]
    inner = [2 * i + 2 for i in range(len(block))]
    outer = [2 * i + 1 for i in range(len(block))]
    end = [1 + 2 * len(block) + i for i in range(rest)]
    moved = padded.reshape(batch, *split, *tail).transpose(*inner, 0, *outer, *end)
    return moved.reshape(
        batch * int(np.prod(block)), *(padded.shape[1 + i] // block[i] for i in range(len(block))), *tail
    )


def space_to_batch_nd(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> jax.Array:
    """Return `space_to_batch`."""
    return space_to_batch(input, block_shape, paddings)


def batch_to_space(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> jax.Array:
    """Undo `space_to_batch`, with `crops` for what it filled in.

    See https://www.tensorflow.org/api_docs/python/tf/batch_to_space.
    """
    tensor = convert_to_tensor(input)
    block, cut = _block(block_shape, tensor), _pairs(crops)
    if tensor.shape[0] % int(np.prod(block)):
        raise invalid(f"Input batch dimension ({tensor.shape[0]}) is not divisible by product of block sizes {block}")
    batch, space = tensor.shape[0] // int(np.prod(block)), tensor.shape[1 : 1 + len(block)]
    tail = tensor.shape[1 + len(block) :]
    number = len(block)
    order = [number]
    for i in range(number):
        order += [number + 1 + i, i]
    order += range(2 * number + 1, 2 * number + 1 + len(tail))
    whole = tensor.reshape(*block, batch, *space, *tail).transpose(order)
    sizes = [size * width for size, width in zip(space, block, strict=True)]
    whole = whole.reshape(batch, *sizes, *tail)
    inside = [slice(low, size - high) for (low, high), size in zip(cut, sizes, strict=True)]
    return whole[(slice(None), *inside)]


def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[HostTensor, HostTensor]:
    """Return the paddings for `space_to_batch`, and the crops for `batch_to_space`, that make sizes divisible.

    See https://www.tensorflow.org/api_docs/python/tf/required_space_to_batch_paddings.
    """
    sizes, block = static_ints(input_shape, "input_shape"), static_ints(block_shape, "block_shape")
    base = np.zeros((len(block), 2), np.int32) if base_paddings is None else np.asarray(_pairs(base_paddings), np.int32)
    extra = -(np.asarray(sizes, np.int32) + base.sum(1)) % np.asarray(block, np.int32)
    paddings = np.stack([base[:, 0], base[:, 1] + extra], 1)
    crops = np.stack([np.zeros_like(extra), extra], 1)
    return HostTensor.of(paddings.astype(np.int32)), HostTensor.of(crops.astype(np.int32))


def extract_volume_patches(input: Any, ksizes: Any, strides: Any, padding: str, name: str | None = None) -> jax.Array:
    """Return the patches of volumes `[batch, depth, height, width, channels]`, each as a vector in place of channels.

    See https://www.tensorflow.org/api_docs/python/tf/extract_volume_patches.
    """
    return patches(
        convert_to_tensor(input),
        static_ints(ksizes, "ksizes")[1:-1],
        static_ints(strides, "strides")[1:-1],
        (1,) * 3,
        padding,
    )


def patches(
    tensor: jax.Array, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str
) -> jax.Array:
    """Return patches of `[batch, *space, channels]`, as vectors that begin with the first pixel's channels."""
    return jnp.concatenate(pixels(tensor, sizes, strides, rates, padding), -1)


def pixels(
    tensor: jax.Array,
    sizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
    *,
    filler: Any = 0,
) -> list[jax.Array]:
    """Return for each place in a window the pixels that all windows have there, `[batch, *windows, channels]`."""
    space = tensor.shape[1:-1]
    wide = [(size - 1) * rate + 1 for size, rate in zip(sizes, rates, strict=True)]
    same = padding.upper() == "SAME"
    number = [-(-(n if same else n - w + 1) // step) for n, w, step in zip(space, wide, strides, strict=True)]
    missing = [max((k - 1) * step + w - n, 0) for k, step, w, n in zip(number, strides, wide, space, strict=True)]
    widths = [(0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)]
    padded = jnp.pad(tensor, widths, constant_values=filler)
    found = []
    for place in itertools.product(*map(range, sizes)):
        first = [i * rate for i, rate in zip(place, rates, strict=True)]
        inside = [
            slice(low, low + (k - 1) * step + 1, step) for low, k, step in zip(first, number, strides, strict=True)
        ]
        found.append(padded[(slice(None), *inside)])
    return found


def _block(block_shape: Any, tensor: jax.Array) -> tuple[int, ...]:
    block = static_ints(block_shape, "block_shape")
    if tensor.ndim < 1 + len(block) or any(width < 1 for width in block):
        raise invalid(f"input of shape {tuple(tensor.shape)} has no blocks of shape {block} after its first axis")
    return block


def _pairs(values: Any) -> list[tuple[int, int]]:
    rows = values if isinstance(values, list | tuple) else np.asarray(values)
    return [(int(low), int(high)) for low, high in (static_ints(row, "paddings") for row in rows)]
