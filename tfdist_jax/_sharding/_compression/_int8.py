"""Gradients that travel in int8, with a scale for each block of numbers."""

import dataclasses
from typing import final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._compression._encoded import Code, EncodedCompression

_BLOCK = 256
_LARGEST = 127


@final
@dataclasses.dataclass(frozen=True)
class Int8(EncodedCompression):
    """A quarter of the bytes: each number is rounded to one of 255 values, with a scale of its own for every 256 of them.

    Each replica's part is rounded once, and once more the sum where all replicas get it, each by 0.4 % of the largest number in its
    block at most (https://arxiv.org/abs/2306.10209). Small numbers beside a large one become zero: with error feedback, they arrive later.

    Attributes:
        error_feedback: Whether what is lost in a step is added to the next one's gradient.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Compressed(td.Mirrored(), method=td.Int8())
        >>> params = strategy.init(lambda: np.ones((64, 32), np.float32))
        >>> memory = strategy.init_compression(params)
        >>> compute = strategy.value_and_grad(lambda w, x: ((x @ w) ** 2).mean(), has_aux=False)
        >>> loss, grads, memory = compute(params, strategy.put(np.ones((16, 64), np.float32)), compression=memory)
        >>> grads.shape, memory["params"]["residual"].shape
        ((64, 32), (8, 64, 32))
    """

    error_feedback: bool = True

    @property
    def feeds_errors_back(self) -> bool:
        """Whether what is lost is added to the next gradient."""
        return self.error_feedback

    @property
    def _code(self) -> Code:
        return _CODE


def _encode(numbers: jax.Array) -> jax.Array:
    """Return `[..., numbers]` as bytes `[..., blocks, 260]`: a scale, in four of them, and a number in each of the others.

    A block with a number that is not finite becomes NaN.
    """
    numbers = jnp.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % _BLOCK)])
    blocks = numbers.reshape(*numbers.shape[:-1], -1, _BLOCK)
    scales = jnp.abs(blocks).max(-1, keepdims=True) / _LARGEST
    # On CPU, XLA's maximum may pass over NaN.
    scales = jnp.where(jnp.isfinite(blocks).all(-1, keepdims=True), scales, jnp.nan)
    rounded = jnp.round(blocks / jnp.where(scales > 0, scales, 1)).astype(jnp.int8)
    return jnp.concatenate([jax.lax.bitcast_convert_type(scales[..., 0], jnp.int8), rounded], -1)


def _decode(sent: jax.Array) -> jax.Array:
    """Return the numbers `[..., numbers]` that bytes stand for."""
    scales = jax.lax.bitcast_convert_type(sent[..., :4], jnp.float32)
    numbers = sent[..., 4:] * scales[..., None]
    return numbers.reshape(*sent.shape[:-2], -1)


_CODE = Code(_encode, _decode)
