"""Tensors that lie on different sets of devices, such as what several strategies return, meet in one operation."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from tfdist_jax._autodiff._custom_pullback import unseen
from tfdist_jax._internals import ArrayImpl


def is_of_devices(error: BaseException) -> bool:
    """Whether JAX has refused to compute with arrays of different devices."""
    return type(error) is ValueError and "incompatible devices" in str(error)


def meeting(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a JAX function, with its arguments on the devices of the first one if they lie on different ones."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        if not is_of_devices(error):
            raise
    args, kwargs = brought_together((args, kwargs))
    return function(*args, **kwargs)


def brought_together(structure: Any) -> Any:
    """Return a structure whose arrays can meet: they follow the first one that is bound to devices. Tapes see where they come from."""
    bound = [leaf for leaf in jax.tree.leaves(structure) if _is_bound(leaf)]
    if not bound:
        return structure
    home = bound[0].sharding
    if not home.is_fully_replicated:
        home = jax.sharding.SingleDeviceSharding(min(home.device_set, key=lambda device: device.id))
    return jax.tree.map(lambda leaf: _moved(leaf, home) if _is_bound(leaf) else leaf, structure)


def _moved(array: jax.Array, home: jax.sharding.Sharding) -> jax.Array:
    """Return the array on other devices; gradients go back to its own."""
    before = array.sharding
    if before.device_set == home.device_set:
        return array

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        return [None if each is None else jax.device_put(each, before) for each in cotangents]

    (moved,) = unseen([array], lambda: [jax.device_put(array, home)], pullback)
    return moved


def _is_bound(leaf: Any) -> bool:
    return type(leaf) is ArrayImpl and leaf.committed
