"""Sums over devices whose parts are sent in int8: a quarter of the bytes, and a rounded result."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames, map_buckets

_BLOCK = 256
_LARGEST = 127


def scatter_sum_int8(array: jax.Array, axis: AxisNames, dimension: int) -> jax.Array:
    """Sum an array over the devices along an axis, of which each gets its part, as `jax.lax.psum_scatter(..., tiled=True)`.

    What a device has for each of the others is rounded once, to 255 values in each block of 256 numbers, whose largest magnitude is kept
    (https://arxiv.org/abs/2306.10209); the sums are in float32. A block with a number that is not finite becomes NaN.

    Args:
        array: Floating numbers, in a program of replicas.
        axis: A mesh axis.
        dimension: The dimension along which the sum is split; the size of the axis divides it.

    Returns:
        This device's part, in the type of `array`.
    """
    count = jax.lax.axis_size(axis)
    parts = jnp.moveaxis(array, dimension, 0)
    shape = parts.shape[0] // count, *parts.shape[1:]
    total = _sum_parts(parts.reshape(count, -1), axis)
    return jnp.moveaxis(total[: math.prod(shape)].reshape(shape), 0, dimension).astype(array.dtype)


def fused_sum_int8(arrays: Sequence[jax.Array | None], axes: AxisNames) -> list[jax.Array | None]:
    """Sum arrays over the devices along some axes, as `fused_sum`, with parts and sums that are rounded."""
    return map_buckets(functools.partial(sum_int8, axes=axes), arrays)


def sum_int8(array: jax.Array, axes: AxisNames) -> jax.Array:
    """Sum an array over the devices along some axes, all of which get the same, with parts and sums that are rounded."""
    flat, count = array.ravel(), jax.lax.axis_size(axes)
    parts = jnp.pad(flat, (0, -len(flat) % count)).reshape(count, -1)
    total = _sum_parts(parts, axes)
    gathered = jax.lax.all_gather(_quantize(total), axes)
    return _restore(gathered)[:, : parts.shape[1]].ravel()[: len(flat)].reshape(array.shape).astype(array.dtype)


def _sum_parts(parts: jax.Array, axis: AxisNames) -> jax.Array:
    """Return the sum of the parts `[devices, numbers]` that all devices have for this one, in float32 and filled up to blocks."""
    sent = jax.lax.all_to_all(_quantize(parts), axis, split_axis=0, concat_axis=0, tiled=True)
    return _restore(sent).sum(0)


def _quantize(numbers: jax.Array) -> jax.Array:
    """Return `[..., numbers]` as bytes `[..., blocks, 260]`: a scale, in four of them, and a number in each of the others."""
    numbers = jnp.pad(numbers.astype(jnp.float32), [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % _BLOCK)])
    blocks = numbers.reshape(*numbers.shape[:-1], -1, _BLOCK)
    scales = jnp.abs(blocks).max(-1, keepdims=True) / _LARGEST
    # On CPU, XLA's maximum may pass over NaN.
    scales = jnp.where(jnp.isfinite(blocks).all(-1, keepdims=True), scales, jnp.nan)
    rounded = jnp.round(blocks / jnp.where(scales > 0, scales, 1)).astype(jnp.int8)
    return jnp.concatenate([jax.lax.bitcast_convert_type(scales[..., 0], jnp.int8), rounded], -1)


def _restore(sent: jax.Array) -> jax.Array:
    """Return the numbers `[..., numbers]` that bytes stand for."""
    scales = jax.lax.bitcast_convert_type(sent[..., :4], jnp.float32)
    numbers = sent[..., 4:] * scales[..., None]
    return numbers.reshape(*sent.shape[:-2], -1)
