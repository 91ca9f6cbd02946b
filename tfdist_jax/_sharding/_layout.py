"""Layouts: from the path and shape of a state leaf to how it lies over the mesh."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from tfdist_jax._sharding._mesh import DATA

SpecRule = Callable[[str, jax.ShapeDtypeStruct], PartitionSpec]
"""Path of a leaf (as `jax.tree_util.keystr` writes it) and its shape, to its layout."""


def tree_specs(rule: SpecRule, tree: Any) -> Any:
    """Apply `rule` to every array of `tree`.

    Args:
        rule: Gives a leaf's layout from its path and shape.
        tree: Pytree of arrays or `jax.ShapeDtypeStruct`.

    Returns:
        A pytree of the same structure with a `PartitionSpec` per leaf.
    """
    return jax.tree_util.tree_map_with_path(lambda path, leaf: rule(jax.tree_util.keystr(path), leaf), tree)


def largest_dimension_spec(shape: tuple[int, ...], num_shards: int, *, min_size: int) -> PartitionSpec:
    """Split the largest dimension that `num_shards` divides.

    Args:
        shape: Shape of the array.
        num_shards: Number of devices to split over.
        min_size: Arrays with fewer elements are not worth a collective and stay whole.

    Returns:
        A spec with the data axis on one dimension, or an empty one if the array stays whole.

    Example:
        >>> largest_dimension_spec((3, 64), 8, min_size=1) == PartitionSpec(None, "data")
        True
    """
    divisible = [d for d, size in enumerate(shape) if size and size % num_shards == 0]
    if not divisible or math.prod(shape) < min_size:
        return PartitionSpec()
    largest = max(divisible, key=lambda d: shape[d])
    return PartitionSpec(*(DATA if d == largest else None for d in range(largest + 1)))


_LARGE_BYTES = 1 << 20
_warned_of: set[tuple[tuple[int, ...], int]] = set()


def warn_of_whole_array(path: str, leaf: jax.ShapeDtypeStruct, num_shards: int) -> None:
    """Warn of an array of a MiB or more that is whole on each device, once for each shape.

    Args:
        path: Where in the state it is.
        leaf: Its shape and type.
        num_shards: Number of devices over which it should have been split.
    """
    size = math.prod(leaf.shape) * leaf.dtype.itemsize
    if size < _LARGE_BYTES or (leaf.shape, num_shards) in _warned_of:
        return
    _warned_of.add((leaf.shape, num_shards))
    warnings.warn(
        f"{path or 'The state'} of shape {leaf.shape} stays whole on each device, {size / 2**20:.1f} MiB: no dimension of it is divisible "
        f"by {num_shards}. Make one so, such as a vocabulary filled up to {-(-max(leaf.shape) // num_shards) * num_shards}.",
        stacklevel=2,
    )


def sharded_dimension(spec: PartitionSpec) -> int | None:
    """Return the dimension that `spec` splits over the data axis, or None if it is whole."""
    return next((dimension for dimension, axes in enumerate(spec) if _has_data(axes)), None)


def data_spec(spec: PartitionSpec) -> PartitionSpec:
    """Return what `spec` says of the data axis alone; other axes are XLA's inside of replicas.

    Example:
        >>> data_spec(PartitionSpec("tensor", ("data", "expert"))) == PartitionSpec(None, "data")
        True
    """
    return PartitionSpec(*(DATA if _has_data(axes) else None for axes in spec))


def _has_data(axes: Any) -> bool:
    return axes == DATA or (isinstance(axes, tuple) and DATA in axes)
