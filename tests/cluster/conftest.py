"""Real processes on loopback that can be killed, frozen, slowed and asked to stop."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import environment
import forks
import psutil
import pytest
from environment import LIMIT_S, NEVER_S

from tfdist_jax.cli._launch import _free_ports
from tfdist_jax.testing import slowed

# What every program starts with: `result(name, value)` writes a file that the test reads; `hold()` waits until it has called
# `release()`.
_PREAMBLE = """
import json, os, pathlib, time
def result(name, value):
    folder = pathlib.Path(os.environ["RESULTS"])
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(json.dumps(value))
    temporary.rename(folder / name)
released = pathlib.Path(os.environ["RESULTS"], "released")
def hold():
    while not released.exists():
        time.sleep(0.02)
"""


@final
class Worker:
    """One process of a cluster; what it prints is in `log`."""

    def __init__(
        self,
        start: Callable[..., subprocess.Popen[bytes] | forks.Fork],
        env: Mapping[str, str],
        folder: Path,
        stdout: int | None = None,
    ) -> None:
        """Start it by `start(cwd=, env=, stdout=, stderr=)`."""
        folder.mkdir(exist_ok=True)
        self.results = folder
        self.log_path = folder / "log.txt"
        with self.log_path.open("ab") as log:
            self._process = start(
                cwd=folder,
                env={**env, "RESULTS": str(folder)},
                stdout=log.fileno() if stdout is None else stdout,
                stderr=log.fileno(),
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def result(self, name: str) -> Any:
        return json.loads((self.results / name).read_text())

    def wait_for_result(self, name: str, timeout_s: float = LIMIT_S) -> Any:
        """Wait until the program has called `result(name, ...)`."""
        deadline = time.monotonic() + timeout_s
        while not (self.results / name).exists():
            assert self.returncode is None, f"ended with {self.returncode} before {name!r}:\n{self.log}"
            assert time.monotonic() < deadline, f"no {name!r} within {timeout_s} s:\n{self.log}"
            time.sleep(0.02)
        return self.result(name)

    def wait_for_log(self, pattern: str) -> None:
        """Wait until the process, or one that it has started, has said so."""
        deadline = time.monotonic() + LIMIT_S
        ended = None
        while not re.search(pattern, self.log):
            assert ended is None, f"ended with {ended} before it said {pattern!r}:\n{self.log}"
            assert time.monotonic() < deadline, f"{pattern!r} was not said:\n{self.log}"
            time.sleep(0.05)
            ended = self.returncode

    def release(self) -> None:
        """End `hold()`."""
        (self.results / "released").touch()

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float = LIMIT_S) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs after {timeout_s} s:\n{self.log}")

    def kill(self) -> None:
        """End it at once, as a machine that breaks would."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to stop, as a scheduler does that takes the machine away."""
        self._send(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it without ending it, as a machine that hangs would."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def slowed(self) -> contextlib.AbstractContextManager[None]:
        """Let it run for only half of the time."""
        return slowed(psutil.Process(self.pid))

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # It may just have ended.
            if self.returncode is None:
                os.kill(self.pid, number)

    def clean_up(self) -> None:
        """End it with everything it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@final
class Cluster:
    """Starts the processes of one program and ends what is left of them."""

    def __init__(
        self,
        folder: Path,
        size: int,
        devices_per_worker: int,
        starter: Callable[[Sequence[str]], forks.ForkServer | forks.Spawner],
    ) -> None:
        self.folder = folder
        self._starter = starter
        self.addresses = [f"127.0.0.1:{port}" for port in _free_ports(size)]
        self._devices = devices_per_worker
        self.workers: list[Worker] = []

    def config(self, index: int, **jobs: list[str]) -> str:
        return json.dumps({"cluster": {"worker": self.addresses, **jobs}, "task": {"type": "worker", "index": index}})

    def start(
        self,
        program: str,
        *args: str,
        indices: list[int] | None = None,
        env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
    ) -> list[Worker]:
        """Start `program` once for each worker, by `tfdist-jax run`, which has imported what programs do already."""
        modules = forks.FACADE if "tensorflow" in program else forks.NATIVE
        script = self.folder / "program.py"
        new = script.with_suffix(".new")
        new.write_text(_PREAMBLE + textwrap.dedent(program))
        new.replace(script)  # In one step: a process that was started before may be about to read it.
        for index in range(len(self.addresses)) if indices is None else indices:
            own = (env(index) if callable(env) else env) or {}
            command = ["run", "--devices", str(self._devices), str(script), *args]
            start = (forks.Spawner() if any(map(forks.is_read_at_import, own)) else self._starter(modules)).start
            self.workers.append(
                Worker(
                    functools.partial(start, command),
                    {**_environment(self.folder), "TF_CONFIG": self.config(index), **own},
                    self.folder / f"worker{index}",
                )
            )
        return self.workers

    def wait(self, timeout_s: float = LIMIT_S) -> list[int]:
        """The exit codes, once all have ended."""
        deadline = time.monotonic() + timeout_s
        return [worker.wait(max(0.1, deadline - time.monotonic())) for worker in self.workers]

    def succeed(self, timeout_s: float = LIMIT_S) -> list[Worker]:
        """Wait until all have ended without an error."""
        codes = self.wait(timeout_s)
        assert not any(codes), "\n".join(
            f"exit code {code}:\n{w.log}" for code, w in zip(codes, self.workers, strict=True)
        )
        return self.workers

    def results(self, name: str) -> list[Any]:
        return [worker.result(name) for worker in self.workers]


def _environment(home: Path) -> dict[str, str]:
    """Return what a user's shell would have, with limits for a test."""
    changes = {
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
        "TFDIST_HEARTBEAT_TIMEOUT_S": "10",
        "TFDIST_START_TIMEOUT_S": NEVER_S,
        "TFDIST_END_TIMEOUT_S": "60",
    }
    return environment.clean(home, changes)


@pytest.fixture
def cluster(tmp_path: Path, starter) -> Iterator[Callable[..., Cluster]]:
    """`cluster(n, devices_per_worker=1)` has `n` workers on loopback; what it has started ends with the test."""
    made: list[Cluster] = []

    def make(size: int, devices_per_worker: int = 1) -> Cluster:
        folder = tmp_path / f"cluster{len(made)}"
        folder.mkdir()
        made.append(Cluster(folder, size, devices_per_worker, starter))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            for worker in one.workers:
                worker.clean_up()


@pytest.fixture
def launch(tmp_path: Path, starter) -> Iterator[Callable[..., Worker]]:
    """`launch(program, *options, args=())` starts `tfdist-jax launch`; what is left of it ends with the test.

    Results of all workers are in one folder: a program names them by its index, `INDEX`. A launcher that is not started `afresh` has
    imported its modules already.
    """
    started: list[Worker] = []

    def start(
        program: str, *options: str, args: tuple[str, ...] = (), stdout: int | None = None, afresh: bool = False
    ) -> Worker:
        folder = tmp_path / f"launch{len(started)}"
        folder.mkdir()
        script = folder / "program.py"
        index = 'INDEX = json.loads(os.environ["TFDIST_JAX_CLUSTER"])["task"]["index"]\n'
        script.write_text(_PREAMBLE + index + textwrap.dedent(program))
        start = forks.Spawner().start if afresh else starter(forks.NATIVE).start
        start = functools.partial(start, ["launch", *options, str(script), *args])
        started.append(Worker(start, _environment(folder), folder, stdout))
        return started[-1]

    try:
        yield start
    finally:
        for launcher in started:
            launcher.clean_up()
            for path in launcher.results.glob("pid*"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(json.loads(path.read_text()), signal.SIGKILL)


@pytest.fixture
def doctor(tmp_path: Path, starter) -> Iterator[Callable[..., Worker]]:
    """`doctor(*arguments, **environment)` starts `tfdist-jax doctor`, afresh with `before`, which is code to run before it."""
    started: list[Worker] = []

    def start(*arguments: str, before: str = "", **environment: str) -> Worker:
        folder = tmp_path / f"doctor{len(started)}"
        if before or any(map(forks.is_read_at_import, environment)):
            code = f"{before}\nimport sys\nfrom tfdist_jax.cli import main\nsys.exit(main(['doctor', *sys.argv[1:]]))"
            command = [sys.executable, "-c", code, *arguments]
            start = functools.partial(subprocess.Popen, command, stdin=subprocess.DEVNULL, start_new_session=True)
        else:
            start = functools.partial(starter(forks.NATIVE).start, ["doctor", *arguments])
        started.append(Worker(start, {**_environment(tmp_path), **environment}, folder))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.clean_up()
