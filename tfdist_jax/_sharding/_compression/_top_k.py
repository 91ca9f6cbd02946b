"""Gradients of which the largest numbers travel, with their places."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames
from tfdist_jax._sharding._compression._method import Compression, Memory, Summed


@final
@dataclasses.dataclass(frozen=True)
class TopK(Compression):
    """The largest numbers of each replica's gradients, with their places; the others wait (https://arxiv.org/abs/1712.01887).

    Each replica gets those of all others, 8 bytes a number: with many replicas, fewer numbers are worth it.

    Attributes:
        fraction: Which part of each array's numbers is sent, at least one.
        error_feedback: Whether what is not sent is added to the next step's gradient. Without, most of it never counts.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Compressed(td.Mirrored(), method=td.TopK(0.01))
        >>> params = strategy.init(lambda: np.zeros((50, 40), np.float32))
        >>> compute = strategy.value_and_grad(lambda w, x: (x @ w).mean(), has_aux=False)
        >>> rows = strategy.put(np.arange(16 * 50, dtype=np.float32).reshape(16, 50))
        >>> _, grads, _ = compute(params, rows, compression=strategy.init_compression(params))
        >>> int((grads != 0).sum())
        20
    """

    fraction: float = 0.01
    error_feedback: bool = True

    def __post_init__(self) -> None:
        """Check the fraction."""
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"`fraction` is the part of numbers that is sent, above 0 and at most 1, got {self.fraction}."
            )

    @property
    def feeds_errors_back(self) -> bool:
        """Whether what is lost is added to the next gradient."""
        return self.error_feedback

    def sum(self, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: AxisNames) -> list[Summed]:
        """Sum arrays over the devices along some axes."""
        counts = [max(1, round(self.fraction * array.size)) for array in arrays]
        flat = [array.ravel() for array in arrays]
        places = [jax.lax.top_k(jnp.abs(each), count)[1] for each, count in zip(flat, counts, strict=True)]
        sent = [_pack(each, chosen) for each, chosen in zip(flat, places, strict=True)]
        received = jax.lax.all_gather(jnp.concatenate(sent, 1), axes)
        parts = jnp.split(received, list(itertools.accumulate(counts))[:-1], axis=2)
        results = []
        for array, each, chosen, part, memory in zip(arrays, flat, places, parts, memories, strict=True):
            lost = each.at[chosen].set(0, unique_indices=True)
            results.append(Summed(_add_up(part, each.size).reshape(array.shape), lost.reshape(array.shape), memory))
        return results


def _pack(flat: jax.Array, places: jax.Array) -> jax.Array:
    """Return numbers, as bits, and their places: `[2, numbers]` in int32."""
    return jnp.stack([jax.lax.bitcast_convert_type(flat[places], jnp.int32), places])


def _add_up(received: jax.Array, size: int) -> jax.Array:
    """Return the sum of what `[replicas, 2, numbers]` stands for.

    One replica after another: in a single operation a GPU would add in any order, and replicas would not get the same.
    """

    def add(total: jax.Array, part: jax.Array) -> tuple[jax.Array, None]:
        numbers = jax.lax.bitcast_convert_type(part[0], jnp.float32)
        return total.at[part[1]].add(numbers, unique_indices=True), None

    return jax.lax.scan(add, jnp.zeros(size, jnp.float32), received)[0]
