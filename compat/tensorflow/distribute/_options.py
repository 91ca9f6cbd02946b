"""Options of strategies: how reductions are packed, how steps run."""

import dataclasses
import enum
import functools
import logging
import math
import numbers
from typing import Any, final

import jax

from tfdist_jax import BFloat16, Compression, Int8, PowerSGD, TopK

_COMPRESSIONS = {"bf16": BFloat16(), "int8": Int8(), "powersgd": PowerSGD(), "topk": TopK()}

_log = logging.getLogger("tfdist_jax")


class CommunicationImplementation(enum.Enum):
    """Who carries collectives between devices; XLA decides it here: NCCL on GPU, the interconnect on TPU."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


CollectiveCommunication = CommunicationImplementation
"""The name before TensorFlow 2.4."""


@final
@dataclasses.dataclass
class CommunicationOptions:
    """How collectives are carried out.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CommunicationOptions

    Attributes:
        bytes_per_pack: Arrays are reduced together until they have so many bytes; 0 leaves it to the strategy.
        timeout_seconds: What a worker waits for others at most, given to a `MultiWorkerMirroredStrategy`: then all workers end.
            None, 0 and less are no limit. In the options of one call it has no effect, which is told: a step is one program,
            and nobody outside tells its collectives apart.
        implementation: Accepted; a name or a member of `CommunicationImplementation`.
        compression: Beyond TensorFlow, given to a strategy: in which form gradients travel between replicas where Keras's optimizers sum
            them, in `fit` and in `apply_gradients`. One of "bf16", "int8", "powersgd" and "topk", or a form of the native library, such
            as `tfdist_jax.PowerSGD(rank=2)`. What replicas keep for it belongs to the optimizer, and to its checkpoints of
            `tf.train.Checkpoint`. Metrics, statistics and whatever a program reduces itself stay exact.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: Any = CommunicationImplementation.AUTO
    compression: Any = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.timeout_seconds, numbers.Real | None):
            raise TypeError(f"`timeout_seconds` must be a number of seconds, or None, got {self.timeout_seconds!r}.")
        if self.bytes_per_pack < 0:
            raise ValueError(f"Argument `bytes_per_pack` must be >=0, got {self.bytes_per_pack}.")
        self.implementation = CommunicationImplementation(self.implementation)
        if isinstance(self.compression, str):
            self.compression = _COMPRESSIONS.get(self.compression, self.compression)
        if not isinstance(self.compression, Compression | None):
            raise ValueError(
                f"`compression` must be one of {sorted(_COMPRESSIONS)}, or a form such as tfdist_jax.PowerSGD(rank=2), got "
                f"{self.compression!r}."
            )

    @property
    def limit_s(self) -> float:
        """`timeout_seconds`; infinity if that is none."""
        seconds = self.timeout_seconds
        return float(seconds) if seconds is not None and seconds > 0 else math.inf

    def merge(self, options: "CommunicationOptions | None") -> "CommunicationOptions":
        """Return these options, overridden by what `options` says."""
        if options is None:
            return dataclasses.replace(self)
        said = {
            field.name: value
            for field in dataclasses.fields(options)
            if (value := getattr(options, field.name)) != field.default
        }
        return dataclasses.replace(self, **said)


def check_options_of_call(options: Any) -> None:
    """Refuse to compress what one call reduces, and tell, once, that a time-out in its options has no effect, if there is one."""
    if isinstance(options, CommunicationOptions) and options.compression is not None:
        raise ValueError(
            f"`compression` ({options.compression}) is for gradients that optimizers sum; what a program reduces itself is exact. Give it "
            "to the strategy, as `MirroredStrategy(communication_options=CommunicationOptions(compression='int8'))`."
        )
    if isinstance(options, CommunicationOptions) and math.isfinite(options.limit_s) and jax.process_count() > 1:
        _tell_where_limits_go()


@functools.cache
def _tell_where_limits_go() -> None:
    _log.warning(
        "`timeout_seconds` in the options of one call has no effect: a step is one program. Give it to the strategy, as "
        "`MultiWorkerMirroredStrategy(communication_options=CommunicationOptions(timeout_seconds=60))`."
    )


def require_instance(kind: type[Any], name: str, value: Any) -> None:
    """Refuse an argument of another type, unless it is None."""
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"`{name}` must be an instance of {kind.__name__}, got {value!r}.")


class CollectiveHints:
    """The name of `CommunicationOptions` before TensorFlow 2.4.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CollectiveHints
    """

    def __new__(cls, bytes_per_pack: int = 0, timeout_seconds: float | None = None) -> Any:
        """Return `CommunicationOptions`."""
        return CommunicationOptions(bytes_per_pack, timeout_seconds)


@final
@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of `strategy.run`, accepted: batches of any size run on every strategy.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/RunOptions
    """

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None


class InputReplicationMode(enum.Enum):
    """How many input pipelines there are."""

    PER_WORKER = "PER_WORKER"
    """One for each process; its batches are split over the replicas."""
    PER_REPLICA = "PER_REPLICA"
    """One for each replica."""


@final
@dataclasses.dataclass(frozen=True)
class InputOptions:
    """How a distributed dataset brings its batches to the devices.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/InputOptions

    Attributes:
        experimental_fetch_to_device: Whether batches are sent to the replicas' devices (None, True), or stay on the host;
            with several processes they are sent.
        experimental_replication_mode: Whether a `dataset_fn` is called once, or once for each replica.
        experimental_place_dataset_on_device: Accepted; datasets are made on the host.
        experimental_per_replica_buffer_size: How many batches are on their way to the devices at a time.
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    @property
    def per_replica(self) -> bool:
        """Whether each replica has an input pipeline of its own."""
        return self.experimental_replication_mode is InputReplicationMode.PER_REPLICA

    def check_placement(self) -> None:
        """Check what a `dataset_fn` is to make datasets with.

        Raises:
            ValueError: If datasets are to be placed on devices, but are not those of single replicas, or are sent there.
        """
        if not self.experimental_place_dataset_on_device:
            return
        if not self.per_replica:
            raise ValueError(
                "When `experimental_place_dataset_on_device` is set for dataset placement, you must also specify `PER_REPLICA` for "
                "the replication mode"
            )
        if self.experimental_fetch_to_device is not False:
            raise ValueError(
                "`experimental_place_dataset_on_device` can not be set to True when experimental_fetch_to_device is True and "
                "replication mode is set to `PER_REPLICA`"
            )
