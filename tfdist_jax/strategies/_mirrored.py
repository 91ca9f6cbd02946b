"""Data parallelism with a full copy of the state on every device."""

import dataclasses
from typing import final

import jax
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._sharding._mesh import Device, data_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Mirrored(Strategy):
    """Every device holds the whole state and a slice of the batch.

    Attributes:
        devices: The devices to use; all visible ones if None.
    """

    devices: tuple[Device, ...] | None = None

    @property
    def mesh(self) -> Mesh:
        """One replica per device."""
        return data_mesh(self.devices)

    def state_spec(self, path: str, leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
        """Keep every leaf whole on every device."""
        return PartitionSpec()
