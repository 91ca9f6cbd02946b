"""TensorFlow's device names, such as "/gpu:0", and JAX's devices."""

# JAX's settings are no attributes to type checkers.
# pyright: reportAttributeAccessIssue=false

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
from jax.core import Tracer

from tfdist_jax import _nvidia, use_cpu_devices
from tfdist_jax._cluster import Task
from tfdist_jax._device_scope import device_of, on_device
from tfdist_jax._internals import backends_are_initialized, equation_of, joined_processes
from tfdist_jax._runtime import count_cpu_devices
from tfdist_jax._sharding._mesh import Device
from tfdist_jax.compat.tensorflow._platform import _environment
from tfdist_jax.compat.tensorflow._platform._context import binding_strategy
from tfdist_jax.compat.tensorflow._platform._device_spec import DeviceSpec
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError

_NAME = re.compile(
    r"^(/job:(?P<job>\w+))?(/replica:\d+)?(/task:(?P<task>\d+))?/?((device:)?(XLA_)?(?P<kind>CPU|GPU|TPU)(:(?P<index>\d+|\*))?)?$",
    re.IGNORECASE,
)
_PLUGINS = {
    "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin"),
    "rocm": ("jax_rocm60_plugin", "jax_rocm7_plugin"),
    "tpu": ("libtpu",),
}
_TYPES = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}

EMULATED_CORES = "TFDIST_EMULATED_TPU_CORES"
"""The environment variable that asks for CPU devices in place of a TPU's cores; `tfdist-jax run --emulate-tpu N` sets it."""


def has_plugin(kind: str) -> bool:
    """Whether JAX's plugin for "cuda", "rocm" or "tpu" is installed."""
    return any(find_spec(name) is not None for name in _PLUGINS[kind])


def device_type(device: Device) -> str:
    """Return "CPU", "GPU" or "TPU"."""
    platform = str(device.platform)
    return _TYPES.get(platform, platform.upper())


# What the processes are called by their numbers, from when a strategy has connected them.
_tasks: dict[int, str] = {}


def name_processes(tasks: Sequence[Task]) -> None:
    """Let the names of all devices say which task of a cluster has them, as in TensorFlow for the rest of the program."""
    _tasks.update((i, f"/job:{task.type}/replica:0/task:{task.index}") for i, task in enumerate(tasks))


def has_process_names() -> bool:
    """Whether the names of devices say which task of a cluster has them."""
    return bool(_tasks)


def full_name(device: Device, kind: str | None = None) -> str:
    """Return TensorFlow's name of a device, of its own type unless another one is given."""
    return f"{_process_name(device.process_index)}/device:{kind or device_type(device)}:{_number(device)}"


def _process_name(process: int) -> str:
    return _tasks.get(process, f"/job:localhost/replica:0/task:{process}")


def _own_process() -> int:
    """Return this process's number, without starting JAX."""
    joined = joined_processes()
    return 0 if joined is None else joined[2]


def _number(device: Device) -> int:
    """Return a device's number among those of its type in its process: JAX's own numbers go on over the processes."""
    return sum(each.process_index == device.process_index and each.id < device.id for each in device.client.devices())


def device_name(array: jax.Array) -> str:
    """Return TensorFlow's name of the (first) device of this process that holds an array."""
    own = [device for device in array.devices() if device.process_index == _own_process()]
    return full_name(min(own or array.devices(), key=lambda each: each.id))


def requested_device() -> str:
    """Return the device of `tf.device` as TensorFlow names that of a tensor in a function; empty outside of one."""
    device: Any = jax.config.jax_default_device
    return "" if device is None or isinstance(device, str) else _short_name(device)


def requested_device_of(tensor: Tracer) -> str:
    """Return the device of `tf.device` where a function has computed a tensor, likewise."""
    equation = equation_of(tensor)
    device = None if equation is None else device_of(equation)
    return "" if device is None else _short_name(device)


def _short_name(device: Device) -> str:
    return "/" + full_name(device).rpartition("/")[2]


def host_name() -> str:
    """Return TensorFlow's name of the processor, which holds strings."""
    return f"{_process_name(_own_process())}/device:CPU:0"


def local_devices(kind: str | None = None) -> list[Device]:
    """Return this process's devices, of one type or all, the processor's first; starts JAX."""
    _environment.apply_environment()
    accelerators = [device for device in jax.local_devices() if device.platform != "cpu"]
    present = [*jax.local_devices(backend="cpu"), *accelerators]
    return [device for device in present if kind in (None, device_type(device))]


def emulated_cores() -> int:
    """Return how many CPU devices stand for TPU cores; 0 if none do.

    Raises:
        ValueError: If the environment variable holds no number.
    """
    text = os.environ.get(EMULATED_CORES, "0")
    if not text.isdigit():
        raise ValueError(f"{EMULATED_CORES} must hold a number of TPU cores, got {text!r}.")
    return int(text)


def named_devices(kind: str) -> list[Device]:
    """Return the devices that TensorFlow's names of a type mean: emulated TPU cores are parts of the processor."""
    cores = emulated_cores() if kind == "TPU" else 0
    return local_devices("CPU")[:cores] if cores else local_devices(kind)


def count_accelerators(kind: str) -> int:
    """Return how many GPUs or TPUs this machine has.

    NVIDIA's GPUs are counted without starting JAX: programs ask for them to set up their memory, which cannot be done
    once JAX has started.
    """
    if backends_are_initialized():
        return len(local_devices(kind))
    if kind == "GPU" and not has_plugin("rocm"):
        return _count_nvidia() if _may_use("cuda", "gpu") and has_plugin("cuda") else 0
    plugin = "rocm" if kind == "GPU" else "tpu"
    return len(local_devices(kind)) if has_plugin(plugin) and _may_use(plugin, kind.lower()) else 0


