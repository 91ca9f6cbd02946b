"""Gradients that travel in bfloat16."""

import dataclasses
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames
from tfdist_jax._sharding._compression._encoded import Code, scatter_sum_encoded, sum_encoded
from tfdist_jax._sharding._compression._method import Compression, Memory, Summed


@final
@dataclasses.dataclass(frozen=True)
class BFloat16(Compression):
    """Half of the bytes: gradients travel in bfloat16, and are added up in float32.

    Each replica's part is rounded once, and once more the sum where all replicas get it: each by 0.4 % of the number at most, so that
    nothing need be fed back.

    Example:
        >>> import tfdist_jax as td
        >>> td.Compressed(td.FSDP(), method=td.BFloat16()).num_replicas
        8
    """

    @property
    def feeds_errors_back(self) -> bool:
        """They are not."""
        return False

    def sum(self, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: AxisNames) -> list[Summed]:
        """Sum arrays over the devices along some axes."""
        return sum_encoded(arrays, memories, axes, _CODE)

    def scatter_sum(self, array: jax.Array, axis: str, dimension: int) -> jax.Array:
        """Sum an array over the devices along an axis, of which each gets its part."""
        return scatter_sum_encoded(array, axis, dimension, _CODE)


def _encode(numbers: jax.Array) -> jax.Array:
    # As bits: XLA on CPU makes float32 of what is sent in bfloat16.
    return jax.lax.bitcast_convert_type(numbers.astype(jnp.bfloat16), jnp.uint16)


def _decode(sent: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(sent, jnp.bfloat16).astype(jnp.float32)


_CODE = Code(_encode, _decode)
