"""Programs that are started often."""

import contextlib
import subprocess
import sys

import pytest

# The parent process loads everything once; each training is a fork of it, made before JAX has started any thread.
_LOOP = """
import os, sys
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        train(*line.split())
        sys.stdout.flush()
        os._exit(0)
    print(pid, flush=True)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="session")
def forking(tmp_path_factory):
    """Return `forking(program)`, inside which the program's `train` is called in processes of its own, on two devices.

    It gives `train(*words, meanwhile=None)`, which returns the exit code; `meanwhile` gets the process's number. Trainings
    print nothing, as the one who calls them is told so.
    """

    @contextlib.contextmanager
    def start(program):
        script = tmp_path_factory.mktemp("forking") / "program.py"
        script.write_text(program + _LOOP)
        command = [sys.executable, "-m", "tfdist_jax", "run", "--devices", "2", str(script)]
        # As for users: no plugins of the test session.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def train(*words, meanwhile=None):
            print(*words, file=stdin, flush=True)
            pid = int(stdout.readline())
            if meanwhile is not None:
                meanwhile(pid)
            return int(stdout.readline())

        yield train
        stdin.close()
        assert process.wait(30) == 0
        stdout.close()

    return start
