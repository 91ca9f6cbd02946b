"""How fast a step is, compared with what its devices can do."""

import dataclasses
from typing import final

from tfdist_jax._explain._flops import Flops
from tfdist_jax._hardware import find_hardware


@final
@dataclasses.dataclass(frozen=True)
class Speed:
    """What a device does in a second.

    Attributes:
        seconds: How long a step takes.
        flops_per_second: How many floating point operations of matrix products and convolutions a device does in a second.
        peak: How many it could do; None if that is not known.
        mfu: The share of these, the model FLOPs utilization with what is computed again; None if it is not known.
        why_not: Why there is no `mfu`; empty if there is.
    """

    seconds: float
    flops_per_second: float
    peak: float | None
    mfu: float | None
    why_not: str


def make_speed(flops: Flops, *, seconds: float, device_kind: str, peak: float | None) -> Speed:
    """Compare the operations of a step on a device with what it can do.

    Args:
        flops: The operations of a step.
        seconds: How long it takes.
        device_kind: What JAX calls the device.
        peak: How many operations it can do in a second; those known of its kind if None.

    Raises:
        ValueError: If a step takes no time.
    """
    if seconds <= 0:
        raise ValueError(
            f"`seconds` is how long a step takes, more than 0, got {seconds}. Time some steps after the first."
        )
    if peak is None and (hardware := find_hardware(device_kind)):
        peak = hardware.flops
    per_second = flops.count / seconds
    if peak is None:
        why_not = f"the peak of {device_kind!r} is not known: give `peak_flops=`, the operations a second of one device"
    elif not flops.is_exact:
        why_not = "the number of operations is not known: a loop's rounds, or a conditional's branch, depend on values"
    else:
        return Speed(seconds, per_second, peak, per_second / peak, "")
    return Speed(seconds, per_second, peak, None, why_not)
