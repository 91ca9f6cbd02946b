"""`tfdist-jax launch`: one program, several processes, no orphans."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environment import LIMIT_S

from tfdist_jax._cluster._peer_monitor import LOST_EXIT_CODE
from tfdist_jax.cli import _launch

JOIN = """
import sys, time
import numpy as np
import tfdist_jax as td
mine = td.initialize()
from jax.experimental import multihost_utils
gather = lambda: multihost_utils.process_allgather(np.array([INDEX]))[:, 0].tolist()
gather()
"""


ATTEMPT = 'attempt = int(os.environ["TFDIST_JAX_RESTART"])\n'


WAIT = """
import subprocess, sys, time
result(f"pid{INDEX}", os.getpid())
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
result(f"pid_of_child{INDEX}", child.pid)
result(f"ready{INDEX}", True)
"""


def ready(launcher, workers=2, name="ready"):
    for i in range(workers):
        launcher.wait_for_result(f"{name}{i}")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but that nobody has asked about still has a number.
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return os.path.exists("/proc") is False


def nobody_is_left(launcher):
    pids = [launcher.result(path.name) for path in launcher.results.glob("pid*")]
    assert len(pids) >= 2
    deadline = time.monotonic() + LIMIT_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.05)
    return True


def test_each_process_has_its_own_task_and_arguments(launch):
    program = (
        JOIN
        + 'task = json.loads(os.environ["TF_CONFIG"])["task"]\nresult(f"seen{INDEX}", [task, gather(), sys.argv[1:]])\n'
    )
    launcher = launch(program, "--workers", "3", args=("--epochs", "2", "-m"))
    assert launcher.wait() == 0, launcher.log
    for i in range(3):
        assert launcher.result(f"seen{i}") == [{"type": "worker", "index": i}, [0, 1, 2], ["--epochs", "2", "-m"]]


def test_a_program_that_fixes_its_index_is_told_and_gets_its_own(launch):
    program = """
        import json, os
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": ["localhost:12345", "localhost:12346"]}, "task": {"type": "worker", "index": 0}}
        )
        import tensorflow as tf, tfdist_jax as td
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        result(f"seen{INDEX}", [resolver.task_id, td.initialize().process_id])
    """
    launcher = launch(program, "--workers", "2", "--verbose")
    assert launcher.wait() == 0, launcher.log
    assert [launcher.result(f"seen{i}") for i in range(2)] == [[0, 0], [1, 1]]
    said = re.findall(
        r"\[worker (\d)\].*sets TF_CONFIG itself, to worker 0 of 2.*It runs as worker 1 of 2", launcher.log
    )
    assert said == ["1"]


def test_processes_are_joined_before_the_program_starts_jax(launch):
    program = "import jax\nresult(f'seen{INDEX}', [jax.process_index(), jax.process_count(), jax.device_count()])"
    launcher = launch(program, "--workers", "2")
    assert launcher.wait() == 0, launcher.log
    assert [launcher.result(f"seen{i}") for i in range(2)] == [[0, 2, 2], [1, 2, 2]]


def test_what_a_process_starts_does_not_join(launch):
    program = """
        import subprocess, sys
        pathlib.Path("inner.py").write_text("import jax; print(jax.process_count())")
        ran = subprocess.run([sys.executable, "-m", "tfdist_jax", "run", "inner.py"], capture_output=True, text=True)
        result(f"seen{INDEX}", ran.stdout)
    """
    launcher = launch(program, "--workers", "2")
    assert launcher.wait() == 0, launcher.log
    assert [launcher.result(f"seen{i}") for i in range(2)] == ["1\n", "1\n"]


def test_each_process_has_its_devices(launch):
    program = JOIN + "import jax; result(f'seen{INDEX}', [jax.local_device_count(), jax.device_count()])"
    launcher = launch(program, "--workers", "2", "--devices-per-worker", "3")
    assert launcher.wait() == 0, launcher.log
    assert [launcher.result(f"seen{i}") for i in range(2)] == [[3, 6], [3, 6]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("sys.exit(7)", 7, "worker 1 has ended with exit code 7"),
        ("1 / 0", 1, "worker 1 has ended with exit code 1.*ZeroDivisionError: division by zero"),
        ("os.kill(os.getpid(), 9)", 137, "worker 1 has ended with signal SIGKILL"),
    ],
)
def test_the_exit_code_is_that_of_the_process_that_failed(launch, end, code, words):
    launcher = launch(f"{JOIN}\nif INDEX == 1: {end}\ngather()", "--workers", "3")
    assert launcher.wait() == code, launcher.log
    assert re.search(words, launcher.log, re.DOTALL), launcher.log


def test_processes_that_end_at_different_times_are_no_failure(launch):
    launcher = launch("import time; time.sleep(3 * INDEX)", "--workers", "2")
    assert launcher.wait() == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", [0, 1])
def test_after_a_failure_all_start_again(launch, victim):
    program = f"{ATTEMPT}{JOIN}\nif attempt < 2 and INDEX == {victim}: os.kill(os.getpid(), 9)\ngather()\n"
    program += "result(f'attempt{INDEX}', attempt)"
    launcher = launch(program, "--workers", "2", "--max-restarts", "2")
    assert launcher.wait() == 0, launcher.log
    assert [launcher.result(f"attempt{i}") for i in range(2)] == [2, 2]
    assert "restart 2 of 2" in launcher.log


def test_restarts_come_to_an_end(launch):
    launcher = launch(f"{ATTEMPT}import sys; sys.exit(3 + attempt)", "--workers", "2", "--max-restarts", "1")
    assert launcher.wait() == 4
    assert "restart 1 of 1" in launcher.log


@pytest.mark.slow("waits for a frozen process")
def test_a_frozen_process_makes_all_start_again(launch):
    program = f"{ATTEMPT}{JOIN}{WAIT}\nif attempt: sys.exit()\nwhile True: gather(); time.sleep(0.01)"
    launcher = launch(
        program, "--workers", "2", "--max-restarts", "1", "--heartbeat-timeout", "3", "--stop-timeout", "2"
    )
    ready(launcher)
    os.kill(launcher.result("pid1"), signal.SIGSTOP)
    assert launcher.wait() == 0, launcher.log
    assert nobody_is_left(launcher)


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "waitid"), reason="The system does not tell that a process is stopped.")
@pytest.mark.slow("waits for a frozen process")
def test_a_process_that_is_frozen_when_the_others_have_ended_makes_all_start_again(launch):
    program = f"""
{ATTEMPT}
import signal, time
result(f"pid{{INDEX}}", os.getpid())
if INDEX == 0 and not attempt:
    other = pathlib.Path(os.environ["RESULTS"], "pid1")
    while not other.exists() or pathlib.Path("/proc", other.read_text()).exists():
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    launcher = launch(program, "--workers", "2", "--max-restarts", "1", "--heartbeat-timeout", "3")
    assert launcher.wait() == 0, launcher.log
    assert "worker 0 has been stopped for 8 s and is killed" in launcher.log


