"""Device scopes: on which device operations run, at once or as equations of a program that is cut by devices.

Nothing is bound to its device. What lies elsewhere is copied to where an operation runs, and arrays of different devices can always
meet: outside of scopes on JAX's default device.
"""

import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax._internals import name_stack, released_from_device, setting
from tfdist_jax._thread_state import having

Device = Any
"""A `jax.Device`, which to type checkers is no class."""

_LABEL = re.compile(r"tfdist_device=(\w+:\d+|none)")

# As for JAX's own settings, no argument could carry them through user code. The second one is JAX's default device around all scopes.
_current: ContextVar[Device | None] = ContextVar("device", default=None)
_around: ContextVar[Any] = ContextVar("default_device", default=None)


def current_device() -> Device | None:
    """Return the device of the innermost scope, or None outside of scopes."""
    return _current.get()


@contextlib.contextmanager
def on_device(device: Device | None) -> Iterator[None]:
    """Run operations on a device; in a function that is being traced, their equations say so (`device_of`).

    Args:
        device: One of this process's; None for where operations run outside of scopes.
    """
    around = setting("jax_default_device") if _current.get() is None else _around.get()
    name = f"tfdist_device={_label(device)}"
    with having(_current, device), having(_around, around), jax.default_device(device or around), jax.named_scope(name):
        yield


def device_of(equation: Any) -> Device | None:
    """Return the device of this process that an equation of a program names, or None. The innermost scope counts.

    What JAX makes of an operation for its derivative names the same.
    """
    found = _LABEL.findall(name_stack(equation))
    if not found or found[-1] == "none":
        return None
    present = jax.local_devices(backend=found[-1].partition(":")[0])
    return next(device for device in present if _label(device) == found[-1])


def _label(device: Device | None) -> str:
    return "none" if device is None else f"{device.platform}:{device.id}"


def only_device(array: jax.Array) -> Device | None:
    """Return the device that an array lies on, or None if there are several."""
    devices = array.devices()
    return next(iter(devices)) if len(devices) == 1 else None


def copy_to(array: jax.Array, device: Device) -> jax.Array:
    """Return a copy on a device, which shares no memory with `array` and is not bound to the device."""
    if array.committed:
        return released_from_device(jax.device_put(jnp.copy(array), device))
    with jax.default_device(device):
        return jnp.copy(array)
