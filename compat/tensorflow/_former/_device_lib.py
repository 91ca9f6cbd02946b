"""`tensorflow.python.client.device_lib`: the devices of this process."""

import dataclasses
from typing import Any, final

from tfdist_jax.compat.tensorflow._platform._devices import device_type, local_devices

# What TensorFlow says of the processor, whatever its memory.
_PROCESSOR_BYTES = 256 * 2**20


@final
@dataclasses.dataclass(frozen=True)
class DeviceAttributes:
    """A device, with the names of TensorFlow's protocol buffer.

    Attributes:
        name: TensorFlow's name, such as "/device:GPU:0".
        device_type: "CPU", "GPU" or "TPU".
        memory_limit: Bytes that programs can use.
        incarnation: A number of this process's device.
        physical_device_desc: What the device is; empty for the processor.
    """

    name: str
    device_type: str
    memory_limit: int
    incarnation: int
    physical_device_desc: str = ""

    def __str__(self) -> str:
        lines = [f'name: "{self.name}"', f'device_type: "{self.device_type}"', f"memory_limit: {self.memory_limit}"]
        lines += ["locality {", "}", f"incarnation: {self.incarnation}"]
        if self.physical_device_desc:
            lines += [f'physical_device_desc: "{self.physical_device_desc}"']
        return "\n".join([*lines, ""])

    __repr__ = __str__


def list_local_devices(session_config: Any = None) -> list[DeviceAttributes]:
    """Return this process's devices, the processor's first; starts JAX."""
    counts: dict[str, int] = {}
    found = []
    for device in local_devices():
        kind = device_type(device)
        number = counts[kind] = counts.get(kind, -1) + 1
        statistics = device.memory_stats() if kind != "CPU" else None
        limit = (statistics or {}).get("bytes_limit", _PROCESSOR_BYTES if kind == "CPU" else 0)
        described = "" if kind == "CPU" else f"device: {number}, name: {device.device_kind}"
        found.append(DeviceAttributes(f"/device:{kind}:{number}", kind, limit, device.id + 1, described))
    return found
