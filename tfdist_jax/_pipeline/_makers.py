"""The schedules that are known by name."""

import functools
from collections.abc import Callable, Mapping

from tfdist_jax._pipeline._operations import Cell, Kind, Operation
from tfdist_jax._pipeline._schedule import Schedule, make_rows

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT


def make_gpipe(devices: int, microbatches: int, chunks: int = 1) -> Schedule:
    """All forward passes, then all backward passes (https://arxiv.org/abs/1811.06965)."""
    _check_one_chunk("gpipe", chunks)
    start = microbatches + devices - 1
    pairs = [(m, k) for m in range(microbatches) for k in range(devices)]
    forwards = [(Operation(k, F, m), m + k) for m, k in pairs]
    backwards = [(Operation(k, B, m), start + m + devices - 1 - k) for m, k in pairs]
    return Schedule("gpipe", make_rows(devices, forwards + backwards))


def make_1f1b(devices: int, microbatches: int, chunks: int = 1) -> Schedule:
    """One forward and one backward pass at each tick, once the pipeline is full (https://arxiv.org/abs/2006.09503).

    A device keeps what at most `2 * devices - 1` microbatches need, however many there are.
    """
    _check_one_chunk("1f1b", chunks)
    return Schedule("1f1b", make_rows(devices, _in_lock_step(devices, microbatches, 1)))


def make_interleaved(devices: int, microbatches: int, chunks: int = 2) -> Schedule:
    """As `make_1f1b`, with several stages on each device, between which less time passes (https://arxiv.org/abs/2104.04473).

    Raises:
        ValueError: If the devices do not divide the microbatches.
    """
    if chunks > 1 and microbatches % devices:
        raise ValueError(
            f"An interleaved schedule takes microbatches in groups of as many as there are devices along 'stage', {devices}, which does "
            f"not divide microbatches={microbatches}. Take {-(-microbatches // devices) * devices}, or schedule='1f1b'."
        )
    return Schedule("interleaved", make_rows(devices, _in_lock_step(devices, microbatches, chunks)), chunks)


def _in_lock_step(devices: int, microbatches: int, chunks: int) -> list[tuple[Operation, int]]:
    last = chunks * devices - 1
    found: list[tuple[Operation, int]] = []
    for m in range(microbatches):
        # Groups of microbatches go through all of a device's stages before the next group does.
        start = (m // devices) * chunks * devices + m % devices if chunks > 1 else m
        for k in range(last + 1):
            found += [(Operation(k, F, m), start + k), (Operation(k, B, m), start + last + last - k)]
    return found


def make_zb_h1(devices: int, microbatches: int, chunks: int = 1) -> Schedule:
    """1F1B with weight gradients put where devices would wait, at about its memory (https://arxiv.org/abs/2401.10241, "ZB-H1").

    A device does one thing at a tick: what others wait for if it can, and weight gradients otherwise.
    """
    _check_one_chunk("zb-h1", chunks)
    done: dict[Kind, list[int]] = {kind: [0] * devices for kind in (F, I, W)}
    rows: list[tuple[Cell, ...]] = []
    while min(done[W]) < microbatches:
        before = {kind: [*counts] for kind, counts in done.items()}
        row: list[Cell] = []
        for k in range(devices):
            kind = _next_of_zb_h1(k, devices, microbatches, before)
            row.append(() if kind is None else (Operation(k, kind, done[kind][k]),))
            if kind is not None:
                done[kind][k] += 1
        rows.append(tuple(row))
    return Schedule("zb-h1", tuple(rows))


def _next_of_zb_h1(k: int, devices: int, microbatches: int, done: Mapping[Kind, list[int]]) -> Kind | None:
    """Return what device `k` does next, by how many of each have been done before this tick."""
    forwards, inputs, weights = done[F][k], done[I][k], done[W][k]
    if inputs < forwards and (k == devices - 1 or inputs < done[I][k + 1]):
        return I
    has_input = k == 0 or forwards < done[F][k - 1]
    if forwards < microbatches and has_input and forwards - inputs < devices - k and forwards - weights <= devices:
        return F
    return W if weights < inputs else None


def _check_one_chunk(name: str, chunks: int) -> None:
    if chunks != 1:
        raise ValueError(
            f"The schedule {name!r} has one stage on each device, got chunks={chunks}. There is 'interleaved'."
        )


SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    "gpipe": make_gpipe,
    "1f1b": make_1f1b,
    "interleaved": make_interleaved,
    "zb-h1": make_zb_h1,
}


@functools.lru_cache(maxsize=256)
def make_schedule(name: str, devices: int, microbatches: int, chunks: int) -> Schedule:
    """Make the schedule of a name.

    Raises:
        ValueError: If there is none, or it is not one for these numbers.
    """
    if name not in SCHEDULES:
        raise ValueError(f"A schedule is one of {', '.join(map(repr, SCHEDULES))}, or a td.Schedule, got {name!r}.")
    return SCHEDULES[name](devices, microbatches, chunks)
