import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from environment import LIMIT_S

import tfdist_jax as td
from tfdist_jax._runtime import InFlight

PROGRAM = Path(__file__).parent / "programs/unsynchronised_steps.py"


def test_devices_cannot_be_added_once_jax_runs():
    jax.devices()
    with pytest.raises(RuntimeError, match="tfdist-jax run --devices 3"):
        td.use_cpu_devices(3)


def test_a_number_of_devices_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        td.use_cpu_devices(0)


def test_the_users_own_thread_setting_stays():
    code = "import os, tfdist_jax; print(os.environ['NPROC'])"
    run = lambda env: subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    base = {key: value for key, value in os.environ.items() if key != "NPROC"}
    assert run(base | {"NPROC": "3"}).stdout.strip() == "3"
    assert int(run(base).stdout) >= 32


def test_steps_in_flight_are_bounded_only_between_devices(monkeypatch):
    waited = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    alone, together = InFlight(td.SingleDevice().mesh), InFlight(td.Mirrored().mesh, limit=2)
    for i in range(5):
        alone.add(i)
        together.add(i)
        alone.wait()
        together.wait()
    assert waited == [0, 1, 2]


REST = [(2, "mirrored"), (4, "mirrored"), (2, "fsdp"), (8, "fsdp")]


@pytest.mark.slow("a process that takes a thousand steps")
@pytest.mark.parametrize(
    ("devices", "strategy"),
    [(8, "mirrored"), (4, "fsdp"), *(pytest.param(*rest, marks=pytest.mark.exhaustive) for rest in REST)],
)
def test_a_thousand_unsynchronised_steps_do_not_hang(devices, strategy):
    two_cores = ["taskset", "-c", "0,1"] if os.path.exists("/usr/bin/taskset") and (os.cpu_count() or 1) > 1 else []
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [*two_cores, sys.executable, str(PROGRAM), str(devices), strategy]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("loss 0.")
