"""What XLA needs from the host: settings before JAX starts, a bound on the steps in flight, when memory is reused."""

import atexit
import collections
import contextlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, final

import jax
from jax.sharding import Mesh

from tfdist_jax import _internals
from tfdist_jax._host_memory import keep_freed_memory

# XLA:CPU runs the virtual devices' programs on one thread pool, sized by this variable. A collective keeps a thread until all devices
# have come to it, and two steps at a time can be there.
_CPU_THREADS_VARIABLE = "NPROC"
_STEPS_THAT_WAIT = 2
# Threads wait for each other in one arena: 2 for a few percent of a step, 8 on 2 processors so long that a ResNet took 1.6 times the time.
_MOST_PROCESSORS_FOR_ONE_ARENA = 4
# An older way than `jax_num_cpu_devices` to split the processor.
_CPU_COUNT_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def prepare_cpu() -> None:
    """Give XLA:CPU a thread pool large enough for collectives between virtual devices, and let it keep memory from step to step.

    Takes effect only before JAX creates its CPU client; what the user has set stays. Called on import.
    """
    _internals.around_cpu_client(_configure_cpu)


def _configure_cpu() -> AbstractContextManager[None]:
    count = count_cpu_devices()
    is_alone = count == 1 and _internals.joined_processes() is None
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    keep_freed_memory(in_one_arena=is_alone and processors <= _MOST_PROCESSORS_FOR_ONE_ARENA)
    if is_alone or _CPU_THREADS_VARIABLE in os.environ:
        return contextlib.nullcontext()
    # No more than the collectives need: operations are split among all threads, and take up to a third longer with 32.
    return _internals.environment_variable(_CPU_THREADS_VARIABLE, str(max(_STEPS_THAT_WAIT * count, processors)))


def finish_at_exit() -> None:
    """Let what is computed end before the process does, on CPU: XLA's threads crash where the libraries that they use are gone.

    Not where several processes train together: they may wait for one that has died. Called on import.
    """
    atexit.register(_finish_computing)


def _finish_computing() -> None:
    if _internals.backends_are_initialized() and jax.default_backend() == "cpu" and jax.process_count() == 1:
        for array in jax.live_arrays():
            with contextlib.suppress(Exception):  # Nobody asks for the array any more.
                array.block_until_ready()


def count_cpu_devices() -> int:
    """Return into how many virtual devices JAX will split, or has split, the host processor."""
    flag = _CPU_COUNT_FLAG.search(os.environ.get("XLA_FLAGS", ""))
    return max(_internals.setting("jax_num_cpu_devices"), int(flag[1]) if flag else 1)


def use_cpu_devices(count: int) -> None:
    """Split the host processor into `count` virtual devices, used where there is no accelerator.

    Args:
        count: Number of virtual CPU devices, at least 1.

    Raises:
        ValueError: If `count` is not positive.
        RuntimeError: If JAX has already started, so that the number of devices is fixed.

    Example:
        >>> import jax, tfdist_jax as td
        >>> td.use_cpu_devices(8)
        >>> jax.device_count()
        8
    """
    if count < 1:
        raise ValueError(f"The number of virtual CPU devices must be at least 1, got {count}.")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            f"JAX has already started with {jax.local_device_count()} device(s), so {count} virtual CPU devices "
            "cannot be made any more. Set the number before the first computation, or start the program with "
            f"`tfdist-jax run --devices {count}`."
        ) from error


def runs_on_cpu(mesh: Mesh) -> bool:
    """Whether the devices are (virtual) CPU devices, where other ways are fast than on accelerators."""
    return mesh.devices.flat[0].platform == "cpu"


# Over 4 virtual CPU devices, a donated step of 3.2 MB of state took 3 to 4 times as long as one that keeps it, one of 8 MB a
# tenth less. See ARCHITECTURE.md, "Decisions".
_SMALL_STATE_BYTES = 4 << 20


def reuses_memory(mesh: Mesh | None, state: Any) -> bool:
    """Whether a step should write its results into the memory of the state that it replaces.

    Not if the state is small and lies over several virtual CPU devices, where XLA takes several times as long for such a step.

    Args:
        mesh: The devices of the step; None for one device.
        state: Pytree of the arrays, or `jax.ShapeDtypeStruct`, that the step replaces; whole sizes count, however they are split.
    """
    if mesh is None or mesh.size == 1 or not runs_on_cpu(mesh):
        return True
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) > _SMALL_STATE_BYTES


def _is_called_by_a_step() -> bool:
    """Whether XLA has called Python, in a thread of its own: the step that it is for ends only after that."""
    return type(threading.current_thread()).__name__ == "_DummyThread"


# Steps over several virtual devices that may not have finished, each with the thread that has dispatched it.
_UNDER_WAY: list[tuple[int, Any]] = []
_TURN = threading.RLock()
_MOST_UNDER_WAY = 16


@final
class InFlight:
    """Bounds how many steps have been dispatched and not finished.

    Only virtual CPU devices need the bound: their collectives share a thread pool. On accelerators, and on a
    single device, `turn` and `wait` return at once.
    """

    def __init__(self, mesh: Mesh | None, *, limit: int = 2) -> None:
        """Bound steps over `mesh` (None: one device) to `limit` at a time."""
        self._limit = None if mesh is None or mesh.size == 1 or not runs_on_cpu(mesh) else limit
        self._pending: collections.deque[Any] = collections.deque()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Dispatch a step within: while no other thread does, and those that others have dispatched have finished.

        Otherwise collectives of several steps could take all threads of the pool, and each wait for a device that has none.
        """
        if self._limit is None or _is_called_by_a_step():
            yield
            return
        with _TURN:
            others = [(thread, outputs) for thread, outputs in _UNDER_WAY if thread != threading.get_ident()]
            if others:
                with contextlib.suppress(Exception):  # The thread that has dispatched it is told.
                    jax.block_until_ready([outputs for _, outputs in others])
                _UNDER_WAY[:] = [each for each in _UNDER_WAY if each[0] == threading.get_ident()]
            yield

    def add(self, outputs: Any) -> None:
        """Note a dispatched step.

        Args:
            outputs: Arrays of the step that are not donated to a later step.
        """
        if self._limit is not None:
            self._pending.append(outputs)
            _UNDER_WAY.append((threading.get_ident(), outputs))
            # Of older ones of the same thread `wait` has waited for most.
            del _UNDER_WAY[:-_MOST_UNDER_WAY]

    def wait(self) -> None:
        """Wait for the oldest steps while too many are under way."""
        while self._limit is not None and len(self._pending) > self._limit:
            with contextlib.suppress(IndexError):  # Another thread waits for it.
                jax.block_until_ready(self._pending.popleft())
