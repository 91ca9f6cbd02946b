"""`tf.config`'s devices: which there are, which are used, into how many the processor is split."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import jax

from tfdist_jax import use_cpu_devices
from tfdist_jax._internals import backends_are_initialized
from tfdist_jax.compat.tensorflow import _startup

_TYPES = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}
_NOT_AFTER_START = "Virtual devices cannot be modified after being initialized"


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
        memory_limit: Accepted for TensorFlow's sake: JAX shares memory between the parts.
        experimental_priority: Accepted.
        experimental_device_ordinal: Accepted.
    """

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


def _named(kind: Any, prefix: str, device_type: str | None) -> list[Any]:
    """Number JAX's devices by type; without an accelerator the processor's parts are all there are."""
    _startup.apply_environment()
    counts: dict[str, int] = {}
    devices = []
    for device in _visible():
        type_ = _TYPES.get(device.platform, device.platform.upper())
        devices.append(kind(f"{prefix}:{type_}:{counts.setdefault(type_, 0)}", type_))
        counts[type_] += 1
    return [device for device in devices if device_type in (None, device.device_type)]


def _visible() -> list[jax.Device]:
    accelerators = [device for device in jax.local_devices() if device.platform != "cpu"]
    return [*jax.local_devices(backend="cpu"), *accelerators]


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return this machine's devices: the processor as one, and each accelerator.

    Does not start JAX where only the processor is asked for, so that it can still be split.
    """
    processor = [PhysicalDevice("/physical_device:CPU:0", "CPU")]
    if device_type == "CPU":
        return processor
    if not backends_are_initialized() and not _may_have_accelerators():
        return processor if device_type is None else []
    found = _named(PhysicalDevice, "/physical_device", None)
    everything = processor + [device for device in found if device.device_type != "CPU"]
    return [device for device in everything if device_type in (None, device.device_type)]


def _may_have_accelerators() -> bool:
    """Tell, without starting JAX, whether anything but a processor could be found."""
    return jax.config.jax_platforms != "cpu" and _plugins_present()


def _plugins_present() -> bool:
    from importlib.util import find_spec

    return any(find_spec(name) is not None for name in ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin", "libtpu"))


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices that programs can use; starts JAX."""
    return _named(LogicalDevice, "/device", device_type)


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the physical devices in use."""
    return list_physical_devices(device_type)


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Use only these devices; of accelerators none or all can be used.

    Raises:
        NotImplementedError: For a part of the accelerators: CUDA_VISIBLE_DEVICES chooses those.
        RuntimeError: If JAX has started.
    """
    wanted = devices if isinstance(devices, (list, tuple)) else [devices]
    present = list_physical_devices(device_type)
    if set(wanted) == set(present) or device_type == "CPU":
        return
    if wanted and any(device.device_type != "CPU" for device in wanted):
        raise NotImplementedError(
            f"A part of the accelerators cannot be chosen here ({wanted}). Start the program with CUDA_VISIBLE_DEVICES "
            "set to the numbers of those to use."
        )
    if backends_are_initialized():
        raise RuntimeError("Visible devices cannot be modified after being initialized")
    jax.config.update("jax_platforms", "cpu")


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
        raise NotImplementedError(f"{device.name} cannot be split: XLA uses an accelerator as a whole.")
    if backends_are_initialized():
        if len(jax.local_devices(backend="cpu")) != parts:
            raise RuntimeError(_NOT_AFTER_START)
        return
    use_cpu_devices(parts)


def get_logical_device_configuration(device: PhysicalDevice) -> list[LogicalDeviceConfiguration]:
    """Return a configuration for each part of `device`."""
    parts = jax.config.jax_num_cpu_devices if device.device_type == "CPU" else 1
    return [LogicalDeviceConfiguration()] * max(1, parts)


_memory_growth: dict[str, bool] = {}


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Let an accelerator's memory be taken as it is needed rather than at once; for all of them together.

    Raises:
        RuntimeError: If JAX has started.
    """
    if device.device_type != "CPU" and backends_are_initialized() and _memory_growth.get(device.name, False) != enable:
        raise RuntimeError("Physical devices cannot be modified after being initialized")
    _memory_growth[device.name] = enable
    if device.device_type != "CPU":
        _startup.set_preallocation(not enable)


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Return what `set_memory_growth` was last given."""
    return _memory_growth.get(device.name, False)


def set_soft_device_placement(enabled: bool) -> None:
    """Accept; devices that are not there are always replaced, with a warning."""


def get_soft_device_placement() -> bool:
    """Return True."""
    return True