def test_sigterm_is_passed_on_and_the_exit_code_comes_back(launch):
    # Who leaves first takes the other one with it.
    told = "result(f'told{INDEX}', True), time.sleep(1), os._exit(42)"
    handler = f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: ({told}))\n"
    launcher = launch(handler + WAIT + "time.sleep(600)", "--workers", "2", "--max-restarts", "5")
    ready(launcher)
    launcher.terminate()
    assert launcher.wait() == 42
    assert launcher.result("told0")
    assert launcher.result("told1")
    assert nobody_is_left(launcher)


def test_ctrl_c_ends_everything(launch):
    launcher = launch(WAIT + "time.sleep(600)", "--workers", "2")
    ready(launcher)
    os.kill(launcher.pid, signal.SIGINT)
    assert launcher.wait() == 130, launcher.log
    assert "KeyboardInterrupt" in launcher.log
    assert nobody_is_left(launcher)


def test_the_end_of_the_terminal_ends_the_work_unless_it_is_ignored(launch):
    program = WAIT + "while not pathlib.Path(os.environ['RESULTS'], 'end').exists(): time.sleep(0.1)"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        launcher = launch(program, "--workers", "2", afresh=True)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As `nohup` does.
        ignoring = launch(program, "--workers", "2", afresh=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    for one in (launcher, ignoring):
        ready(one)
        os.kill(one.pid, signal.SIGHUP)
    assert launcher.wait() == 128 + signal.SIGHUP, launcher.log
    assert nobody_is_left(launcher)
    (ignoring.results / "end").touch()
    assert ignoring.wait() == 0, ignoring.log


def test_who_does_not_listen_is_killed(launch):
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    launcher = launch(deaf + WAIT + "time.sleep(600)", "--workers", "2", "--stop-timeout", "1")
    ready(launcher)
    launcher.terminate()
    assert launcher.wait() == 137
    assert nobody_is_left(launcher)


def test_other_signals_are_passed_on_and_end_nothing(launch):
    program = "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: result(f'told{INDEX}', True))\n"
    program += (
        "result(f'ready{INDEX}', True)\nwhile not pathlib.Path(os.environ['RESULTS'], 'end').exists(): time.sleep(0.1)"
    )
    launcher = launch(program, "--workers", "2")
    ready(launcher)
    os.kill(launcher.pid, signal.SIGUSR1)
    ready(launcher, name="told")
    (launcher.results / "end").touch()
    assert launcher.wait() == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_killed_launcher_leaves_nobody_behind(launch, is_frozen):
    launcher = launch(WAIT + "time.sleep(600)", "--workers", "2")
    ready(launcher)
    if is_frozen:
        os.kill(launcher.result("pid1"), signal.SIGSTOP)
    launcher.kill()
    launcher.wait()
    assert nobody_is_left(launcher)


def test_what_a_process_leaves_behind_ends_with_it(launch):
    launcher = launch(WAIT, "--workers", "2")
    assert launcher.wait() == 0
    assert nobody_is_left(launcher)


def test_modules_of_the_working_directory_are_not_imported(tmp_path):
    """They may be anybody's; a script's own folder counts, as in Python."""
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    (elsewhere / "mine.py").write_text("value = 5")
    (elsewhere / "script.py").write_text(
        "import sys, mine, jax; print(mine.value, sys.path[0], len(jax.__version__) > 3)"
    )
    for name in ("tfdist_jax", "jax", "numpy", "keras", "random", "sitecustomize"):
        (here / f"{name}.py").write_text("import os; os.write(2, b'the working directory'); os._exit(9)")
    # With -m Python itself would look here first.
    command = [
        str(Path(sys.executable).with_name("tfdist-jax")),
        "launch",
        "--workers",
        "2",
        str(elsewhere / "script.py"),
    ]
    ran = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"5 {elsewhere} True\n", "")


