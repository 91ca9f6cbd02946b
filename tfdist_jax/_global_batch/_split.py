"""How the arguments of a function of a batch lie over the replicas."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, final

import jax
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._global_batch._gathers import Gather, make_gather
from tfdist_jax._global_batch._row_values import RowKind
from tfdist_jax._pipeline import StagedLoss
from tfdist_jax._pipeline._places import Division, ParamLayout
from tfdist_jax._sharding._collectives import map_replicas
from tfdist_jax._sharding._input import PaddedBatch, num_rows, split_sizes
from tfdist_jax._sharding._layout import (
    Layout,
    LayoutRule,
    bring_to_devices,
    check_local,
    leaf_paths,
    make_shardings,
    names_of,
    restrict,
    tree_layouts,
)
from tfdist_jax._sharding._mesh import SEQUENCE, STAGE, batch_axes, batch_spec, manual_axes, num_replicas

Sizes = tuple[int, ...]


@final
@dataclasses.dataclass(frozen=True)
class Split:
    """How the arguments of a function `(params, batch, *extra)` lie over the replicas.

    Attributes:
        mesh: The mesh of the strategy.
        layouts: How the parameters lie over it.
        sizes: How many rows each replica has.
        accumulate: In how many parts each replica computes them, one after another.
        is_staged: Whether these are the microbatches of a pipeline, whose stages lie on the devices along `STAGE`.
    """

    mesh: Mesh
    layouts: Any
    sizes: Sizes
    accumulate: int = 1
    is_staged: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes over which rows are split, and their tokens, and over which stages lie."""
        return manual_axes(self.mesh)

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes over which rows are split."""
        return batch_axes(self.mesh)

    @property
    def token_parts(self) -> int:
        """Over how many devices the tokens of each row are split."""
        return self.mesh.shape.get(SEQUENCE, 1)

    @property
    def is_one(self) -> bool:
        """Whether one device, or a group of which each sees all, has the whole batch."""
        return len(self.sizes) * self.token_parts == 1

    @property
    def num_parts(self) -> int:
        """In how many parts the rows of the batch are computed."""
        return len(self.sizes) * self.accumulate

    def part_sizes(self, size: int) -> Sizes:
        """Return how many rows each part has of a replica's, some perhaps none."""
        if not self.is_staged:
            return split_sizes(size, self.accumulate)
        # Stages of all replicas work on a microbatch at the same time, and so have it at the same place.
        length = -(-max(self.sizes) // self.accumulate)
        return tuple(min(max(size - i * length, 0), length) for i in range(self.accumulate))

    @property
    def key_axes(self) -> tuple[str, ...]:
        """The axes along which replicas draw random numbers of their own."""
        return tuple(axis for axis in self.axes if axis != STAGE)

    @property
    def wide_axes(self) -> tuple[str, ...]:
        """Those of `axes` that have several indices: over others, there is nothing to be communicated."""
        return tuple(axis for axis in self.axes if self.mesh.shape[axis] > 1)

    @property
    def is_even(self) -> bool:
        """Whether all replicas have as many rows."""
        return len(set(self.sizes)) == 1

    def map(self, body: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        """Run a program of replicas.

        Args:
            body: The program.
            arguments: The parameters, the batch and a tuple of others; behind these, trees of arrays `[replicas, ...]`, if any.
            out_specs: How what it returns lies over the replicas.
        """
        params = jax.tree.map(lambda layout: restrict(layout.spec, self.axes), self.layouts)
        data = jax.tree.map(lambda leaf: batch_spec(self.mesh, leaf.ndim), arguments[1])
        own = [PartitionSpec(self.axes)] * len(arguments[3:])
        in_specs = params, data, PartitionSpec(), *own
        return map_replicas(body, self.mesh, in_specs=in_specs, out_specs=out_specs, axes=self.axes)(*arguments)

    @property
    def gathers(self) -> list[Gather | None]:
        """How each of the parameters becomes whole, in a program of replicas."""
        return [make_gather(layout, self.wide_axes) for layout in jax.tree.leaves(self.layouts)]

    @property
    def param_kinds(self) -> list[RowKind]:
        """What a replica has of each of the parameters once they are gathered: the whole, or a part."""
        # Stages have the same rows.
        axes = {*self.wide_axes} - {STAGE}
        are_parts = [not axes.isdisjoint(layout.local_axes) for layout in jax.tree.leaves(self.layouts)]
        return [RowKind.PART if is_part else RowKind.SAME for is_part in are_parts]

    def gather_params(self, params: Any) -> Any:
        """Return whole parameters, in a program of replicas."""
        leaves, tree = jax.tree.flatten(params)
        pairs = zip(self.gathers, leaves, strict=True)
        return tree.unflatten(leaf if gather is None else gather(leaf) for gather, leaf in pairs)

    def whole_shapes(self, params: Any) -> Any:
        """Return the shapes that whole parameters have, from those in a program of replicas in which they are gathered, but for layers."""

        def whole(layout: Layout, leaf: Any) -> Any:
            along = stage_dimension(layout)
            stages = self.mesh.shape[STAGE] if along is not None else 1
            shape = [stages * size if i == along else size for i, size in enumerate(leaf.shape)]
            return jax.ShapeDtypeStruct(shape, leaf.dtype) if stages > 1 else leaf

        return jax.tree.map(whole, self.layouts, params)

    def lay_over_stages(self, layout: Layout) -> ParamLayout:
        """Return how a parameter lies over the devices of a pipeline that divides functions which are not alike."""
        divisions: list[Division] = []
        for along, entry in enumerate(layout.spec):
            axes = tuple(axis for axis in names_of(entry) if axis not in self.axes and self.mesh.shape[axis] > 1)
            if axes:
                divisions.append(Division(along, axes, math.prod(self.mesh.shape[axis] for axis in axes)))
        return ParamLayout(stage_dimension(layout), tuple(divisions))


def split_arguments(  # noqa: PLR0913
    mesh: Mesh, state_layout: LayoutRule, params: Any, batch: Any, extra: Any, *, pipeline: StagedLoss | None = None
) -> tuple[Split, Any]:
    """Return how arguments lie over the replicas, and the arguments, with a batch whose arrays are as long on each replica.

    Args:
        mesh: The mesh of the strategy.
        state_layout: Layout of each parameter.
        params: The parameters.
        batch: Pytree of arrays `[rows, ...]` whose rows are split evenly, or of `PaddedBatch` of the same sizes.
        extra: A tuple of others, the same on all replicas.
        pipeline: The stages that the function is made of, if it is; otherwise each device computes all layers.

    Raises:
        ValueError: If the parts of the batch do not fit together, or there are no rows.
    """
    data = jax.tree.map(lambda part: part.data if _is_padded(part) else part, batch, is_leaf=_is_padded)
    layouts = tree_layouts(state_layout, params, mesh)
    if STAGE in mesh.shape and (pipeline is None or pipeline.staged.is_listed):
        leaves, tree = jax.tree.flatten(layouts)
        pairs = zip(leaves, leaf_paths(params), strict=True)
        layouts = tree.unflatten(_over_stages(*pair, is_local=pipeline is not None) for pair in pairs)
    params = bring_to_devices(params, make_shardings(layouts, mesh))
    split = Split(mesh, layouts, _sizes(batch, num_replicas(mesh)))
    if pipeline is not None:
        split = dataclasses.replace(split, accumulate=pipeline.plan.schedule.num_microbatches, is_staged=True)
    return split, (params, data, extra)


def _over_stages(layout: Layout, path: str, *, is_local: bool) -> Layout:
    """Return a layout of which a device has its own part along `STAGE`, or which is gathered over it."""
    others = tuple(axis for axis in layout.local if axis != STAGE)
    layout = dataclasses.replace(layout, local=(*others, STAGE) if is_local else others)
    check_local(layout, path)
    return layout


def stage_dimension(layout: Layout) -> int | None:
    """Return along which dimension a device has its own part of an array, as its place along `STAGE` says; None if along none."""
    found = [i for i, entry in enumerate(layout.spec) if STAGE in names_of(entry) and STAGE in layout.local]
    return found[0] if found else None


def _sizes(batch: Any, replicas: int) -> Sizes:
    parts = jax.tree.leaves(batch, is_leaf=_is_padded)
    padded = {part.sizes for part in parts if _is_padded(part)}
    if padded and (len(padded) > 1 or not all(map(_is_padded, parts))):
        raise ValueError(
            f"The arrays of a batch are split in different ways over the replicas, such as {sorted(padded)}. Put them together into "
            "one tree before `strategy.put`."
        )
    if padded:
        return padded.pop()
    rows = num_rows(batch)
    if not rows:
        raise ValueError("The batch has no rows. Leave batches without rows out.")
    if rows % replicas:
        raise ValueError(
            f"{rows} rows do not divide evenly over {replicas} replicas. Give the host batch to `strategy.put` or `strategy.prefetch`, "
            "which fill it up."
        )
    return (rows // replicas,) * replicas


def _is_padded(part: Any) -> bool:
    return isinstance(part, PaddedBatch)
