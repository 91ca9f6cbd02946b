"""Keras variables on servers, which several workers change at once."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from tfdist_jax._coordinator import closure_memory, current_worker
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._served_storage import update
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import JaxVariable, get_stateless_scope


def note_read(variable: Any, array: Any) -> None:
    """Note what a worker reads last, outside of programs, of a served variable to which workers add, such as a metric's."""
    if current_worker() is not None and _state.current_scope() is None and variable.aggregation == "sum":
        closure_memory()[id(variable)] = array


def assign_now(variable: Any, value: Any) -> None:
    """Give a served variable a value outside of programs; of one to which workers add, a worker's change is added to that of others."""
    variable.storage.must_be_changeable(variable)
    before = closure_memory().pop(id(variable), None)
    turn = contextlib.nullcontext() if before is None else variable.storage.taking_turn()
    with turn, _state.CELLS:
        new = value if before is None else _state.read_now(variable) + (value - before)
        _state.store(variable, new)


def _changing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        if not self.storage.is_served or get_stateless_scope() is not None:
            return original(self, value)
        return update(lambda: original(self, value), [self])

    return change


CHANGES = (
    Hook(JaxVariable, "assign_add", _changing, "self value", "added to what a server has by then"),
    Hook(JaxVariable, "assign_sub", _changing, "self value", "the same"),
)
