"""What can happen to a running process."""

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, final

import psutil

FaultKind = Literal["kill", "terminate", "interrupt", "freeze", "stall", "slow", "fill"]


@final
@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to processes of a training, and when.

    Attributes:
        kind: "kill" (SIGKILL), "terminate" (SIGTERM), "interrupt" (SIGINT), "freeze" (SIGSTOP), "stall" (stopped for `seconds`), "slow"
            (runs for a fifth of the time, for `seconds`), "fill" (no file can grow beyond `free_bytes`, on Linux).
        processes: Such as "worker 0".
        pattern: A regular expression for lines of the first one's output; empty for its start.
        count: How many such lines come before the fault, since the training was last started.
        delay_s: How long after that.
        seconds: How long a stall or a slow time takes.
        free_bytes: How large a file may be when the disk is full.
    """

    kind: FaultKind
    processes: tuple[str, ...]
    pattern: str
    count: int
    delay_s: float
    seconds: float
    free_bytes: int

    def __str__(self) -> str:
        what = {
            "stall": f" for {self.seconds:.2f} s",
            "slow": f" for {self.seconds:.2f} s",
            "fill": f" to {self.free_bytes} bytes",
        }
        when = f"line {self.count} that matches {self.pattern!r}" if self.pattern else "the start"
        return f"{self.kind} {' and '.join(self.processes)}{what.get(self.kind, '')}, {self.delay_s * 1000:.0f} ms after {when}"

    @property
    def ends_processes(self) -> bool:
        """Whether its processes have to be started again, at least those that do not handle it."""
        return self.kind in _SIGNALS


_SIGNALS: Mapping[str, signal.Signals] = {
    "kill": signal.SIGKILL,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
    "freeze": signal.SIGSTOP,
}


def do_to(processes: list[psutil.Process], fault: Fault) -> None:
    """Let a fault happen.

    Raises:
        psutil.NoSuchProcess: If a process has ended; nothing has happened to the others then.
        NotImplementedError: If the system cannot do that.
    """
    for process in processes:
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.ZombieProcess(process.pid)
    if fault.kind in _SIGNALS:
        for process in processes:
            process.send_signal(_SIGNALS[fault.kind])
    elif fault.kind == "fill":
        for process in processes:
            _limit_files(process, fault.free_bytes)
    else:
        with contextlib.ExitStack() as stack:
            for process in processes:
                stack.enter_context(slowed(process, 0 if fault.kind == "stall" else 0.2))
            time.sleep(fault.seconds)


def _limit_files(process: psutil.Process, size: int) -> None:
    if not psutil.LINUX:
        raise NotImplementedError('"fill" needs Linux. In this process, `full_disk` does it on other systems, too.')
    process.rlimit(psutil.RLIMIT_FSIZE, (size, process.rlimit(psutil.RLIMIT_FSIZE)[1]))


@contextlib.contextmanager
def slowed(process: psutil.Process, share: float = 0.5, period_s: float = 0.1) -> Iterator[None]:
    """Let a process run for only a share of the time.

    Args:
        process: Which.
        share: 0 to stop it until the end.
        period_s: In how much time it runs and stops once.
    """
    over = threading.Event()

    def alternate() -> None:
        while not over.is_set():
            _try(process.suspend)
            over.wait(period_s * (1 - share))
            if share:
                _try(process.resume)
                over.wait(period_s * share)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _try(process.resume)


def _try(change: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # It may just have ended.
        change()
