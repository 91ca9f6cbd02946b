"""What a device holds under a strategy, told by layouts alone."""

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any, final

import jax
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._plan._training import Training
from tfdist_jax._sharding._layout import names_of, restrict, tree_layouts
from tfdist_jax._sharding._mesh import STAGE, TENSOR
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of a device.

    Attributes:
        state: Of the state.
        params: Of the parameters, and so of their gradients.
        layers: Of the layers that it computes, whole over `fsdp`.
        others: Of other parameters, whole over `fsdp` and `stage`.
        batch: Of the batch.
        extra: Of other arguments, which are the same on all devices.
    """

    state: int
    params: int
    layers: int
    others: int
    batch: int
    extra: int = 0

    @property
    def arguments(self) -> int:
        """Of all that a step is given."""
        return self.state + self.batch + self.extra


def measure_sizes(training: Training, strategy: Strategy) -> Sizes:
    """Return what a device holds of a training.

    Raises:
        ValueError: If an array does not divide as its layout says.
    """
    mesh = strategy.mesh
    state, params = _list_leaves(training.state, strategy), _list_leaves(training.params, strategy)
    are_layers = training.are_layers()
    layers = [each for each, is_layer in zip(params, are_layers, strict=True) if is_layer]
    others = [each for each, is_layer in zip(params, are_layers, strict=True) if not is_layer]
    return Sizes(
        state=_count_bytes(state, mesh),
        params=_count_bytes(params, mesh),
        layers=_count_bytes(layers, mesh, (STAGE, TENSOR)),
        others=_count_bytes(others, mesh, (TENSOR,)),
        batch=_count_whole(training.batch) // strategy.num_replicas,
        extra=_count_whole(training.extra),
    )


def _list_leaves(tree: Any, strategy: Strategy) -> list[tuple[Any, PartitionSpec]]:
    """Return each array with how it lies."""
    layouts = jax.tree.leaves(tree_layouts(strategy.state_layout, tree, strategy.mesh))
    leaves = zip(jax.tree.leaves(tree), layouts, strict=True)
    return [(leaf, layout.spec) for leaf, layout in leaves if hasattr(leaf, "shape")]


def _count_whole(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _count_bytes(leaves: Sequence[tuple[Any, PartitionSpec]], mesh: Mesh, axes: Collection[str] | None = None) -> int:
    """Return how many bytes of arrays a device has that are split over some axes alone, or over all."""
    total = 0
    for leaf, spec in leaves:
        entries = [*map(names_of, spec if axes is None else restrict(spec, axes))]
        parts = [math.prod(mesh.shape[name] for name in names) for names in entries]
        shape = [-(-size // part) for size, part in zip(leaf.shape, parts, strict=False)]
        total += math.prod([*shape, *leaf.shape[len(shape) :]]) * leaf.dtype.itemsize
    return total
