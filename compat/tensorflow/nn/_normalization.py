"""Snapshots, and normalization by them."""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import axes as _axes, invalid, same_type
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def moments(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return means and variances over axes; 16-bit tensors are added up in 32 bits."""
    tensor = convert_to_tensor(x)
    wide = tensor.astype(jnp.float32) if as_dtype(tensor.dtype).size == 2 else tensor
    over = _axes(axes)
    mean = jnp.mean(wide, over, keepdims=True)
    # As in TensorFlow the mean is a constant in the variance, whose gradient through it is 0 anyway.
    variance = jnp.mean(jnp.square(wide - jax.lax.stop_gradient(mean)), over, keepdims=True)
    if not keepdims:
        mean, variance = jnp.squeeze(mean, over), jnp.squeeze(variance, over)
    return mean.astype(tensor.dtype), variance.astype(tensor.dtype)


def weighted_moments(
    x: Any, axes: Any, frequency_weights: Any, keepdims: bool = False, name: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return means and variances over axes, each entry counted as often as its weight says."""
    tensor, weights = convert_to_tensor(x), convert_to_tensor(frequency_weights)
    weights = jnp.broadcast_to(cast(weights, tensor.dtype), tensor.shape)
    over = _axes(axes)
    total = jnp.sum(weights, over, keepdims=True)
    mean = jnp.sum(weights * tensor, over, keepdims=True) / total
    variance = jnp.sum(weights * jnp.square(tensor - mean), over, keepdims=True) / total
    return (mean, variance) if keepdims else (jnp.squeeze(mean, over), jnp.squeeze(variance, over))


def sufficient_statistics(
    x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None
) -> tuple[Any, jax.Array, jax.Array, Any]:
    """Return the number of entries, the sum and the sum of squares of (shifted) entries over axes, and the shift."""
    tensor, over = convert_to_tensor(x), _axes(axes)
    moved = tensor if shift is None else tensor - convert_to_tensor(shift)
    total = jnp.sum(moved, over, keepdims=keepdims)
    count = jnp.asarray(tensor.size // max(jnp.size(total), 1), tensor.dtype)
    return count, total, jnp.sum(jnp.square(moved), over, keepdims=keepdims), shift


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the mean and variance from what `sufficient_statistics` returns."""
    mean = convert_to_tensor(mean_ss) / counts
    variance = convert_to_tensor(variance_ss) / counts - jnp.square(mean)
    return (mean if shift is None else mean + shift), variance


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: Any, name: str | None = None
) -> jax.Array:
    """Return (x - mean) / sqrt(variance + variance_epsilon) * scale + offset; `offset` and `scale` may be None."""
    tensor = convert_to_tensor(x)
    variance = convert_to_tensor(variance)
    factor = jax.lax.rsqrt(variance + convert_to_tensor(variance_epsilon, as_dtype(variance.dtype)))
    if scale is not None:
        factor = factor * convert_to_tensor(scale)
    shift = -convert_to_tensor(mean) * factor
    if offset is not None:
        shift = convert_to_tensor(offset) + shift
    return tensor * factor.astype(tensor.dtype) + shift.astype(tensor.dtype)


def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> jax.Array:
    """Return the tensor with one number added to each channel: the last axis, the second for "NC..." formats."""
    tensor, numbers = same_type(value, bias)
    first = data_format is not None and data_format.startswith("NC")
    channels = tensor.shape[1 if first else -1]
    if tuple(numbers.shape) != (channels,):
        raise invalid(f"Must provide as many biases as there are channels, got {tuple(numbers.shape)} for {channels}.")
    return tensor + (numbers.reshape((1, -1) + (1,) * (tensor.ndim - 2)) if first else numbers)


def local_response_normalization(
    input: Any, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5, name: str | None = None
) -> jax.Array:
    """Return each entry divided by a power of the sum of squares of nearby channels."""
    tensor = convert_to_tensor(input)
    window = (1,) * (tensor.ndim - 1) + (2 * depth_radius + 1,)
    edges = ((0, 0),) * (tensor.ndim - 1) + ((depth_radius, depth_radius),)
    squares = jax.lax.reduce_window(jnp.square(tensor), 0.0, jax.lax.add, window, (1,) * tensor.ndim, edges)
    return tensor / (bias + alpha * squares) ** beta


def batch_norm_with_global_normalization(
    input: Any,
    mean: Any,
    variance: Any,
    beta: Any,
    gamma: Any,
    variance_epsilon: Any,
    scale_after_normalization: bool,
    name: str | None = None,
) -> jax.Array:
    """Return `batch_normalization`, scaled by `gamma` only if `scale_after_normalization`."""
    scale = gamma if scale_after_normalization else None
    return batch_normalization(input, mean, variance, beta, scale, variance_epsilon)
