"""What a device holds of a state: a row for each array, or for many that are alike."""

import collections
import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, final

import jax
from jax.sharding import NamedSharding

from tfdist_jax._sharding._layout import HOST_MEMORY, StateLeaf, state_leaves

_LARGE_BYTES = 1 << 20


@final
@dataclasses.dataclass(frozen=True)
class StateRow:
    """Arrays of a state whose paths differ in numbers alone, of one shape, type and layout.

    Attributes:
        path: Where they are, such as `params/blocks/*/kernel`, with a star for numbers that differ.
        count: How many arrays these are.
        shape: The shape of each.
        dtype: The type of each.
        layout: How each lies over the mesh: its `PartitionSpec`, and whether it is in the hosts' memory.
        bytes: How many bytes all of them have.
        bytes_on_device: How many of these a device holds.
        is_whole: Whether each device of several holds all of them.
    """

    path: str
    count: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    bytes: int
    bytes_on_device: int
    is_whole: bool

    @property
    def is_large_and_whole(self) -> bool:
        """Whether every device holds whole arrays of a MiB or more."""
        return self.is_whole and self.bytes // self.count >= _LARGE_BYTES


def make_state_table(state: Any) -> tuple[StateRow, ...]:
    """Return what a device holds of each array of a state, alike ones together.

    Args:
        state: Pytree of arrays, or of `jax.ShapeDtypeStruct` with shardings.
    """
    alike: dict[Any, list[tuple[StateLeaf, Any]]] = collections.defaultdict(list)
    for seen, leaf in zip(state_leaves(state), jax.tree.leaves(state), strict=True):
        if seen is not None:
            key = (re.sub(r"\d+", "*", seen.path), seen.shape, str(seen.dtype), _layout_of(leaf))
            alike[key].append((seen, leaf))
    return tuple(_make_row(leaves, layout) for (*_, layout), leaves in alike.items())


def _make_row(leaves: Sequence[tuple[StateLeaf, Any]], layout: str) -> StateRow:
    (seen, leaf), count = leaves[0], len(leaves)
    itemsize = seen.dtype.itemsize
    sharding = getattr(leaf, "sharding", None)
    part = seen.shape if sharding is None else sharding.shard_shape(seen.shape)
    is_whole = part == seen.shape and sharding is not None and len(sharding.device_set) > 1
    total, held = (count * math.prod(shape) * itemsize for shape in (seen.shape, part))
    path = _fold_paths([seen.path for seen, _ in leaves])
    return StateRow(path, count, seen.shape, str(seen.dtype), layout, total, held, is_whole)


def _layout_of(leaf: Any) -> str:
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return "whole"
    on_host = ", on the host" if sharding.memory_kind == HOST_MEMORY else ""
    return str(sharding.spec).replace("PartitionSpec", "P") + on_host


def _fold_paths(paths: Sequence[str]) -> str:
    """Return the path of several, with a star for numbers that differ.

    Example:
        >>> _fold_paths(["1/blocks/0/kernel", "1/blocks/1/kernel"])
        '1/blocks/*/kernel'
    """
    parts = zip(*(re.split(r"(\d+)", path) for path in paths), strict=True)
    return "".join(part[0] if len(set(part)) == 1 else "*" for part in parts)
