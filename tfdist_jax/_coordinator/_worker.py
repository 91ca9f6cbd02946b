"""Who runs closures."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, final

import jax

from tfdist_jax._coordinator._closure_queue import Closure
from tfdist_jax._sharding._mesh import Device
from tfdist_jax._thread_state import having


class WorkerLostError(BaseException):
    """A worker has gone while it ran a closure, which has to be run again. No `Exception`: it is not for handlers in the closure."""


class Worker(Protocol):
    """Runs one closure at a time.

    Attributes:
        index: Which of the workers it is.
    """

    index: int

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Return what a closure returns, or raise what it raises.

        Args:
            closure: It.
            oldest: Returns the number of the first closure that may still run.

        Raises:
            WorkerLostError: If the worker has gone meanwhile.
        """
        ...

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Wait until a worker that has gone is there again, or `is_over()`.

        Raises:
            Exception: If no worker will be there any more.
        """
        ...


# Which worker's closure this thread runs: user code stands between who knows it and who asks.
CURRENT_WORKER: ContextVar[Worker | None] = ContextVar("worker", default=None)


def current_worker() -> Worker | None:
    """Return the worker that runs this code; None outside of closures."""
    return CURRENT_WORKER.get()


# What is kept while a closure runs.
_memory: ContextVar[dict[Any, Any] | None] = ContextVar("closure memory", default=None)


def closure_memory() -> dict[Any, Any]:
    """Return what is kept while the present closure runs, and forgotten then: a dictionary for whoever needs one."""
    memory = _memory.get()
    return {} if memory is None else memory


_TRACING = threading.RLock()


def tracing_alone(*, always: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Keep the other workers from tracing: user code may make variables when it runs first, and threads know nothing of each other.

    Outside of closures nobody is kept from it, but `always`.
    """
    is_free = current_worker() is None or _traces_freely.get()
    return contextlib.nullcontext() if is_free and not always else _TRACING


_traces_freely: ContextVar[bool] = ContextVar("traces freely", default=False)


def run_freely(action: Callable[[], Any]) -> Any:
    """Return what `action` returns, which traces without waiting for other workers: its caller holds a lock they may wait for."""
    if CURRENT_WORKER.get() is None:
        return action()
    with having(_traces_freely, True):
        return action()


@contextlib.contextmanager
def being_worker(worker: Worker) -> Iterator[None]:
    """Run a closure as a worker's."""
    with having(CURRENT_WORKER, worker), having(_memory, {}):
        yield


@final
class EmbeddedWorker:
    """A worker of this process: a thread of the coordinator's, which computes on a device."""

    def __init__(self, index: int, device: Device) -> None:
        """Compute on `device`."""
        self.index, self.device = index, device

    def run(self, closure: Closure, oldest: Callable[[], int]) -> Any:
        """Call the closure's function."""
        with being_worker(self), jax.default_device(self.device):
            return closure.fn()

    def recover(self, is_over: Callable[[], bool]) -> None:
        """Be there: a thread does not go alone."""
