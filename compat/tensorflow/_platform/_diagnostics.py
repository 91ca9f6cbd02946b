"""`tf.debugging`: settings."""

# JAX's settings are no attributes to type checkers.
# pyright: reportAttributeAccessIssue=false

import jax

_log_device_placement = False


def set_log_device_placement(enabled: bool) -> None:
    """Accept the setting; nothing is logged, since XLA places whole programs and not operations.

    A tensor's `device` or `sharding` says where it lies.
    """
    global _log_device_placement
    _log_device_placement = bool(enabled)


def get_log_device_placement() -> bool:
    """Return what `set_log_device_placement` was given last."""
    return _log_device_placement


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Raise an error as soon as an operation or a compiled function gives NaN (JAX's `jax_debug_nans`).

    Differences from TensorFlow: infinite values pass, and the error is a FloatingPointError.
    """
    jax.config.update("jax_debug_nans", True)


def disable_check_numerics() -> None:
    """End what `enable_check_numerics` began."""
    jax.config.update("jax_debug_nans", False)


def enable_traceback_filtering() -> None:
    """Leave JAX's own lines out of tracebacks."""
    jax.config.update("jax_traceback_filtering", "auto")


def disable_traceback_filtering() -> None:
    """Show JAX's own lines in tracebacks."""
    jax.config.update("jax_traceback_filtering", "off")


def is_traceback_filtering_enabled() -> bool:
    """Whether JAX's own lines are left out of tracebacks."""
    return jax.config.jax_traceback_filtering != "off"
