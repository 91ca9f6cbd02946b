"""What kinds of devices can do, as their makers say."""

import dataclasses
from collections.abc import Sequence
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class Hardware:
    """What a kind of device can do, for `td.plan`.

    Attributes:
        name: What it is called.
        flops: Dense floating point operations a second of a device, in bfloat16.
        flops_float32: The same of products of float32 arrays, which JAX computes in TF32 or bfloat16 if not told otherwise.
        memory: Bytes of a device.
        bandwidth: Bytes a second between a device and its memory.
        links: Bytes a second that a device sends to others of its node, and gets from them meanwhile.
        network: Bytes a second that a device sends to other nodes.
        node: How many devices are connected by `links`.
        latency: Seconds that each turn of a collective's ring takes besides what it sends; there is one less than devices in it.
        efficiency: The share of `flops` that products reach.
        overlap: Behind which share of the computation collectives of parameters and gradients hide.
        parallel: How many devices compute at a time, where they share a processor; None for all.
        kinds: How what JAX calls such devices begins.

    Example:
        >>> import dataclasses, tfdist_jax as td
        >>> td.HARDWARE["h100-sxm"].memory, dataclasses.replace(td.HARDWARE["h100-sxm"], network=25e9).network
        (80000000000.0, 25000000000.0)
    """

    name: str
    flops: float
    flops_float32: float
    memory: float
    bandwidth: float
    links: float
    network: float
    node: int
    latency: float = 5e-6
    efficiency: float = 0.5
    overlap: float = 0.5
    parallel: int | None = None
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: If one is no number, or out of its range.
        """
        positive = ("flops", "flops_float32", "memory", "bandwidth", "links", "network", "node", "efficiency")
        if wrong := [name for name in positive if not getattr(self, name) > 0]:
            raise ValueError(f"{wrong[0]!r} of hardware is a number above 0, got {getattr(self, wrong[0])!r}.")
        if not (self.efficiency <= 1 and 0 <= self.overlap <= 1 and self.latency >= 0):
            raise ValueError(
                "Of hardware, `efficiency` is above 0 and at most 1, `overlap` from 0 to 1 and `latency` 0 or more, got "
                f"{self.efficiency}, {self.overlap} and {self.latency}."
            )
        if self.parallel is not None and self.parallel < 1:
            raise ValueError(f"`parallel` is how many devices compute at a time, 1 or more, got {self.parallel}.")


def _known(name: str, kinds: tuple[str, ...], node: int, figures: Sequence[float]) -> Hardware:
    """Return hardware of teraflops in bfloat16 and of float32, GB, and GB/s of memory, links and network, one direction."""
    units = (1e12, 1e12, 1e9, 1e9, 1e9, 1e9)
    scaled = (figure * unit for figure, unit in zip(figures, units, strict=True))
    return Hardware(name, *scaled, node=node, kinds=kinds)


# NVIDIA's data sheets of the A100, H100 and H200 without sparsity, and of DGX: NVLink's 600 and 900 GB/s are both directions; PCIe 5 has 64
# each way; an InfiniBand port of 200 (DGX A100) or 400 Gbit/s for each GPU. Google's pages of TPU versions,
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm: links are of all a chip's, one direction. What chips send to other pods is
# what a host's network cards give each, https://jax-ml.github.io/scaling-book/tpus; v4's is taken to be v5p's. Where JAX's name begins like
# several, the first counts.
_KNOWN = (
    _known("h200-sxm", ("NVIDIA H200",), 8, (989, 494.5, 141, 4800, 450, 50)),
    _known("h100-pcie", ("NVIDIA H100 PCIe",), 8, (756, 378, 80, 2000, 64, 50)),
    _known("h100-nvl", ("NVIDIA H100 NVL",), 8, (835, 417.5, 94, 3900, 64, 50)),
    _known("h100-sxm", ("NVIDIA H100",), 8, (989, 494.5, 80, 3350, 450, 50)),
    _known("a100-40gb-sxm", ("NVIDIA A100-SXM4-40GB",), 8, (312, 156, 40, 1555, 300, 25)),
    _known("a100-80gb-sxm", ("NVIDIA A100",), 8, (312, 156, 80, 2039, 300, 25)),
    # By default, products of float32 are of bfloat16.
    _known("tpu-v4", ("TPU v4",), 4096, (275, 275, 32, 1228, 300, 6.25)),
    _known("tpu-v5e", ("TPU v5 lite", "TPU v5e"), 256, (197, 197, 16, 819, 200, 3.125)),
    _known("tpu-v5p", ("TPU v5",), 8960, (459, 459, 95, 2765, 600, 6.25)),
    _known("tpu-v6e", ("TPU v6 lite", "TPU v6e"), 256, (918, 918, 32, 1640, 400, 12.5)),
)

HARDWARE = {hardware.name: hardware for hardware in _KNOWN}
"""What is known of devices, by name."""


def find_hardware(device_kind: str) -> Hardware | None:
    """Return what is known of a kind of device, as JAX calls it; None if nothing is.

    Example:
        >>> find_hardware("NVIDIA H100 80GB HBM3").name, find_hardware("TPU v5 lite").name, find_hardware("cpu")
        ('h100-sxm', 'tpu-v5e', None)
    """
    return next((known for known in _KNOWN if device_kind.startswith(known.kinds)), None)
