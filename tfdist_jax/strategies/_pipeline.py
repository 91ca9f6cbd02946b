"""Pipeline parallelism: layers lie on different devices, which compute one microbatch after another."""

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import final

from jax.sharding import Mesh

from tfdist_jax._pipeline import PipelinePlan, Remat, Schedule, make_schedule
from tfdist_jax._sharding._layout import Layout, StateLeaf, axes_of, make_spec, names_of, split_large
from tfdist_jax._sharding._mesh import DATA, EXPERT, FSDP_AXIS, STAGE, Axes, Device, named_mesh
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
class Pipeline(Strategy):
    """Groups of devices have some of a model's layers each, and hand on what these compute, one microbatch after another.

    A loss for it is a `td.Staged`. Other axes of the mesh are what they are in `td.Sharded`, and are composed with `stage`. `evaluate`
    of a `td.Staged` goes over the stages, too; any other function is computed on each device with all layers, gathered there.

    Attributes:
        stages: Over how many groups of devices the layers are divided, in order.
        microbatches: In how many parts the rows of a replica are computed.
        schedule: When which device computes what: "1f1b", "gpipe", "interleaved", "zb-h1", or a `td.Schedule`.
        chunks: For "interleaved", how many stages each device has; 2 if not given.
        remat: What is kept for backward passes, which compute the rest again: "layer", what each layer takes; "stage", what stages take; or
            "none", all that layers need, of which `td.layer` may keep less.
        axes: The other axes of the mesh with their sizes, slowest first. `stage` stands where it is named; else behind `data` if that is
            the first one, or before all.
        rules: As in `td.Sharded`. Rules for layers leave their first dimension out to `stage`, as None.
        axis_rules: As in `td.Sharded`.
        stack: The path, or its end, of the layers' parameters, as in `td.Staged`. They are split over `stage` along their first dimension.
            Others are split over it along another, and brought to where they are used once a step. None if no layers are stacked.
        devices: The devices to use; all visible ones if None.
        min_size: Arrays with fewer elements are not split, but for those of layers over `stage`.

    Raises:
        ValueError: If the numbers do not fit together.

    Example:
        >>> import jax, jax.numpy as jnp, tfdist_jax as td
        >>> strategy = td.Pipeline(stages=4, microbatches=8)
        >>> params = strategy.init(lambda: {"blocks": jnp.ones((12, 64, 64)), "head": jnp.ones((64, 10))})
        >>> params["blocks"].addressable_shards[0].data.shape, round(strategy.pipeline.schedule.bubble(), 3)
        ((3, 64, 64), 0.273)
    """

    stages: int
    microbatches: int
    schedule: str | Schedule = "1f1b"
    chunks: int | None = None
    remat: Remat = "layer"
    axes: Axes = ((DATA, -1),)
    rules: PathRules = ()
    axis_rules: AxisRules = ()
    stack: str | None = "blocks"
    devices: tuple[Device, ...] | None = None
    min_size: int = 1024

    def __post_init__(self) -> None:
        """Check the schedule, and keep axes and rules as they are now."""
        axes = self.axes.items() if isinstance(self.axes, Mapping) else self.axes
        object.__setattr__(self, "axes", tuple((name, size) for name, size in axes))
        object.__setattr__(self, "rules", make_path_rules(self.rules))
        object.__setattr__(self, "axis_rules", make_axis_rules(self.axis_rules))
        sizes = self.stages, self.microbatches, 1 if self.chunks is None else self.chunks
        if any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes):
            raise ValueError(
                f"`stages`, `microbatches` and `chunks` are numbers of 1 or more, got {self.stages}, {self.microbatches} and {self.chunks}."
            )
        if dict(self.axes).get(STAGE, self.stages) != self.stages:
            raise ValueError(
                f"`axes` has {dict(self.axes)[STAGE]} devices along {STAGE!r}, but `stages` is {self.stages}. Leave it out of `axes`, or "
                "name the same number."
            )
        if self.remat not in ("layer", "stage", "none"):
            raise ValueError(f"`remat` is 'layer', 'stage' or 'none', got {self.remat!r}.")
        schedule = self.pipeline.schedule
        if (schedule.num_devices, schedule.num_microbatches) != (self.stages, self.microbatches):
            raise ValueError(
                f"The schedule {schedule.name!r} is one for {schedule.num_devices} devices and {schedule.num_microbatches} microbatches, "
                f"but `stages` is {self.stages} and `microbatches` {self.microbatches}."
            )

    def _make_schedule(self) -> Schedule:
        if isinstance(self.schedule, Schedule):
            if self.chunks not in (None, self.schedule.num_chunks):
                raise ValueError(
                    f"The schedule has {self.schedule.num_chunks} stages on each device, but chunks={self.chunks}. Leave it out."
                )
            return self.schedule
        chunks = (2 if self.schedule == "interleaved" else 1) if self.chunks is None else self.chunks
        return make_schedule(self.schedule, self.stages, self.microbatches, chunks)

    @property
    def pipeline(self) -> PipelinePlan:
        """The schedule, and what is kept for backward passes."""
        return self._plan

    @functools.cached_property
    def _plan(self) -> PipelinePlan:
        return PipelinePlan(self._make_schedule(), self.remat)

    @property
    def mesh(self) -> Mesh:
        """The devices, along the axes, with `stage` among them."""
        axes = dict(self.axes)
        if STAGE not in axes:
            data = {DATA: axes.pop(DATA)} if next(iter(axes), None) == DATA else {}
            axes = {**data, STAGE: self.stages, **axes}
        return named_mesh(axes, self.devices)

    def state_layout(self, leaf: StateLeaf) -> Layout:
        """Split layers over `stage` along their first dimension, and all else as rules say, over `fsdp` and over `stage`."""
        spec = spec_by_rules(leaf, self.mesh, self.rules, self.axis_rules)
        is_layers = (
            self.stack is not None and re.search(rf"(?:^|/){re.escape(self.stack)}(?:/|$)", leaf.path) is not None
        )
        if is_layers and leaf.shape and (not leaf.is_optimizer_state or leaf.shape[0] % self.stages == 0):
            if leaf.shape[0] % self.stages:
                raise ValueError(
                    f"{leaf.path} of shape {leaf.shape} belongs to the layers at {self.stack!r}, but its {leaf.shape[0]} layers do not "
                    f"divide over {self.stages} devices along {STAGE!r}. Change either number, or, if no layers are stacked there, give "
                    "`stack` the path of those that are, or None."
                )
            entries = [*map(names_of, spec)] or [()]
            spec = make_spec([(STAGE, *entries[0]), *entries[1:]])
        if FSDP_AXIS not in axes_of(spec):
            spec = split_large(leaf, FSDP_AXIS, self.mesh.shape.get(FSDP_AXIS, 1), self.min_size, spec)
        if not is_layers and STAGE not in axes_of(spec):
            spec = split_large(leaf, STAGE, self.stages, self.min_size, spec)
        return Layout(spec, local=(STAGE, EXPERT) if is_layers else (EXPERT,))

    def unmatched_rules(self, paths: Collection[str]) -> Sequence[str]:
        """Return the rules that match none of the paths."""
        return find_unmatched(self.rules, paths)
