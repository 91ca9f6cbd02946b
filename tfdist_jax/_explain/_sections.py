"""An explanation as tables: what its report and its page have in common."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from jax.sharding import Mesh

from tfdist_jax._explain._collectives import Collective
from tfdist_jax._explain._mesh_axes import draw_mesh
from tfdist_jax._pipeline import PipelinePlan, Schedule, align_ticks, make_slot_table

if TYPE_CHECKING:
    from tfdist_jax._explain._explanation import Explanation


@final
@dataclasses.dataclass(frozen=True)
class Section:
    """A table with a title.

    Attributes:
        title: What it is about.
        columns: Their headings; those of numbers begin with a number sign.
        rows: The cells.
        notes: What is to be said below.
        bars: A length for each row, for a picture; none if there are no sensible ones.
        schedule: What is to be drawn, if it is about a pipeline.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    bars: Sequence[float] = ()
    schedule: Schedule | None = None


def make_sections(explanation: "Explanation") -> list[Section]:
    """Say what an explanation has found, subject by subject."""
    return [
        _mesh_section(explanation),
        *([] if explanation.pipeline is None else [_pipeline_section(explanation.pipeline)]),
        _state_section(explanation),
        _memory_section(explanation),
        _collectives_section(explanation),
        _flops_section(explanation),
    ]


def write_text(explanation: "Explanation") -> str:
    """Return the report for a terminal."""
    kind = explanation.mesh.devices.flat[0].device_kind
    title = f"{explanation.name}, on {explanation.mesh.size} x {kind}"
    return write_sections(title, make_sections(explanation), picture=draw_mesh(explanation.mesh))


