"""Arrays of each process, told to all: for what Python computes beside the programs."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tfdist_jax._cluster import allgather_object
from tfdist_jax._sharding._mesh import batch_spec, replicas
from tfdist_jax._sharding._placement import local, local_replicas, processes, put_own, replicated_sharding


def allgather_arrays(
    what: str, said: Any, arrays: Sequence[np.ndarray], mesh: Mesh
) -> list[tuple[Any, list[np.ndarray]]]:
    """Tell the other processes of a mesh something, and give them arrays of any shapes.

    Args:
        what: What comes next, for messages; it must be the same in all processes.
        said: What this process says, of which JSON can be made.
        arrays: What it gives.
        mesh: The devices of all processes.

    Returns:
        What all processes have said and given, in their order.

    Raises:
        DisagreementError: In all processes, if one has come to another point.
    """
    told = allgather_object(what, [said, [[list(array.shape), str(array.dtype)] for array in arrays]])
    kinds = [[(tuple(shape), jnp.dtype(dtype)) for shape, dtype in one] for _, one in told]
    sizes = [sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in one) for one in kinds]
    texts = _texts(b"".join(array.tobytes() for array in arrays), sizes, mesh)
    return [(what, list(_arrays(text, one))) for (what, _), one, text in zip(told, kinds, texts, strict=True)]


def _texts(own: bytes, sizes: Sequence[int], mesh: Mesh) -> list[bytes]:
    """Return the bytes of all processes, of which they have so many."""
    if not any(sizes):
        return [b""] * len(sizes)
    rows = _rows_of_processes(mesh)
    # Rounded up, so that few programs serve all sizes.
    room = max(-(-size // len(mine)) for size, mine in zip(sizes, rows, strict=True))
    room = 1 << (room - 1).bit_length()
    block = np.zeros((len(local_replicas(mesh)), room), np.uint8)
    block.reshape(-1)[: len(own)] = np.frombuffer(own, np.uint8)
    whole = np.asarray(local(_to_all(mesh)(put_own(block, NamedSharding(mesh, batch_spec(mesh))))))
    return [whole[mine].tobytes()[:size] for mine, size in zip(rows, sizes, strict=True)]


def _rows_of_processes(mesh: Mesh) -> list[list[int]]:
    return [[i for i, device in enumerate(replicas(mesh)) if device.process_index == one] for one in processes(mesh)]


@functools.lru_cache
def _to_all(mesh: Mesh) -> Any:
    return jax.jit(lambda rows: rows, out_shardings=replicated_sharding(mesh))


def _arrays(text: bytes, kinds: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Iterator[np.ndarray]:
    counts = [int(np.prod(shape)) for shape, _ in kinds]
    ends = itertools.accumulate((n * dtype.itemsize for n, (_, dtype) in zip(counts, kinds, strict=True)), initial=0)
    for (shape, dtype), count, start in zip(kinds, counts, ends, strict=False):
        yield np.frombuffer(text, dtype, count, start).reshape(shape)
