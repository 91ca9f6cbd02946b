"""Trainings under a launcher, and what happens to them."""

import os
import signal

import psutil
import pytest

from tfdist_jax.testing import Chaos, EndedError, Moment, StuckError, slowed

# Goes on with the line after the last one that a start before has written; ends after the 60th.
COUNTING = """
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with open(f"lines_{index}", "a+b", buffering=0) as file:
    file.seek(0)
    for number in range(len(file.read().splitlines()), 60):
        file.write(b"line\\n")
        print("line", number, "of start", os.environ["TFDIST_JAX_RESTART"])
        time.sleep(0.05)
"""
LINES = Moment(r"line \d", up_to=5, delay_s=0.05)


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def lines_of(training):
    return [len(path.read_text().splitlines()) for path in sorted(training.folder.glob("lines_*"))]


@pytest.mark.one_in(3)
@pytest.mark.slow("four starts of a process")
@pytest.mark.parametrize("kind", ["kill", "terminate", "interrupt"])
def test_each_fault_that_ends_a_process_ends_a_start(chaos, program, kind):
    training = chaos.launch(program(COUNTING), max_restarts=3)
    faults = chaos.strike(training, 3, kinds=[kind], at=[LINES])
    training.succeed()
    assert training.starts == 4 and lines_of(training) == [60]
    assert [fault.kind for fault in faults] == [kind] * 3
    assert chaos.happened == [f"training0: {fault}" for fault in faults]
    for start, fault in enumerate(faults):
        assert training.output_of(fault.processes[0], start=start).count(f"of start {start}") >= fault.count
    assert "restart 3 of 3" in training.output
    assert training.leftovers() == []


@pytest.mark.exhaustive
@pytest.mark.slow("a frozen process counts as dead after 10 s")
def test_a_frozen_process_is_started_again(chaos, program):
    options = ["--heartbeat-timeout", "1", "--stop-timeout", "1"]
    training = chaos.launch(program(COUNTING), max_restarts=1, options=options)
    chaos.strike(training, kinds=["freeze"], at=[LINES])
    training.succeed()
    assert training.starts == 2 and lines_of(training) == [60]


def test_a_stalled_or_slow_process_goes_on(chaos, program):
    training = chaos.launch(program(COUNTING))
    faults = chaos.strike(training, 3, kinds=["stall", "slow"], at=[LINES])
    training.succeed()
    assert training.starts == 1 and lines_of(training) == [60]
    assert all(f" for {fault.seconds:.2f} s" in str(fault) for fault in faults)


@pytest.mark.skipif(not psutil.LINUX, reason="limits of another process are Linux's")
def test_a_disk_that_is_full_for_a_process(chaos, program):
    text = (
        "import sys, time\nwhile True:\n  open('big', 'wb').write(bytes(1 << 17))\n  print('written'); time.sleep(0.01)"
    )
    training = chaos.launch(program(text))
    (fault,) = chaos.strike(training, kinds=["fill"], at=[Moment("written", up_to=3)])
    assert training.wait() == 1
    assert "File too large" in training.output
    assert (training.folder / "big").stat().st_size == fault.free_bytes < 1 << 16


def test_the_same_seed_chooses_the_same(tmp_path):
    def choose(seed):
        chaos = Chaos(seed, tmp_path)
        kinds, moments = (
            ["kill", "freeze", "stall", "fill"],
            [Moment(delay_s=10), Moment("epoch", 3), Moment("step", up_to=20)],
        )
        return [chaos.choose_fault(["worker 0", "worker 1"], kinds, moments) for _ in range(200)]

    faults = choose(0)
    assert choose(0) == faults != choose(1)
    assert {fault.kind for fault in faults} == {"kill", "freeze", "stall", "fill"}
    assert {fault.processes for fault in faults} == {("worker 0",), ("worker 1",), ("worker 0", "worker 1")}
    assert {fault.count for fault in faults if fault.pattern == "step"} == set(range(1, 21))
    assert all(fault.delay_s <= 0.1 for fault in faults if fault.pattern == "step")
    assert max(fault.delay_s for fault in faults if not fault.pattern) > 5


@pytest.mark.exhaustive
def test_processes_can_be_hit_by_hand(chaos, program):
    training = chaos.launch(program(COUNTING), workers=2, max_restarts=1)
    training.wait_for_output("line 3", "worker 1")
    process = training.process("worker 1")
    assert process.environ()["TFDIST_JAX_RESTART"] == "0"
    with slowed(process, share=0):
        assert process.is_running()
    process.send_signal(signal.SIGKILL)
    training.wait_for_output("restart 1 of 1")
    assert set(training.names()) == {"worker 0", "worker 1"}
    assert lines_of(training.succeed()) == [60, 60]


def test_what_differs_in_the_environment_is_what_was_asked_for(chaos, program, monkeypatch):
    monkeypatch.setenv("INHERITED", "1")
    monkeypatch.setenv("REMOVED", "1")
    text = "import os, sys\nprint([os.environ.get(name) for name in ('INHERITED', 'REMOVED', 'ADDED')], sys.argv[1:])"
    training = chaos.launch(program(text), "--epochs", "3", env={"REMOVED": None, "ADDED": "2"})
    assert "['1', None, '2'] ['--epochs', '3']" in training.succeed().output
    again = chaos.launch(program("print(__name__, 'again')"), folder=training.folder)
    assert again.succeed().output_of() == "__main__ again\n"


def test_a_module_can_be_launched(chaos, tmp_path):
    training = chaos.launch("-m", "timeit", "-n", "1", "-r", "1", "pass")
    assert "1 loop, best of 1" in training.succeed().output


def test_a_training_that_ends_too_soon_says_what_could_not_happen(chaos, program):
    training = chaos.launch(program("print('line 0')"))
    with pytest.raises(EndedError, match=r"(?s)has ended with exit code 0 before this: kill worker 0.*'line'.*line 0"):
        chaos.strike(training, kinds=["kill"], at=[Moment("line", up_to=10**6)])


def test_a_training_that_fails_or_leaves_something_behind_has_no_success(chaos, program):
    with pytest.raises(EndedError, match=r"(?s)training0 has ended with exit code 3\..*some reason"):
        chaos.launch(program("import sys; print('some reason'); sys.exit(3)")).succeed()
    text = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    training = chaos.launch(program(text))
    assert training.wait() == 0
    training.stop()
    assert training.leftovers() == []


def test_a_training_that_hangs_is_an_error_and_ends_with_the_test(program, tmp_path):
    with Chaos(0, tmp_path, limit_s=15) as chaos:
        training = chaos.launch(program("import time; print('begun'); time.sleep(600)"))
        with pytest.raises(StuckError, match=r"(?s)no sign of life for 15 s before this: the end.*begun"):
            training.succeed()
        assert len(training.leftovers()) >= 2
    assert training.leftovers() == []


def test_what_cannot_be_launched_or_done_is_an_error(chaos, program):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.py"):
        chaos.launch("nowhere.py")
    with pytest.raises(EndedError, match="needs a number"):
        chaos.launch(program(""), workers=0).succeed()
    with pytest.raises(ValueError, match=r"`kinds` has to be some of .*'freeze'.*, but is \('freezes',\)"):
        chaos.strike(chaos.launch(program("")), kinds=["freezes"])
    assert os.getpid() not in [process.pid for process in chaos.launch(program("")).succeed().leftovers()]