def test_processes_of_one_start_share_a_secret(launch):
    launcher = launch("result(f'secret{INDEX}', os.environ['TFDIST_CLUSTER_SECRET'])", "--workers", "2")
    assert launcher.wait() == 0, launcher.log
    secrets = {launcher.result(f"secret{i}") for i in range(2)}
    assert len(secrets) == 1 and len(secrets.pop()) == 64


def test_an_error_of_any_length_reaches_the_others(launch):
    program = (
        JOIN + "if INDEX:\n    raise ValueError('begin' + '\\u00e9\\U0001f600' * 500_000 + 'end')\ntime.sleep(600)"
    )
    launcher = launch(program, "--workers", "2")
    assert launcher.wait() in (1, LOST_EXIT_CODE)
    said = (launcher.results / "tfdist_logs/worker_0.log").read_text()
    assert re.search(r"worker 1 is gone: ValueError: begin.* characters\) \.\.\. .*end\.", said), said[-500:]


def test_machines_meet_by_their_names(launch, cluster):
    hosts = ",".join(cluster(2).addresses)
    program = ATTEMPT + JOIN + "result(f'seen{INDEX}', gather())"
    one, two = [launch(program, "--hosts", hosts, "--index", str(i)) for i in range(2)]
    assert (one.wait(), two.wait()) == (0, 0), one.log + two.log
    assert (one.result("seen0"), two.result("seen1")) == ([0, 1], [0, 1])


def test_machines_start_again_together(launch, cluster):
    hosts = ",".join(cluster(2).addresses)
    program = (
        ATTEMPT
        + JOIN
        + "if not attempt and INDEX: os.kill(os.getpid(), 9)\nresult(f'seen{INDEX}', [attempt, gather()])"
    )
    started = [launch(program, "--hosts", hosts, "--index", str(i), "--max-restarts", "1") for i in range(2)]
    assert [launcher.wait() for launcher in started] == [0, 0], started[0].log + started[1].log
    assert [launcher.result(f"seen{i}") for i, launcher in enumerate(started)] == [[1, [0, 1]]] * 2


