"""Meshes that could train a model, and the strategies that they are."""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import final

from tfdist_jax._pipeline import Schedule
from tfdist_jax._sharding._layout import axes_of
from tfdist_jax._sharding._mesh import DATA, FSDP_AXIS, STAGE, TENSOR, Device
from tfdist_jax._sharding._rules import AxisRules, PathRules, make_axis_rules, make_path_rules
from tfdist_jax._strategy import Strategy
from tfdist_jax.strategies import Pipeline, Sharded

AXES = (DATA, STAGE, FSDP_AXIS, TENSOR)
"""The axes of meshes that are compared, slowest first."""


# Devices of a pipeline then wait for 6 % of the time.
_MOST_PER_STAGE = 16


@final
@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mesh, and in how many parts the rows of each replica are computed.

    Attributes:
        sizes: Of `AXES`.
        microbatches: Into how many parts a replica's rows are divided: by a pipeline, or to accumulate gradients.
        schedule: A pipeline's; empty if there are no stages.
    """

    sizes: tuple[int, ...]
    microbatches: int = 1
    schedule: str = ""

    @property
    def axes(self) -> dict[str, int]:
        """The axes with their sizes."""
        return dict(zip(AXES, self.sizes, strict=True))

    @property
    def num_replicas(self) -> int:
        """Over how many devices rows are split."""
        return self.axes[DATA] * self.axes[FSDP_AXIS]

    def __str__(self) -> str:
        named = [f"{name}={size}" for name, size in self.axes.items() if size > 1] or ["one device"]
        if self.schedule:
            return f"{','.join(named)} {self.schedule}, {self.microbatches} microbatches"
        return ",".join(named) + (f" accumulate={self.microbatches}" if self.microbatches > 1 else "")


@final
@dataclasses.dataclass(frozen=True)
class Rules:
    """What strategies of all candidates have in common.

    Attributes:
        by_path: `rules` of `td.Pipeline`.
        by_axis: `axis_rules`.
        stack: `stack`.
        by_arrays: What Flax calls the dimensions of the state's arrays.
    """

    by_path: PathRules = ()
    by_axis: AxisRules = ()
    stack: str | None = None
    by_arrays: frozenset[str] = frozenset()

    @property
    def named_axes(self) -> set[str]:
        """The axes of meshes that rules name, or arrays themselves."""
        named = {TENSOR} & self.by_arrays
        named |= {name for _, spec in make_path_rules(self.by_path) for name in axes_of(spec)}
        for _, axes in make_axis_rules(self.by_axis):
            named |= {axes} if isinstance(axes, str) else {*(axes or ())}
        return named

    def make_strategy(self, candidate: Candidate, devices: tuple[Device, ...] | None = None) -> Strategy:
        """Return the strategy of a candidate, over `devices`, or all visible ones."""
        axes = candidate.axes
        axes |= dict.fromkeys(sorted(self.named_axes - axes.keys()), 1)
        if candidate.schedule:
            return Pipeline(
                axes.pop(STAGE),
                candidate.microbatches,
                candidate.schedule,
                axes=axes,
                rules=self.by_path,
                axis_rules=self.by_axis,
                stack=self.stack,
                devices=devices,
            )
        if STAGE not in self.named_axes:
            del axes[STAGE]
        return Sharded(axes, self.by_path, self.by_axis, devices)


def find_candidates(  # noqa: PLR0913
    num_devices: int,
    num_rows: int,
    *,
    max_stages: int,
    choices: Mapping[str, Collection[int]],
    schedules: Sequence[str],
    microbatches: Collection[int] | None,
) -> Iterator[Candidate]:
    """Yield the meshes of as many devices whose replicas have equally many rows, and these equal parts.

    Args:
        num_devices: How many devices there are.
        num_rows: How many rows a batch has.
        max_stages: How many layers can lie on devices of their own; 1 for no pipelines.
        choices: Axes to the sizes that they may have; others may have all.
        schedules: The schedules of pipelines.
        microbatches: Into how many parts rows may be divided; powers of two if None, at most 16 for each stage of a pipeline.
    """
    divisors = [size for size in range(1, num_devices + 1) if num_devices % size == 0]
    for stage, fsdp, tensor in itertools.product(divisors, repeat=3):
        data, rest = divmod(num_devices, stage * fsdp * tensor)
        candidate = Candidate((data, stage, fsdp, tensor))
        is_chosen = all(size in choices.get(name, (size,)) for name, size in candidate.axes.items())
        if rest or not is_chosen or stage > max_stages or num_rows % candidate.num_replicas:
            continue
        rows = num_rows // candidate.num_replicas
        most = rows if stage == 1 else min(rows, _MOST_PER_STAGE * stage)
        parts = [2**power for power in range(most.bit_length())] if microbatches is None else sorted(microbatches)
        for part, schedule in itertools.product(parts, schedules if stage > 1 else ("",)):
            # Fewer microbatches than stages leave devices idle most of the time.
            if rows % part == 0 and (stage == 1 or part >= stage):
                yield dataclasses.replace(candidate, microbatches=part, schedule=schedule)


def schedule_of(strategy: Strategy) -> Schedule | None:
    """Return the schedule of a candidate's strategy, if it has stages."""
    return strategy.pipeline.schedule if strategy.pipeline else None