def _may_use(*platforms: str) -> bool:
    chosen = jax.config.jax_platforms
    return not chosen or any(platform in chosen.split(",") for platform in platforms)


def _count_nvidia() -> int:
    present = len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or len(list(Path("/dev").glob("nvidia[0-9]*")))
    chosen = _nvidia.visible()
    return present if chosen is None else min(present, len(chosen))


def parse_device(name: str) -> tuple[str, int] | None:
    """Split a device name into its type and number; None if it names no device, only a job or task.

    Raises:
        ValueError: If `name` is no device name.

    Example:
        >>> parse_device("/job:localhost/replica:0/task:0/device:GPU:1")
        ('GPU', 1)
    """
    match = _NAME.match(name)
    if match is None:
        raise ValueError(f"A device is named like '/gpu:0' or '/device:CPU:1', got {name!r}.")
    if match["kind"] is None:
        return None
    return match["kind"].upper(), int(match["index"]) if (match["index"] or "*") != "*" else 0


def resolve_devices(names: Sequence[str]) -> list[Device]:
    """Find the devices with these names; names of devices that are not there get others, each its own.

    Args:
        names: Device names, all different.

    Returns:
        As many devices, all different. Where a named one does not exist, the user is warned and another is used: an
        unused accelerator, or else a part of the processor.

    Raises:
        ValueError: If a name is given twice, or is none.
        RuntimeError: If there are fewer devices than names and JAX has started, so that none can be added.
    """
    wanted = [parse_device(name) or ("CPU", 0) for name in names]
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"Each device of a strategy is named once, got {list(names)}.")
    make_room(len(names))
    present = {(kind, i): device for kind in ("CPU", "GPU", "TPU") for i, device in enumerate(local_devices(kind))}
    found = [present.get(place) for place in wanted]
    free = [device for place, device in present.items() if place not in wanted]
    free.sort(key=lambda device: device.platform == "cpu")
    return [_substitute(name, free) if device is None else device for name, device in zip(names, found, strict=True)]


def make_room(count: int) -> None:
    """Let the processor be at least `count` devices, if JAX has not started."""
    if backends_are_initialized():
        return
    if count_cpu_devices() < count:
        use_cpu_devices(count)


def _substitute(name: str, free: list[Device]) -> Device:
    if not free:
        raise RuntimeError(
            f"There is no device {name!r} and no other one is left to take its place: JAX has "
            f"{len(local_devices())} device(s). Start the program with `tfdist-jax run --devices N` for N virtual ones."
        )
    device = free.pop(0)
    warnings.warn(f"There is no device {name!r}: using {device} in its place.", stacklevel=5)
    return device


_soft_placement = True


def set_soft_device_placement(enabled: bool) -> None:
    """Say whether `tf.device` may use another device if the named one is not there (the default)."""
    global _soft_placement
    _soft_placement = bool(enabled)


def get_soft_device_placement() -> bool:
    """Return what `set_soft_device_placement` was given last."""
    return _soft_placement


@contextlib.contextmanager
def device(device_name: Any) -> Iterator[None]:
    """Run operations, and keep the variables made, on the named device; inside `tf.function` too, stage by stage.

    Inputs that lie elsewhere are copied there. Scopes may be nested, of which the innermost counts; None takes them back. Names of jobs
    and tasks alone change nothing, and the processor is used if the named device is not there. Operations outside of scopes run
    on JAX's default device, the first one; in a `tf.function`, on the device of a variable that they take, or on that of their inputs.
    Under a strategy, new tensors lie on the device and nothing else changes: replicas have their own.

    Differs from TensorFlow: an operation's gradient is computed on the operation's device, and a variable's lies on the variable's.
    See https://www.tensorflow.org/api_docs/python/tf/device.

    Raises:
        RuntimeError: If a function is given.
        ValueError: If it is no name of a device.
        InvalidArgumentError: If there is no such device and soft placement is off, or if it is another process's.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> with tf.device("/cpu:0"):
        ...     v = tf.Variable(1.0)
        >>> v.device
        '/job:localhost/replica:0/task:0/device:CPU:0'
    """
    if callable(device_name):
        raise RuntimeError("tf.device does not support functions. Give the name of a device, such as '/device:GPU:0'.")
    name = device_name.to_string() if isinstance(device_name, DeviceSpec) else getattr(device_name, "name", device_name)
    if name is not None and not isinstance(name, str):
        raise ValueError(f"Expecting a string device name such as '/device:GPU:0'. Got {type(name)}({name}).")
    place = None if name is None else parse_device(name)
    _must_be_own(name or "")
    is_bound = binding_strategy() is not None
    if place is None and (name is not None or is_bound):
        yield
        return
    found = None if place is None else _find_device(*place, name)
    with jax.default_device(found) if is_bound else on_device(found):
        yield


def _find_device(kind: str, index: int, name: Any) -> Device:
    present = named_devices(kind)
    if index < len(present):
        return present[index]
    if not _soft_placement:
        raise InvalidArgumentError(
            None, None, f"Could not satisfy device specification {name!r}: there are {len(present)} {kind}s."
        )
    return local_devices("CPU")[0]


def _must_be_own(name: str) -> None:
    parts = _NAME.match(name)
    task = "" if parts is None else f"/job:{parts['job']}/replica:0/task:{parts['task']}"
    own = _process_name(_own_process())
    if task in _tasks.values() and task != own:
        raise InvalidArgumentError(
            None,
            None,
            f"{name} is a device of another process: tensors are made on those of {own}, such as {own}/device:CPU:0.",
        )
