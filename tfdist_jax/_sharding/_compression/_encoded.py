"""Sums over devices whose parts are sent in fewer bytes, encoded, and added up in float32."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames, map_buckets
from tfdist_jax._sharding._compression._method import Compression, Memory, Summed


@final
@dataclasses.dataclass(frozen=True)
class Code:
    """How numbers become what is sent, and that numbers again.

    Attributes:
        encode: From `[..., numbers]` in float32 to an array whose first dimensions are those.
        decode: Back, to `[..., numbers]` or more of them.
    """

    encode: Callable[[jax.Array], jax.Array]
    decode: Callable[[jax.Array], jax.Array]


class EncodedCompression(Compression):
    """A form in which each device's parts are encoded once, and so are their sums in float32 where all devices get them."""

    @property
    @abc.abstractmethod
    def _code(self) -> Code:
        """How numbers are sent."""

    def sum(self, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: AxisNames) -> list[Summed]:
        """Sum arrays over the devices along some axes."""
        sums = map_buckets(functools.partial(_sum_one, axes=axes, code=self._code), arrays)
        return [Summed(total, lost, memory) for (total, lost), memory in zip(sums, memories, strict=True)]

    def scatter_sum(self, array: jax.Array, axis: str, dimension: int) -> jax.Array:
        """Sum an array over the devices along an axis, whose size divides a dimension, of which each gets its part."""
        count = jax.lax.axis_size(axis)
        parts = jnp.moveaxis(array, dimension, 0)
        shape = parts.shape[0] // count, *parts.shape[1:]
        total, _ = _sum_parts(parts.reshape(count, -1).astype(jnp.float32), axis, self._code)
        return jnp.moveaxis(total[: math.prod(shape)].reshape(shape), 0, dimension).astype(array.dtype)


def _sum_one(array: jax.Array, axes: AxisNames, code: Code) -> tuple[jax.Array, jax.Array]:
    """Return the sum of an array, and what of this device's is not in it."""
    flat, count = array.ravel(), jax.lax.axis_size(axes)
    parts = jnp.pad(flat, (0, -len(flat) % count)).reshape(count, -1)
    total, lost = _sum_parts(parts, axes, code)
    sent = code.encode(total)
    # What the sum of a part loses is kept by the device that has made it.
    lost = lost.at[jax.lax.axis_index(axes)].add((total - code.decode(sent)[: len(total)])[: parts.shape[1]])
    gathered = code.decode(jax.lax.all_gather(sent, axes))[:, : parts.shape[1]]
    restore = lambda parts: parts.ravel()[: len(flat)].reshape(array.shape)
    return restore(gathered), restore(lost)


def _sum_parts(parts: jax.Array, axis: AxisNames, code: Code) -> tuple[jax.Array, jax.Array]:
    """Return the sum of the parts `[devices, numbers]` that all devices have for this one, and what of its own was lost."""
    sent = code.encode(parts)
    lost = parts - code.decode(sent)[:, : parts.shape[1]]
    received = jax.lax.all_to_all(sent, axis, split_axis=0, concat_axis=0, tiled=True)
    return code.decode(received).sum(0), lost
