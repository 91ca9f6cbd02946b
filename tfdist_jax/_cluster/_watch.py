"""A watchdog: says which process waits for which, and in which line of the program; beyond a limit it ends all.

Each process looks from time to time, in a thread of its own, where its program is, and sends that over the connections of
the rendezvous: to process 0, which knows everybody, and process 0 to all. Nothing is paid in a step.
"""

import contextlib
import dataclasses
import linecache
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, final

from tfdist_jax import _internals
from tfdist_jax._cluster._json_connection import JsonConnection
from tfdist_jax._cluster._spec import Cluster
from tfdist_jax._cluster._waiting import ProcessStatus, record_status, wait_limit, waits
from tfdist_jax._user_code import user_line

_log = logging.getLogger("tfdist_jax")

_LOOKS = 6
"""How often it looks before it warns, or ends all."""
_PERIOD_S = 2.0
_PROCESSES_PER_S = 100
"""So many positions process 0 gets, and sends, at most."""
_ANSWER_S = 2.0
_FORGOTTEN_S = 60.0
_STILL_S = 1e-4
"""A thread that computes less between two looks stands still."""
_MORE_RARELY = 6
_SHOWN = 4

Known = dict[int, tuple[float, ProcessStatus]]
"""What is known of processes: when they were heard last, as `time.monotonic` has it, and where they said they are."""


@final
class Seen(NamedTuple):
    """A process that keeps another one waiting: since when it is silent, and where it was then."""

    process_id: int
    silent_s: float
    status: ProcessStatus

    @property
    def is_silent(self) -> bool:
        """Whether it should have been heard again."""
        return self.silent_s > 2 * self.status.again_s + 1

    @property
    def late_s(self) -> float:
        """Since when it keeps others waiting; a process that compiles does not."""
        late_s = self.status.for_s if self.status.is_held else self.status.busy_s
        return late_s + (self.silent_s if self.is_silent else 0)


@final
class Watch:
    """Looks where this process is, and hears where the others are."""

    def __init__(self, cluster: Cluster, connections: Mapping[int, JsonConnection], warn_s: float) -> None:
        """Warn after a wait of `warn_s` seconds, from `start` on."""
        self._cluster = cluster
        self._own = cluster.process_id
        self._connections = connections
        self._warn_s = self._next_s = warn_s
        self._looker = _Looker()
        # Whoever has never been heard was there when the roll was called.
        self._known: Known = {
            i: (time.monotonic(), ProcessStatus(again_s=self._period_s)) for i in range(cluster.num_processes)
        }
        self._answer: tuple[list[Any], float] | None = None
        self._answered = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="tfdist_jax watch")

    def start(self, end_all: Callable[[str], None]) -> None:
        """Begin; `end_all` ends all processes, and says why."""
        self._end_all = end_all
        self._thread.start()

    def end(self) -> None:
        """Come to an end, and to where this process says nothing any more."""
        self._over.set()
        self._thread.join(_ANSWER_S + 1)

    def heard(self, process_id: int, message: Mapping[str, Any]) -> None:
        """Record what another process reports."""
        if "at" in message or "bye" in message:
            ended = ProcessStatus(at="its end", has_ended=True)
            status = ended if "bye" in message else ProcessStatus.from_message(message["at"])
            self._known[process_id] = time.monotonic(), status
            record_status(process_id, str(self._cluster.training[process_id]), status)
        elif "where" in message:
            behind, late_s = self._behind(process_id, ProcessStatus.from_message(message["where"]))
            told = [(i, silent_s, dataclasses.asdict(status)) for i, silent_s, status in behind]
            self._send(process_id, behind=told, late_s=late_s)
        elif "behind" in message:
            self._answer = message["behind"], message["late_s"]
            self._answered.set()

    @property
    def _period_s(self) -> float:
        period_s = min(_PERIOD_S, self._warn_s / _LOOKS, wait_limit()[0] / _LOOKS)
        return max(period_s, self._cluster.num_processes / _PROCESSES_PER_S)

    def _work(self) -> None:
        while not self._over.wait(period_s := self._period_s):
            status = dataclasses.replace(self._looker.look(), again_s=period_s)
            self._known[self._own] = time.monotonic(), status
            for process_id in self._connections:
                if time.monotonic() - self._known[process_id][0] < _FORGOTTEN_S:
                    self._send(process_id, at=dataclasses.asdict(status))
            if not status.waits_for:
                self._next_s = self._warn_s
            elif status.for_s >= min(self._next_s, wait_limit()[0]):
                self._tell(status)

    def _send(self, process_id: int, **message: Any) -> None:
        with contextlib.suppress(OSError):  # It is gone, which others notice.
            self._connections[process_id].send(**message)

    def _tell(self, status: ProcessStatus) -> None:
        """Warn, or end all processes."""
        limit_s, limit = wait_limit()
        behind, late_s = self._behind(self._own, status) if self._own == 0 else self._asked(status)
        waited = self._waited(status, behind)
        if status.is_held and min(status.for_s, late_s) >= limit_s:
            self._end_all(f"{waited} That is longer than the limit of {limit_s:g} s: {limit}.")
        elif status.for_s >= self._next_s:
            self._next_s *= _MORE_RARELY
            _log.warning("%s", waited)

    def _waited(self, status: ProcessStatus, behind: Sequence[Seen]) -> str:
        names = ", ".join(str(self._cluster.training[one.process_id]) for one in behind) or "the others"
        where = " ".join(map(self._told, behind))
        where = where or "None of them is elsewhere or stands still: a step may just take long."
        waited = f"{self._cluster.task} has waited {status.for_s:.0f} s for {names}"
        return f"{waited} at {status.at}: {status.waits_for}. {where}"

    def _seen(self, process_id: int) -> Seen:
        heard, status = self._known[process_id]
        return Seen(process_id, time.monotonic() - heard, status)

    def _asked(self, status: ProcessStatus) -> tuple[list[Seen], float]:
        """Ask process 0, which knows everybody; where it does not answer it is process 0 that is waited for."""
        if not self._seen(0).is_silent:
            self._answered.clear()
            self._send(0, where=dataclasses.asdict(status))
            if self._answered.wait(_ANSWER_S) and self._answer is not None:
                behind, late_s = self._answer
                return [Seen(i, silent_s, ProcessStatus.from_message(told)) for i, silent_s, told in behind], late_s
        return [self._seen(0)], self._seen(0).late_s

    def _behind(self, process_id: int, status: ProcessStatus) -> tuple[list[Seen], float]:
        """Return who keeps a process waiting, and since when; where all wait, who does so elsewhere."""
        others = [self._seen(i) for i in sorted(self._known) if i != process_id]
        absent = [one for one in others if one.process_id in status.absent]
        moving = [one for one in others if one.is_silent or not one.status.is_held]
        latest = sorted([one for one in moving if one in absent] or moving, key=lambda one: -one.late_s)
        if latest:
            return latest[:_SHOWN], latest[0].late_s
        elsewhere = [one for one in others if one.status.at != status.at]
        return (absent or elsewhere)[:_SHOWN], min(one.late_s for one in others)

    def _told(self, seen: Seen) -> str:
        name, status = str(self._cluster.training[seen.process_id]), seen.status
        if status.has_ended:
            return f"{name} has ended its program."
        if seen.is_silent:
            return f"{name} does not answer; it was last seen {seen.silent_s:.0f} s ago at {status.at}."
        if status.waits_for:
            return f"{name} has waited {status.for_s:.0f} s at {status.at}: {status.waits_for}."
        since = f", for {status.for_s:.0f} s" if status.for_s > self._period_s else ""
        return f"{name} is at {status.at}{since}."


