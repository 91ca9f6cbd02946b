"""For what the threads of this process wait for others, and what the others have said of themselves.

The state is the process's own, as JAX's connection to the others is: those who wait know nothing of who looks after them.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol, Self, final


class DisagreementError(RuntimeError):
    """The processes of the program are about to do different things."""


class Point(Protocol):
    """Something that all processes have to come to."""

    @property
    def key(self) -> str:
        """What it is called, equal in all processes."""
        ...

    def absent(self) -> Sequence[int]:
        """Return the numbers of the processes that have not come yet."""
        ...

    def is_reached(self, key: str) -> bool:
        """Tell whether this process has come to the point that is called `key`."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Wait:
    """That a thread waits for other processes.

    Attributes:
        what: For what, such as "the next batch".
        point: Where they have to come.
        since: When it began, as `time.monotonic` has it.
    """

    what: str
    point: Point
    since: float = dataclasses.field(default_factory=time.monotonic)


@final
@dataclasses.dataclass(frozen=True)
class ProcessStatus:
    """Status of a process, as it tells the others.

    Attributes:
        at: The line of the program.
        waits_for: What it waits for; empty if it does not wait for others.
        for_s: Since how many seconds it waits, or does not move.
        point: The key of the point at which it waits for others, if it is at one.
        absent: The processes it waits for, as far as it knows.
        has_ended: Whether it has come to the end of the program.
        is_held: Whether its main thread waits for others, not only something in the background.
        busy_s: Since how many seconds its main thread neither waits for others nor compiles.
        again_s: After how many seconds it says where it is then.
    """

    at: str = "its beginning"
    waits_for: str = ""
    for_s: float = 0.0
    point: str = ""
    absent: tuple[int, ...] = ()
    has_ended: bool = False
    is_held: bool = False
    busy_s: float = 0.0
    again_s: float = 2.0

    @classmethod
    def from_message(cls, message: object) -> Self:
        """Return the status that another process has sent.

        Raises:
            ValueError: If it is none.
        """
        if not isinstance(message, dict):
            raise ValueError(f"no status came, but {message!r}")
        return cls(**{**message, "absent": tuple(message.get("absent", ()))})


_waits: dict[int, Wait] = {}
_others: dict[int, tuple[str, ProcessStatus]] = {}
_limits: dict[str, float] = {}


def limit_waits(seconds: float, name: str) -> None:
    """Let the group end when this process waits longer for others; of several limits the smallest counts.

    Args:
        seconds: The limit.
        name: What the user calls it, for the message.
    """
    _limits[name] = min(seconds, _limits.get(name, seconds))


def wait_limit() -> tuple[float, str]:
    """Return the smallest limit and its name."""
    return min(((seconds, name) for name, seconds in _limits.items()), default=(math.inf, ""))


@contextlib.contextmanager
def waiting(what: str, point: Point) -> Iterator[None]:
    """Let the watchdog know that this thread waits for other processes inside."""
    thread = threading.get_ident()
    _waits[thread] = Wait(what, point)
    try:
        yield
    finally:
        del _waits[thread]


def waits() -> dict[int, Wait]:
    """Return what threads wait for now, by their numbers."""
    return dict(_waits)


def main_wait() -> Wait | None:
    """Return what the main thread waits for: the one that has to come to all other points."""
    return _waits.get(threading.main_thread().ident or 0)


def record_status(process_id: int, name: str, status: ProcessStatus) -> None:
    """Record the status that another process has sent."""
    _others[process_id] = name, status


def check_reachable(process_id: int, point: Point) -> None:
    """Check that a process can still reach a point that this one waits at.

    Raises:
        DisagreementError: If it has ended, or waits elsewhere for this process.
    """
    name, status = _others.get(process_id, ("", ProcessStatus()))
    here = main_wait()
    if here is None or here.point.key != point.key:
        return
    if status.has_ended:
        raise DisagreementError(f"{name} has ended its program, while others still wait for it: {here.what}.")
    # What it said last may be old, but it cannot have gone on without this process.
    if status.point and status.point != point.key and not point.is_reached(status.point):
        raise DisagreementError(
            f"The processes wait for each other at different points: {name} for {status.waits_for}, at {status.at}; "
            f"this one for {here.what}."
        )
