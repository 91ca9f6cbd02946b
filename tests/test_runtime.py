import _thread
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import jax
import pytest
from environment import LIMIT_S

import tfdist_jax as td
from tfdist_jax import _runtime
from tfdist_jax._runtime import InFlight

PROGRAM = Path(__file__).parent / "programs/unsynchronised_steps.py"


def test_devices_cannot_be_added_once_jax_runs():
    jax.devices()
    with pytest.raises(RuntimeError, match="tfdist-jax run --devices 3"):
        td.use_cpu_devices(3)


def test_a_number_of_devices_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        td.use_cpu_devices(0)


@pytest.mark.one_in(2)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists a process's threads there")
@pytest.mark.parametrize(
    ("flags", "count", "least"),
    [("", -1, 1), ("", 1, 1), ("", 8, 16), ("--xla_force_host_platform_device_count=4", -1, 8)],
)
def test_several_virtual_devices_get_threads_for_their_collectives(flags, count, least):
    code = f"""
import os, pathlib, jax, tfdist_jax
jax.config.update("jax_num_cpu_devices", {count})
jax.jit(lambda x: x @ x)(jax.numpy.ones((100, 100)))
names = [thread.read_text() for thread in pathlib.Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names), os.environ.get("NPROC"))
"""
    env = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    threads = max(least, len(os.sched_getaffinity(0)))
    assert run_python(code, **env) == f"{threads} None", "processes that are started decide for themselves"
    assert run_python(code, NPROC="21", **env) == "21 21", "the user's own"


@pytest.mark.one_in(3)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the settings")
@pytest.mark.parametrize(
    ("setting", "is_kept"),
    [({}, True), ({"TFDIST_CPU_MALLOC": "off"}, False), ({"MALLOC_MMAP_THRESHOLD_": "131072"}, False)],
)
def test_memory_that_is_freed_is_kept_for_the_next_step(setting, is_kept):
    code = """
import os, resource, statistics, jax, numpy, tfdist_jax
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # With more, blocks are kept in threads' arenas, of 64 MB.
x = jax.device_put(numpy.ones(48 << 18, "f4"))
step, pages = jax.jit(lambda x: x + 1), []
for _ in range(80):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = jax.block_until_ready(step(x))
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(statistics.median(pages[40:]))  # At first, between small blocks, a few of this size come to lie unused.
"""
    new_pages = float(run_python(code, JAX_PLATFORMS="cpu", **setting))
    assert new_pages < 100 if is_kept else new_pages > 12_000, "48 MB are 12,288 pages"


def run_python(code, **env):
    """Return what a program prints in an environment without the setting."""
    base = {
        key: value for key, value in os.environ.items() if key != "NPROC" and not key.startswith(("MALLOC_", "GLIBC_"))
    }
    ran = subprocess.run([sys.executable, "-c", code], env=base | env, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("devices", [1, 2])
def test_a_program_ends_after_what_it_computes(run_script, devices):
    ran = run_script(f"""
        import atexit
        import jax, jax.numpy as jnp
        atexit.register(lambda: print("ended", results[0].is_ready()))  # Before JAX ends, and after what is registered below.
        import tfdist_jax as td
        td.use_cpu_devices({devices})
        x = jax.device_put(jnp.ones((800, 800)), jax.devices()[-1])
        compute = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, y: jnp.tanh(x @ y), x))
        compute(x).block_until_ready()
        results = [compute(x)]
    """)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "ended True\n"


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


def test_a_step_begins_when_those_of_other_threads_have_finished(monkeypatch):
    waited = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    monkeypatch.setattr(_runtime, "_UNDER_WAY", [])
    alone, together = InFlight(td.SingleDevice().mesh), InFlight(td.Mirrored().mesh)
    together.add("mine")
    for steps, expected in ((alone, []), (together, [["other's"]])):
        other = threading.Thread(target=steps.add, args=("other's",))
        other.start()
        other.join()
        with steps.turn():
            assert waited == expected
        with steps.turn():
            assert waited == expected


def test_what_a_step_calls_waits_for_no_step(monkeypatch):
    """In a thread of XLA's, which is not of the threading module."""
    waited, done = [], threading.Event()
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    monkeypatch.setattr(_runtime, "_UNDER_WAY", [])
    steps = InFlight(td.Mirrored().mesh)
    steps.add("calls")

    def call():
        with steps.turn():
            done.set()

    _thread.start_new_thread(call, ())
    assert done.wait(60)
    assert not waited


REST = [(2, "mirrored"), (4, "mirrored"), (2, "fsdp"), (8, "fsdp"), (2, "jit"), (4, "jit")]


@pytest.mark.one_in(3)
@pytest.mark.slow("a process that takes a thousand steps")
@pytest.mark.parametrize(
    ("devices", "strategy"),
    [(8, "mirrored"), (4, "fsdp"), (8, "jit"), *(pytest.param(*rest, marks=pytest.mark.exhaustive) for rest in REST)],
)
def test_a_thousand_unsynchronised_steps_do_not_hang(devices, strategy):
    two_cores = ["taskset", "-c", "0,1"] if os.path.exists("/usr/bin/taskset") and (os.cpu_count() or 1) > 1 else []
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [*two_cores, sys.executable, str(PROGRAM), str(devices), strategy]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("loss 0.")
