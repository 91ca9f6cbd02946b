"""What a step costs a device: read from compiled programs, and for other candidates told from these.

What a device's memory holds, and what it computes and sends, are sums of things that layouts, rows and schedules determine: rows by what
a layer keeps of each, the parameters that are gathered, a schedule's slots by what waits in them. How much each counts depends on
the model, and is found by least squares over a few programs that were compiled.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import final

import numpy as np

from tfdist_jax._explain import ProgramCosts
from tfdist_jax._pipeline import Schedule, make_slot_table
from tfdist_jax._plan._candidate import Candidate
from tfdist_jax._plan._sizes import Sizes
from tfdist_jax._sharding._mesh import FSDP_AXIS, STAGE, TENSOR

Traffic = Mapping[tuple[str, tuple[str, ...]], tuple[float, float]]
"""Kinds of collectives with the axes of several devices over which they go: bytes that a device gets in a step, and how often they run."""


@final
@dataclasses.dataclass(frozen=True)
class Figures:
    """What a step costs a device.

    Attributes:
        temporary: Bytes that the step needs besides its arguments.
        flops: Floating point operations of products, without those of a pipeline's idle ticks.
        written: Bytes that it writes, without those of idle ticks.
        traffic: What it exchanges with others.
    """

    temporary: float
    flops: float
    written: float
    traffic: Traffic


@final
@dataclasses.dataclass(frozen=True)
class Features:
    """What the costs of a candidate are sums of, each by some weight.

    Attributes:
        family: Candidates of one family have the same weights: those without stages, and those of each schedule.
        memory: Of bytes in use at a time.
        work: Of operations.
        written: Of bytes written.
        gathered: Of bytes of parameters that are gathered in a step.
        reduced: Of bytes of gradients that are added up.
        rows: Of bytes exchanged of what is computed of rows, the likeliest first.
        handed_on: Of bytes that stages hand on.
        runs: Of numbers of collectives.
        axes: Which axes have several devices.
    """

    family: str
    memory: tuple[float, ...]
    work: tuple[float, ...]
    written: tuple[float, ...]
    gathered: tuple[float, ...]
    reduced: tuple[float, ...]
    rows: tuple[float, ...]
    handed_on: tuple[float, ...]
    runs: tuple[float, ...]
    axes: tuple[float, ...]


def make_features(candidate: Candidate, sizes: Sizes, num_rows: int, schedule: Schedule | None) -> Features:
    """Return what the costs of a candidate are sums of."""
    axes, parts = candidate.axes, candidate.microbatches
    tensor, is_gathered = axes[TENSOR], axes[FSDP_AXIS] > 1
    rows = num_rows / candidate.num_replicas
    several = tuple(float(size > 1) for size in candidate.sizes)
    each, of_all = rows / parts, sizes.layers + sizes.others
    work = (rows, rows / tensor)
    if schedule is None:
        return Features(
            "",
            memory=(sizes.params, sizes.params * (parts > 1), of_all * is_gathered, each, each / tensor, 1),
            work=work,
            written=(*work, sizes.params, sizes.params * parts, of_all * parts * is_gathered),
            gathered=(of_all, of_all * parts),
            reduced=(sizes.params, sizes.params * parts),
            rows=(rows,),
            handed_on=(),
            runs=(1, parts),
            axes=several,
        )
    by_stage = [part / axes[STAGE] for part in work]
    stages, ticks, slots = axes[STAGE], schedule.num_ticks, make_slot_table(schedule, saves=True).sizes
    return Features(
        candidate.schedule,
        memory=(
            sizes.params,
            sizes.layers,
            sizes.others,
            sizes.layers * is_gathered,
            sizes.others * is_gathered,
            each * (slots["input"] + slots["cotangent"]),
            each * (slots["saved"] + slots["kept"]) / stages,
            each,
            each / tensor,
            1,
        ),
        work=(*work, *by_stage),
        written=(*work, *by_stage, sizes.params, sizes.layers * parts, sizes.others * parts),
        gathered=(sizes.layers, sizes.others),
        reduced=(sizes.params, sizes.others / stages),
        rows=(rows / stages, rows),
        handed_on=(each * ticks,),
        runs=(1, ticks, parts, parts / stages),
        axes=several,
    )


def read_figures(program: ProgramCosts, schedule: Schedule | None) -> Figures:
    """Return what a compiled step costs, of which a pipeline's branches are not entered at idle ticks.

    Raises:
        NotImplementedError: If XLA does not say how much memory it takes.
    """
    if program.memory is None:
        raise NotImplementedError("XLA does not say how much memory programs for these devices take.")
    share = 1.0 if schedule is None else schedule.num_microbatches * schedule.num_chunks / schedule.num_ticks
    traffic: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
    for one in program.collectives:
        key, times = (one.kind, one.axes), (one.times or 1) * (share if one.is_branch else 1)
        num_bytes, runs = traffic.get(key, (0.0, 0.0))
        traffic[key] = num_bytes + one.bytes * times, runs + one.count * times
    return Figures(
        temporary=program.memory.total - program.memory.arguments,
        flops=program.flops.count * share,
        written=program.written * share,
        traffic=traffic,
    )


def choose_probes(features: Sequence[Features]) -> list[int]:
    """Return the candidates of a family in the order in which they are to be compiled, those first that tell most of the others."""
    import scipy.linalg  # Only planning needs it.

    *_, order = scipy.linalg.qr(_scale(features).T, mode="economic", pivoting=True)
    return [int(index) for index in order]


def count_unknowns(features: Sequence[Features]) -> int:
    """Return of how many independent things the costs of a family's candidates are sums."""
    return int(np.linalg.matrix_rank(_scale(features)))


