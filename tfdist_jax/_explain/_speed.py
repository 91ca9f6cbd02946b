"""How fast a step is, compared with what its devices can do."""

import dataclasses
from typing import final

from tfdist_jax._explain._flops import Flops

# Dense bfloat16 operations a second of one device, by the beginning of what JAX calls it; the first that fits counts. NVIDIA's data
# sheets of the A100 (312 TFLOPS), H100 (SXM 989, NVL 835, PCIe 756) and H200 (989), without sparsity; Cloud TPU's pages of
# versions v4 (275), v5e (197), v5p (459) and v6e (918), https://cloud.google.com/tpu/docs/system-architecture-tpu-vm.
_PEAKS = {
    "NVIDIA H200": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100": 989e12,
    "NVIDIA A100": 312e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


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


def find_peak(device_kind: str) -> float | None:
    """Return how many dense bfloat16 operations a second a kind of device can do; None if that is not known.

    Example:
        >>> find_peak("NVIDIA H100 80GB HBM3"), find_peak("TPU v5 lite"), find_peak("cpu")
        (989000000000000.0, 197000000000000.0, None)
    """
    return next((peak for kind, peak in _PEAKS.items() if device_kind.startswith(kind)), None)


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
    peak, per_second = find_peak(device_kind) if peak is None else peak, flops.count / seconds
    if peak is None:
        why_not = f"the peak of {device_kind!r} is not known: give `peak_flops=`, the operations a second of one device"
    elif not flops.is_exact:
        why_not = "the number of operations is not known: a loop's rounds, or a conditional's branch, depend on values"
    else:
        return Speed(seconds, per_second, peak, per_second / peak, "")
    return Speed(seconds, per_second, peak, None, why_not)
