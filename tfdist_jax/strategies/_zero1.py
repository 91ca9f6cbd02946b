"""Data parallelism in which the devices share the optimizer's state."""

import dataclasses
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf, split_large
from tfdist_jax._sharding._mesh import DATA, Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class ZeRO1(Strategy):
    """Every device holds all parameters and 1/N of the optimizer's state (https://arxiv.org/abs/1910.02054, stage 1).

    Gradients are scattered, so that a device updates its slice, and what the optimizer adds to the parameters is gathered: as many
    bytes as for the all-reduce of `Mirrored`. It saves most of the memory for the state with Adam, and does not gather in the loss.

    The optimizer's state is what lies in states of Optax, or below the name `opt_state`, as in Flax's `TrainState` and `nnx.Optimizer`.

    Attributes:
        devices: The devices to use; all visible ones if None.
        min_size: Arrays with fewer elements, and those with no dimension that the number of devices divides,
            stay whole on every device.

    Example:
        >>> import jax.numpy as jnp, optax, tfdist_jax as td
        >>> make_state = lambda: (params := jnp.ones((1024, 8)), optax.adam(0.1).init(params))
        >>> params, opt_state = td.ZeRO1().init(make_state)
        >>> params.sharding.is_fully_replicated, opt_state[0].mu.sharding.is_fully_replicated
        (True, False)
    """

    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """One replica per device."""
        return data_mesh(self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Split the optimizer's arrays, and gradients, by their largest dimension that the number of devices divides."""
        spec = split_large(leaf, DATA, self.num_replicas, self.min_size)
        return Layout(spec) if leaf.is_optimizer_state else Layout(gradient=spec)
