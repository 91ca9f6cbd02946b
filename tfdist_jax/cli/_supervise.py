"""Runs a group until it has done its work: starts it again after a failure, and passes signals on."""

import dataclasses
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import final

from tfdist_jax._cluster import LOST_EXIT_CODE
from tfdist_jax.cli._group import Group, Member
from tfdist_jax.cli._messages import say
from tfdist_jax.cli._parent_death import Reaper
from tfdist_jax.cli._report import exit_code, say_failed
from tfdist_jax.cli._sidecar import Sidecar

# These end the group; the others are for the programs to make of what they like.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHERS = (signal.SIGUSR1, signal.SIGUSR2)

# How long the others have to end by themselves after one has failed.
_NOTICE_S = 5.0


@final
@dataclasses.dataclass(frozen=True)
class Limits:
    """How long and how often.

    Attributes:
        max_restarts: How often a group that fails is started again, and each that runs beside it.
        stop_timeout_s: How long processes have to end when they are asked to, before they are killed.
        heartbeat_s: After what time a process that is stopped counts as dead.
    """

    max_restarts: int
    stop_timeout_s: float
    heartbeat_s: float


@final
class Supervisor:
    """Runs groups one after the other until one succeeds."""

    def __init__(
        self,
        make: Callable[[int], Sequence[Member]],
        make_sidecar: Callable[[int], Member] | None,
        make_workers: Callable[[int], Sequence[Callable[[int], Member]]] | None,
        limits: Limits,
    ) -> None:
        """Supervise groups.

        Args:
            make: Returns the members of the group with a number: 0, and then one more after each failure.
            make_sidecar: Returns what runs beside the groups, likewise.
            make_workers: Returns, for the group with a number, what returns each of those who work for it. They start again alone, and
                the group, of which the others serve the first member, ends with that. None if all members do the same.
            limits: How long and how often.
        """
        self._make = make
        self._make_sidecar = make_sidecar
        self._make_workers = make_workers
        self._max_restarts, self._stop_timeout_s = limits.max_restarts, limits.stop_timeout_s
        self._frozen_s = limits.heartbeat_s + _NOTICE_S
        self._group: Group | None = None
        self._sidecar: Sidecar | None = None
        self._workers: list[Sidecar] = []
        self._signals: list[int] = []

    def run(self) -> int:
        """Run the groups and return the exit code: that of the process that has failed first, or 0.

        What runs beside them counts if they succeed.
        """
        for number in _ENDING:
            # Under nohup the training goes on when the terminal is closed.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._end)
        for number in _OTHERS:
            signal.signal(number, self._pass_on)
        with Reaper() as reaper:
            self._start_sidecar(reaper)
            code = self._run_groups(reaper)
            return self._end_sidecar(code)

    def _run_groups(self, reaper: Reaper) -> int:
        code = 0
        for attempt in range(self._max_restarts + 1):
            code = self._run_once(attempt, reaper)
            if not code or self._signals:
                break
            if attempt < self._max_restarts:
                say(f"all workers start again: restart {attempt + 1} of {self._max_restarts}.")
        return code

    def _start_sidecar(self, reaper: Reaper) -> None:
        if self._make_sidecar is not None:
            self._sidecar = self._beside(self._make_sidecar, reaper)

    def _beside(self, make: Callable[[int], Member], reaper: Reaper) -> Sidecar:
        return Sidecar(
            make,
            reaper,
            max_restarts=self._max_restarts,
            stop_timeout_s=self._stop_timeout_s,
            frozen_s=self._frozen_s,
        )

    def _end_sidecar(self, code: int) -> int:
        sidecar = self._sidecar
        if sidecar is None:
            return code
        if not code and not self._signals:
            sidecar.finish(lambda: bool(self._signals))
        sidecar.stop(self._signals[0] if self._signals else signal.SIGTERM, self._is_urgent)
        return code or sidecar.code

    def _is_urgent(self) -> bool:
        return self._signals.count(signal.SIGINT) > 1

    def _run_once(self, attempt: int, reaper: Reaper) -> int:
        group = self._group = Group(self._make(attempt), reaper)
        self._workers = [self._beside(make, reaper) for make in (self._make_workers or _nobody)(attempt)]
        group.wait(lambda: self._is_over(group))
        is_done = not self._signals and self._has_led_to_the_end(group)
        if not self._signals and group.failed and not is_done:
            # Those who notice by themselves that one is gone say more about it than those who are stopped.
            group.wait(lambda: bool(self._signals), _NOTICE_S)
        failed, workers_code = group.failed, self._workers_code
        number = self._signals[0] if self._signals else signal.SIGTERM
        for beside in (*self._workers, *([self._sidecar] if self._signals and self._sidecar is not None else ())):
            beside.ask(number)
        group.stop(number, self._stop_timeout_s, self._is_urgent)
        for worker in self._workers:
            worker.stop(number, self._is_urgent)
        self._group, self._workers = None, []
        failed = [] if is_done else failed or group.failed  # Who serves ends when it is asked to.
        if workers_code and not is_done and not self._signals:
            return workers_code
        return self._tell(group, min(failed, key=lambda i: _innocence(group.codes[i]))) if failed else 0

    def _is_over(self, group: Group) -> bool:
        for beside in self._besides:
            beside.look()
        for i in group.kill_frozen(self._frozen_s):
            say(f"{group.name(i)} has been stopped for {self._frozen_s:g} s and is killed.")
        return bool(group.failed or self._signals or self._workers_code) or self._has_led_to_the_end(group)

    @property
    def _workers_code(self) -> int:
        """The exit code of a worker, if all have failed for good; else 0."""
        return min((worker.code for worker in self._workers), default=0)

    def _has_led_to_the_end(self, group: Group) -> bool:
        """Whether the first member, if the others serve it, has ended well."""
        return self._make_workers is not None and group.codes.get(0) == 0

    @property
    def _besides(self) -> list[Sidecar]:
        return [*self._workers, *([] if self._sidecar is None else [self._sidecar])]

    def _tell(self, group: Group, first: int) -> int:
        """Say who has failed, and return the exit code."""
        if not self._signals:
            say_failed(group, first)
        return exit_code(group.codes[first])

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        for running in (*([] if self._group is None else [self._group]), *self._besides):
            running.send(number)


def _nobody(attempt: int) -> Sequence[Callable[[int], Member]]:
    return ()


def _innocence(code: int) -> int:
    """Rank those who have failed: who has ended because another one was gone, as JAX does by aborting, is not to blame."""
    return {LOST_EXIT_CODE: 2, -signal.SIGABRT: 1}.get(code, 0)
