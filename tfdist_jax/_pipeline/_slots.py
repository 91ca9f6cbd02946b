"""Where a device keeps what it will need: slots, which serve one microbatch after another."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from tfdist_jax._pipeline._operations import Kind, Operation
from tfdist_jax._pipeline._schedule import Schedule

Interval = tuple[int, int, tuple[int, int]]
"""First and last tick at which something is kept, and of which stage and microbatch it is."""

IDLE = -1


@final
@dataclasses.dataclass(frozen=True)
class SlotTable:
    """What a device does at each tick, as numbers that a program reads.

    Attributes:
        columns: Numbers `[ticks, devices]` of int32. `forward`, `backward` and `weight` are microbatches, or `IDLE`, and `*_chunk` which of
            the device's stages computes. Others are slots: `*_input`, `*_cotangent`, `*_saved` and `*_kept` are those that an operation
            reads or writes, `arriving_input` and `arriving_cotangent` where to put what comes at the end of the tick.
        is_any: Whether some device has at a tick a "forward", "backward" or "weight", the forward pass of the "last" stage or the backward
            pass of the "first": `[ticks]` of booleans.
        sizes: How many slots there are of "input", "cotangent", "saved" and "kept", one of each to spare, for what is not needed.
    """

    columns: Mapping[str, np.ndarray]
    is_any: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]


def make_slot_table(schedule: Schedule, *, saves: bool) -> SlotTable:
    """Give each stage's inputs, cotangents and results the slots in which they wait.

    Args:
        schedule: The schedule.
        saves: Whether a forward pass saves what the backward pass needs; else the stage's input is kept until then.
    """
    kept = _intervals(schedule, saves=saves)
    slots: dict[str, dict[tuple[int, int], int]] = {}
    sizes: dict[str, int] = {}
    for name, by_device in kept.items():
        coloured = [_colour(intervals) for intervals in by_device]
        slots[name] = {key: slot for found, _ in coloured for key, slot in found.items()}
        sizes[name] = max(count for _, count in coloured)
    columns = _columns(schedule, slots, sizes)
    return SlotTable(columns, _find_any(schedule, columns), {name: count + 1 for name, count in sizes.items()})


def _find_any(schedule: Schedule, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    is_due = {name: columns[name] != IDLE for name in ("forward", "backward", "weight")}
    stages = {
        name: columns[f"{name}_chunk"] * schedule.num_devices + np.arange(schedule.num_devices) for name in is_due
    }
    is_due["last"] = is_due["forward"] & (stages["forward"] == schedule.num_stages - 1)
    is_due["first"] = is_due["backward"] & (stages["backward"] == 0)
    return {name: each.any(axis=1) for name, each in is_due.items()}


def _intervals(schedule: Schedule, *, saves: bool) -> dict[str, list[list[Interval]]]:
    times = schedule.times()
    found: dict[str, list[list[Interval]]] = {
        name: [[] for _ in range(schedule.num_devices)] for name in ("input", "cotangent", "saved", "kept")
    }
    last = schedule.num_stages - 1
    for k in range(last + 1):
        device = k % schedule.num_devices
        for m in range(schedule.num_microbatches):
            forward, backward = times[Operation(k, Kind.FORWARD, m)], _backward_of(times, k, m)
            if k:
                arrives = times[Operation(k - 1, Kind.FORWARD, m)] + 1
                found["input"][device].append((arrives, forward if saves else backward, (k, m)))
            # The last stage makes it in its forward pass, where it computes the loss.
            made = forward if k == last else _backward_of(times, k + 1, m) + 1
            found["cotangent"][device].append((made, backward, (k, m)))
            if saves:
                found["saved"][device].append((forward, backward, (k, m)))
            if schedule.is_split:
                found["kept"][device].append((backward, times.get(Operation(k, Kind.WEIGHT, m), backward), (k, m)))
    return found


def _backward_of(times: Mapping[Operation, int], stage: int, microbatch: int) -> int:
    whole = times.get(Operation(stage, Kind.BACKWARD, microbatch))
    return times[Operation(stage, Kind.INPUT, microbatch)] if whole is None else whole


def _colour(intervals: Sequence[Interval]) -> tuple[dict[tuple[int, int], int], int]:
    """Give intervals numbers, different ones to those that overlap, as few as there can be."""
    found: dict[tuple[int, int], int] = {}
    ends: list[int] = []
    for start, end, key in sorted(intervals):
        free = next((slot for slot, busy in enumerate(ends) if busy < start), None)
        if free is None:
            free = len(ends)
            ends.append(end)
        ends[free] = end
        found[key] = free
    return found, len(ends)


def _columns(
    schedule: Schedule, slots: Mapping[str, Mapping[tuple[int, int], int]], sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    shape = schedule.num_ticks, schedule.num_devices
    make = lambda value: np.full(shape, value, np.int32)
    columns = {name: make(IDLE) for name in ("forward", "backward", "weight")}
    columns |= {f"{name}_chunk": make(0) for name in ("forward", "backward", "weight")}
    used = {
        "forward": ("input", "cotangent", "saved"),
        "backward": ("input", "cotangent", "saved", "kept"),
        "weight": ("kept",),
        "arriving": ("input", "cotangent"),
    }
    columns |= {f"{name}_{kind}": make(sizes[kind]) for name, kinds in used.items() for kind in kinds}
    last = schedule.num_stages - 1
    for (k, kind, m), tick, device in schedule.operations():
        # A whole backward pass in a table with parts is both of them, one after the other.
        is_whole = kind is Kind.BACKWARD and schedule.is_split
        names = {Kind.FORWARD: ["forward"], Kind.WEIGHT: ["weight"]}.get(kind, ["backward"]) + ["weight"] * is_whole
        for name in names:
            columns[name][tick, device], columns[f"{name}_chunk"][tick, device] = m, k // schedule.num_devices
            for each in used[name]:
                is_loss = (name, each) == ("forward", "cotangent")
                if not is_loss or k == last:
                    columns[f"{name}_{each}"][tick, device] = slots[each].get((k, m), sizes[each])
        if kind is Kind.FORWARD and k < last:
            columns["arriving_input"][tick, (device + 1) % schedule.num_devices] = slots["input"][k + 1, m]
        elif kind in (Kind.BACKWARD, Kind.INPUT) and k:
            columns["arriving_cotangent"][tick, (device - 1) % schedule.num_devices] = slots["cotangent"][k - 1, m]
    return columns
