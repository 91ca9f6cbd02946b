"""Schedules of pipelines: which stage computes what of which microbatch, and when."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import final

from tfdist_jax._pipeline._operations import Cell, Kind, Operation, ScheduleError, needs
from tfdist_jax._pipeline._orders import read_csv, time_orders

_ORDER = {Kind.FORWARD: 0, Kind.BACKWARD: 1, Kind.INPUT: 1, Kind.WEIGHT: 2}


@final
@dataclasses.dataclass(frozen=True)
class Schedule:
    r"""A table of what each device of a pipeline does at each tick, after which all hand on what they have.

    Stage `k` of a model lies on device `k % devices`. What a device computes at a tick, its neighbours get for the next one. A schedule
    is checked when it is made.

    Attributes:
        name: What it is called in reports.
        ticks: `ticks[tick][device]`: what that device does then.
        num_chunks: How many stages each device has.
        max_in_flight: Of how many forward passes, of all its stages, a device may hold what their backward passes need; None for no limit.

    Raises:
        ScheduleError: If an operation is missing, is there twice, or comes before what it needs; or if more is to be kept than may be.

    Example:
        >>> import tfdist_jax as td
        >>> schedule = td.Schedule.from_csv("0F0,0F1,,0B0,0B1,\n,1F0,1B0,1F1,1B1,")
        >>> schedule.num_devices, schedule.num_microbatches, schedule.num_ticks
        (2, 2, 6)
    """

    name: str
    ticks: tuple[tuple[Cell, ...], ...]
    num_chunks: int = 1
    max_in_flight: int | None = None

    def __post_init__(self) -> None:
        """Check the table."""
        if not self.ticks or not self.ticks[0] or len({len(row) for row in self.ticks}) > 1:
            raise ScheduleError(
                f"A schedule has an entry for each device at every tick, got {[len(row) for row in self.ticks]} entries."
            )
        if wrong := [each for row in self.ticks for cell in row for each in cell if not isinstance(each, Operation)]:
            raise TypeError(
                f"An entry of a schedule is a tuple of operations, got {wrong[0]!r}. td.Schedule.from_csv reads text."
            )
        check_schedule(self)

    @property
    def num_devices(self) -> int:
        """Over how many devices the stages lie."""
        return len(self.ticks[0])

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return self.num_devices * self.num_chunks

    @property
    def num_ticks(self) -> int:
        """How many ticks a step has."""
        return len(self.ticks)

    @functools.cached_property
    def num_microbatches(self) -> int:
        """In how many parts the rows of a replica are computed."""
        return 1 + max(operation.microbatch for operation, _, _ in self.operations())

    @functools.cached_property
    def is_split(self) -> bool:
        """Whether gradients by parameters are computed apart from those by inputs."""
        return any(operation.kind is Kind.INPUT for operation, _, _ in self.operations())

    def operations(self) -> list[tuple[Operation, int, int]]:
        """Return all operations in order, each with its tick and its device."""
        rows = enumerate(self.ticks)
        return [
            (operation, tick, device) for tick, row in rows for device, cell in enumerate(row) for operation in cell
        ]

    def times(self) -> dict[Operation, int]:
        """Return at which tick each operation is done."""
        return {operation: tick for operation, tick, _ in self.operations()}

    def bubble(self, costs: Mapping[str, float] | None = None) -> float:
        """Return which share of the devices' time passes waiting.

        All devices wait at the end of a tick for the one that has most to do.

        Args:
            costs: How long the operations of a stage take, by letter: 1 for "F", "I" and "W", and 2 for "B", if not given.
        """
        if unknown := {*(costs or {})} - {kind.value for kind in Kind}:
            raise ValueError(f"Operations have the letters F, B, I and W, got costs of {sorted(unknown)}.")
        cost = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0} | dict(costs or {})
        cells = [[sum(cost[operation.kind.value] for operation in cell) for cell in row] for row in self.ticks]
        total = self.num_devices * sum(map(max, cells))
        return 1 - sum(map(sum, cells)) / total

    def peak_in_flight(self) -> int:
        """Return for how many of its stages' microbatches a device holds what is needed later, at most."""
        return max(max(column) for column in zip(*_in_flight(self), strict=True))

    @classmethod
    def from_csv(cls, text: str, *, name: str = "csv", max_in_flight: int | None = None) -> "Schedule":
        """Read a table as `torch.distributed.pipelining` writes it: a line for each device, with what it does in order.

        Operations are such as `3F0`, the forward pass of stage 3 for microbatch 0, with `B` for a backward pass, `I` for the gradient by
        a stage's input and `W` for that by its parameters; `3F1;3B0` are done at one tick. Each is done at the first tick at which all
        that it needs is there, so that blanks do not matter.

        Args:
            text: The table.
            name: What it is called in reports.
            max_in_flight: As the attribute.

        Raises:
            ScheduleError: If the text is no such table, or devices wait for each other for ever.
        """
        orders, num_chunks = read_csv(text)
        return cls(name, time_orders(orders, num_chunks), num_chunks, max_in_flight)

    def to_csv(self) -> str:
        """Write the table as `from_csv` reads it, with a column for each tick."""
        columns = [[";".join(map(str, row[device])) for row in self.ticks] for device in range(self.num_devices)]
        return "\n".join(",".join(cells) for cells in columns)

    def __str__(self) -> str:
        """Draw the table: a line for each device, a column for each tick."""
        return "\n".join(align_ticks(self.draw()))

    def draw(self) -> list[list[str]]:
        """Return what each device does at each tick, such as "F3B1" for two microbatches; "F3.1" is of the second of its stages."""
        return [["".join(map(self._label, cell)) or "." for cell in row] for row in self.ticks]

    def _label(self, operation: Operation) -> str:
        chunk = f".{operation.stage // self.num_devices}" if self.num_chunks > 1 else ""
        return f"{operation.kind.value}{operation.microbatch}{chunk}"


