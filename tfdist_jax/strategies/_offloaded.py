"""The optimizer's state in the hosts' memory."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import final

from jax.sharding import Mesh

from tfdist_jax._pipeline import PipelinePlan
from tfdist_jax._sharding._layout import HOST_MEMORY, Layout, StateLeaf
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Offloaded(Strategy):
    """Another strategy, whose optimizer's state lies in the hosts' memory from one step to the next.

    A step brings it to the devices where the optimizer uses it, and takes it back, split over them as the other strategy says: accelerators
    keep their memory for parameters and activations, and wait for the transfers that computation does not hide. Results are the same,
    bit by bit.

    The optimizer's state is what lies in states of Optax, or below the name `opt_state`, as in Flax's `TrainState` and `nnx.Optimizer`.

    Attributes:
        strategy: The other strategy, such as `td.FSDP()`.
        min_size: Arrays with fewer elements, such as a count of steps, stay on the devices.

    Example:
        >>> import jax, jax.numpy as jnp, optax, tfdist_jax as td
        >>> strategy = td.Offloaded(td.FSDP())
        >>> make_state = lambda: (params := {"w": jnp.ones((256, 8))}, optax.adam(1e-3).init(params))
        >>> params, opt_state = strategy.init(make_state)
        >>> params["w"].sharding.memory_kind, opt_state[0].mu["w"].sharding.memory_kind
        ('device', 'pinned_host')
    """

    strategy: Strategy
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """That of the other strategy."""
        return self.strategy.mesh

    @property
    def pipeline(self) -> PipelinePlan | None:
        """That of the other strategy."""
        return self.strategy.pipeline

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay an array out as the other strategy does; the optimizer's in the hosts' memory."""
        layout = self.strategy.state_layout(leaf)
        is_offloaded = leaf.is_optimizer_state and leaf.size >= self.min_size
        return dataclasses.replace(layout, memory_kind=HOST_MEMORY) if is_offloaded else layout

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the other strategy's rules that match none of the paths."""
        return self.strategy.unmatched_rules(paths)
