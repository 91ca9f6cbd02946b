"""Hybrid sharded data parallelism: several copies of the state, each split over a group of devices."""

import dataclasses
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf, split_large
from tfdist_jax._sharding._mesh import DATA, FSDP_AXIS, Device, named_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class HSDP(Strategy):
    """Groups of devices hold one copy of the state each, of which every device has its slice.

    Parameters are gathered and gradients scattered within a group, over its fast network; between groups, only the slices of
    gradients are summed (https://arxiv.org/abs/2304.11277, "hybrid sharding"). Groups are of neighbouring devices.

    Attributes:
        shards: Into how many slices each copy is split: the devices of a group.
        devices: The devices to use; all visible ones if None.
        min_size: Arrays with fewer elements, and those with no dimension that `shards` divides, stay whole on every device.

    Example:
        >>> import jax.numpy as jnp, tfdist_jax as td
        >>> strategy = td.HSDP(shards=4)
        >>> dict(strategy.mesh.shape), strategy.init(lambda: jnp.ones((1024, 8))).addressable_shards[0].data.shape
        ({'data': 2, 'fsdp': 4}, (256, 8))
    """

    shards: int
    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """Groups, along `data`, of `shards` devices, along `fsdp`; rows are split over both."""
        return named_mesh(((DATA, -1), (FSDP_AXIS, self.shards)), self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Split the largest dimension that `shards` divides; of large arrays that have none, warn once."""
        return Layout(split_large(leaf, FSDP_AXIS, self.shards, self.min_size))
