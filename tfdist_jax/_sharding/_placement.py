"""Host values to arrays over a mesh and back, whether its devices belong to this process alone or to several."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from tfdist_jax._sharding._mesh import batch_spec, replicas


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
    """Return the indices of this process's replicas."""
    own = set(mesh.local_devices)
    return tuple(i for i, device in enumerate(replicas(mesh)) if device in own)


def put(value: Any, sharding: Sharding) -> Any:
    """Lay out a value that every process has, as `jax.device_put` does; without asking the others whether theirs is equal.

    Args:
        value: Pytree of arrays: of the host, of this process's devices, or laid out over several processes already.
        sharding: Where to. Each device receives only its part.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    return jax.tree.map(lambda leaf: _put_one(leaf, sharding), value)


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


def put_own(value: Any, sharding: Sharding) -> Any:
    """Lay out arrays of which every process has the part for its own devices.

    Args:
        value: Pytree of host arrays; along the dimension that is split over processes, each has its rows only.
        sharding: Where to.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, leaf), value)


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
