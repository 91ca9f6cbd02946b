"""Host values to arrays over a mesh and back, whether its devices belong to this process alone or to several."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from tfdist_jax._sharding._mesh import SEQUENCE, batch_spec, replica_groups


@functools.lru_cache(maxsize=256)
def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """Return the layout of what is whole on each device of `mesh`; the same object each time."""
    return NamedSharding(mesh, PartitionSpec())


def spans_processes(mesh: Mesh) -> bool:
    """Tell whether some devices of `mesh` belong to other processes."""
    return not replicated_sharding(mesh).is_fully_addressable


def processes(mesh: Mesh) -> tuple[int, ...]:
    """Return the numbers of the processes that have devices of `mesh`."""
    return tuple(sorted({device.process_index for device in mesh.devices.flat}))


def local_replicas(mesh: Mesh) -> tuple[int, ...]:
    """Return the indices of the replicas of which this process has devices; others may have more of these."""
    own = set(mesh.local_devices)
    return tuple(i for i, group in enumerate(replica_groups(mesh)) if not own.isdisjoint(group))


def put(value: Any, sharding: Any) -> Any:
    """Lay out a value that every process has, as `jax.device_put` does; without asking the others whether theirs is equal.

    Args:
        value: Pytree of arrays: of the host, of this process's devices, or laid out over several processes already.
        sharding: Where to, or a tree of it. Each device receives only its part.
    """
    if _are_local(sharding):
        return jax.device_put(value, sharding)
    return _map_with(_put_one, value, sharding)


def batch_shardings(batch: Any, mesh: Mesh) -> Any:
    """Return how the arrays of a batch are laid out: by rows, and where the mesh splits tokens, by these; one layout if all have it.

    Raises:
        ValueError: If the tokens of an array do not divide over the devices.
    """
    parts = mesh.shape.get(SEQUENCE, 1)
    if parts == 1:
        return NamedSharding(mesh, batch_spec(mesh))
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if np.ndim(leaf) > 1 and np.shape(leaf)[1] % parts:
            raise ValueError(
                f"The batch's array{jax.tree_util.keystr(path)} has the shape {np.shape(leaf)}, but its second dimension, the tokens of "
                f"each row, does not divide over the {parts} devices along {SEQUENCE!r}. Fill it up and leave the padding out by a mask."
            )
    return jax.tree.map(lambda leaf: NamedSharding(mesh, batch_spec(mesh, np.ndim(leaf))), batch)


def stack_replicas(values: Sequence[Any], mesh: Mesh) -> jax.Array:
    """Lay out a value for each replica, of one shape and type, which every process has: `[num_replicas, ...]`, sharded `P(DATA)`."""
    return put(jnp.stack(list(values)), NamedSharding(mesh, batch_spec(mesh)))


def _put_one(value: Any, sharding: Sharding) -> Any:
    if isinstance(value, Tracer) or (isinstance(value, jax.Array) and not value.is_fully_addressable):
        return jax.device_put(value, sharding)
    host = np.asarray(value)
    with keeping_64_bits(value):
        dtype = jax.dtypes.canonicalize_dtype(host.dtype)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index], dtype=dtype)


def keeping_64_bits(value: Any) -> contextlib.AbstractContextManager[Any]:
    """Lay out inside as `jax.device_put` does: arrays keep 64 bits, host values where JAX's configuration says so."""
    return jax.enable_x64(True) if isinstance(value, jax.Array) else contextlib.nullcontext()


def put_own(value: Any, sharding: Any) -> Any:
    """Lay out arrays of which every process has the part for its own devices.

    Args:
        value: Pytree of host arrays; along the dimension that is split over processes, each has its rows only.
        sharding: Where to, or a tree of it.
    """
    if _are_local(sharding):
        return jax.device_put(value, sharding)
    return _map_with(lambda leaf, sharding: jax.make_array_from_process_local_data(sharding, leaf), value, sharding)


def _are_local(sharding: Any) -> bool:
    return all(each.is_fully_addressable for each in jax.tree.leaves(sharding))


def _map_with(fn: Callable[[Any, Any], Any], value: Any, sharding: Any) -> Any:
    """Apply `fn` to arrays and their layouts: one of all, or a tree of them."""
    if isinstance(sharding, Sharding):
        return jax.tree.map(lambda leaf: fn(leaf, sharding), value)
    return jax.tree.map(fn, value, sharding)


def local(value: Any) -> Any:
    """Return this process's copy of an array that is whole on every device, for computing on without the others."""
    if isinstance(value, jax.Array) and not isinstance(value, Tracer) and not value.is_fully_addressable:
        return (value if value.is_fully_replicated else _everywhere(value)).addressable_data(0)
    return value


def _everywhere(value: jax.Array) -> jax.Array:
    sharding = value.sharding
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
    else:
        devices = sorted(sharding.device_set, key=lambda device: (device.process_index, device.id))
        mesh = Mesh(np.array(devices), ("all",))
    return jax.device_put(value, replicated_sharding(mesh))
