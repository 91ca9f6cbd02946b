"""Tables in which each device has its operations in order, and the ticks at which it comes to do them."""

import csv
import re
from collections.abc import Sequence

from tfdist_jax._pipeline._operations import Cell, Kind, Operation, ScheduleError, needs

Orders = Sequence[Sequence[Cell]]
"""What each device does, one cell after another."""

_OPERATION = re.compile(r"(\d+)([FBIW])(\d+)")


def read_csv(text: str) -> tuple[list[list[Cell]], int]:
    """Return what each device does in order, and how many stages each has.

    Raises:
        ScheduleError: If the text is no such table.
    """
    rows = [row for row in csv.reader(text.strip().splitlines()) if any(cell.strip() for cell in row)]
    if not rows:
        raise ScheduleError("The table is empty. It has a line for each device, such as '0F0,0F1,0B0,0B1'.")
    orders = [[_read_cell(cell, line) for cell in row if cell.strip()] for line, row in enumerate(rows)]
    num_stages = 1 + max(operation.stage for order in orders for cell in order for operation in cell)
    if num_stages % len(orders):
        raise ScheduleError(
            f"The table has {len(orders)} lines, one for each device, but {num_stages} stages, which do not divide over them."
        )
    return orders, num_stages // len(orders)


def _read_cell(cell: str, line: int) -> Cell:
    found = [_OPERATION.fullmatch(part.strip()) for part in cell.split(";")]
    if not all(found):
        raise ScheduleError(
            f"Line {line + 1} has {cell.strip()!r}, where an operation is expected, such as 3F0, 3B0, 3I0 or 3W0, or several as "
            "3F1;3B0. Of torch's forms, write the one with computations alone."
        )
    return tuple(Operation(int(match[1]), Kind(match[2]), int(match[3])) for match in found if match)


def time_orders(orders: Orders, num_chunks: int) -> tuple[tuple[Cell, ...], ...]:
    """Return the ticks at which devices do what they have in order, each as soon as what it needs is there.

    Raises:
        ScheduleError: If all of them wait.
    """
    num_stages = len(orders) * num_chunks
    operations = [operation for order in orders for cell in order for operation in cell]
    backwards = {(op.stage, op.microbatch): op.kind for op in operations if op.kind in (Kind.BACKWARD, Kind.INPUT)}
    done: set[Operation] = set()
    places = [0] * len(orders)
    ticks: list[tuple[Cell, ...]] = []
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        row: list[Cell] = []
        waiting: list[str] = []
        for device, order in enumerate(orders):
            cell = order[places[device]] if places[device] < len(order) else ()
            own = done | {*cell}
            missing = [
                f"device {device} cannot do {operation} before {needed}"
                for operation in cell
                for needed, is_elsewhere in needs(operation, num_stages, backwards)
                if needed not in (done if is_elsewhere else own)
            ]
            waiting += missing[:1]
            row.append(() if missing else cell)
        if not any(row):
            raise ScheduleError(
                f"At tick {len(ticks)} all devices wait: {'; '.join(waiting)}. Put what is needed first."
            )
        for device, cell in enumerate(row):
            done |= {*cell}
            places[device] += bool(cell)
        ticks.append(tuple(row))
    return tuple(ticks)
