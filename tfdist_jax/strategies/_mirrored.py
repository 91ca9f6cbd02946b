"""Data parallelism with a full copy of the state on every device."""

import dataclasses
import functools
from typing import final

import jax
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._mesh import DATA, make_mesh
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Mirrored(Strategy):
    """Every device holds the whole state and a slice of the batch.

    Attributes:
        devices: The devices to use; all visible ones if None.
    """

    devices: tuple[jax.Device, ...] | None = None

    @functools.cached_property
    def mesh(self) -> Mesh:
        """One replica per device."""
        devices = self.devices or tuple(jax.devices())
        return make_mesh({DATA: len(devices)}, devices=devices)

    def state_spec(self, path: str, leaf: jax.ShapeDtypeStruct) -> PartitionSpec:
        """Keep every leaf whole on every device."""
        return PartitionSpec()
