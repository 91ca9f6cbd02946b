"""Data parallelism with a full copy of the state on every device."""

import dataclasses
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf
from tfdist_jax._sharding._mesh import Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Mirrored(Strategy):
    """Every device holds the whole state and a slice of the batch.

    Attributes:
        devices: The devices to use; all visible ones if None.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> weights = strategy.init(lambda: jnp.ones((1024, 8)))
        >>> weights.sharding.is_fully_replicated, strategy.num_replicas == jax.device_count()
        (True, True)
    """

    devices: tuple[Device, ...] | None = None

    @property
    def mesh(self) -> Mesh:
        """One replica per device."""
        return data_mesh(self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Keep every leaf whole on every device."""
        return Layout()
