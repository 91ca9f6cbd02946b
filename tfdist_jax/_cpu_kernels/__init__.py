"""Faster programs for pooling and convolution on CPU, where XLA's own are loops over single numbers.

XLA gives the same numbers by other programs: a maximum's gradient from a few strided parts of the array, a convolution from matrix
products, from fewer convolutions, or from products of shifted arrays. Which one is fast depends on the shape: each module has a
function that chooses by rules that were measured (`benchmarks/bench_cpu_kernels.py`) and gives None where XLA is best. They are
lowerings of JAX's primitives, so that every layer gains and nothing changes on accelerators. What remains a convolution goes to
Eigen, not to YNNPACK, which takes up to twice as long.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jaxlib.version
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from tfdist_jax import _internals
from tfdist_jax._cpu_kernels import _convolution, _pooling

_VARIABLE = "TFDIST_CPU_KERNELS"

_YNNPACK_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
# XLA ends the process over a flag that it does not know; the releases before this one do.
_FLAG_IS_UNKNOWN_FROM = (0, 13)

# Gives how to compute a primitive's result from its operands, or None for XLA's own way.
Choose = Callable[..., Callable[..., jax.Array] | None]

_CHOICES: dict[Primitive, Choose] = {
    lax.conv_general_dilated_p: _convolution.choose,
    lax.select_and_scatter_add_p: _pooling.choose_gradient,
    lax.reduce_window_max_p: _pooling.choose_max,
    lax.reduce_window_min_p: _pooling.choose_min,
    lax.reduce_window_sum_p: _pooling.choose_sum,
}
_BY_XLA = {primitive: _internals.lowering_rule(primitive, "cpu") for primitive in _CHOICES}


def install() -> None:
    """Lower pooling and convolutions on CPU to the faster programs, unless TFDIST_CPU_KERNELS is `off`. Called on import."""
    if os.environ.get(_VARIABLE, "").lower() not in ("off", "0", "false"):
        for primitive in _CHOICES:
            mlir.register_lowering(primitive, functools.partial(_lower, primitive), platform="cpu")
        _prepare_client()


@functools.cache
def _prepare_client() -> None:
    _internals.around_cpu_client(_convolve_by_eigen)


def _convolve_by_eigen() -> AbstractContextManager[None]:
    """Take convolutions from YNNPACK, unless the user has said what YNNPACK computes; products of matrices and sums stay with it."""
    is_said = _YNNPACK_FLAG in os.environ.get("XLA_FLAGS", "")
    if is_said or jaxlib.version.__version_info__ >= _FLAG_IS_UNKNOWN_FROM:
        return contextlib.nullcontext()
    return _internals.xla_flag(f"{_YNNPACK_FLAG}=-individual_convolution")


def uninstall() -> None:
    """Lower everything as XLA does again; what is compiled already stays."""
    for primitive, by_xla in _BY_XLA.items():
        mlir.register_lowering(primitive, by_xla, platform="cpu")


def _lower(primitive: Primitive, context: mlir.LoweringRuleContext, *operands: Any, **params: Any) -> Any:
    compute = _CHOICES[primitive](*context.avals_in, **params) if all(map(_is_plain, context.avals_in)) else None
    if compute is None:
        return _BY_XLA[primitive](context, *operands, **params)
    return mlir.lower_fun(compute, multiple_results=False)(context, *operands)


def _is_plain(aval: Any) -> bool:
    """Whether all sizes are known, none is 0, and no axis is sharded by its type."""
    return all(isinstance(size, int) and size for size in aval.shape) and not any(aval.sharding.spec)