def align_ticks(drawn: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of text, one for each device, with a column for each tick."""
    widths = [max(map(len, row)) for row in drawn]
    columns = [[cell.ljust(width) for cell in row] for row, width in zip(drawn, widths, strict=True)]
    return [f"{device}  {' '.join(cells)}".rstrip() for device, cells in enumerate(zip(*columns, strict=True))]


def check_schedule(schedule: Schedule) -> None:
    """Refuse a table that would compute something wrong.

    Raises:
        ScheduleError: If it would.
    """
    times = _check_operations(schedule)
    backwards = {(op.stage, op.microbatch): op.kind for op in times if op.kind in (Kind.BACKWARD, Kind.INPUT)}
    for operation, tick, device in schedule.operations():
        for needed, is_elsewhere in needs(operation, schedule.num_stages, backwards):
            if needed not in times:
                raise ScheduleError(f"At tick {tick}, device {device} does {operation}, but {needed} is nowhere.")
            latest = tick - 1 if is_elsewhere else tick
            if times[needed] > latest:
                come = "is handed on after its tick" if times[needed] == tick else "comes later"
                raise ScheduleError(
                    f"At tick {tick}, device {device} does {operation}, which needs {needed} of tick {times[needed]}: that {come}. "
                    f"Put {operation} at tick {times[needed] + is_elsewhere} or later."
                )
    _check_complete(schedule, backwards, times)
    if schedule.max_in_flight is not None:
        _check_in_flight(schedule, schedule.max_in_flight)


def _check_operations(schedule: Schedule) -> dict[Operation, int]:
    times: dict[Operation, int] = {}
    for operation, tick, device in schedule.operations():
        where = f"At tick {tick}, device {device} does {operation}"
        if operation.stage % schedule.num_devices != device or not 0 <= operation.stage < schedule.num_stages:
            raise ScheduleError(
                f"{where}, but has the stages {list(range(device, schedule.num_stages, schedule.num_devices))}."
            )
        if operation.microbatch < 0:
            raise ScheduleError(f"{where}, but microbatches count from 0.")
        if operation in times:
            raise ScheduleError(f"{where}, which was done at tick {times[operation]} already. Leave one of them out.")
        times[operation] = tick
    for tick, row in enumerate(schedule.ticks):
        for device, cell in enumerate(row):
            order, kinds = [_ORDER[operation.kind] for operation in cell], {operation.kind for operation in cell}
            if order != sorted(set(order)) or kinds >= {Kind.BACKWARD, Kind.WEIGHT}:
                raise ScheduleError(
                    f"At tick {tick}, device {device} does {', '.join(map(str, cell))}: a tick has at most one forward and one "
                    "backward pass, in this order, or, of one in parts, at most one of each. Put the others at other ticks."
                )
    return times


def _check_complete(
    schedule: Schedule, backwards: Mapping[tuple[int, int], Kind], times: Mapping[Operation, int]
) -> None:
    if not times:
        raise ScheduleError("The schedule is empty.")
    last = schedule.num_ticks - 1
    for stage in range(schedule.num_stages):
        for microbatch in range(schedule.num_microbatches):
            where = f"of stage {stage} for microbatch {microbatch}"
            if Operation(stage, Kind.FORWARD, microbatch) not in times:
                raise ScheduleError(f"Until the last tick, {last}, the forward pass {where} has not been done.")
            done = [kind for kind in (Kind.BACKWARD, Kind.INPUT) if Operation(stage, kind, microbatch) in times]
            if len(done) > 1:
                both = [times[Operation(stage, kind, microbatch)] for kind in done]
                raise ScheduleError(
                    f"The backward pass {where} is done twice, whole and in parts, at ticks {both}. Leave one of them out."
                )
            if not done:
                raise ScheduleError(f"Until the last tick, {last}, the backward pass {where} has not been done.")
            has_weight = Operation(stage, Kind.WEIGHT, microbatch) in times
            if backwards[stage, microbatch] is Kind.INPUT and not has_weight:
                raise ScheduleError(f"Until the last tick, {last}, the weight gradient {where} has not been done.")


def _in_flight(schedule: Schedule) -> list[list[int]]:
    """Return, for each tick and device, of how many forward passes something is kept."""
    times = schedule.times()
    counts = [[0] * schedule.num_devices for _ in schedule.ticks]
    for operation, tick, device in schedule.operations():
        if operation.kind is Kind.FORWARD:
            stage, _, microbatch = operation
            ends = [times.get(Operation(stage, kind, microbatch), tick) for kind in Kind]
            for between in range(tick, max(ends) + 1):
                counts[between][device] += 1
    return counts


def _check_in_flight(schedule: Schedule, limit: int) -> None:
    for tick, row in enumerate(_in_flight(schedule)):
        for device, count in enumerate(row):
            if count > limit:
                raise ScheduleError(
                    f"At tick {tick}, device {device} holds what the backward passes of {count} microbatches need, but may for {limit}. "
                    "Let it do backward passes earlier, or allow for more."
                )


def make_rows(num_devices: int, operations: Sequence[tuple[Operation, int]]) -> tuple[tuple[Cell, ...], ...]:
    """Return the table of operations at their ticks."""
    num_ticks = 1 + max(tick for _, tick in operations)
    table: list[list[list[Operation]]] = [[[] for _ in range(num_devices)] for _ in range(num_ticks)]
    for operation, tick in operations:
        table[tick][operation.stage % num_devices].append(operation)
    in_order = lambda cell: tuple(sorted(cell, key=lambda operation: _ORDER[operation.kind]))
    return tuple(tuple(map(in_order, row)) for row in table)
