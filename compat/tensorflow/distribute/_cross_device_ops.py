"""`tf.distribute.CrossDeviceOps`: accepted for what they ask for; the reduction itself is XLA's."""

from typing import Any, final


class CrossDeviceOps:
    """Base of the ways to reduce over devices.

    All of them compile to XLA's all-reduce (NCCL on GPU, the interconnect on TPU, gloo or shared memory on CPU);
    the names exist so that programs need no change.
    """

    bucket_bytes: int | None = None


@final
class NcclAllReduce(CrossDeviceOps):
    """Reduce with NCCL, as XLA does on GPU anyway."""

    def __init__(self, num_packs: int = 1) -> None:
        """Accept `num_packs`; 0 asks for an all-reduce for each tensor."""
        if num_packs < 0:
            raise ValueError(f"NCCL all-reduce requires num_packs >= 0, but {num_packs} is specified")
        self.bucket_bytes = None if num_packs else 1


@final
class HierarchicalCopyAllReduce(CrossDeviceOps):
    """Reduce over the devices' own links; XLA chooses the route."""

    def __init__(self, num_packs: int = 1) -> None:
        """Accept `num_packs`; 0 asks for an all-reduce for each tensor."""
        if num_packs < 0:
            raise ValueError(f"HierarchicalCopy requires num_packs >= 0, but {num_packs} is specified")
        self.bucket_bytes = None if num_packs else 1


@final
class ReductionToOneDevice(CrossDeviceOps):
    """Reduce as XLA does; the result is on every device in any case."""

    def __init__(self, reduce_to_device: Any = None, accumulation_fn: Any = None) -> None:
        """Accept the default accumulation only."""
        if accumulation_fn is not None:
            raise NotImplementedError(
                "ReductionToOneDevice(accumulation_fn=...) is not supported: replicas are summed by XLA's all-reduce. "
                "Leave `accumulation_fn` out."
            )
