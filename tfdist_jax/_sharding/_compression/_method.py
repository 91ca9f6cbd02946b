"""What every form of compressed gradients answers, and error feedback, which is the same for all."""

import abc
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames

Memory = Mapping[str, jax.Array]
"""What a replica keeps of a gradient from step to step, by name."""

RESIDUAL = "residual"
"""In a memory: what of the replica's gradients has not been sent yet. Only the sum over replicas matters; all else is the same on all."""

MIN_SIZE = 1024
"""Gradients of fewer numbers, such as those of biases, travel as they are if nothing else is said."""


class Summed(NamedTuple):
    """What becomes of an array that is summed over replicas.

    Attributes:
        total: The sum as it has come, in float32, the same on all replicas.
        lost: What of this replica's array is not in it: over all replicas, `total` and `lost` add up to the arrays.
        memory: What the replica keeps beside what was lost.
    """

    total: jax.Array
    lost: jax.Array
    memory: Memory


class Compression(abc.ABC):
    """In which form gradients travel between replicas, for `td.Compressed`; its subclasses are the forms.

    With error feedback, each replica keeps what of its gradient was lost on the way, and adds it to the next one: nothing is lost, only
    late (https://arxiv.org/abs/1901.09847).

    Example:
        >>> import tfdist_jax as td
        >>> [form.has_memory for form in (td.BFloat16(), td.Int8(), td.Int8(error_feedback=False), td.PowerSGD(), td.TopK())]
        [False, True, False, True, True]
    """

    @property
    @abc.abstractmethod
    def feeds_errors_back(self) -> bool:
        """Whether what is lost is added to the next gradient."""

    @property
    def has_memory(self) -> bool:
        """Whether something is kept from step to step: what `strategy.init_compression` makes."""
        return self.feeds_errors_back

    @property
    def is_by_element(self) -> bool:
        """Whether the form of a part of an array is a part of its form: then parts on several devices stay there."""
        return True

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether gradients of a shape are compressed; others travel as they are."""
        return True

    def init_own(self, shape: tuple[int, ...]) -> Memory:
        """Return what a replica keeps at first of a gradient of a shape, beside what was lost."""
        return {}

    @abc.abstractmethod
    def sum(self, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: AxisNames) -> list[Summed]:
        """Sum arrays in float32 over the devices along some axes, in a program of replicas.

        Args:
            arrays: This replica's.
            memories: What it keeps of each beside what was lost.
            axes: Axes of the mesh, of several indices.
        """

    def scatter_sum(self, array: jax.Array, axis: str, dimension: int) -> jax.Array:
        """Sum an array over the devices along an axis, of which each gets its part, as `jax.lax.psum_scatter(..., tiled=True)`.

        Of forms without memory.
        """
        raise NotImplementedError(f"{self} sums whole arrays.")


def is_compressed(method: Compression, shape: tuple[int, ...], dtype: Any, min_size: int = MIN_SIZE) -> bool:
    """Whether a gradient travels in a form: one of floating numbers, not too few of them, of a shape that the form takes."""
    return math.prod(shape) >= min_size and jnp.issubdtype(dtype, jnp.floating) and method.takes(shape)


def init_replica_memory(method: Compression, shape: tuple[int, ...]) -> Memory:
    """Return what one replica keeps at first of a gradient of a shape."""
    residual = {RESIDUAL: jnp.zeros(shape, jnp.float32)} if method.feeds_errors_back else {}
    return {**residual, **method.init_own(shape)}


def sum_compressed(
    method: Compression, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: tuple[str, ...]
) -> tuple[list[jax.Array], list[Memory]]:
    """Sum gradients over the devices along some axes, in a program of replicas, with what was lost before.

    Args:
        method: In which form they travel.
        arrays: Gradients of this replica.
        memories: What it keeps of each.
        axes: Axes of the mesh, of several indices; if there are none, one replica has it all.

    Returns:
        The sums, in the types of `arrays`, and the new memories, which `keep_if` is to decide on.
    """
    given = [array.astype(jnp.float32) for array in arrays]
    if method.feeds_errors_back:
        given = [array + memory[RESIDUAL] for array, memory in zip(given, memories, strict=True)]
    if not axes:
        sums = [Summed(array, jnp.zeros_like(array), memory) for array, memory in zip(given, memories, strict=True)]
    else:
        sums = method.sum(given, memories, axes)
    totals = [one.total.astype(array.dtype) for one, array in zip(sums, arrays, strict=True)]
    found = [{**one.memory, RESIDUAL: one.lost} if method.feeds_errors_back else one.memory for one in sums]
    return totals, found


def are_finite(arrays: Sequence[jax.Array]) -> jax.Array:
    """Return whether all numbers of arrays are finite, as a scalar."""
    return functools.reduce(jnp.logical_and, [jnp.isfinite(array).all() for array in arrays])


def keep_if(is_finite: jax.Array, new: Sequence[Memory], old: Sequence[Memory]) -> list[Memory]:
    """Return the new memories after a step whose sums are all finite, and else the old ones.

    A step with a sum that is not is most often left out, with all that its other gradients have sent; and what is not finite would never
    leave a memory.
    """
    keep = lambda after, before: jnp.where(is_finite, after, before)
    pairs = zip(new, old, strict=True)
    return [{name: keep(after[name], before[name]) for name in before} for after, before in pairs]
