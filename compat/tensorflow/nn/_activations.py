"""Activation functions, embeddings and dropout."""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import compute, invalid, require, static_int, static_ints
from tfdist_jax.compat.tensorflow._ops._clip import clip_by_norm
from tfdist_jax.compat.tensorflow._ops._parts import gather_parts, part_sizes
from tfdist_jax.compat.tensorflow._ops._selection import gather
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.random._random_state import next_key, stateless_key

# Scale and alpha of https://arxiv.org/abs/1706.02515, in full for float64.
_SELU = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)


def relu(features: Any, name: str | None = None) -> jax.Array:
    """Return max(features, 0)."""
    return _relu(require(convert_to_tensor(features), "fi", "nn.relu"))


# A call of a program: an eager tape traces a function with a derivative of its own each time.
_relu = jax.jit(jax.nn.relu)


def relu6(features: Any, name: str | None = None) -> jax.Array:
    """Return min(max(features, 0), 6)."""
    tensor = require(convert_to_tensor(features), "fi", "nn.relu6")
    return jax.nn.relu6(tensor).astype(tensor.dtype)


def crelu(features: Any, axis: Any = -1, name: str | None = None) -> jax.Array:
    """Return relu(features) and relu(-features), joined along an axis."""
    tensor = convert_to_tensor(features)
    return jax.nn.relu(jnp.concatenate([tensor, -tensor], static_int(axis, "axis")))


def leaky_relu(features: Any, alpha: Any = 0.2, name: str | None = None) -> jax.Array:
    """Return features where they are positive and `alpha` times them elsewhere."""
    tensor = convert_to_tensor(features)
    if as_dtype(tensor.dtype).is_integer:
        tensor = tensor.astype(jnp.float32)
    return jnp.where(tensor > 0, tensor, convert_to_tensor(alpha, as_dtype(tensor.dtype)) * tensor)


def elu(features: Any, name: str | None = None) -> jax.Array:
    """Return features where they are positive and exp(features) - 1 elsewhere."""
    tensor = require(convert_to_tensor(features), "f", "nn.elu")
    return _with_exponential_tail(tensor, 1)


def selu(features: Any, name: str | None = None) -> jax.Array:
    """Return scaled exponential linear units."""
    tensor = require(convert_to_tensor(features), "f", "nn.selu")
    scale, alpha = (convert_to_tensor(number, as_dtype(tensor.dtype)) for number in _SELU)
    return scale * _with_exponential_tail(tensor, alpha)


def _with_exponential_tail(x: jax.Array, alpha: Any) -> jax.Array:
    # At 0 the derivatives are those of x, as in TensorFlow.
    return jnp.where(x < 0, alpha * jnp.expm1(jnp.minimum(x, 0)), x)


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> jax.Array:
    """Return features times the normal distribution function of them; `approximate` uses tanh."""
    tensor = require(convert_to_tensor(features), "f", "nn.gelu")
    return jax.nn.gelu(tensor, approximate=approximate)


def silu(features: Any, beta: Any = 1.0) -> jax.Array:
    """Return features * sigmoid(beta * features)."""
    tensor = require(convert_to_tensor(features), "f", "nn.silu")
    return tensor * jax.nn.sigmoid(convert_to_tensor(beta, as_dtype(tensor.dtype)) * tensor)


def softplus(features: Any, name: str | None = None) -> jax.Array:
    """Return log(exp(features) + 1)."""
    return jax.nn.softplus(require(convert_to_tensor(features), "f", "nn.softplus"))


def softsign(features: Any, name: str | None = None) -> jax.Array:
    """Return features / (abs(features) + 1)."""
    return jax.nn.soft_sign(require(convert_to_tensor(features), "f", "nn.softsign"))


def softmax(logits: Any, axis: Any = None, name: str | None = None) -> jax.Array:
    """Return exp(logits) divided by their sum along an axis, the last one if None."""
    tensor = require(convert_to_tensor(logits), "f", "nn.softmax")
    return compute(jax.nn.softmax, tensor, -1 if axis is None else static_int(axis, "axis"))


