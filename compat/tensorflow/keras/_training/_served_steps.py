"""Steps of Keras's loops that the workers of parameter servers run, beside each other."""

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, final

from tfdist_jax._coordinator import RemoteValue
from tfdist_jax.compat.tensorflow.distribute._cluster_coordinator import ClusterCoordinator
from tfdist_jax.compat.tensorflow.distribute._parameter_server import ParameterServerStrategy

# Steps that wait for a worker, for each of them: enough that none is idle while the next batch is read.
_WAITING = 2


@final
class ServedSteps:
    """Gives steps to workers, a few ahead of those that have run."""

    def __init__(self, strategy: ParameterServerStrategy) -> None:
        """Give them to the workers of `strategy`."""
        self._coordinator = ClusterCoordinator(strategy)
        self._most = _WAITING * len(strategy.workers)
        self._scheduled: collections.deque[RemoteValue] = collections.deque()
        # The same object, which Keras's loops hold, has the last step's logs when all steps have run.
        self._logs: dict[str, Any] = {}

    def run(self, step: Callable[[], Any], *, wait: bool) -> Any:
        """Let a worker run a step, and return the logs, which become those of the last step that has run: of this one, if it is to `wait`.

        Raises:
            Exception: That of a step, of this or of an earlier one.
        """
        with self._forgetting_failures():
            self._scheduled.append(self._coordinator.schedule_plainly(step))
            if wait:
                self._coordinator.join()
            self._show(wait=wait)
        return self._logs

    def join(self) -> None:
        """Wait until all steps have run."""
        with self._forgetting_failures():
            self._coordinator.join()
            self._show(wait=True)

    @contextlib.contextmanager
    def _forgetting_failures(self) -> Iterator[None]:
        """Leave nothing of a training that has failed to the next one."""
        try:
            yield
        except BaseException:
            self._scheduled.clear()
            raise

    def _show(self, *, wait: bool) -> None:
        while self._scheduled and (
            wait or not self._logs or len(self._scheduled) > self._most or self._scheduled[0].is_ready
        ):
            step = self._scheduled.popleft()
            if step.error() is not None:
                self._coordinator.join()  # Which raises it, and forgets it.
            self._logs.clear()
            self._logs.update(step.result())
