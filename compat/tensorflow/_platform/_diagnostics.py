"""`tf.debugging`: settings."""

# JAX's settings are no attributes to type checkers.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._stateful._capture import OUTCOME_CHECKS
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError

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
    """Raise an error as soon as an eager operation gives NaN, or a compiled function, which then changes no variable.

    Differences from TensorFlow: infinite values pass; NaN inside of a function does, too, if no result and no variable gets
    it; and for eager operations the error is a FloatingPointError (JAX's `jax_debug_nans`).
    """
    jax.config.update("jax_debug_nans", True)
    if _refuse_nan not in OUTCOME_CHECKS:
        OUTCOME_CHECKS.append(_refuse_nan)


def disable_check_numerics() -> None:
    """End what `enable_check_numerics` began."""
    jax.config.update("jax_debug_nans", False)
    if _refuse_nan in OUTCOME_CHECKS:
        OUTCOME_CHECKS.remove(_refuse_nan)


def _refuse_nan(arrays: Sequence[jax.Array]) -> None:
    floats = [array for array in arrays if jnp.issubdtype(array.dtype, jnp.inexact)]
    found = [array for array in floats if any(np.isnan(part.data).any() for part in array.addressable_shards)]
    if found:
        shapes = ", ".join(sorted({f"{array.dtype}{list(array.shape)}" for array in found}))
        raise InvalidArgumentError(
            None,
            None,
            f"NaN was found in {len(found)} of the {len(arrays)} results and variables of a compiled function: {shapes}. No variable has "
            "changed. `tf.debugging.check_numerics(x, name)` in the function tells where it comes from.",
        )


def enable_traceback_filtering() -> None:
    """Leave JAX's own lines out of tracebacks."""
    jax.config.update("jax_traceback_filtering", "auto")


def disable_traceback_filtering() -> None:
    """Show JAX's own lines in tracebacks."""
    jax.config.update("jax_traceback_filtering", "off")


def is_traceback_filtering_enabled() -> bool:
    """Whether JAX's own lines are left out of tracebacks."""
    return jax.config.jax_traceback_filtering != "off"
