"""Programs that are started often."""

import os

import forks
import pytest

from tfdist_jax._stateful import _staged_step


@pytest.fixture
def stages(monkeypatch):
    """Return the numbers of the devices of the stages that run, whose results lie there."""
    ran = []
    run = _staged_step._StageProgram.run

    def noting(program, values, called_host):
        token = run(program, values, called_host)
        results = [values.get(variable) for variable in program._stage.outputs]
        assert {device.id for result in results for device in result.devices()} <= {program._stage.device.id}
        ran.append(program._stage.device.id)
        return token

    monkeypatch.setattr(_staged_step._StageProgram, "run", noting)
    return ran


@pytest.fixture(scope="session")
def forking(starter, tmp_path_factory):
    """Return `forking(program)`, which returns `train`: it calls the program's `train` in a process with two devices.

    `train(*words, meanwhile=None)` returns the exit code; `meanwhile` gets the process's number while it runs. What
    trainings print is not kept.
    """

    def define(program):
        folder = tmp_path_factory.mktemp("forking")
        script = folder / "program.py"
        script.write_text(f"{program}\nimport sys\ntrain(*sys.argv[1:])\n")

        def train(*words, meanwhile=None):
            command = ["run", "--devices", "2", str(script), *map(str, words)]
            with open(os.devnull, "w") as out, (folder / "stderr").open("w+") as err:
                process = starter(forks.FACADE).start(
                    command, cwd=folder, env=dict(os.environ), stdout=out.fileno(), stderr=err.fileno()
                )
                if meanwhile is not None:
                    meanwhile(process.pid)
                code = process.wait()
                if code == 1:  # An error of Python's, which no test wants.
                    err.seek(0)
                    pytest.fail(err.read())
            return code

        return train

    return define
