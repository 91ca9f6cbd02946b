"""Several threads that use one model: one at a time builds it, and each has its own place between two steps."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, final

import keras

from tfdist_jax._stateful._state import current_scope
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer


@final
class _OwnLock:
    """A lock of one layer's or model's; what is copied with it gets another."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __deepcopy__(self, memo: Any) -> "_OwnLock":
        return _OwnLock()

    def __reduce__(self) -> Any:
        return _OwnLock, ()


def _lock_of(layer: Any, purpose: str) -> Any:
    # Of each object its own: one thread's training may wait for data that another thread makes with a model of its own.
    return vars(layer).setdefault(f"_lock_of_{purpose}", _OwnLock()).lock


@final
class _Hold:
    """Whether a training method that has taken its model's lock holds it still."""

    def __init__(self, model: keras.Model) -> None:
        self._lock = _lock_of(model, "training")
        self._is_held = False

    def take(self) -> None:
        self._is_held = self._lock.acquire()

    def let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lock.release()


_hold: ContextVar[_Hold | None] = ContextVar("hold", default=None)


@contextlib.contextmanager
def building(model: keras.Model) -> Iterator[None]:
    """Keep other threads from building a model in training until `end_building` is called inside, or until the end."""
    hold = _Hold(model)
    with having(_hold, hold):
        try:
            hold.take()
            yield
        finally:
            hold.let_go()


def end_building() -> None:
    """Let other threads build: what this one trains, evaluates or predicts with is built."""
    hold = _hold.get()
    if hold is not None:
        hold.let_go()


@final
class _OwnOfThread:
    """A yes or no of a model that each thread has for itself, and is yes at first."""

    _NAME = "_threads_of_no"

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else threading.get_ident() not in model.__dict__.get(self._NAME, ())

    def __set__(self, model: Any, value: bool) -> None:
        threads = model.__dict__.setdefault(self._NAME, set())
        (threads.discard if value else threads.add)(threading.get_ident())


def _one_thread_at_a_time(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _maybe_build(self: keras.Layer, call_spec: Any) -> None:
        # Replicas that are traced side by side wait for each other where they build: none of them may hold the lock.
        if self.built or current_scope() is not None:
            return original(self, call_spec)
        with _lock_of(self, "building"):
            return original(self, call_spec)

    return _maybe_build


CHANGES = (
    # Keras's loops ask it between two steps: whether a callback has put what the steps hand on into the variables.
    Addition(JAXTrainer, "_jax_state_synced", _OwnOfThread()),
    Hook(
        keras.Layer,
        "_maybe_build",
        _one_thread_at_a_time,
        "self call_spec",
        "Two threads that call a model for the first time both build it.",
    ),
)
