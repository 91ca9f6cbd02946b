"""`tfdist-jax launch`: what processes print, on the terminal and in logs."""

import os
import resource
import textwrap
import time

import pytest


def test_only_the_first_process_is_on_the_terminal_and_all_are_in_logs(launch):
    program = "import sys\nprint(f'out of {INDEX}\\n', end='')\nprint(f'err of {INDEX}\\n', end='', file=sys.stderr)"
    launcher = launch(program, "--workers", "2")
    assert launcher.wait() == 0
    assert sorted(launcher.log.splitlines()) == ["err of 0", "out of 0"]
    for i in range(2):
        log = (launcher.results / f"tfdist_logs/worker_{i}.log").read_text()
        assert sorted(log.splitlines()) == [f"err of {i}", f"out of {i}"]


def test_on_request_the_output_of_all_is_shown_with_their_names(launch):
    launcher = launch("print('line 1\\nline 2')", "--workers", "2", "--verbose", "--log-dir", "elsewhere/logs")
    assert launcher.wait() == 0
    assert sorted(launcher.log.splitlines()) == [f"[worker {i}] line {j}" for i in (0, 1) for j in (1, 2)]
    assert (launcher.results / "elsewhere/logs/worker_1.log").read_text() == "line 1\nline 2\n"


def test_logs_part_what_was_printed_before_a_restart_from_what_comes_after(launch):
    program = """
        import sys
        attempt = int(os.environ["TFDIST_JAX_RESTART"])
        print("start", attempt, end="", flush=True)
        sys.exit(attempt < 1)
    """
    launcher = launch(program, "--workers", "1", "--max-restarts", "1")
    assert launcher.wait() == 0, launcher.log
    log = (launcher.results / "tfdist_logs/worker_0.log").read_text()
    assert log == "start 0\ntfdist-jax launch: restart 1 of 1.\nstart 1"


def test_a_terminal_stays_one_and_its_end_does_not_stop_the_work(launch):
    program = """
        import sys, time
        print("terminal" if sys.stdout.isatty() else "file", flush=True)
        while not pathlib.Path(os.environ["RESULTS"], "closed").exists(): time.sleep(0.1)
        for i in range(200): print("x" * 1000, flush=True)
    """
    ours, theirs = os.openpty()
    launcher = launch(program, "--workers", "1", stdout=theirs)
    os.close(theirs)
    said = b""
    while b"terminal" not in said:
        said += os.read(ours, 1000)
    os.close(ours)
    (launcher.results / "closed").touch()
    assert launcher.wait() == 0, launcher.log
    assert (launcher.results / "tfdist_logs/worker_0.log").read_text().count("x") == 200_000


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the disk is full for the launcher only")
def test_a_log_that_cannot_be_written_stops_no_work_and_its_output_goes_on_on_the_terminal(launch):
    program = """
        import time
        if INDEX:
            print("x" * 200_000, flush=True)
        result(f"ready{INDEX}", True)
        while not pathlib.Path(os.environ["RESULTS"], "full").exists(): time.sleep(0.05)
        os.write(1, b"worker %d goes on\\nwith its work\\n" % INDEX)  # At once: the two workers' lines stay together.
        sys.exit(3 * INDEX)
    """
    launcher = launch("import sys\n" + textwrap.dedent(program), "--workers", "2")
    for i in range(2):
        launcher.wait_for_result(f"ready{i}")
    log = launcher.results / "tfdist_logs/worker_1.log"
    while log.stat().st_size <= 200_000:
        time.sleep(0.02)
    resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    (launcher.results / "full").touch()
    assert launcher.wait() == 3
    assert launcher.log.count("worker_1.log cannot be written: File too large. The output goes on here.") == 1
    assert "[worker 1] worker 1 goes on\n[worker 1] with its work\n" in launcher.log
    assert "worker 1 has ended with exit code 3. The end of its output:\n" in launcher.log
    assert "worker 0 goes on" in launcher.log and "worker 0 goes on" in (log.parent / "worker_0.log").read_text()


def test_logs_are_not_written_through_what_others_have_put_in_their_place(launch, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    program = """
        result(f"ready{INDEX}", True)
        log = pathlib.Path(os.environ["RESULTS"], f"tfdist_logs/worker_{INDEX}.log")
        if not int(os.environ["TFDIST_JAX_RESTART"]):
            log.unlink()
            log.symlink_to(sys.argv[1]) if INDEX else os.mkfifo(log)
            sys.exit(1)
        print(f"worker {INDEX} goes on")
    """
    options = ("--workers", "2", "--max-restarts", "1")
    launcher = launch("import sys\n" + textwrap.dedent(program), *options, args=(str(mine),))
    (launcher.results / "tfdist_logs").mkdir(exist_ok=True)
    assert launcher.wait() == 0, launcher.log
    assert mine.read_text() == "mine"
    assert "worker 0 goes on" in launcher.log and "[worker 1] worker 1 goes on" in launcher.log
    assert launcher.log.count("cannot be written") == 2


def test_a_folder_for_logs_that_cannot_be_made_is_one_line(launch, tmp_path):
    (tmp_path / "file").touch()
    launcher = launch("", "--workers", "2", "--log-dir", str(tmp_path / "file" / "logs"))
    assert launcher.wait() == 2
    (line,) = launcher.log.splitlines()
    assert line.startswith("tfdist-jax launch: no logs can be written to") and "Name a folder with --log-dir" in line
