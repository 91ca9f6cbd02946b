"""The whole state in the hosts' memory; all devices compute."""

import dataclasses
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import HOST_MEMORY, Layout, StateLeaf, split_large
from tfdist_jax._sharding._mesh import DATA, Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class CentralStorage(Strategy):
    """Parameters and the optimizer's state lie in the hosts' memory, once; each device computes with its rows of the batch.

    From one step to the next the devices hold nothing. A step brings each of them its part of the state, gathers parameters where they are
    used, as `td.FSDP` does with the same results, bit by bit, and takes the parts back. It is for states that no device has room for beside
    what a step computes; where the transfers take longer than the computation, they are what a step waits for.

    Attributes:
        devices: The devices that compute; all visible ones if None.
        min_size: Arrays with fewer elements, such as a count of steps, stay on the devices.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> weights = td.CentralStorage().init(lambda: jnp.ones((1024, 8)))
        >>> weights.sharding.memory_kind, weights.addressable_shards[0].data.shape == (1024 // jax.device_count(), 8)
        ('pinned_host', True)
    """

    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    @property
    def mesh(self) -> Mesh:
        """One replica per device."""
        return data_mesh(self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Split the largest dimension that the number of devices divides, in the hosts' memory."""
        if leaf.size < self.min_size:
            return Layout()
        return Layout(split_large(leaf, DATA, self.num_replicas, self.min_size), memory_kind=HOST_MEMORY)
