"""`keras.distribution.LayoutMap` as rules: its axes become a strategy's, and that of batches is called as ours is."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from jax.sharding import Mesh, PartitionSpec

import tfdist_jax
from tfdist_jax import Layout, StateLeaf
from tfdist_jax._sharding._mesh import DATA, Device, named_mesh

_BATCH = "batch"


def is_layout_map(rules: Any) -> bool:
    """Whether rules are a `keras.distribution.LayoutMap`."""
    return isinstance(rules, Mapping) and hasattr(rules, "device_mesh")


@final
@dataclasses.dataclass(frozen=True, eq=False)
class KerasLayouts(tfdist_jax.Strategy):
    """Variables lie as a `LayoutMap` says.

    Attributes:
        layouts: The map, from paths to layouts.
        axes: The axes of the mesh and their sizes.
        devices: The devices, in the mesh's order.
        batch_axis: What the map calls the axis of batches.
    """

    layouts: Any
    axes: tuple[tuple[str, int], ...]
    devices: tuple[Device, ...]
    batch_axis: str

    @classmethod
    def of(cls, layouts: Any, axes: Sequence[tuple[str, int]], devices: tuple[Device, ...]) -> "KerasLayouts":
        """Take a map over a mesh with these axes, as the map calls them.

        Raises:
            ValueError: If a layout in the map names another axis.
        """
        names = [name for name, _ in axes]
        for path in layouts:
            if unknown := [axis for axis in layouts[path].axes if axis is not None and axis not in names]:
                raise ValueError(
                    f"The layout for {path!r} in the LayoutMap, {layouts[path].axes}, names the axis {unknown[0]!r}, but the mesh has "
                    f"{dict(axes)}."
                )
        batch = next((name for name in (DATA, _BATCH) if name in names), names[0])
        return cls(layouts, tuple((DATA if name == batch else name, size) for name, size in axes), devices, batch)

    @property
    def mesh(self) -> Mesh:
        """The devices, along the axes."""
        return named_mesh(self.axes, self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay a variable out as the map says of its path, or whole if that says nothing."""
        layout = self.layouts[leaf.path]
        axes = () if layout is None else layout.axes
        return Layout(PartitionSpec(*(DATA if axis == self.batch_axis else axis for axis in axes)))

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the map's keys that match none of the paths."""
        return [key for key in self.layouts if not any(self._matches(key, path) for path in paths)]

    def _matches(self, key: str, path: str) -> bool:
        # How keys are matched differs between versions of Keras.
        only = type(self.layouts)(None)
        only[key] = self.layouts[key]
        return only[path] is not None
