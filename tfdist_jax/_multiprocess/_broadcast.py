"""Values that the first process gives to all."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._cluster import allgather_object
from tfdist_jax._sharding._mesh import batch_spec, replicas
from tfdist_jax._sharding._placement import (
    keeping_64_bits,
    local,
    local_replicas,
    put,
    put_own,
    replicated_sharding,
    spans_processes,
)

_LEAST_BYTES = 1 << 16


def broadcast_from_first(value: Any, mesh: Mesh) -> jax.Array:
    """Return the value that the first process has, on every device; all processes must ask for it.

    Args:
        value: An array; the other processes' must have the same shape and type, their contents do not count.
        mesh: The replicas' mesh.

    Raises:
        ValueError: If the processes' values have different shapes or types.
    """
    whole = replicated_sharding(mesh)
    if not spans_processes(mesh):
        return put(value, whole)
    host = np.asarray(value)
    kinds = allgather_object("the same variable with a first value", [list(host.shape), str(host.dtype)])
    differing = [i for i, kind in enumerate(kinds) if kind != kinds[0]]
    if differing:
        raise ValueError(
            f"Processes 0 and {differing[0]} are to have the same value, but have different ones in mind: of shape and type "
            f"{kinds[0]} and {kinds[differing[0]]}. All processes must make the same variables in the same order."
        )
    # Sizes are rounded up, so that few programs serve all shapes.
    room = max(_LEAST_BYTES, 1 << (host.nbytes - 1).bit_length() if host.nbytes else 0)
    own = np.zeros((len(local_replicas(mesh)), room), np.uint8)
    own[0, : host.nbytes] = np.frombuffer(host.tobytes(), np.uint8)
    received = np.asarray(local(_row_of_first(mesh)(put_own(own, NamedSharding(mesh, batch_spec(mesh))))))
    with keeping_64_bits(value):
        return put(np.frombuffer(received[: host.nbytes].tobytes(), host.dtype).reshape(host.shape), whole)


@functools.lru_cache
def _row_of_first(mesh: Mesh) -> Any:
    """Return what gives all the row of the first process, whose replicas need not be the first ones."""
    owners = [device.process_index for device in replicas(mesh)]
    row = owners.index(min(owners))
    return jax.jit(lambda rows: jnp.asarray(rows[row]), out_shardings=replicated_sharding(mesh))
