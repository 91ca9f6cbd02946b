"""Parallelism of several kinds at once, over the axes of one mesh."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf, axes_of, split_large
from tfdist_jax._sharding._mesh import EXPERT, FSDP_AXIS, Axes, Device, named_mesh
from tfdist_jax._sharding._rules import (
    AxisRules,
    PathRules,
    find_unmatched,
    make_axis_rules,
    make_path_rules,
    spec_by_rules,
)
from tfdist_jax._strategy import Strategy


@final
@dataclasses.dataclass(frozen=True)
class Sharded(Strategy):
    """Data, fully sharded, expert, sequence and tensor parallelism over one mesh.

    Rows are split over `data`, `fsdp` and `expert`, their tokens over `sequence`; parameters over `fsdp`, gathered where they are used,
    and, as rules say, over `expert`, each device with its own experts for `td.run_experts`, and over other axes, such as `tensor`, along
    which XLA divides the computation.

    Attributes:
        axes: The axes of the mesh with their sizes, slowest first, such as `{"data": 2, "fsdp": 2, "tensor": 2}`. One may be -1, for as
            many as there are devices left.
        rules: Ends of paths, as regular expressions, to layouts, such as `{"mlp/up": P(None, "tensor")}`. The first that matches holds,
            for the optimizer's arrays as well. What does not name `fsdp` is split over it, too, along its largest dimension that is left.
        axis_rules: What Flax calls dimensions to axes of the mesh, such as `{"embed": "fsdp", "mlp": "tensor"}`, for parameters that no
            rule matches.
        devices: The devices to use; all visible ones if None.
        min_size: Arrays with fewer elements, and those with no dimension left that the size of `fsdp` divides, stay whole over it.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> P = jax.sharding.PartitionSpec
        >>> strategy = td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, rules={"up": P(None, "tensor")})
        >>> strategy.init(lambda: {"up": jnp.ones((64, 256))})["up"].sharding.spec == P("fsdp", "tensor")
        True
    """

    axes: Axes
    rules: PathRules = ()
    axis_rules: AxisRules = ()
    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    def __post_init__(self) -> None:
        """Keep axes and rules as they are now."""
        axes = self.axes.items() if isinstance(self.axes, Mapping) else self.axes
        object.__setattr__(self, "axes", tuple((name, size) for name, size in axes))
        object.__setattr__(self, "rules", make_path_rules(self.rules))
        object.__setattr__(self, "axis_rules", make_axis_rules(self.axis_rules))

    @property
    def mesh(self) -> Mesh:
        """The devices, along the axes."""
        return named_mesh(self.axes, self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay an array out by the first rule that matches, and over `fsdp`."""
        spec = spec_by_rules(leaf, self.mesh, self.rules, self.axis_rules)
        if FSDP_AXIS not in axes_of(spec):
            spec = split_large(leaf, FSDP_AXIS, self.mesh.shape.get(FSDP_AXIS, 1), self.min_size, spec)
        return Layout(spec, local=(EXPERT,))

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the rules that match none of the paths."""
        return find_unmatched(self.rules, paths)
