"""How long a step takes on given hardware, and with what."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import final

from tfdist_jax._hardware import Hardware
from tfdist_jax._pipeline import Schedule
from tfdist_jax._plan._candidate import AXES, Candidate
from tfdist_jax._plan._figures import Figures
from tfdist_jax._plan._sizes import Sizes
from tfdist_jax._sharding._mesh import DATA, FSDP_AXIS

COMPUTING, MOVING, WAITING = "computing", "reading and writing memory", "waiting in the pipeline"


# Of a stage's operations, to a forward pass: backward passes compute it again, or where they are in two, that by inputs does.
_COSTS = {"F": 1.0, "B": 3.0, "I": 2.0, "W": 1.0}


@final
@dataclasses.dataclass(frozen=True)
class Times:
    """How long a step takes.

    Attributes:
        seconds: All of it.
        parts: What a device does, to seconds: computing, waiting, and exchanging over axes what computing does not hide.
    """

    seconds: float
    parts: Mapping[str, float]


def estimate_times(  # noqa: PLR0913
    candidate: Candidate,
    sizes: Sizes,
    figures: Figures,
    schedule: Schedule | None,
    hardware: Hardware,
    share_of_16_bits: float,
) -> Times:
    """Return how long a step takes.

    A device computes products at a part of its peak, or as fast as it can read the weights for each microbatch; what it writes takes its
    memory's time. Gradients and parameters travel meanwhile, as far as hardware overlaps them; what goes over other axes is waited for.
    """
    peak = 1 / (share_of_16_bits / hardware.flops + (1 - share_of_16_bits) / hardware.flops_float32)
    products = figures.flops / (peak * hardware.efficiency)
    # Each microbatch reads the weights forwards and twice backwards. What is written is read about as often.
    weights = 3 * candidate.microbatches * (sizes.layers + sizes.others) / hardware.bandwidth
    computing = max(products, weights) + 2 * figures.written / hardware.bandwidth
    # The update reads and writes the state, and reads gradients.
    update = (2 * sizes.state + sizes.params) / hardware.bandwidth
    parts = {COMPUTING: products, MOVING: computing - products + update}
    if schedule is not None:
        bubble = schedule.bubble(_COSTS)
        parts[WAITING] = computing * bubble / (1 - bubble)
    sending = _find_sending(candidate, figures, hardware)
    hideable = sum(time for axes, time in sending.items() if _is_hideable(axes))
    left = max(0.0, 1 - hardware.overlap * computing / max(hideable, 1e-12))
    for axes, time in sending.items():
        parts[f"exchanging over {' x '.join(axes)}"] = time * left if _is_hideable(axes) else time
    seconds = sum(parts.values())
    if hardware.parallel is not None:
        # Devices that share a processor leave it to others while they wait.
        busy = {name: time for name, time in parts.items() if name != WAITING}
        turns = math.prod(candidate.sizes) / hardware.parallel
        if sum(busy.values()) * turns > seconds:
            parts = {name: time * turns for name, time in busy.items()}
            seconds = sum(parts.values())
    return Times(seconds, {name: time for name, time in parts.items() if time > 0})


def _is_hideable(axes: Collection[str]) -> bool:
    return not {DATA, FSDP_AXIS}.isdisjoint(axes)


def _find_sending(candidate: Candidate, figures: Figures, hardware: Hardware) -> dict[tuple[str, ...], float]:
    """Return over which axes devices exchange something, to how long."""
    times: dict[tuple[str, ...], float] = {}
    for (kind, axes), (num_bytes, runs) in figures.traffic.items():
        group = math.prod(candidate.axes.get(name, 1) for name in axes)
        # Devices that are numbered in the mesh's order are within a node as far as all behind the first axis are.
        reach = math.prod(candidate.axes[name] for name in AXES[AXES.index(axes[0]) :])
        rate = hardware.links if reach <= hardware.node else hardware.network
        turns = 1 if kind == "collective-permute" else group - 1
        time = num_bytes * _share_sent(kind, group) / rate + runs * turns * hardware.latency
        times[axes] = times.get(axes, 0.0) + time
    return times


def _share_sent(kind: str, group: int) -> float:
    """Return how many bytes a device sends for each byte of a collective's result, in rings."""
    others = (group - 1) / group
    return {"all-reduce": 2 * others, "reduce-scatter": group - 1.0, "collective-permute": 1.0}.get(kind, others)
