"""Gradients that are rounded to int8 on their way between devices."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import final

import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Compressed(Strategy):
    """Another strategy, whose gradients travel in a quarter of the bytes; they are approximate.

    Where gradients are reduced over replicas, each number is rounded to one of 255 values, with a scale of its own for every 256 of them
    (https://arxiv.org/abs/2306.10209); where all replicas get the sum, that is rounded once more. So an error is at most 0.4 % of the
    largest number in its block, for each replica's part. Sums are made in float32; losses and other results, parameters that are gathered,
    and what tensor parallelism communicates stay as they are. It is worth it where a network between machines is what steps wait for.

    Attributes:
        strategy: The other strategy, such as `td.Mirrored()`.
        min_size: Gradients with fewer elements, such as those of biases, are reduced as they are.

    Example:
        >>> import jax, numpy as np, tfdist_jax as td
        >>> strategy = td.Compressed(td.Mirrored())
        >>> params = strategy.init(lambda: jax.random.normal(jax.random.key(0), (64, 32)))
        >>> compute = strategy.value_and_grad(lambda w, x: ((x @ w) ** 2).mean(), has_aux=False)
        >>> compute(params, strategy.put(np.ones((16, 64), np.float32)))[1].shape
        (64, 32)
    """

    strategy: Strategy
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """That of the other strategy."""
        return self.strategy.mesh

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay an array out as the other strategy does."""
        layout = self.strategy.state_layout(leaf)
        is_large = leaf.size >= self.min_size and jnp.issubdtype(leaf.dtype, jnp.floating)
        return dataclasses.replace(layout, wire="int8") if is_large else layout

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the other strategy's rules that match none of the paths."""
        return self.strategy.unmatched_rules(paths)
