"""Tensor parallelism: devices share the computation of each layer."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import final

from jax.sharding import Mesh

from tfdist_jax._sharding._layout import Layout, StateLeaf
from tfdist_jax._sharding._mesh import DATA, TENSOR, Device, named_mesh
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
class TensorParallel(Strategy):
    """Groups of devices share the parameters, as rules say, and what is computed with them; rows are split over the groups.

    XLA's partitioner divides the computation and puts in what communication it takes (https://arxiv.org/abs/2105.04663): a matrix
    that is split by columns and a next one by rows need one all-reduce (https://arxiv.org/abs/1909.08053).

    Attributes:
        size: The devices of a group.
        rules: Ends of paths, as regular expressions, to layouts over the axis `tensor`, such as
            `{"attention/qkv": P(None, "tensor"), "attention/out": P("tensor")}`. The first that matches holds, for the optimizer's arrays
            as well. What none matches is whole on each device.
        axis_rules: What Flax calls dimensions to axes of the mesh, such as `{"mlp": "tensor"}`, for parameters that no rule matches.
        devices: The devices to use; all visible ones if None.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> P = jax.sharding.PartitionSpec
        >>> strategy = td.TensorParallel(4, {"up": P(None, "tensor"), "down": P("tensor")})
        >>> params = strategy.init(lambda: {"up": jnp.ones((64, 256)), "down": jnp.ones((256, 64))})
        >>> [params[name].addressable_shards[0].data.shape for name in ("up", "down")]
        [(64, 64), (64, 64)]
    """

    size: int
    rules: PathRules = ()
    axis_rules: AxisRules = ()
    devices: tuple[Device, ...] | None = None

    def __post_init__(self) -> None:
        """Keep the rules as they are now."""
        object.__setattr__(self, "rules", make_path_rules(self.rules))
        object.__setattr__(self, "axis_rules", make_axis_rules(self.axis_rules))

    @property
    def mesh(self) -> Mesh:
        """Replicas, along `data`, of `size` devices, along `tensor`."""
        return named_mesh(((DATA, -1), (TENSOR, self.size)), self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Lay an array out by the first rule that matches."""
        return Layout(spec_by_rules(leaf, self.mesh, self.rules, self.axis_rules))

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the rules that match none of the paths."""
        return find_unmatched(self.rules, paths)
