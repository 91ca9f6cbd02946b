"""Every test runs on eight virtual CPU devices, within a time limit, and starts programs the same way."""

import collections
import contextlib
import functools
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import buckets
import environment
import forks
import fsspec
import jax
import pytest

from tfdist_jax import _compilation_cache
from tfdist_jax._checkpoint import _array_files
from tfdist_jax._checkpoint._bucket_store import PYTHON_CRASHES

pytest_plugins = ["tfdist_jax.testing", "bounds", "tpu"]

os.environ["KERAS_BACKEND"] = "jax"  # Tests may import Keras before the facade.
os.environ["EPATH_USE_TF"] = "false"  # Buckets are reached without TensorFlow, as where it is not installed.

jax.config.update("jax_platforms", os.environ.get("TFDIST_TEST_PLATFORMS", "cpu"))
jax.config.update("jax_num_cpu_devices", 8)

os.environ.update(environment.COMPILATION)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
_compilation_cache.enable()

gc.set_threshold(50_000, 20, 50)  # Each collection looks through what JAX has made so far, which stays.


@pytest.hookimpl(tryfirst=True)  # Before pytest selects by marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip comparisons with TensorFlow where it is not installed; report why tests are slow; leave cases to `make test-all`."""
    _leave_cases(items)
    for item in items:
        if slow := item.get_closest_marker("slow"):
            item.user_properties.append(("slow", slow.args[0]))
    if importlib.util.find_spec("tensorflow") is None:
        missing = pytest.mark.skip(reason="TensorFlow is not installed: `make peers` adds it.")
        for item in items:
            if item.get_closest_marker("peers"):
                item.add_marker(missing)


def _leave_cases(items: list[pytest.Item]) -> None:
    """Mark the cases of a test, but one in `n`, as exhaustive if it is marked `one_in(n)`, as left out if it is `sampled(n)`."""
    for marker, left in (("one_in", "exhaustive"), ("sampled", "left_out")):
        seen = collections.Counter[str]()
        for item in items:
            test, _, case = item.nodeid.partition("[")
            if (mark := item.get_closest_marker(marker)) and not item.get_closest_marker("exhaustive"):
                if not case:
                    raise pytest.UsageError(
                        f"{test} has no cases of which some are left: it cannot be marked {marker}."
                    )
                if seen[test] % mark.args[0]:
                    item.add_marker(left)
                seen[test] += 1


@pytest.fixture(scope="module", autouse=True)
def _settled_heap() -> None:
    """Let the garbage collector leave out what is imported, which takes a twelfth of the tests' time, and what earlier modules have left.

    Late in a run a whole collection takes seconds otherwise, and a test may ask for ten.
    """
    gc.collect()
    gc.freeze()


def _path_of(program: str | Path, folder: Path) -> Path:
    """Return where a program lies; source text is written to `script.py` first."""
    if isinstance(program, Path):
        return program
    path = folder / "script.py"
    path.write_text(textwrap.dedent(program))
    return path


def _run(
    start: Callable[..., subprocess.Popen[bytes] | forks.Fork], command: Sequence[str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Start a process by `start(stdout=, stderr=)`, which take file descriptors, and wait for its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(stdout=out.fileno(), stderr=err.fileno())
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout_s)
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said = [file.seek(0) or file.read() for file in (out, err)]
    if code is None:
        pytest.fail("{} did not end within {} s.\nstdout:\n{}\nstderr:\n{}".format(command, timeout_s, *said))
    return subprocess.CompletedProcess(command, code, *said)


@pytest.fixture(scope="session")
def starter(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Sequence[str]], forks.ForkServer | forks.Spawner]]:
    """`starter(modules).start(args, ...)` starts `tfdist-jax` in a process that has imported `modules` already."""
    with contextlib.ExitStack() as servers:

        @functools.cache
        def make(modules: Sequence[str]) -> forks.ForkServer | forks.Spawner:
            if not forks.ForkServer.IS_AVAILABLE:
                return forks.Spawner()
            env = environment.clean(tmp_path_factory.mktemp("home"), {"JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"})
            server = forks.ForkServer(modules, env)
            servers.callback(server.close)
            return server

        yield make


@pytest.fixture
def run_script(starter, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in a process of its own, with a clean environment and home folder.

    The fixture is a function `run_script(program, *args, runner=(), env={}, timeout_s=LIMIT_S, python=sys.executable, modules=())`:
    `program` is a path, or source text that is written to `script.py` first; `runner` are Python's arguments before
    the program, such as `("-m", "tfdist_jax", "run")`. The program starts in the test's `tmp_path`; with `modules` by
    `tfdist-jax`, in a process that has imported these.
    """
    home = tmp_path / "home"
    home.mkdir()

    def run(
        program: str | Path,
        *args: str,
        runner: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        timeout_s: float = environment.LIMIT_S,
        python: str = sys.executable,
        modules: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        command = [python, *runner, str(_path_of(program, tmp_path)), *args]
        there = {"cwd": tmp_path, "env": environment.clean(home, env or {})}
        if modules:
            assert command[:3] == [sys.executable, "-m", "tfdist_jax"]
            assert not any(map(forks.is_read_at_import, env or {})), f"{modules} have been imported without {env}"
            start = functools.partial(starter(modules).start, command[3:], **there)
        else:
            start = functools.partial(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, start_new_session=True, **there
            )
        return _run(start, command, timeout_s)

    return run


@pytest.fixture
def run_program(run_script) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a TensorFlow program by `tfdist-jax run`: `run_program(program, *args, devices=2, ...)` like `run_script`."""

    def run(program: str | Path, *args: str, devices: int | None = 2, **options) -> subprocess.CompletedProcess[str]:
        split = () if devices is None else ("--devices", str(devices))
        return run_script(program, *args, runner=("-m", "tfdist_jax", "run", *split), **options)

    return run


@pytest.fixture
def run_prepared(run_script) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a TensorFlow program as `run_program` does, in a process that has done the imports already."""

    def run(
        program: str | Path,
        *args: str,
        devices: int | None = 2,
        command: str = "run",
        option: str = "--devices",
        **options,
    ) -> subprocess.CompletedProcess[str]:
        split = () if devices is None else (option, str(devices))
        runner = ("-m", "tfdist_jax", command, *split)
        return run_script(program, *args, runner=runner, modules=forks.FACADE, **options)

    return run


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[str]:
    """The address of a server that holds a bucket."""
    with buckets.serve() as server:
        yield server


@pytest.fixture
def bucket(bucket_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty folder in a bucket, for this process and those that it starts."""
    if PYTHON_CRASHES:
        pytest.skip("This Python crashes in the libraries that reach a bucket.")
    for name, value in buckets.environ(bucket_server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(fsspec.config.conf, "gcs", {"token": "anon"})  # The environment was read before.
    return f"gs://{buckets.NAME}/{uuid.uuid4().hex}"


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where checkpoints are kept: a folder, or a URL in a bucket."""
    return str(tmp_path / "saved") if request.param == "folder" else request.getfixturevalue("bucket")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Saving in the background stops before its end until the event is set."""
    event, finish = threading.Event(), _array_files.finish_writing
    monkeypatch.setattr(_array_files, "finish_writing", lambda folder: event.wait(60) and finish(folder))
    yield event
    event.set()
