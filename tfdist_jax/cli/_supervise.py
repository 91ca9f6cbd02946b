"""Runs a group until it has done its work: starts it again after a failure, and passes signals on."""

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
class Supervisor:
    """Runs groups one after the other until one succeeds."""

    def __init__(
        self,
        make: Callable[[int], Sequence[Member]],
        make_sidecar: Callable[[int], Member] | None = None,
        *,
        max_restarts: int,
        stop_timeout_s: float,
        heartbeat_s: float,
    ) -> None:
        """Supervise groups.

        Args:
            make: Returns the members of the group with a number: 0, and then one more after each failure.
            make_sidecar: Returns what runs beside the groups, likewise.
            max_restarts: How often a group that fails is started again, and what runs beside them.
            stop_timeout_s: How long processes have to end when they are asked to, before they are killed.
            heartbeat_s: After what time a process that is stopped counts as dead.
        """
        self._make = make
        self._make_sidecar = make_sidecar
        self._max_restarts = max_restarts
        self._stop_timeout_s = stop_timeout_s
        self._frozen_s = heartbeat_s + _NOTICE_S
        self._group: Group | None = None
        self._sidecar: Sidecar | None = None
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
            self._sidecar = Sidecar(
                self._make_sidecar,
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
        group.wait(lambda: self._is_over(group))
        if not self._signals and group.failed:
            # Those who notice by themselves that one is gone say more about it than those who are stopped.
            group.wait(lambda: bool(self._signals), _NOTICE_S)
        failed = group.failed
        number = self._signals[0] if self._signals else signal.SIGTERM
        if self._signals and self._sidecar is not None:
            self._sidecar.ask(number)
        group.stop(number, self._stop_timeout_s, self._is_urgent)
        self._group = None
        failed = failed or group.failed
        return self._tell(group, min(failed, key=lambda i: _innocence(group.codes[i]))) if failed else 0

    def _is_over(self, group: Group) -> bool:
        if self._sidecar is not None:
            self._sidecar.look()
        for i in group.kill_frozen(self._frozen_s):
            say(f"{group.name(i)} has been stopped for {self._frozen_s:g} s and is killed.")
        return bool(group.failed or self._signals)

    def _tell(self, group: Group, first: int) -> int:
        """Say who has failed, and return the exit code."""
        if not self._signals:
            say_failed(group, first)
        return exit_code(group.codes[first])

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        for running in (self._group, self._sidecar):
            if running is not None:
                running.send(number)


def _innocence(code: int) -> int:
    """Rank those who have failed: who has ended because another one was gone, as JAX does by aborting, is not to blame."""
    return {LOST_EXIT_CODE: 2, -signal.SIGABRT: 1}.get(code, 0)
