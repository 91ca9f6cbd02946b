"""Gradients that travel as the factors of matrices of low rank."""

import dataclasses
import math
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import AxisNames, fused_sum
from tfdist_jax._sharding._compression._method import Compression, Memory, Summed

_FACTOR = "factor"


@final
@dataclasses.dataclass(frozen=True)
class PowerSGD(Compression):
    """Two small factors in place of a matrix: of the sum of all replicas' gradients, what is of low rank (https://arxiv.org/abs/1905.13727).

    A matrix `[n, m]` travels as `rank * (n + m)` numbers, found by a step of power iteration that begins with the last step's factor.
    Arrays of more dimensions are taken as matrices of as many columns as their last dimension has; those of fewer, and those whose factors
    would have more than half of their numbers, travel as they are.

    Attributes:
        rank: The rank of what is sent, 1 or more; 2 to 4 are common.
        error_feedback: Whether what is lost in a step is added to the next one's gradient.
        seed: Of the factors that a training begins with.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Compressed(td.Mirrored(), method=td.PowerSGD(rank=2))
        >>> params = strategy.init(lambda: {"kernel": np.ones((64, 32), np.float32), "bias": np.zeros(32, np.float32)})
        >>> memory = strategy.init_compression(params)
        >>> {path: {name: each.shape for name, each in kept.items()} for path, kept in memory.items()}
        {'kernel': {'factor': (8, 32, 2), 'residual': (8, 64, 32)}}
    """

    rank: int = 4
    error_feedback: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the rank."""
        if self.rank < 1:
            raise ValueError(f"`rank` is that of a matrix, 1 or more, got {self.rank}.")

    @property
    def feeds_errors_back(self) -> bool:
        """Whether what is lost is added to the next gradient."""
        return self.error_feedback

    @property
    def has_memory(self) -> bool:
        """It keeps factors in any case."""
        return True

    @property
    def is_by_element(self) -> bool:
        """It is not: factors are those of whole matrices."""
        return False

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether the factors of a matrix have at most half of its numbers."""
        rows, columns = _as_matrix(shape)
        return len(shape) > 1 and 2 * self.rank * (rows + columns) <= rows * columns

    def init_own(self, shape: tuple[int, ...]) -> Memory:
        """Return a random factor, the same on all replicas."""
        rows, columns = _as_matrix(shape)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), rows), columns)
        return {_FACTOR: jax.random.normal(key, (columns, self.rank))}

    def sum(self, arrays: Sequence[jax.Array], memories: Sequence[Memory], axes: AxisNames) -> list[Summed]:
        """Sum arrays over the devices along some axes."""
        matrices = [array.reshape(_as_matrix(array.shape)) for array in arrays]
        left = _sum([_product(each, kept[_FACTOR]) for each, kept in zip(matrices, memories, strict=True)], axes)
        # Householder's method: the columns are orthonormal whatever the rank, so that even zero factors find their way.
        bases = [jnp.linalg.qr(factor)[0] for factor in left]
        own = [_product(matrix.T, basis) for matrix, basis in zip(matrices, bases, strict=True)]
        right = _sum(own, axes)
        results = []
        for array, matrix, basis, mine, factor in zip(arrays, matrices, bases, own, right, strict=True):
            total = _product(basis, factor.T).reshape(array.shape)
            lost = (matrix - _product(basis, mine.T)).reshape(array.shape)
            results.append(Summed(total, lost, {_FACTOR: factor}))
        return results


def _sum(arrays: Sequence[jax.Array], axes: AxisNames) -> list[jax.Array]:
    return [total for total in fused_sum(arrays, axes) if total is not None]


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
