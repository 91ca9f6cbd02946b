"""`tf.compat.v1.ConfigProto`: settings of sessions and servers, which here decide nothing."""

import dataclasses
from typing import Any, final


class _Settings:
    """Settings that are read and written, but only those that there are."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in {field.name for field in dataclasses.fields(self)}:  # pyright: ignore[reportArgumentType]
            raise AttributeError(f"There is no setting {name!r} in {type(self).__name__}.")
        object.__setattr__(self, name, value)


@final
@dataclasses.dataclass
class GPUOptions(_Settings):
    """How TensorFlow 1 uses GPUs; here `tf.config.experimental.set_memory_growth` says it.

    Ref: https://www.tensorflow.org/api_docs/python/tf/compat/v1/GPUOptions
    """

    per_process_gpu_memory_fraction: float = 0.0
    allow_growth: bool = False
    allocator_type: str = ""
    deferred_deletion_bytes: int = 0
    visible_device_list: str = ""
    polling_active_delay_usecs: int = 0
    polling_inactive_delay_msecs: int = 0
    force_gpu_compatible: bool = False


@final
@dataclasses.dataclass
class ConfigProto(_Settings):
    """Threads and devices of a session or a server: XLA chooses its threads.

    Differs from TensorFlow: it is no protocol buffer.
    Ref: https://www.tensorflow.org/api_docs/python/tf/compat/v1/ConfigProto
    """

    device_count: dict[str, int] = dataclasses.field(default_factory=dict)
    intra_op_parallelism_threads: int = 0
    inter_op_parallelism_threads: int = 0
    use_per_session_threads: bool = False
    placement_period: int = 0
    device_filters: list[str] = dataclasses.field(default_factory=list)
    gpu_options: GPUOptions = dataclasses.field(default_factory=GPUOptions)
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    operation_timeout_in_ms: int = 0
    isolate_session_state: bool = False
    share_cluster_devices_in_session: bool = False
