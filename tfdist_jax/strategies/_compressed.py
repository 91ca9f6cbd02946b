"""Gradients that travel between devices in fewer bytes."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import final

from jax.sharding import Mesh

from tfdist_jax._pipeline import PipelinePlan
from tfdist_jax._sharding._compression import MIN_SIZE, Compression, Int8, is_compressed
from tfdist_jax._sharding._layout import Layout, StateLeaf
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Compressed(Strategy):
    """Another strategy, whose gradients travel in fewer bytes; they are approximate.

    Sums are made in float32; losses and other results, parameters that are gathered, and what tensor parallelism communicates stay as they
    are. It is worth it where a network between machines is what steps wait for.

    | form | bytes, of those in float32 | what replicas keep of a gradient | strategies |
    | --- | --- | --- | --- |
    | `td.BFloat16()` | a half | nothing | all |
    | `td.Int8(error_feedback=False)` | a quarter | nothing | all |
    | `td.Int8()` | a quarter | its size in float32 | whose replicas hold all parameters |
    | `td.PowerSGD(rank)` | `rank * (1 / n + 1 / m)` for a matrix `[n, m]` | its size, and a factor | as before |
    | `td.TopK(fraction)` | `fraction * replicas`, each of which sends to all | its size | as before |

    What replicas keep is made by `init_compression`, and handed to and returned by the function that `value_and_grad` returns. Where a
    step's sum is not finite, it stays as it is. It has the scale of the gradients that it was left of: where a loss scale changes, multiply
    it.

    Attributes:
        strategy: The other strategy, such as `td.Mirrored()`.
        min_size: Gradients with fewer elements, such as those of biases, are reduced as they are.
        method: In which form gradients travel: rounded to int8 without memory, if not given.

    Example:
        >>> import jax, numpy as np, tfdist_jax as td
        >>> strategy = td.Compressed(td.Mirrored())
        >>> params = strategy.init(lambda: jax.random.normal(jax.random.key(0), (64, 32)))
        >>> compute = strategy.value_and_grad(lambda w, x: ((x @ w) ** 2).mean(), has_aux=False)
        >>> compute(params, strategy.put(np.ones((16, 64), np.float32)))[1].shape
        (64, 32)
    """

    strategy: Strategy
    min_size: int = MIN_SIZE
    method: Compression = dataclasses.field(default=Int8(error_feedback=False), kw_only=True)

    @property
    def mesh(self) -> Mesh:
        """That of the other strategy."""
        return self.strategy.mesh

    @property
    def pipeline(self) -> PipelinePlan | None:
        """That of the other strategy."""
        return self.strategy.pipeline

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay an array out as the other strategy does."""
        layout = self.strategy.state_layout(leaf)
        is_taken = is_compressed(self.method, leaf.shape, leaf.dtype, self.min_size)
        if leaf.is_optimizer_state or not is_taken:
            return layout
        return dataclasses.replace(layout, wire=self.method)

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the other strategy's rules that match none of the paths."""
        return self.strategy.unmatched_rules(paths)
