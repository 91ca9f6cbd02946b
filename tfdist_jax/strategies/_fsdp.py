"""Fully sharded data parallelism: each device holds a slice of the state and of the batch."""

import dataclasses
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf, split_large
from tfdist_jax._sharding._mesh import DATA, Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class FSDP(Strategy):
    """Every device holds 1/N of each large parameter and of its optimizer state.

    Parameters are gathered when a step uses them and their gradients are scattered back to where they live, so
    the memory for the state shrinks with the number of devices (ZeRO, https://arxiv.org/abs/1910.02054). `td.layer` says where that is;
    without it, all parameters are gathered before the loss.

    Attributes:
        devices: The devices to use; all visible ones if None.
        min_size: Arrays with fewer elements, and those with no dimension that the number of devices divides,
            stay whole on every device.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> weights = td.FSDP().init(lambda: jnp.ones((1024, 8)))
        >>> weights.shape, weights.addressable_shards[0].data.shape == (1024 // jax.device_count(), 8)
        ((1024, 8), True)
    """

    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """One replica per device."""
        return data_mesh(self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Split the largest dimension that the number of devices divides; of large arrays that have none, warn once."""
        return Layout(split_large(leaf, DATA, self.num_replicas, self.min_size))
