"""What XLA needs from the host: settings before JAX starts, and a bound on the steps in flight."""

import collections
import os
from typing import Any, final

import jax

# XLA:CPU runs every virtual device's collectives on one thread pool, sized by this variable. With fewer threads
# than devices times steps in flight, replicas wait for each other for ever.
_CPU_THREADS_VARIABLE = "NPROC"
_CPU_THREADS = 32


def prepare_cpu() -> None:
    """Give XLA:CPU a thread pool large enough for collectives between virtual devices.

    Takes effect only before JAX creates its CPU client; a value that the user has set stays. Called on import.
    """
    os.environ.setdefault(_CPU_THREADS_VARIABLE, str(max(_CPU_THREADS, os.cpu_count() or 1)))


def use_cpu_devices(count: int) -> None:
    """Split the host processor into `count` virtual devices, used where there is no accelerator.

    Args:
        count: Number of virtual CPU devices, at least 1.

    Raises:
        ValueError: If `count` is not positive.
        RuntimeError: If JAX has already started, so that the number of devices is fixed.
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


@final
class InFlight:
    """Bounds how many steps have been dispatched and not finished.

    Only virtual CPU devices need the bound: their collectives share a thread pool. On accelerators, and on a
    single device, `add` returns at once.
    """

    def __init__(self, num_devices: int, *, limit: int = 2) -> None:
        """Bound steps over `num_devices` devices to `limit` at a time."""
        self._limit = limit if num_devices > 1 and jax.default_backend() == "cpu" else None
        self._pending: collections.deque[Any] = collections.deque()

    def add(self, outputs: Any) -> None:
        """Note a dispatched step; wait for the oldest one when too many are under way.

        Args:
            outputs: Arrays of the step that are not donated to a later step.
        """
        if self._limit is None:
            return
        self._pending.append(outputs)
        if len(self._pending) > self._limit:
            jax.block_until_ready(self._pending.popleft())
