"""A machine is about to be taken away: all processes stop before the same step, save, and leave together."""

import atexit
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, final

import jax

from tfdist_jax import _internals
from tfdist_jax._cluster._exchange import Exchange
from tfdist_jax._cluster._peer_monitor import LEAVING, LOST_EXIT_CODE
from tfdist_jax._cluster._shutdown import Shutdown
from tfdist_jax._cluster._signals import SignalWakeup

_log = logging.getLogger("tfdist_jax")

_POLL_S = 0.5
# How long the program may take to come to its next step before others save in its place.
_PATIENCE_S = 2.0
_JOIN_S = 5.0


class LateSave(NamedTuple):
    """What a thread can save while the program is busy; see `Preemption`.

    Attributes:
        save: Saves it.
        steps: Before which step, counted as `Preemption.begun` counts, the program was like that: the same one in all
            processes. None if it need not be.
        end: Ends the program when all have saved; the main thread calls it, unless that does nothing but wait. If it
            returns, the program goes on, and other notices do not count. None is `sys.exit(75)`.

    Example:
        >>> import tfdist_jax as td
        >>> done = [1, 2, 3]
        >>> late = lambda: td.LateSave(save=lambda: print("saving", done), steps=len(done))
        >>> with td.Preemption(late=late) as preemption:
        ...     preemption.stops()
        False
    """

    save: Callable[[], object]
    steps: int | None = None
    end: Callable[[], object] | None = None


