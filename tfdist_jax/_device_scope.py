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

Device = Any
"""A `jax.Device`, which to type checkers is no class."""

_LABEL = re.compile(r"tfdist_device=(\w+:\d+|none)")

# As for JAX's own settings, no argument could carry them through user code. The second one is JAX's default device around all scopes.
_current: ContextVar[Device | None] = ContextVar("device", default=None)
_around: ContextVar[Any] = ContextVar("default_device", default=None)
_named: ContextVar[set[Device] | None] = ContextVar("named_devices", default=None)


def current_device() -> Device | None:
    """Return the device of the innermost scope, or None outside of scopes."""
    return _current.get()


@contextlib.contextmanager
def on_device(device: Device | None) -> Iterator[None]:
    """Run operations on a device; in a function that is being traced, their equations say so (`label_of`).

    Args:
        device: One of this process's; None for where operations run outside of scopes.
    """
    named = _named.get()
    if named is not None and device is not None:
        named.add(device)
    around = setting("jax_default_device") if _current.get() is None else _around.get()
    tokens = _current.set(device), _around.set(around)
    try:
        with jax.default_device(device or around), jax.named_scope(f"tfdist_device={_label(device)}"):
            yield
    finally:
        _current.reset(tokens[0])
        _around.reset(tokens[1])


@contextlib.contextmanager
def noting_devices() -> Iterator[set[Device]]:
    """Give the set of devices whose scopes are entered inside, as far as it has grown."""
    found: set[Device] = set()
    token = _named.set(found)
    try:
        yield found
    finally:
        _named.reset(token)


def label_of(equation: Any) -> str | None:
    """Return what an equation of a program says of its device, as `labels` has it; None for none. The innermost scope counts.

    What JAX makes of an operation for its derivative says the same.
    """
    found = _LABEL.findall(name_stack(equation))
    return found[-1] if found and found[-1] != "none" else None


def labels(devices: set[Device]) -> dict[str, Device]:
    """Return devices by their labels."""
    return {_label(device): device for device in devices}


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
