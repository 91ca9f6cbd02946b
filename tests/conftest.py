"""Every test runs on eight virtual CPU devices, within a time limit, and starts programs the same way."""

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import pytest

from tfdist_jax import _array_files

os.environ["KERAS_BACKEND"] = "jax"  # Tests may import Keras before the facade.

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

# What a user's shell would not set; a program that a test starts must find its own way.
_NOT_INHERITED = ("JAX_", "XLA_", "TF_", "KERAS_", "NPROC", "CUDA_", "PYTEST_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip comparisons with TensorFlow where it is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        missing = pytest.mark.skip(reason="TensorFlow is not installed: `make peers` adds it.")
        for item in items:
            if item.get_closest_marker("peers"):
                item.add_marker(missing)


def _clean_environment(home: Path, changes: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return kept | {"HOME": str(home), "PYTHONWARNINGS": "default"} | changes


def _run(
    command: list[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # With its children, which hold the pipes open.
        out, err = process.communicate()
        pytest.fail(f"{command} did not end within {timeout_s} s.\nstdout:\n{out}\nstderr:\n{err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in a process of its own, with a clean environment and home folder.

    The fixture is a function `run_script(program, *args, runner=(), env={}, timeout_s=120, python=sys.executable)`:
    `program` is a path, or source text that is written to `script.py` first; `runner` are Python's arguments before
    the program, such as `("-m", "tfdist_jax", "run")`. The program starts in the test's `tmp_path`.
    """
    home = tmp_path / "home"
    home.mkdir()

    def run(
        program: str | Path,
        *args: str,
        runner: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
        python: str = sys.executable,
    ) -> subprocess.CompletedProcess[str]:
        if isinstance(program, str):
            path = tmp_path / "script.py"
            path.write_text(textwrap.dedent(program))
        else:
            path = program
        command = [python, *runner, str(path), *args]
        return _run(command, cwd=tmp_path, env=_clean_environment(home, env or {}), timeout_s=timeout_s)

    return run


@pytest.fixture
def run_program(run_script) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a TensorFlow program by `tfdist-jax run`: `run_program(program, *args, devices=2, ...)` like `run_script`."""

    def run(program: str | Path, *args: str, devices: int | None = 2, **options) -> subprocess.CompletedProcess[str]:
        split = () if devices is None else ("--devices", str(devices))
        return run_script(program, *args, runner=("-m", "tfdist_jax", "run", *split), **options)

    return run


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Saving in the background stops before its end until the event is set."""
    event, finish = threading.Event(), _array_files.finish_writing
    monkeypatch.setattr(_array_files, "finish_writing", lambda folder: event.wait(60) and finish(folder))
    yield event
    event.set()
