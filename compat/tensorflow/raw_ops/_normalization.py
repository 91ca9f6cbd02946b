"""`tf.raw_ops`: batch normalization with its statistics."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.nn._normalization import batch_normalization


class FusedBatchNormResult(NamedTuple):
    """What `FusedBatchNormV2` returns; all but `y` are `[channels]`."""

    y: jax.Array
    batch_mean: jax.Array
    batch_variance: jax.Array
    reserve_space_1: jax.Array
    reserve_space_2: jax.Array


class FusedBatchNormV3Result(NamedTuple):
    """What `FusedBatchNormV3` returns; all but `y` are `[channels]`."""

    y: jax.Array
    batch_mean: jax.Array
    batch_variance: jax.Array
    reserve_space_1: jax.Array
    reserve_space_2: jax.Array
    reserve_space_3: jax.Array


def FusedBatchNormV2(
    *,
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> FusedBatchNormResult:
    """Normalize each channel of images, by the batch's statistics or by those that are given.

    Args:
        x: Floating, `[batch, height, width, channels]`, or in the order of `data_format`.
        scale: float32 `[channels]`.
        offset: float32 `[channels]`.
        mean: float32 `[channels]`: for training the running mean so far, which only `exponential_avg_factor` < 1 reads.
        variance: float32 `[channels]`, in the same way.
        epsilon: Added to the variance.
        exponential_avg_factor: How much of the running statistics the batch's make up.
        data_format: "NHWC" or "NCHW"; for V3 "NDHWC" or "NCDHW" too.
        is_training: Whether the batch's statistics are used.
        name: Not used.

    Returns:
        The result, of the type of `x`; the running statistics, or those that were given, where the variance is that of a
        sample (divided by one less than there are elements); and what TensorFlow keeps for the gradient.

    Raises:
        InvalidArgumentError: If `x` has not as many axes as `data_format`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/raw_ops/FusedBatchNormV2.
    """
    tensor, rank = convert_to_tensor(x), len(data_format)
    if tensor.ndim != rank:
        raise invalid(f"input must be {rank}-dimensional for the data format {data_format}, got {tuple(tensor.shape)}.")
    channels = data_format.index("C")
    others = tuple(axis for axis in range(rank) if axis != channels)
    running = convert_to_tensor(mean), convert_to_tensor(variance)
    wide = tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32))
    if is_training:
        used = jnp.mean(wide, others), jnp.var(wide, others)
        count = math.prod(tensor.shape[axis] for axis in others)
        batch = used[0], used[1] * (count / max(count - 1, 1))
        kept = batch if exponential_avg_factor == 1 else _averaged(running, batch, exponential_avg_factor)
    else:
        used = kept = running
    shape = tuple(-1 if axis == channels else 1 for axis in range(rank))
    mean, variance, offset, scale = (convert_to_tensor(numbers).reshape(shape) for numbers in (*used, offset, scale))
    y = batch_normalization(wide, mean, variance, offset, scale, epsilon)
    return FusedBatchNormResult(y.astype(tensor.dtype), *kept, *used)


def FusedBatchNormV3(
    *,
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> FusedBatchNormV3Result:
    """Normalize each channel of images or volumes, as `FusedBatchNormV2`, with one more thing kept for the gradient."""
    result = FusedBatchNormV2(
        x=x,
        scale=scale,
        offset=offset,
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        exponential_avg_factor=exponential_avg_factor,
        data_format=data_format,
        is_training=is_training,
    )
    return FusedBatchNormV3Result(*result, jnp.zeros(0, result.reserve_space_1.dtype))


def _averaged(running: tuple[Any, Any], batch: tuple[Any, Any], factor: float) -> tuple[Any, Any]:
    mean, variance = ((1 - factor) * old + factor * new for old, new in zip(running, batch, strict=True))
    return mean, variance
