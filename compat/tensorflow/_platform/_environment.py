"""TensorFlow's environment variables, as JAX's settings."""

import logging
import os

import jax

from tfdist_jax._internals import backends_are_initialized

_logger = logging.getLogger("tfdist_jax")

# TensorFlow's variable and value, and the setting of JAX's that does the same.
_MEMORY_SETTINGS = {
    ("TF_FORCE_GPU_ALLOW_GROWTH", "true"): ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ("TF_FORCE_GPU_ALLOW_GROWTH", "false"): ("XLA_PYTHON_CLIENT_PREALLOCATE", "true"),
    ("TF_GPU_ALLOCATOR", "cuda_malloc_async"): ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
}


def apply_environment() -> None:
    """Give JAX's memory settings the values that TensorFlow's environment variables ask for.

    A setting of JAX's own stays. Called when JAX starts, since programs set the variables after their imports, and
    whenever the program asks about devices, to say so if it set them too late.
    """
    missing = {
        setting: value
        for (variable, wanted), (setting, value) in _MEMORY_SETTINGS.items()
        if os.environ.get(variable, "").lower() == wanted and setting not in os.environ
    }
    os.environ.update(missing)
    if missing and backends_are_initialized() and jax.default_backend() == "gpu":
        _logger.warning("JAX has started already: %s take(s) effect in the next run only.", ", ".join(missing))


def set_preallocation(whole: bool) -> None:
    """Let JAX take an accelerator's memory at once, or as it is needed."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if whole else "false"
