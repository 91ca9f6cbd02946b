"""TensorFlow's device names, such as "/gpu:0", to JAX devices."""

import re
import warnings
from collections.abc import Sequence

import jax

from tfdist_jax import use_cpu_devices
from tfdist_jax._internals import backends_are_initialized

_NAME = re.compile(r"^(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?(?P<kind>[A-Za-z]+):(?P<index>\d+|\*)$")
_PLATFORMS = {"CPU": "cpu", "GPU": "gpu", "TPU": "tpu", "XLA_GPU": "gpu", "XLA_CPU": "cpu"}


def parse_device(name: str) -> tuple[str, int]:
    """Split a device name into its platform and number.

    Raises:
        ValueError: If `name` is no device name.

    Example:
        >>> parse_device("/job:localhost/replica:0/task:0/device:GPU:1")
        ('gpu', 1)
    """
    match = _NAME.match(name)
    kind = match["kind"].upper() if match else None
    if match is None or kind not in _PLATFORMS:
        raise ValueError(f"A device is named like '/gpu:0' or '/device:CPU:1', got {name!r}.")
    return _PLATFORMS[kind], 0 if match["index"] == "*" else int(match["index"])


def resolve_devices(names: Sequence[str]) -> list[jax.Device]:
    """Find the devices with these names; names of devices that are not there get others, each its own.

    Args:
        names: Device names, all different.

    Returns:
        As many devices, all different. Where a named one does not exist, the user is warned and another is used.

    Raises:
        ValueError: If a name is given twice, or is none.
        RuntimeError: If there are fewer devices than names and JAX has started, so that none can be added.
    """
    wanted = [parse_device(name) for name in names]
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"Each device of a strategy is named once, got {list(names)}.")
    if not backends_are_initialized() and jax.config.jax_num_cpu_devices < len(names):
        use_cpu_devices(len(names))  # Counts only where there is no accelerator.
    present = {(device.platform, device.local_hardware_id or 0): device for device in jax.local_devices()}
    present |= {(device.platform, i): device for i, device in enumerate(jax.local_devices())}
    found = [present.get(("gpu" if platform == "cuda" else platform, index)) for platform, index in wanted]
    free = [device for device in jax.local_devices() if device not in found]
    return [_substitute(name, free) if device is None else device for name, device in zip(names, found, strict=True)]


def _substitute(name: str, free: list[jax.Device]) -> jax.Device:
    if not free:
        raise RuntimeError(
            f"There is no device {name!r} and no other one is left to take its place: JAX has "
            f"{jax.local_device_count()} device(s). Start the program with `tfdist-jax run --devices N` for N virtual ones."
        )
    device = free.pop(0)
    warnings.warn(f"There is no device {name!r}: using {device} in its place.", stacklevel=4)
    return device
