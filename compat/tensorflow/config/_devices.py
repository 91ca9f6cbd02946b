"""`tf.config`'s devices: which there are, which are used, into how many the processor is split."""

# JAX's settings are no attributes to type checkers.
# pyright: reportAttributeAccessIssue=false

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, final

import jax

from tfdist_jax import use_cpu_devices
from tfdist_jax._internals import backends_are_initialized
from tfdist_jax._sharding._mesh import Device
from tfdist_jax.compat.tensorflow._platform import _environment
from tfdist_jax.compat.tensorflow._platform._devices import (
    count_accelerators,
    device_type as type_of,
    emulated_cores,
    full_name,
    has_process_names,
    local_devices,
    named_devices,
    parse_device,
)

_GROWTH = "XLA_PYTHON_CLIENT_PREALLOCATE"

# Numbers of the GPUs to use, or None for all: JAX's own setting cannot be read back.
_chosen_gpus: list[str] | None = None


@final
@dataclasses.dataclass(frozen=True)
class PhysicalDevice:
    """A processor or accelerator of this machine.

    Attributes:
        name: Such as "/physical_device:GPU:0".
        device_type: "CPU", "GPU" or "TPU".
    """

    name: str
    device_type: str


@final
@dataclasses.dataclass(frozen=True)
class LogicalDevice:
    """A device that programs can use.

    Attributes:
        name: Such as "/device:GPU:0".
        device_type: "CPU", "GPU" or "TPU".
    """

    name: str
    device_type: str


@final
@dataclasses.dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One of the parts that a physical device is split into.

    Attributes:
        memory_limit: Accepted: XLA's memory is shared. XLA_PYTHON_CLIENT_MEM_FRACTION limits it.
        experimental_priority: Accepted.
        experimental_device_ordinal: Accepted.
    """

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return this machine's devices, of one type or all: the processor as one, and each accelerator.

    The processor and NVIDIA's GPUs are found without starting JAX, so that they can still be set up.
    """
    counts = {"CPU": lambda: 1, "GPU": lambda: count_accelerators("GPU"), "TPU": _count_tpus}
    kinds = [kind for kind in counts if device_type in (None, kind)]
    return [PhysicalDevice(f"/physical_device:{kind}:{i}", kind) for kind in kinds for i in range(counts[kind]())]


def _count_tpus() -> int:
    return emulated_cores() or count_accelerators("TPU")


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices that programs can use, of one type or all; starts JAX.

    Once a strategy has connected several processes those of the others come behind this one's own.
    """
    kinds = [kind for kind in dict.fromkeys([*map(type_of, local_devices()), "TPU"]) if device_type in (None, kind)]
    if not has_process_names():
        return [LogicalDevice(f"/device:{kind}:{i}", kind) for kind in kinds for i in range(len(named_devices(kind)))]
    own = [(device, kind) for kind in kinds for device in named_devices(kind)]
    devices = dict.fromkeys([*jax.devices("cpu"), *jax.devices()])
    others = [(device, type_of(device)) for device in devices if device.process_index != jax.process_index()]
    others.sort(key=lambda other: other[0].process_index)
    return [LogicalDevice(full_name(device, kind), kind) for device, kind in [*own, *others] if kind in kinds]


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the physical devices in use, of one type or all."""
    present = list_physical_devices(device_type)
    if _chosen_gpus is None or backends_are_initialized():
        return present  # Once JAX has started it lists only the chosen ones itself.
    return [device for device in present if device.device_type != "GPU" or _number(device) in _chosen_gpus]


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Use only these devices of a type, or of all; before anything has been computed. The processor always stays.

    Raises:
        RuntimeError: If JAX has started.
        NotImplementedError: For a part of the TPUs.
    """
    wanted = list(devices) if isinstance(devices, list | tuple) else [devices]
    if set(wanted) == set(get_visible_devices(device_type)):
        return
    if backends_are_initialized():
        raise RuntimeError("Visible devices cannot be modified after being initialized")
    if device_type == "CPU":
        return
    if any(device.device_type == "TPU" for device in wanted):
        raise NotImplementedError("A part of the TPUs is chosen with TPU_VISIBLE_CHIPS before the program starts.")
    global _chosen_gpus
    _chosen_gpus = numbers = [_number(device) for device in wanted if device.device_type == "GPU"]
    if numbers:
        jax.config.update("jax_cuda_visible_devices", ",".join(numbers))
    else:
        jax.config.update("jax_platforms", "cpu")


def _number(device: PhysicalDevice) -> str:
    return device.name.rpartition(":")[2]


def set_logical_device_configuration(device: PhysicalDevice, logical_devices: Sequence[Any] | None) -> None:
    """Split the processor into `len(logical_devices)` devices, before anything has been computed.

    Raises:
        RuntimeError: If JAX has started.
        NotImplementedError: To split an accelerator.
    """
    parts = len(logical_devices or [None])
    if device.device_type != "CPU":
        if parts == 1:
            return
        raise NotImplementedError(
            f"{device.name} cannot be split: XLA uses an accelerator as a whole. To try several devices, split the "
            "processor: tf.config.list_physical_devices('CPU')[0]."
        )
    if backends_are_initialized():
        if len(local_devices("CPU")) != parts:
            raise RuntimeError("Virtual devices cannot be modified after being initialized")
        return
    use_cpu_devices(parts)


def get_logical_device_configuration(device: PhysicalDevice) -> list[LogicalDeviceConfiguration] | None:
    """Return a configuration for each part of the processor, or None if the device has not been split."""
    parts = jax.config.jax_num_cpu_devices if device.device_type == "CPU" else -1
    return None if parts < 1 else [LogicalDeviceConfiguration()] * parts


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Let accelerators' memory be taken as it is needed rather than at once; for all of them together.

    Raises:
        RuntimeError: If JAX has started.
        ValueError: If the device is the processor.
    """
    if device.device_type == "CPU":
        raise ValueError("Cannot set memory growth on non-GPU and non-Pluggable devices")
    if get_memory_growth(device) == bool(enable):
        return
    if backends_are_initialized():
        raise RuntimeError("Physical devices cannot be modified after being initialized")
    _environment.set_preallocation(not enable)


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Return whether accelerators' memory is taken as it is needed."""
    return os.environ.get(_GROWTH, "").lower() in ("false", "0")


def get_memory_info(device: str) -> dict[str, int]:
    """Return a device's memory in use, now ("current") and at most so far ("peak"), in bytes.

    Raises:
        ValueError: If the device does not count it, such as the processor.
    """
    statistics = _named(device).memory_stats()
    if statistics is None:
        raise ValueError(f"No allocator statistics for device {device!r}.")
    return {"current": statistics["bytes_in_use"], "peak": statistics["peak_bytes_in_use"]}


def get_memory_usage(device: str) -> int:
    """Return a device's memory in use, in bytes."""
    return get_memory_info(device)["current"]


def _named(name: str) -> Device:
    kind, number = parse_device(name) or ("", 0)
    present = named_devices(kind) if kind else []
    if number >= len(present):
        raise ValueError(f"There is no device {name!r}, only {[device.name for device in list_logical_devices()]}.")
    return present[number]


def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
    """Return an accelerator's "device_name", and a GPU's "compute_capability"; nothing for the processor."""
    if device.device_type == "CPU":
        return {}
    found = local_devices(device.device_type)[int(_number(device))]
    details: dict[str, Any] = {"device_name": found.device_kind}
    capability = getattr(found, "compute_capability", None)
    if capability is not None:
        details["compute_capability"] = tuple(int(part) for part in str(capability).split("."))
    return details
