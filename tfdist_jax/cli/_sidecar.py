"""A process that runs beside the training, such as an evaluator: neither makes the other start again."""

from collections.abc import Callable
from typing import final

from tfdist_jax.cli._group import Group, Member
from tfdist_jax.cli._messages import say
from tfdist_jax.cli._parent_death import Reaper
from tfdist_jax.cli._report import exit_code, say_failed


@final
class Sidecar:
    """Keeps one process running, and ends it when the training is over."""

    def __init__(
        self,
        make: Callable[[int], Member],
        reaper: Reaper,
        *,
        max_restarts: int,
        stop_timeout_s: float,
        frozen_s: float,
    ) -> None:
        """Start it.

        Args:
            make: Returns what to start: with 0, and then with one more after each failure.
            reaper: Ends it if this process is killed.
            max_restarts: How often it is started again when it fails.
            stop_timeout_s: How long it has to end, by itself and then when it is asked to.
            frozen_s: After what time it counts as dead if it is stopped.
        """
        self._make, self._reaper = make, reaper
        self._left, self._started = max_restarts, 0
        self._stop_timeout_s, self._frozen_s = stop_timeout_s, frozen_s
        self._group = Group([make(0)], reaper)
        self._is_asked = False
        self.code = 0

    def look(self) -> None:
        """Start it again if it has failed; to be called from time to time."""
        self._group.kill_frozen(self._frozen_s)
        if self._group.running() or not self._group.failed or self.code:
            return
        self._group.stop(0, 0)  # What it has said comes first.
        say_failed(self._group, 0)
        if not self._left:
            self.code = exit_code(self._group.codes[0])
            say(f"{self._group.name(0)} stays away; the training goes on.")
            return
        self._left, self._started = self._left - 1, self._started + 1
        say(f"{self._group.name(0)} starts again: restart {self._started}.")
        self._group = Group([self._make(self._started)], self._reaper)

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._group.send(number)

    def finish(self, hurry: Callable[[], bool]) -> None:
        """Let it end by itself, such as after evaluating the last checkpoint; `stop` comes next.

        Args:
            hurry: Asked while waiting; if it says so, the time is over.
        """
        if self._group.running():
            say(f"the training has ended; {self._group.name(0)} has {self._stop_timeout_s:g} s to end by itself.")
            self._group.wait(hurry, self._stop_timeout_s)
        if not self._group.running() and self._group.failed and not self.code:
            say_failed(self._group, 0)
            self.code = exit_code(self._group.codes[0])

    def ask(self, number: int) -> None:
        """Ask it to end by a signal."""
        self.send(number)
        self._is_asked = True

    def stop(self, number: int, hurry: Callable[[], bool]) -> None:
        """Ask it to end by a signal, unless it has been, and end it if it does not; how it ends then is no failure."""
        self._group.stop(0 if self._is_asked else number, self._stop_timeout_s, hurry)
