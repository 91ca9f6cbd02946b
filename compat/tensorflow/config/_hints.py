"""`tf.config.threading`, `tf.config.optimizer` and their like: hints to TensorFlow's own runtime, which are kept and change no result."""

from typing import Any

from tfdist_jax.compat.tensorflow._names._old_forms import tell_without_effect

_threads = {"inter": 0, "intra": 0}
_options: dict[str, bool] = {}
_jit: list[Any] = [""]


def get_inter_op_parallelism_threads() -> int:
    """Return what was set; 0 leaves it to the runtime."""
    return _threads["inter"]


def get_intra_op_parallelism_threads() -> int:
    """Return what was set; 0 leaves it to the runtime."""
    return _threads["intra"]


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Keep the number: XLA has threads of its own."""
    _threads["inter"] = num_threads
    tell_without_effect(
        "`tf.config.threading`", "XLA chooses its threads; `taskset` limits the processors of a program"
    )


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Keep the number: XLA has threads of its own."""
    _threads["intra"] = num_threads
    tell_without_effect(
        "`tf.config.threading`", "XLA chooses its threads; `taskset` limits the processors of a program"
    )


def enable_mlir_bridge() -> None:
    """Accept how TensorFlow is to compile: XLA compiles every program."""
    tell_without_effect("`tf.config.experimental.enable_mlir_bridge`", "XLA compiles every function")


def disable_mlir_bridge() -> None:
    """Accept how TensorFlow is to compile: XLA compiles every program."""
    tell_without_effect("`tf.config.experimental.disable_mlir_bridge`", "XLA compiles every function")


def get_jit() -> Any:
    """Return what was set: "" or "autoclustering"."""
    return _jit[0]


def set_jit(enabled: Any) -> None:
    """Keep the wish: XLA compiles every program.

    Args:
        enabled: "autoclustering", or whether to.
    """
    _jit[0] = "autoclustering" if enabled in (True, "autoclustering") else ""
    tell_without_effect("`tf.config.optimizer.set_jit`", "XLA compiles every function")


def get_experimental_options() -> dict[str, bool]:
    """Return what was set."""
    return dict(_options)


def set_experimental_options(options: dict[str, bool]) -> None:
    """Keep options of TensorFlow's optimizer of graphs."""
    _options.update(options)
    tell_without_effect("`tf.config.optimizer.set_experimental_options`", "XLA optimizes all programs")
