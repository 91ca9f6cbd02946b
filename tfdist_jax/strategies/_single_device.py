"""Training on one device."""

import dataclasses
from typing import final

import jax
from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf
from tfdist_jax._sharding._mesh import Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class SingleDevice(Strategy):
    """One device holds everything: the baseline that other strategies must agree with.

    Attributes:
        device: The device to use; the first visible one if None.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> td.SingleDevice().num_replicas, td.SingleDevice().put(np.ones((4, 2))).shape
        (1, (4, 2))
    """

    device: Device | None = None

    @property
    def mesh(self) -> Mesh:
        """A single replica."""
        return data_mesh((self.device or jax.local_devices()[0],))

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Keep every leaf whole."""
        return Layout()
