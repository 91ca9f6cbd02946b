"""`tf.data.Options` and the constants of datasets."""

import dataclasses
import enum
from typing import Any, final

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form, tell_without_effect

AUTOTUNE = -1
SHARD_HINT = -1
"""Stands in `Dataset.shard` for numbers that a strategy fills in."""


class AutoShardPolicy(enum.IntEnum):
    """How a dataset is divided between the processes of a cluster."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(enum.Enum):
    """How TensorFlow's runtime looks for the best numbers of threads; nothing here depends on it."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


class ExternalStatePolicy(enum.Enum):
    """What happens to state outside of a dataset whose iterator is saved; nothing here depends on it."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class _Settings:
    """Settings of which each is None until it is set. A name that there is not is an AttributeError, as in TensorFlow."""

    __slots__ = ("_is_fixed",)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is not a dataset's own.

        Raises:
            ValueError: If these are settings of a dataset.
        """
        if getattr(self, "_is_fixed", False):
            raise ValueError(
                "Mutating `tf.data.Options()` returned by `tf.data.Dataset.options()` has no effect. Use "
                "`tf.data.Dataset.with_options(options)` to set or update dataset options."
            )
        object.__setattr__(self, name, value)

    def fixed(self) -> Any:
        """Return a copy that cannot be changed."""
        values = {field.name: getattr(self, field.name) for field in _fields(self)}
        copy = type(self)(**{k: v.fixed() if isinstance(v, _Settings) else v for k, v in values.items()})
        object.__setattr__(copy, "_is_fixed", True)
        return copy

    def merged(self, other: Any) -> Any:
        """Return these settings, overridden by those that are set in `other`."""
        values = {field.name: _later(*(getattr(one, field.name) for one in (self, other))) for field in _fields(self)}
        return type(self)(**values)


def _fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(settings)


def _later(earlier: Any, later: Any) -> Any:
    if isinstance(later, _Settings):
        return later if earlier is None else earlier.merged(later)
    return earlier if later is None else later


@final
@dataclasses.dataclass(slots=True)
class DistributeOptions(_Settings):
    """How a dataset is distributed: `auto_shard_policy` says whether by files or by elements."""

    auto_shard_policy: AutoShardPolicy | None = None
    num_devices: int | None = None

    @property
    def auto_shard(self) -> bool:
        """Whether processes share the dataset, as it was said before there were policies."""
        return self.auto_shard_policy is not AutoShardPolicy.OFF

    @auto_shard.setter
    def auto_shard(self, shares: bool) -> None:
        tell_old_form("`experimental_distribute.auto_shard`", "`experimental_distribute.auto_shard_policy`")
        self.auto_shard_policy = AutoShardPolicy.AUTO if shares else AutoShardPolicy.OFF


@final
@dataclasses.dataclass(slots=True)
class ThreadingOptions(_Settings):
    """Numbers of threads of TensorFlow's runtime; accepted."""

    max_intra_op_parallelism: int | None = None
    private_threadpool_size: int | None = None


@final
@dataclasses.dataclass(slots=True)
class AutotuneOptions(_Settings):
    """What TensorFlow's runtime tunes; accepted."""

    enabled: bool | None = None
    cpu_budget: int | None = None
    ram_budget: int | None = None
    autotune_algorithm: AutotuneAlgorithm | None = None
    initial_parallelism: int | None = None
    min_parallelism: int | None = None


@final
@dataclasses.dataclass(slots=True)
class OptimizationOptions(_Settings):
    """How TensorFlow rewrites its graphs of datasets; accepted."""

    apply_default_optimizations: bool | None = None
    filter_fusion: bool | None = None
    filter_parallelization: bool | None = None
    inject_prefetch: bool | None = None
    map_and_batch_fusion: bool | None = None
    map_and_filter_fusion: bool | None = None
    map_fusion: bool | None = None
    map_parallelization: bool | None = None
    noop_elimination: bool | None = None
    parallel_batch: bool | None = None
    seq_interleave_prefetch: bool | None = None
    shuffle_and_repeat_fusion: bool | None = None


@final
@dataclasses.dataclass(slots=True)
class Options(_Settings):
    """Options of a dataset; set attributes, then `dataset.with_options(options)`.

    `experimental_distribute.auto_shard_policy` is meaningful; the others tune TensorFlow's own runtime and are accepted.
    Elements come in the same order in any case, as with `deterministic`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/data/Options
    """

    autotune: AutotuneOptions = dataclasses.field(default_factory=AutotuneOptions)
    dataset_name: str | None = None
    deterministic: bool | None = None
    experimental_deterministic: bool | None = None
    experimental_distribute: DistributeOptions = dataclasses.field(default_factory=DistributeOptions)
    experimental_external_state_policy: ExternalStatePolicy | None = None
    experimental_optimization: OptimizationOptions = dataclasses.field(default_factory=OptimizationOptions)
    experimental_slack: bool | None = None
    experimental_symbolic_checkpoint: bool | None = None
    experimental_threading: ThreadingOptions | None = None
    experimental_warm_start: bool | None = None
    framework_type: list[str] | None = None
    threading: ThreadingOptions = dataclasses.field(default_factory=ThreadingOptions)

    def merge(self, options: "Options") -> "Options":
        """Return these options, overridden by those that are set in `options`."""
        return self.merged(options)


def enable_debug_mode() -> None:
    """Accept the wish to look into a dataset's functions: those that need values run in Python for each element anyway."""
    tell_without_effect(
        "`tf.data.experimental.enable_debug_mode`",
        "functions of datasets are compiled unless they need values; `tf.py_function` calls Python for each element",
    )
