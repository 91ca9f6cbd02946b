"""A training script under `tfdist-jax launch`, to which faults can happen."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeVar, final

import psutil

from tfdist_jax._cluster import LAUNCHED, RESTART, RESTART_HEADING
from tfdist_jax.testing._faults import Fault, do_to

MARK = "TFDIST_JAX_TRAINING"
"""By this, its folder and a number of its own, the processes of a training are found, whoever has started them."""

_LOGS = "tfdist_logs"
_POLL_S = 0.002
# How often processes are looked for, which takes longer.
_LOOK_S = 0.05
# How long processes have to end behind their launcher.
_GRACE_S = 10.0
_SHOWN = 4000

_Found = TypeVar("_Found")


@final
class Training:
    """A program that `tfdist-jax launch` runs in one process or several.

    Attributes:
        folder: The folder in which it runs; logs of its processes are in `tfdist_logs` there.
        pid: The launcher's process.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        options: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        limit_s: float = 300.0,
    ) -> None:
        """Start it.

        Args:
            command: A Python file, or "-m" and a module, and its arguments.
            folder: Where it runs; made if need be.
            options: `tfdist-jax launch`'s, such as "--workers", "2".
            env: What differs from this process's environment; None removes a variable.
            limit_s: Seconds without output after which waiting for it is an error.

        Raises:
            FileNotFoundError: If there is no such Python file.
        """
        program, *args = command
        if program != "-m":
            program = str(Path(program).resolve(strict=True))
        self.folder, self._limit_s = folder.absolute(), limit_s
        self._mark = f"{self.folder}:{uuid.uuid4().hex}"
        self._names: list[str] = []
        self._start = 0  # The number of the start that the next fault happens to.
        changed = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {}), MARK: self._mark}
        self._logs = self.folder / _LOGS
        self._logs.mkdir(parents=True, exist_ok=True)
        for old in self._logs.glob("*.log"):
            old.unlink()
        with (self._logs / "launch.log").open("wb") as log:
            self._launcher = subprocess.Popen(
                [sys.executable, "-P", "-m", "tfdist_jax", "launch", "--log-dir", _LOGS, *options, program, *args],
                cwd=self.folder,
                env={name: value for name, value in changed.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._launcher.pid

    @property
    def output(self) -> str:
        """What the launcher has printed: its own messages, and the first process's output."""
        return _read(self._logs / "launch.log")

    def output_of(self, process: str = "worker 0", *, start: int | None = None) -> str:
        """Return what a process has printed.

        Args:
            process: Which, as the launcher names it.
            start: In which start only: 0, or how often it had been started again.
        """
        text = _read(self._log(process))
        return text if start is None else _starts(text).get(start, "")

    @property
    def starts(self) -> int:
        """How often the training has been started so far."""
        return max((start for path in self._logs.glob("*_*.log") for start in _starts(_read(path))), default=0) + 1

    def processes(self) -> dict[str, psutil.Process]:
        """Return the processes that run, by their names, such as "worker 0"."""
        return {name: member.process for name, member in self._members().items()}

    def process(self, name: str = "worker 0") -> psutil.Process:
        """Return a process, as soon as it is there.

        Raises:
            EndedError: If the training has ended.
            StuckError: If it does not come.
        """
        return self._wait(lambda: self._find([name]), f"{name} is there", poll_s=_LOOK_S)[0].process

    def wait_for_output(self, pattern: str, process: str = "worker 0") -> None:
        """Wait until a process, or the launcher for it, has printed what a regular expression matches.

        Raises:
            EndedError: If the training has ended before.
            StuckError: If it gives no sign of life meanwhile.
        """
        self._wait(lambda: re.search(pattern, self.output_of(process) + self.output), f"{pattern!r} is printed")

    def names(self) -> list[str]:
        """Return the names of the processes that train, as soon as one is there.

        Raises:
            EndedError: If the training has ended.
            StuckError: If none comes.
        """
        self._names = self._names or self._wait(self._read_names, "a process is there", poll_s=_LOOK_S)
        return self._names

    def strike(self, fault: Fault) -> None:
        """Let a fault happen: to the present start, or the next one if the last fault, or something else, ends this one.

        Raises:
            EndedError: If the training ends before.
            StuckError: If the moment does not come.
        """
        while True:
            members = self._wait(lambda: self._find(fault.processes), str(fault), poll_s=_LOOK_S)
            self._wait_for_moment(fault, members)
            try:
                do_to([member.process for member in members], fault)
                break
            except psutil.NoSuchProcess:
                self._start = members[0].start + 1
        if fault.ends_processes:
            self._start = members[0].start + 1

    def _wait_for_moment(self, fault: Fault, members: Sequence["_Member"]) -> None:
        if fault.pattern:
            lines = _Counter(self._log(fault.processes[0]), members[0].start, fault.pattern)
            are_gone = lambda: not all(member.process.is_running() for member in members)
            self._wait(lambda: lines.count() >= fault.count or are_gone(), str(fault))
        time.sleep(fault.delay_s)

    def wait(self) -> int:
        """Wait for the launcher's end and return its exit code.

        Raises:
            StuckError: If it gives no sign of life.
        """
        self._wait(lambda: self._launcher.poll() is not None, "the end")
        return self._launcher.returncode

    def succeed(self) -> Self:
        """Wait until the training has ended without an error, and without leaving processes behind; return it.

        Raises:
            EndedError: If it has ended otherwise.
            StuckError: If it gives no sign of life.
        """
        if self.wait():
            raise EndedError(self._say(f"has ended with exit code {self._launcher.returncode}"))
        deadline = time.monotonic() + _GRACE_S
        while left := self.leftovers():
            if time.monotonic() > deadline:
                raise EndedError(self._say(f"has left processes behind: {left}"))
            time.sleep(_LOOK_S)
        return self

    def leftovers(self) -> list[psutil.Process]:
        """Return all processes that the training has started, and they in turn, and that run."""
        return list(self._marked())

    def stop(self) -> None:
        """End what is left of it."""
        while left := self.leftovers():
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(_LOOK_S)
        self._launcher.wait()

    def _find(self, names: Sequence[str]) -> list["_Member"]:
        """Return processes that the next fault can happen to, as soon as all of them are there."""
        members = self._members()
        found = [members[name] for name in names if name in members and members[name].start >= self._start]
        return found if len(found) == len(names) else []

    def _read_names(self) -> list[str]:
        for member in self._members().values():
            with contextlib.suppress(psutil.Error):
                jobs = json.loads(member.process.environ()[LAUNCHED])["cluster"]
                return [f"{job} {i}" for job, tasks in jobs.items() if job != "evaluator" for i in range(len(tasks))]
        return []

    def _members(self) -> dict[str, "_Member"]:
        """Return the processes that the launcher has started, and that run."""
        found: dict[str, _Member] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    env = process.environ()
                    if LAUNCHED in env and RESTART in env:
                        task = json.loads(env[LAUNCHED])["task"]
                        found[f"{task['type']} {task['index']}"] = _Member(int(env[RESTART]), process)
        return found

    def _log(self, process: str) -> Path:
        return self._logs / f"{process.replace(' ', '_')}.log"

    def _marked(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def _wait(self, find: Callable[[], _Found], event: str, *, poll_s: float = _POLL_S) -> _Found:
        """Return what is looked for, again and again until it is true."""
        began = time.time()
        while not (found := find()):
            if self._launcher.poll() is not None and not (found := find()):
                raise EndedError(
                    self._say(f"has ended with exit code {self._launcher.returncode} before this: {event}")
                )
            signs = [log.stat().st_mtime for log in self._logs.glob("*.log")]
            if not found and time.time() - max([began, *signs]) > self._limit_s:
                raise StuckError(self._say(f"has given no sign of life for {self._limit_s:g} s before this: {event}"))
            time.sleep(poll_s)
        return found

    def _say(self, what: str) -> str:
        return f"The training in {self.folder} {what}. The end of its output:\n{self.output[-_SHOWN:]}"


class StuckError(TimeoutError):
    """A training that does not go on."""


class EndedError(RuntimeError):
    """A training that has ended: with an error, or before a fault could happen to it."""


class _Member(NamedTuple):
    start: int
    process: psutil.Process


@final
class _Counter:
    """Counts lines of a log, since one of the starts, as it grows."""

    def __init__(self, log: Path, start: int, pattern: str) -> None:
        self._log, self._start, self._pattern = log, start, re.compile(pattern)
        self._size = self._count = 0

    def count(self) -> int:
        """Return how many there are by now."""
        size = self._log.stat().st_size if self._log.exists() else 0
        if size != self._size:
            lines = _starts(_read(self._log)).get(self._start, "").splitlines()
            self._size, self._count = size, sum(self._pattern.search(line) is not None for line in lines)
        return self._count


def _starts(text: str) -> dict[int, str]:
    """Return what a log says of each start."""
    first, *others = re.split(rf"^{re.escape(RESTART_HEADING)}(\d+) of \d+\.\n", text, flags=re.MULTILINE)
    return {0: first, **{int(start): said for start, said in zip(others[::2], others[1::2], strict=True)}}


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
