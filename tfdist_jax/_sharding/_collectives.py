"""Collectives over the replicas of one program, fused into few transfers."""

import enum
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._sharding._mesh import DATA, batch_axes

AxisNames = str | tuple[str, ...]

BUCKET_BYTES = 1 << 20
"""Arrays of this size or more travel alone: copying them into a bucket costs more than a transfer saves."""


class ReduceOp(enum.Enum):
    """How the values of all replicas become one.

    Example:
        >>> import tfdist_jax as td
        >>> td.ReduceOp("MEAN")
        <ReduceOp.MEAN: 'MEAN'>
    """

    SUM = "SUM"
    MEAN = "MEAN"


def map_replicas(
    body: Callable[..., Any], mesh: Mesh, *, in_specs: Any, out_specs: Any, axes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Make one SPMD program of `body`, run on each index of some axes, or of the batch axes, with manual collectives.

    Varying-axes checks are off: with them, JAX would sum gradients over replicas on its own. Other axes of the mesh are left
    to XLA, inside of the replicas too.
    """
    names = {*(axes or batch_axes(mesh))}
    return jax.shard_map(body, mesh=mesh, axis_names=names, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def switch_on_size(
    sizes: tuple[int, ...], branch: Callable[[int], Callable[[Any], Any]], operand: Any, axes: AxisNames = DATA
) -> Any:
    """Run `branch(size)(operand)` with this replica's own entry of `sizes`, of those along `axes`.

    One program serves replicas with different numbers of rows. Branches must not communicate: replicas in
    different branches would wait for each other.
    """
    distinct = sorted(set(sizes))
    if len(distinct) == 1:
        return branch(distinct[0])(operand)
    mine = jnp.array([distinct.index(size) for size in sizes])[jax.lax.axis_index(axes)]
    return jax.lax.switch(mine, [branch(size) for size in distinct], operand)


def _buckets(arrays: Sequence[jax.Array | None], bucket_bytes: int) -> list[list[int]]:
    """Group the positions of `arrays` by dtype, the large ones alone; None is left out."""
    small: dict[jnp.dtype, list[int]] = {}
    large: list[list[int]] = []
    for i, array in enumerate(arrays):
        if array is None:
            continue
        if math.prod(array.shape) * array.dtype.itemsize >= bucket_bytes:
            large.append([i])
        else:
            small.setdefault(array.dtype, []).append(i)
    return large + list(small.values())


def fused_sum(
    arrays: Sequence[jax.Array | None],
    axis_name: AxisNames = DATA,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    pack_bytes: int = 0,
) -> list[jax.Array | None]:
    """Sum each array over the replicas, small ones of one dtype together in one all-reduce.

    Call it inside a replica program (`shard_map` over `axis_name`).

    Args:
        arrays: Arrays of any shapes and dtypes, or None, which stays None.
        axis_name: Mesh axis, or several, to sum over.
        bucket_bytes: Arrays of at least this many bytes are reduced on their own.
        pack_bytes: Arrays are put together until they have so many bytes, in order; 0 for no bound.

    Returns:
        The sums, in the order of `arrays`, equal on every replica.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> sums = strategy.run(lambda x: td.fused_sum([x.sum(), x]), strategy.split(np.arange(8.0)))
        >>> float(sums[0].values[0]), sums[1].values[0]
        (28.0, Array([28.], dtype=float32))
    """
    if jax.lax.axis_size(axis_name) == 1:
        # XLA would leave out the all-reduce, but not the copies into buckets and out of them.
        return [None if array is None else jnp.asarray(array) for array in arrays]
    total = lambda array: sum_over(array, axis_name)
    return map_buckets(total, arrays, bucket_bytes=bucket_bytes, pack_bytes=pack_bytes)


def at_least_float32(array: jax.Array) -> jax.Array:
    """Return an array in float32 if its type is a shorter one."""
    is_short = jnp.issubdtype(array.dtype, jnp.inexact) and jnp.finfo(array.dtype).bits < 32
    return array.astype(jnp.float32) if is_short else array


def sum_over(array: jax.Array, axis_name: AxisNames) -> jax.Array:
    """Sum an array over mesh axes in a program of replicas, as `jax.lax.psum`."""
    return _run_wide(lambda array: jax.lax.psum(array, axis_name), array)


def scatter_sum_over(array: jax.Array, axis_name: AxisNames, dimension: int) -> jax.Array:
    """Sum an array over mesh axes, of which each device gets its part, as `jax.lax.psum_scatter(..., tiled=True)`."""
    scatter = lambda array: jax.lax.psum_scatter(array, axis_name, scatter_dimension=dimension, tiled=True)
    return _run_wide(scatter, array)


def gather_over(array: jax.Array, axis_name: AxisNames, dimension: int) -> jax.Array:
    """Gather an array over mesh axes, as `jax.lax.all_gather(..., tiled=True)`, whose gradient is summed and scattered."""
    return _run_wide(lambda array: jax.lax.all_gather(array, axis_name, axis=dimension, tiled=True), array)


def _run_wide(communicate: Callable[[jax.Array], jax.Array], array: jax.Array) -> jax.Array:
    """Communicate about numbers of 16 bits as float32 where XLA would end the process: on CPUs, if it divides other axes of the mesh.

    There it sums them in float32 anyway (https://github.com/openxla/xla, `all-reduce-promotion`).
    """
    mesh = jax.sharding.get_abstract_mesh()
    breaks_down = bool(mesh.auto_axes) and mesh.abstract_device is not None and mesh.abstract_device.platform == "cpu"
    wide = at_least_float32(array) if breaks_down else array
    result = communicate(wide)
    return result if wide.dtype == array.dtype else result.astype(array.dtype)


def map_buckets(
    fn: Callable[[jax.Array], Any],
    arrays: Sequence[jax.Array | None],
    *,
    bucket_bytes: int = BUCKET_BYTES,
    pack_bytes: int = 0,
) -> list[Any]:
    """Apply a function to arrays, small ones of one type put together in a flat one; other arguments as of `fused_sum`.

    It returns an array of the shape that it is given, or a tree of such arrays.
    """
    result: list[Any] = list(arrays)
    for bucket in _packed(arrays, _buckets(arrays, bucket_bytes), pack_bytes):
        members = [jnp.asarray(arrays[i]) for i in bucket]
        if len(members) == 1:
            result[bucket[0]] = fn(members[0])
            continue
        flat = fn(jnp.concatenate([jnp.ravel(m) for m in members]))
        ends = list(itertools.accumulate(member.size for member in members))
        for i, member, end in zip(bucket, members, ends, strict=True):
            cut = lambda whole, end=end, member=member: whole[end - member.size : end].reshape(member.shape)
            result[i] = jax.tree.map(cut, flat)
    return result


def _packed(
    arrays: Sequence[jax.Array | None], buckets: Iterable[Sequence[int]], pack_bytes: int
) -> Iterator[Sequence[int]]:
    """Cut buckets where they have `pack_bytes`."""
    for bucket in buckets:
        pack: list[int] = []
        size = 0
        for i in bucket:
            pack.append(i)
            size += jnp.asarray(arrays[i]).nbytes
            if pack_bytes and size >= pack_bytes:
                yield pack
                pack, size = [], 0
        if pack:
            yield pack


def fused_mean(
    arrays: Sequence[jax.Array | None], axis_name: AxisNames = DATA, *, bucket_bytes: int = BUCKET_BYTES
) -> list[jax.Array | None]:
    """Average each array over the replicas; as `fused_sum`, divided by their number.

    Integer arrays give a floating mean; leave out what must stay an integer.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> means = strategy.run(lambda x: td.fused_mean([x.sum(), None]), strategy.split(np.arange(8.0)))
        >>> float(means[0].values[0]), means[1]
        (3.5, None)
    """
    count = jax.lax.axis_size(axis_name)
    sums = fused_sum(arrays, axis_name, bucket_bytes=bucket_bytes)
    return [None if total is None else total / count for total in sums]