def test_a_machine_that_never_comes_is_named(launch, cluster):
    hosts = cluster(2).addresses
    launcher = launch("", "--hosts", ",".join(hosts), "--index", "0", "--start-timeout", "3")
    assert launcher.wait() == 1
    assert f"tfdist-jax run: 1 of 2 processes did not arrive: worker 1 ({hosts[1]})" in launcher.log
    assert "Traceback" not in launcher.log


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--hosts", "a,b"), "--hosts and --index belong together"),
        (("--workers", "2", "--index", "0"), "--hosts and --index belong together"),
        (("--hosts", "a,b", "--index", "2"), r"this process is worker 2, but its cluster has 2 task\(s\)"),
        (("--hosts", "a,a", "--index", "0"), "worker 0 and worker 1 the same address a:2222"),
        (("--workers", "0"), "needs a number, 1 or more, got '0'"),
        (("--workers", "2", "--max-restarts", "-1"), "needs a number, 0 or more, got '-1'"),
        (("--workers", "2", "--stop-timeout", "x"), "needs a number of seconds above 0, got 'x'"),
        (("--workers", "2", "--start-timeout", "inf"), "needs a time that has an end, got 'inf'"),
        ((), "one of the arguments --workers --hosts is required"),
    ],
)
def test_wrong_options_say_what_is_wrong(launch, options, words):
    launcher = launch("", *options)
    assert launcher.wait() == 2
    assert re.search(words, launcher.log), launcher.log


def test_a_program_that_is_not_there_is_said_once(launch):
    launcher = launch("", "--workers", "2", "nowhere.py")
    assert launcher.wait() == 2
    assert launcher.log.count("'nowhere.py'") == 1


@pytest.mark.parametrize(
    ("visible", "workers", "each", "expected"),
    [
        ("0,1,2,3", 2, None, ["0,1", "2,3"]),
        ("4,5,6,7", 2, 1, ["4", "5"]),
        ("0,1", 1, None, [None]),
        ("0,1", 1, 1, ["0"]),
        ("", 3, 2, [None, None, None]),
        ("-1", 2, 1, [None, None]),
        ("3, 4,-1,5", 2, None, ["3", "4"]),
    ],
)
def test_gpus_are_shared_out(monkeypatch, visible, workers, each, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    assert _launch._gpus_by_worker(workers, each) == expected


def test_too_few_gpus_are_an_error(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    with pytest.raises(ValueError, match=r"2 workers with 1 GPU.* need 2, but there are 1"):
        _launch._gpus_by_worker(2, None)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert _launch._gpus_by_worker(2, None) == [None, None]


@pytest.mark.slow("two launches of two processes")
def test_processes_of_one_machine_share_compiled_programs(launch, tmp_path):
    count = """
from jax import monitoring
events = []
monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
"""
    told = 'result(f"counts{INDEX}", [events.count(f"cache_{name}") for name in ("hits", "misses")])\n'
    folder, counts = tmp_path / "programs", []
    for _ in range(2):
        launcher = launch(count + JOIN + told, "--workers", "2", "--compilation-cache", str(folder))
        assert launcher.wait() == 0, launcher.log
        counts.append([launcher.result(f"counts{i}") for i in range(2)])
        for own in folder.iterdir():
            (own / "reload_problem").write_text("")  # Whatever processor this is.
    first, second = counts
    assert all(kept for _, kept in first)
    assert second == [[loaded + kept, 0] for loaded, kept in first]


@pytest.mark.parametrize(
    ("jobs", "each", "expected"),
    [
        (["chief", "worker", "worker", "ps", "ps"], None, ["", "0,1", "2,3", "", ""]),
        (["chief", "worker", "worker", "ps", "evaluator"], 1, ["", "0", "1", "", "2"]),
        (["worker", "worker", "evaluator"], 1, ["0", "1", "2"]),
    ],
)
def test_those_who_compute_have_the_gpus(monkeypatch, jobs, each, expected):
    monkeypatch.setattr(_launch, "_gpus", lambda: ["0", "1", "2", "3"])
    assert _launch._gpus_by_process(jobs, each) == expected


def test_servers_see_what_they_would_without_gpus(monkeypatch):
    monkeypatch.setattr(_launch, "_gpus", list)
    assert _launch._gpus_by_process(["chief", "worker", "ps"], None) == [None] * 3


def test_a_group_whose_workers_have_all_failed_for_good_fails(launch):
    program = """
    import sys, time
    role = json.loads(os.environ["TFDIST_JAX_CLUSTER"])["task"]["type"]
    if role == "worker":
        sys.exit(7)
    time.sleep(600)
    """
    launcher = launch(program, "--workers", "2", "--parameter-servers", "1")
    assert launcher.wait() == 7, launcher.log
    assert "worker 1 stays away" in launcher.log
