"""`tf.config`'s settings of how XLA computes."""

# JAX's settings are no attributes to type checkers.
# pyright: reportAttributeAccessIssue=false

import os

import jax

from tfdist_jax import _interpreter
from tfdist_jax._internals import backends_are_initialized

_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def enable_op_determinism() -> None:
    """Let GPUs give the same result each time, and processors also in the first calls of a program; TPUs do so anyway.

    Raises:
        RuntimeError: If JAX has started.
    """
    _interpreter.uninstall()
    flags = os.environ.get("XLA_FLAGS", "")
    if _DETERMINISTIC in flags:
        return
    if backends_are_initialized():
        raise RuntimeError("Determinism must be switched on before the first computation: JAX has started already.")
    os.environ["XLA_FLAGS"] = f"{flags} {_DETERMINISTIC}".strip()


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Let GPUs multiply float32 matrices with 10 bits of mantissa, or in full."""
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if enabled else "highest")


def tensor_float_32_execution_enabled() -> bool:
    """Whether float32 matrices may be multiplied with fewer bits, which is JAX's default on GPU too."""
    return jax.config.jax_default_matmul_precision in (None, "default", "fastest", "tensorfloat32")