def log_softmax(logits: Any, axis: Any = None, name: str | None = None) -> jax.Array:
    """Return logarithms of `softmax`."""
    tensor = require(convert_to_tensor(logits), "f", "nn.log_softmax")
    return compute(jax.nn.log_softmax, tensor, -1 if axis is None else static_int(axis, "axis"))


def dropout(x: Any, rate: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None) -> jax.Array:
    """Return the tensor with elements set to 0 with probability `rate`, the others scaled up to keep the sum.

    Args:
        x: A floating-point tensor.
        rate: A number in [0, 1), or a scalar tensor.
        noise_shape: Shape of the random choices, broadcast to that of `x`: a size of 1 shares them along that axis.
        seed: The operation's own seed.
        name: Unused.

    Raises:
        ValueError: If `rate` is out of range or `x` is not floating-point.
    """
    return _dropout(x, rate, noise_shape, lambda: next_key(seed))


def stateless_dropout(
    x: Any, rate: Any, seed: Any, rng_alg: str | None = None, noise_shape: Any = None, name: str | None = None
) -> jax.Array:
    """Return `dropout` with the random choices that two seed numbers name, which are JAX's."""
    return _dropout(x, rate, noise_shape, lambda: stateless_key(seed))


def _dropout(x: Any, rate: Any, noise_shape: Any, make_key: Any) -> jax.Array:
    tensor = convert_to_tensor(x)
    if not as_dtype(tensor.dtype).is_floating:
        raise ValueError(f"`x.dtype` must be a floating point tensor as `x` will be scaled. Received: {tensor.dtype}")
    if not isinstance(rate, jax.Array):
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}")
        if rate == 0:
            return tensor
    share = convert_to_tensor(rate, _dtypes.float32).astype(tensor.dtype)
    sizes = tuple(tensor.shape) if noise_shape is None else _noise_sizes(noise_shape, tensor)
    keep = jax.random.bernoulli(make_key(), 1 - share.astype(jnp.float32), sizes)
    return jnp.where(keep, tensor / (1 - share), jnp.zeros_like(tensor))


def _noise_sizes(noise_shape: Any, tensor: jax.Array) -> tuple[int, ...]:
    given = list(noise_shape) if isinstance(noise_shape, list | tuple) else static_ints(noise_shape, "noise_shape")
    return tuple(
        n if size is None else static_int(size, "noise_shape") for size, n in zip(given, tensor.shape, strict=True)
    )


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> jax.Array:
    """Return the rows of `params` with the given numbers, their norms limited to `max_norm`.

    Args:
        params: The table; or a list of tables whose rows follow each other, of which the first ones may have one row more.
        ids: Integers, of any shape.
        max_norm: The largest norm of a row; None for any.
        name: Unused.

    Raises:
        ValueError: If the list is empty.
        InvalidArgumentError: If the tables have other numbers of rows, or a number is out of range and known.
    """
    rows = _rows(params, ids)
    if max_norm is None:
        return rows
    ids = convert_to_tensor(ids)
    return clip_by_norm(rows, max_norm, axes=list(range(ids.ndim, rows.ndim)))


def _rows(params: Any, ids: Any) -> jax.Array:
    if not isinstance(params, list | tuple):
        return gather(params, ids)
    if not params:
        raise ValueError("Length of params is currently 0. Need at least one param.")
    if len(params) == 1:
        return gather(params[0], ids)
    sizes = [int(part.shape[0]) for part in params]
    if sizes != part_sizes(sum(sizes), len(sizes)):
        raise invalid(
            f"The tables of a lookup have {sizes} rows, but the first ones may only have one row more than the others, by which rows are "
            f"found: {part_sizes(sum(sizes), len(sizes))}. Join them with tf.concat."
        )
    return gather_parts(params, ids)
