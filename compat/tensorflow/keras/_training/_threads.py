"""Several threads that use one model: one at a time builds it, and each has its own place between two steps."""

import contextlib
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, final

from tfdist_jax.compat.tensorflow.keras._change import Addition
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer

_LOCK = threading.RLock()


@final
class _Hold:
    """Whether a training method that has taken the lock holds it still."""

    is_held = False

    def let_go(self) -> None:
        if self.is_held:
            self.is_held = False
            _LOCK.release()


_hold: ContextVar[_Hold | None] = ContextVar("hold", default=None)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Keep other threads from building until `end_building` is called inside, or until the end."""
    hold = _Hold()
    token = _hold.set(hold)
    try:
        hold.is_held = _LOCK.acquire()
        yield
    finally:
        hold.let_go()
        _hold.reset(token)


def end_building() -> None:
    """Let other threads build: what this one trains, evaluates or predicts with is built."""
    hold = _hold.get()
    if hold is not None:
        hold.let_go()


@final
class _OwnOfThread:
    """An attribute of models that each thread has for itself."""

    def __init__(self, default: Any) -> None:
        self._default = default
        self._local = threading.local()

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else self._values().get(model, self._default)

    def __set__(self, model: Any, value: Any) -> None:
        self._values()[model] = value

    def _values(self) -> weakref.WeakKeyDictionary[Any, Any]:
        if not hasattr(self._local, "values"):
            self._local.values = weakref.WeakKeyDictionary()
        return self._local.values


# What Keras's loops hand from step to step, and whether the variables have it.
CHANGES = (
    Addition(JAXTrainer, "_jax_state", _OwnOfThread(None)),
    Addition(JAXTrainer, "_jax_state_synced", _OwnOfThread(True)),
)
