"""Processes that are forked after JAX has started: they lack its threads, and would wait for them for ever."""

import os
from typing import Any, NoReturn, final

import jax

from tfdist_jax._internals import Trace, backends_are_initialized, is_computed, set_trace

is_child = False
"""Whether this process was forked after JAX had started."""


def must_have_come(array: jax.Array) -> None:
    """Refuse to wait for an array in such a process, if it is not computed yet.

    Raises:
        RuntimeError: If it would be waited for in vain.
    """
    if not is_computed(array):
        _refuse()


def _refuse() -> NoReturn:
    raise RuntimeError(
        "This process was forked after JAX had started, whose threads it lacks: computing with tensors would never end. Fork before "
        "the first tensor is made, compute with NumPy in this process, or start it by "
        "`multiprocessing.get_context('spawn')`."
    )


@final
class _RefusingTrace(Trace):
    """Takes every operation, and refuses it."""

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        _refuse()

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, args: Any, /, **params: Any) -> Any:
        _refuse()

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, **params: Any) -> Any:
        _refuse()


def _refuse_in_child() -> None:
    global is_child
    if backends_are_initialized():
        is_child = True
        set_trace(_RefusingTrace())


def refuse_after_forks() -> None:
    """Let operations in processes that are forked from now on, once JAX has started, be errors instead of hangs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_refuse_in_child)
