"""`tf.distribute.experimental.CentralStorageStrategy`."""

import functools
import warnings
from collections.abc import Sequence
from typing import final

import jax
from jax.sharding import SingleDeviceSharding

import tfdist_jax
from tfdist_jax._sharding._layout import HOST_MEMORY
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._stateful._storage import CentralStorage, Storage
from tfdist_jax.compat.tensorflow._platform._devices import (
    full_name,
    host_name,
    local_devices,
    make_room,
    parse_device,
    resolve_devices,
)
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import tell_unused_servers
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


@final
class CentralStorageStrategy(Strategy):
    """Drop-in for `tf.distribute.experimental.CentralStorageStrategy`: variables in one place, computing on all devices.

    Between steps, devices hold no variables unless they are their place. There are no variables with a value for each replica: those with
    ON_READ synchronization are assigned as all others.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CentralStorageStrategy
    """

    keeps_replica_values = False

    def __init__(self, compute_devices: Sequence[str] | None = None, parameter_device: str | None = None) -> None:
        """Compute on some devices, with the variables on one.

        Args:
            compute_devices: Such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.
            parameter_device: Such as "/cpu:0", which is the host's memory, page-locked where accelerators compute. The only compute
                device if there is one, or else the host, if None.

        Raises:
            ValueError: If there is no compute device, if one is named twice, or if a name is none of a device.
        """
        if isinstance(compute_devices, str) or (compute_devices is not None and not len(compute_devices)):
            raise ValueError(
                f"`compute_devices` must be a list of devices' names, such as ['/gpu:0', '/gpu:1'], got {compute_devices!r}."
            )
        tell_unused_servers("CentralStorageStrategy")
        wanted = None if parameter_device is None else parse_device(parameter_device) or ("CPU", 0)
        names = [] if compute_devices is None else list(compute_devices)
        if wanted is not None and wanted[0] == "CPU":
            numbers = [number for kind, number in map(_parse, names) if kind == "CPU"]
            make_room(max([wanted[1], *numbers]) + 1)
        chosen = tuple(resolve_devices(names) if names else jax.local_devices())
        super().__init__(tfdist_jax.CentralStorage(chosen))
        home = chosen[0] if wanted is None and len(chosen) == 1 else _find(*(wanted or ("CPU", 0)))
        is_host = home.platform == "cpu" and chosen[0].platform != "cpu"
        self._home_name = host_name() if is_host else full_name(home)
        self.parameter_devices = (self._home_name,)
        self._home = SingleDeviceSharding(chosen[0], memory_kind=HOST_MEMORY) if is_host else SingleDeviceSharding(home)

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: one array."""
        return CentralStorage(self.native.mesh, self._home, self._home_name)


def _parse(name: str) -> tuple[str, int]:
    return parse_device(name) or ("CPU", 0)


def _find(kind: str, number: int) -> Device:
    present = local_devices(kind)
    if number < len(present):
        return present[number]
    device = local_devices("CPU")[0]
    warnings.warn(
        f"There is no device '/{kind.lower()}:{number}': variables are kept on {device} in its place.", stacklevel=3
    )
    return device