def _scale(features: Sequence[Features]) -> np.ndarray:
    """Return features as a table in which each one, and each candidate, counts as much as others: sizes differ by orders of magnitude."""
    table = np.array(
        [
            (*one.memory, *one.gathered, *one.reduced, *one.rows, *one.handed_on, *one.runs, *one.axes)
            for one in features
        ],
        float,
    )
    scaled = table / np.maximum(table.max(axis=0), 1e-9)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


@final
class Predictor:
    """Tells what candidates cost by those of the same family that were compiled."""

    def __init__(self, known: Mapping[Candidate, tuple[Features, Sizes, Figures]]) -> None:
        """Take what is known."""
        self._known = list(known.items())

    def predict(self, candidate: Candidate, features: Features) -> Figures:
        """Return what a candidate costs.

        Raises:
            ValueError: If no program of its family was compiled, or none with one of its axes.
        """
        alike = [(each, *found) for each, found in self._known if found[0].family == features.family]
        known = {name for each, *_ in alike for name, size in each.axes.items() if size > 1}
        unknown = [name for name, size in candidate.axes.items() if size > 1 and name not in known]
        if unknown or not alike:
            over = f" over {unknown[0]!r}" if unknown else ""
            raise ValueError(
                f"no program{f' of {features.family}' if features.family else ''}{over} was compiled to tell of others"
            )
        figures = [figures for *_, figures in alike]
        memory = _fit(
            [found.memory for _, found, _, _ in alike],
            [one.temporary for one in figures],
            scales=[one.temporary + sizes.state for _, _, sizes, one in alike],
        )
        work = _fit([found.work for _, found, _, _ in alike], [one.flops for one in figures])
        written = _fit([found.written for _, found, _, _ in alike], [one.written for one in figures])
        axes = {name for name, size in candidate.axes.items() if size > 1}
        keys = {key: None for one in figures for key in one.traffic if axes.issuperset(key[1])}
        return Figures(
            temporary=float(np.dot(memory, features.memory)),
            flops=float(np.dot(work, features.work)),
            written=float(np.dot(written, features.written)),
            traffic={key: self._predict_traffic(key, alike, features) for key in keys},
        )

    @staticmethod
    def _predict_traffic(
        key: tuple[str, tuple[str, ...]],
        alike: Sequence[tuple[Candidate, Features, Sizes, Figures]],
        features: Features,
    ) -> tuple[float, float]:
        able = [(found, one) for each, found, _, one in alike if _can_have(each, key[1])]
        values = [one.traffic.get(key, (0.0, 0.0)) for _, one in able]
        choose = lambda of: _choose_exchanged(*key, of)
        num_bytes = _fit([choose(found) for found, _ in able], [value[0] for value in values])
        runs = _fit([found.runs for found, _ in able], [value[1] for value in values])
        return float(np.dot(num_bytes, choose(features))), float(np.dot(runs, features.runs))


def _choose_exchanged(kind: str, axes: Collection[str], features: Features) -> tuple[float, ...]:
    """Return what is exchanged: of rows over `tensor` and from stage to stage, else parameters or gradients."""
    if TENSOR in axes:
        return (*features.rows, 1)
    kinds = {"collective-permute": features.handed_on, "all-gather": features.gathered}
    return (*kinds.get(kind, features.reduced), 1)


def _can_have(candidate: Candidate, axes: Collection[str]) -> bool:
    return all(candidate.axes.get(name, 1) > 1 for name in axes)


def _fit(
    features: Sequence[Sequence[float]], values: Sequence[float], *, scales: Sequence[float] | None = None
) -> np.ndarray:
    """Return the weights, 0 or more, by which features give values best, relative to scales or to the values themselves."""
    import scipy.optimize  # Only planning needs it.

    table, wanted = np.array(features, float), np.array(values, float)
    largest = max(wanted.max(initial=0.0), 1e-9)
    scale = np.maximum(wanted, largest / 100) if scales is None else np.array(scales, float)
    units = np.maximum(table.max(axis=0), 1e-9)
    weights, _ = scipy.optimize.nnls(table / units / scale[:, None], wanted / scale)
    return weights / units
