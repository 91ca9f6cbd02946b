"""What happens in asynchronous training: how fast, how stale, how much travels."""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final


@final
@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What has happened up to a moment.

    Attributes:
        seconds: Since the coordinator was made.
        closures: How many have run.
        retries: How many were run again, since their worker had gone.
        pulled_bytes: What programs have read of variables on servers.
        pushed_bytes: What they have sent for updates.
        staleness: How many updates had come from others between reading and updating, and how often that was.
        workers: How many there are at present.
        rounds: How often the changes of several workers were applied together, where they are.
        dropped: How many gradients came after their round, and were not applied.
    """

    seconds: float
    closures: int
    retries: int
    pulled_bytes: int
    pushed_bytes: int
    staleness: dict[int, int]
    workers: int
    rounds: int = 0
    dropped: int = 0

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers, by names for plots."""
        updates = sum(self.staleness.values())
        of_rounds = {"rounds": self.rounds, "dropped": self.dropped} if self.rounds else {}
        return {
            "closures": self.closures,
            "closures_per_second": self.closures / max(self.seconds, 1e-9),
            "retries": self.retries,
            "workers": self.workers,
            "pulled_bytes": self.pulled_bytes,
            "pushed_bytes": self.pushed_bytes,
            "mean_staleness": sum(stale * count for stale, count in self.staleness.items()) / max(updates, 1),
            "largest_staleness": max(self.staleness, default=0),
            **of_rounds,
        }

    def __str__(self) -> str:
        """Say it in a line."""
        told = self.scalars
        of_rounds = f"; {self.rounds} rounds, {self.dropped} gradients dropped" if self.rounds else ""
        return (
            f"{self.closures} closures in {self.seconds:.1f} s, {told['closures_per_second']:.1f} a second; "
            f"{self.retries} run again; {self.workers} workers; pulled {self.pulled_bytes / 2**20:.1f} MiB, pushed "
            f"{self.pushed_bytes / 2**20:.1f} MiB; staleness {told['mean_staleness']:.2f} in the mean, "
            f"{told['largest_staleness']:.0f} at most{of_rounds}"
        )


@final
class Statistics:
    """Counts closures, updates and bytes; threads may call it at once."""

    def __init__(self, workers: int) -> None:
        """Start with nothing, and so many workers."""
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._counts: collections.Counter[str] = collections.Counter(workers=workers)
        self._staleness: collections.Counter[int] = collections.Counter()
        self._updates = 0

    def pull(self, size: int) -> int:
        """Note that a program has read values of `size` bytes; return how many updates there have been."""
        with self._lock:
            self._counts["pulled"] += size
            return self._updates

    def push(self, size: int, moment: int) -> int:
        """Note an update by a program that has read its values after as many updates as `moment` says, and has sent `size` bytes.

        Returns:
            What counts as the moment for the program's next update: its own one makes it no staler.
        """
        with self._lock:
            self._counts["pushed"] += size
            self._staleness[self._updates - moment] += 1
            self._updates += 1
            return moment + 1

    def note(self, pulled_bytes: int, pushed_bytes: int, staleness: Sequence[int]) -> None:
        """Note a whole run of a program: what it has read and sent, and how many updates of others each of its own had not seen."""
        with self._lock:
            self._counts.update(pulled=pulled_bytes, pushed=pushed_bytes)
            self._staleness.update(staleness)
            self._updates += len(staleness)

    def count(self, **amounts: int) -> None:
        """Add to the numbers of `closures`, `retries`, `workers`, `rounds` or `dropped`."""
        with self._lock:
            self._counts.update(amounts)

    def snapshot(self) -> Snapshot:
        """Return what has happened up to now."""
        with self._lock:
            counts: Any = self._counts
            return Snapshot(
                seconds=time.monotonic() - self._start,
                closures=counts["closures"],
                retries=counts["retries"],
                pulled_bytes=counts["pulled"],
                pushed_bytes=counts["pushed"],
                staleness=dict(sorted(self._staleness.items())),
                workers=counts["workers"],
                rounds=counts["rounds"],
                dropped=counts["dropped"],
            )


@final
class Reporter(threading.Thread):
    """Tells what has happened, every so many seconds in which something has."""

    def __init__(self, statistics: Statistics, seconds: float, report: Callable[[Snapshot], None]) -> None:
        """Call `report` every so many seconds, from when the thread is started until `stop`."""
        super().__init__(name="reporter of statistics", daemon=True)
        self._statistics, self._seconds, self._report = statistics, seconds, report
        self._is_stopped = threading.Event()

    def run(self) -> None:
        """Report, unless no closure has run since the last time."""
        told = 0
        while not self._is_stopped.wait(self._seconds):
            snapshot = self._statistics.snapshot()
            if snapshot.closures != told:
                self._report(snapshot)
            told = snapshot.closures

    def stop(self) -> None:
        """Report no more."""
        self._is_stopped.set()
