"""The scopes in which Keras's code is, which an interrupt could leave so when it comes as one ends."""

from collections.abc import Callable
from typing import Any

from tfdist_jax.compat.tensorflow.keras._internals import global_state

_NAMES = (
    "autocast_scope",
    "current_call_ctx",
    "name_scope_stack",
    "remat_scope_stack",
    "stateless_scope",
    "symbolic_scope",
    "tracking_on",
)


def note_keras_scopes() -> Callable[[], None]:
    """Note in which scopes this thread is; return what lets it be in them again, and in no other ones."""
    before = {name: _copy(value) for name, value in _held().items() if name in _NAMES}

    def put_back() -> None:
        held = _held()
        for name in _NAMES:
            held.pop(name, None)
        held.update({name: _copy(value) for name, value in before.items()})
        # The next scope that ends makes the first values of the others. One that has its value would be an error for ever.
        waiting = held.get("uninitialized_variables", [])
        waiting[:] = [variable for variable in waiting if variable._value is None]

    return put_back


def _held() -> dict[str, Any]:
    return vars(global_state.GLOBAL_STATE_TRACKER)  # Another one after `keras.utils.clear_session`.


def _copy(value: Any) -> Any:
    return [*value] if isinstance(value, list) else value