@final
class _Looker:
    """Sees where the program is."""

    def __init__(self) -> None:
        self._spot: tuple[int, int, int] | None = None
        self._computed_s = 0.0
        self._since = self._busy_since = time.monotonic()

    def look(self) -> ProcessStatus:
        """Return the position of the main thread, or of another one if only that waits for others."""
        main = threading.main_thread().ident or 0
        waiting, now = waits(), time.monotonic()
        frames = sys._current_frames()  # noqa: SLF001 - public, but for its name.
        main_frame = frames.get(main)
        still_s = self._still_s(main, main_frame)
        in_step = bool(still_s) and main_frame is not None and _is_in_jax(main_frame)
        is_held = in_step or main in waiting
        if is_held or (main_frame is not None and _internals.is_compiling(main_frame)):
            self._busy_since = now
        # Others than the main thread may train, or save in the background.
        thread = main if is_held or not waiting else next(iter(waiting))
        at = user_line(frames.get(thread)) or user_line(main_frame) or "the end of the program"
        held = {"is_held": is_held, "busy_s": round(now - self._busy_since, 1)}
        if thread not in waiting:
            return ProcessStatus(at, "the result of a step" if in_step else "", round(still_s, 1), **held)
        wait = waiting[thread]
        absent = tuple(wait.point.absent())[:_SHOWN]
        point = wait.point.key if thread == main else ""
        return ProcessStatus(at, wait.what, round(now - wait.since, 1), point, absent, **held)

    def _still_s(self, thread: int, frame: FrameType | None) -> float:
        """Return since when a thread stands still: in the same instruction, computing nothing."""
        now, computed_s = time.monotonic(), _computed_s(thread)
        spot = None if frame is None else (thread, id(frame), frame.f_lasti)
        if spot != self._spot or computed_s - self._computed_s > _STILL_S:
            self._since = now
        self._spot, self._computed_s = spot, computed_s
        return now - self._since


def _computed_s(thread: int) -> float:
    """Return for how long a thread has computed; on systems that do not say so, it seems to compute always."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic()
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return time.monotonic()  # It has just ended.


def _is_in_jax(frame: FrameType) -> bool:
    """Whether the frame is inside JAX or this package, but not compiling: it waits for the devices."""
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if module in ("jax", __name__.partition(".")[0]):
        return not _internals.is_compiling(frame)
    # This method of arrays leaves no frame of its own.
    return "block_until_ready" in linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