def write_sections(title: str, sections: Sequence[Section], *, picture: Sequence[str] = ()) -> str:
    """Return sections as text below a title, with a picture of lines in the first one."""
    lines = [title]
    for i, section in enumerate(sections):
        lines += ["", section.title, *align([section.columns, *section.rows] if section.rows else [])]
        if i == 0 and picture:
            lines += ["", *(f"  {line}" for line in picture)]
        if section.schedule is not None:
            lines += [f"  {line}" for line in draw_schedule(section.schedule)]
        lines += [f"  {note}" for note in section.notes]
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of text whose cells stand below each other, those of numbers at the right of their columns."""
    if not rows:
        return []
    is_number = [heading.startswith("#") for heading in rows[0]]
    rows = [[cell.removeprefix("#") for cell in rows[0]], *rows[1:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cell = lambda text, width, right: text.rjust(width) if right else text.ljust(width)
    return ["  " + "  ".join(map(cell, row, widths, is_number)).rstrip() for row in rows]


def format_mib(num_bytes: float) -> str:
    """Return bytes as MiB.

    Example:
        >>> format_mib(3 * 2**29), format_mib(2**20), format_mib(4096), format_mib(0)
        ('1,536.00', '1.00', '0.004', '0')
    """
    mib = num_bytes / 2**20
    return f"{mib:,.2f}" if mib >= 0.01 else f"{mib:.1g}"


def _mesh_section(explanation: "Explanation") -> Section:
    rows = [(axis.name, str(axis.size), axis.purpose) for axis in explanation.axes]
    return Section("Mesh", ("axis", "#size", "what is split over it"), rows)


def _pipeline_section(plan: PipelinePlan) -> Section:
    schedule = plan.schedule
    several = f", {schedule.num_chunks} stages on each" if schedule.num_chunks > 1 else ""
    sizes = make_slot_table(schedule, saves=plan.remat != "stage").sizes
    names = {
        "input": "what stages take",
        "cotangent": "gradients that come back",
        "saved": "what forward passes save",
        "kept": "what is left for gradients by parameters",
    }
    slots = [f"{sizes[kind] - 1} of {name}" for kind, name in names.items() if sizes[kind] > 1]
    notes = [
        f"{schedule.name!r}: {schedule.num_devices} devices along 'stage'{several}, {schedule.num_microbatches} microbatches, "
        f"{schedule.num_ticks} ticks. Where a backward pass takes twice as long as a forward pass, devices wait for "
        f"{100 * schedule.bubble():.1f} % of the time.",
        f"A device has room for as many microbatches: {', '.join(slots)}.",
        "F: forward pass of a microbatch; B: backward pass, or I: by a stage's input, and W: by its parameters."
        + (" F3.1 is of the second stage of a device." if schedule.num_chunks > 1 else ""),
    ]
    return Section("Pipeline", notes=notes, schedule=schedule)


def draw_schedule(schedule: Schedule, *, most: int = 32) -> list[str]:
    """Return lines of text, one for each device, with a column for each tick; of more than `most`, the first and the last ones."""
    drawn = schedule.draw()
    if len(drawn) > most:
        drawn = [*drawn[: most // 2], ["..."] * schedule.num_devices, *drawn[-(most // 2) :]]
    return align_ticks(drawn)


def _state_section(explanation: "Explanation") -> Section:
    rows = [
        (
            row.path if row.count == 1 else f"{row.path} x {row.count}",
            str(list(row.shape)),
            row.dtype,
            row.layout,
            format_mib(row.bytes_on_device),
            "whole on each device" if row.is_large_and_whole else "",
        )
        for row in explanation.state
    ]
    held, total = (sum(getattr(row, name) for row in explanation.state) for name in ("bytes_on_device", "bytes"))
    share = f"{100 * held / total:.1f} %" if total else "nothing"
    notes = [f"A device holds {format_mib(held)} of {format_mib(total)} MiB: {share}."]
    for home in explanation.homes:
        notes.append(
            f"Only while the step runs: between steps its variables lie on {home.name}, once. It copies {format_mib(home.taken)} MiB from "
            f"there to each device, and brings {format_mib(home.brought)} MiB back. Those that it does not use stay there."
        )
    columns = ("array", "shape", "type", "layout", "#MiB a device", "")
    return Section("State", columns, rows, notes, [row.bytes_on_device for row in explanation.state])


def _memory_section(explanation: "Explanation") -> Section:
    memory = explanation.memory
    if memory is None:
        return Section("Memory of a device", notes=["XLA does not say."])
    parts = {
        "arguments": memory.arguments,
        "results, where they do not take the memory of arguments": memory.results - memory.reused,
        "temporary": memory.temporary,
    }
    rows = [(name, format_mib(size)) for name, size in parts.items()]
    notes = [
        f"Together {format_mib(memory.total)} MiB. Results of {format_mib(memory.reused)} MiB take the memory of arguments."
    ]
    if memory.host_arguments:
        notes.append(f"Of the arguments, {format_mib(memory.host_arguments)} MiB more lie in the memory of its host.")
    return Section("Memory of a device", ("", "#MiB"), rows, notes, list(parts.values()))


def _collectives_section(explanation: "Explanation") -> Section:
    found = explanation.collectives
    if not found:
        return Section("Collectives", notes=["None: devices do not communicate."])
    rows = [describe_collective(one, explanation.mesh) for one in found]
    known = [one.bytes_per_step for one in found if one.bytes_per_step is not None]
    unknown = "" if len(known) == len(found) else ", and what loops get whose rounds are not known"
    notes = [f"A device gets {format_mib(sum(known))} MiB in a step{unknown}."]
    columns = ("kind", "axes", "#times", "#MiB each round", "#MiB a step", "line")
    return Section("Collectives", columns, rows, notes, [one.bytes_per_step or 0 for one in found])


def describe_collective(one: Collective, mesh: Mesh) -> tuple[str, ...]:
    """Return the cells that say what a collective is, over axes of a mesh."""
    is_part = one.group != math.prod(mesh.shape[axis] for axis in one.axes)
    axes = " x ".join(one.axes) + (f", {one.group} devices each" if is_part else "")
    rounds = "?" if one.times is None else str(one.times)
    times = f"{one.count}" if rounds == "1" else f"{one.count} x {rounds}"
    each_step = "?" if one.bytes_per_step is None else format_mib(one.bytes_per_step)
    return (one.kind, axes, times + " at most" * one.is_branch, format_mib(one.bytes), each_step, one.line)


def _flops_section(explanation: "Explanation") -> Section:
    flops, speed = explanation.flops, explanation.speed
    notes = [
        f"{_with_prefix(flops.count)}FLOP a step and device, of matrix products and convolutions. What is computed again in the backward "
        "pass counts again."
    ]
    if not flops.is_exact:
        notes.append(
            "This is not exact: of a loop whose rounds depend on values one round counts, of a conditional the largest branch."
        )
    if flops.not_counted:
        names = ", ".join(f"{name} x {count}" for name, count in flops.not_counted.items())
        notes.append(f"Not counted is what XLA cannot look into: {names}.")
    if speed is not None:
        least = "at least " if flops.not_counted else ""
        of_peak = f"no MFU: {speed.why_not}" if speed.mfu is None else least + _describe_mfu(speed.mfu, speed.peak)
        notes.append(
            f"{speed.seconds * 1e3:,.2f} ms a step: {_with_prefix(speed.flops_per_second)}FLOP/s a device; {of_peak}."
        )
    return Section("Operations", notes=notes)


def _describe_mfu(mfu: float, peak: float | None) -> str:
    return f"MFU {100 * mfu:.1f} % of {_with_prefix(peak or 0)}FLOP/s"


def _with_prefix(number: float) -> str:
    """Return a number with the prefix of a unit, such as "1.88 G"."""
    power = min(int(math.log10(number)) // 3, 5) if number >= 1 else 0
    return f"{number / 1000**power:.4g} {' kMGTP'[power].strip()}"