@final
class Preemption:
    """Lets all processes stop before the same step, save and leave, when one of them gets SIGTERM.

    Until then a step only counts itself; a thread looks for notices of other processes. Make it in all of them, in the main
    thread, after `tfdist_jax.initialize()`; SIGTERM does again what it did before when it is closed. A notice that comes
    after the last step then ends the process as if nobody had waited for it.

    Example:
        >>> import tfdist_jax as td
        >>> done = 0
        >>> with td.Preemption() as preemption:
        ...     for step in range(3):
        ...         if preemption.stops():
        ...             print(f"saving what {done} steps have made")
        ...             preemption.leave()
        ...         done += 1
        >>> done
        3
    """

    def __init__(
        self, *, watch: Callable[[], bool] | None = None, late: Callable[[], LateSave | None] | None = None
    ) -> None:
        """Wait for a notice from now on.

        Args:
            watch: Tells whether there is a notice; called twice a second by a thread. If None, SIGTERM is the notice.
            late: Called by a thread while the program does not come to its next step: it compiles, or waits for data. It
                returns what can be saved, or None if nothing can at this moment; it may not wait for other processes. As
                soon as all can save, they do, and end. If None, the next step is waited for.

        Raises:
            RuntimeError: If SIGTERM is to be the notice, and this is not the main thread.
        """
        joined = _internals.joined_processes()
        self._is_first = joined is None or joined[2] == 0
        self._exchange = None if joined is None or joined[1] == 1 else Exchange("the last step before leaving")
        self._watch, self._late = watch, late
        self._changed = threading.Condition()
        self._begun = 0
        self._last: int | None = None
        self._is_held = self._has_stopped = self._is_closed = self._asks = False
        self._notice: float | None = None
        self._due: float | None = None
        self._over = threading.Event()
        self._shutdown: Shutdown | None = None
        self._wakeup = SignalWakeup()
        if watch is None:
            self._wakeup.install(signal.SIGTERM, self._on_signal)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="tfdist_jax preemption")
        self._thread.start()
        atexit.register(self.abandon)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def notice(self) -> float | None:
        """When this process was told, by `time.monotonic()`; None if it was not."""
        return self._notice

    @property
    def begun(self) -> int:
        """How many steps have begun in this process."""
        return self._begun

    def notify(self) -> None:
        """Do what SIGTERM does; may be called in any thread, and in a signal's handler."""
        if self._notice is None:
            self._notice = self._due = time.monotonic()
        self._wakeup.wake()

    def stops(self) -> bool:
        """Count a step that is about to begin; or tell, in all processes before the same one, that none does any more.

        Then save what the steps before have made, and call `leave`.
        """
        with self._changed:
            if self._exchange is None and self._last is None and self._is_due():
                self._last = self._begun
            self._changed.wait_for(lambda: not self._is_held)
            self._end_if_parted()
            if self._last is None or self._begun < self._last:
                self._begun += 1
                return False
            self._has_stopped = True
            self._changed.notify_all()
        LEAVING.set()
        return True

    def resume(self, delay_s: float) -> None:
        """Go on with steps after a stop, for as long as that; then `stops` tells it again. Other notices do not count.

        Args:
            delay_s: In a process that was told itself: after how many seconds to stop again.
        """
        LEAVING.clear()
        with self._changed:
            self._changed.wait_for(lambda: not self._asks)
            self._last, self._has_stopped = None, False
            self._due = None if self._notice is None else time.monotonic() + delay_s
            self._notice = self._notice or time.monotonic()
        self._wakeup.wake()

    def part(self) -> None:
        """Return when all processes have saved; from then on each may end without being missed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._asks)
        self._say("saved")
        LEAVING.set()

    def leave(self) -> NoReturn:
        """Wait until all processes have saved, and end this one with exit code 75, "try again".

        Raises:
            SystemExit: Always.
        """
        self.part()
        _log.warning("The state is saved; this process ends, to be started again.")
        sys.exit(LOST_EXIT_CODE)

    def close(self) -> None:
        """Wait for notices no longer. All processes come to this, unless one fails."""
        if self._over.is_set():
            return
        with self._changed:
            self._end_if_parted()
            self._is_closed = True
            self._changed.notify_all()
        self._wakeup.wake()
        self._thread.join()
        was_on = self._wakeup.is_installed
        self.abandon()
        if was_on and self._is_due() and not self._has_stopped:
            os.kill(os.getpid(), signal.SIGTERM)

    def abandon(self) -> None:
        """Wait for notices no longer, after an error: others may never come to the end."""
        self._over.set()
        self._wakeup.wake()
        atexit.unregister(self.abandon)
        if self._shutdown is not None:
            return
        # Inside a call of JAX it would abort the process when Python ends.
        self._thread.join(_JOIN_S)
        if not LEAVING.is_set() and not self._thread.is_alive():
            self._wakeup.remove()

    def _is_due(self) -> bool:
        return self._due is not None and time.monotonic() >= self._due

    def _on_signal(self) -> None:
        self._end_if_parted()
        self.notify()

    def _end_if_parted(self) -> None:
        if self._shutdown is not None:
            self._shutdown.run()

    def _go_on(self) -> None:
        self._shutdown = None
        self.resume(math.inf)

    def _serve(self) -> None:
        """Look for notices, this process's and others', until it is over."""
        polls = self._exchange is not None or self._watch is not None
        try:
            while not self._over.is_set() and not self._is_closed:
                if self._wakeup.wait(_POLL_S if polls or self._due is not None else None):
                    self.notify()
                if self._watch is not None and self._notice is None and self._watch():
                    self.notify()
                if self._last is None and (self._is_due() or self._has_another_notice()):
                    if self._agree():
                        return
                    self._save_late()
            while not self._over.is_set() and not self._agree():
                self._save_late()
        except jax.errors.JaxRuntimeError as error:
            # The first process is gone, which ends this one.
            _log.warning("Notices that other processes get are not heard any more: %s", error)
        finally:
            with self._changed:
                self._asks = self._is_held = False  # The program may wait for answers.
                self._changed.notify_all()

    def _has_another_notice(self) -> bool:
        return self._exchange is not None and self._exchange.has_begun()

    def _agree(self) -> bool:
        """Find the last step, if there is a notice: the largest number that any process has begun.

        No step begins meanwhile, and the program need not come here: it may be inside a step that waits for others'.

        Returns:
            Whether all have closed instead.
        """
        with self._changed:
            self._is_held = True
            own = [self._begun, self._is_due(), self._is_closed]
        said = self._say(own)
        have_closed = all(is_closed for *_, is_closed in said)
        with self._changed:
            if any(is_due for _, is_due, _ in said):
                self._last = max(begun for begun, *_ in said)
                self._asks = self._late is not None and not have_closed
            self._is_held = False
            self._changed.notify_all()
        return have_closed

    def _say(self, value: Any) -> list[Any]:
        return [value] if self._exchange is None else self._exchange(value)

    def _save_late(self) -> None:
        """Give the program time to stop by itself; then save in its place, as soon as all processes can, and end it."""
        timeout_s = _PATIENCE_S
        while self._asks and not self._over.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._has_stopped or self._is_closed, timeout_s)
                # It is to stay as it is until all have answered.
                self._is_held = True
                has_stopped, is_closed = self._has_stopped, self._is_closed
            offer = LateSave(lambda: None, self._begun) if has_stopped or is_closed else self._offer()
            said = self._say([has_stopped, is_closed, None if offer is None else [offer.steps]])
            saves = _can_save(said) and not has_stopped
            with self._changed:
                self._asks = not (_can_save(said) or _have_ended(said))
                self._is_held = saves
                self._changed.notify_all()
            if offer is not None and saves:
                self._end_program(offer)
            timeout_s = _POLL_S

    def _offer(self) -> LateSave | None:
        try:
            return None if self._late is None else self._late()
        except Exception:
            _log.exception("What is saved while the program is busy was not found; it is saved before the next step.")
            self._late = lambda: None
            return None

    def _end_program(self, late: LateSave) -> None:
        """Save in the program's place, wait until all have done so, and end it."""
        try:
            late.save()
        except Exception:
            _log.exception("Saving while the program is busy has failed; it is done before the next step.")
        else:
            self.part()
            _log.warning("The state is saved while the program is still busy; it ends now, to be started again.")
            self._shutdown = Shutdown(late.end or (lambda: sys.exit(LOST_EXIT_CODE)), self._go_on)
        with self._changed:
            self._is_held = False
            self._changed.notify_all()
        if self._shutdown is not None:
            self._shutdown.force(
                is_heard=self._wakeup.is_installed, is_last=self._exchange is not None and self._is_first
            )


def _have_ended(said: list[Any]) -> bool:
    """Tell whether all programs have stopped, or all have come to their end."""
    return all(has_stopped for has_stopped, *_ in said) or all(is_closed for _, is_closed, _ in said)


def _can_save(said: list[Any]) -> bool:
    """Tell whether all processes can save, the same step, and some have not stopped to do so by themselves."""
    if _have_ended(said) or any(offered is None for *_, offered in said):
        return False
    return len({steps for *_, (steps,) in said if steps is not None}) <= 1
