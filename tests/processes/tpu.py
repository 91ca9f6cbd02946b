"""Programs that are compiled ahead of time for the chips of TPU slices, where there are none."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"


def libtpu_folder():
    """The folder to import libtpu from: beside the other packages, since JAX would look for a TPU at every start."""
    beside = Path(sys.prefix) / "libtpu"
    if beside.exists():
        return beside
    spec = importlib.util.find_spec("libtpu")
    return None if spec is None or spec.origin is None else Path(spec.origin).parents[1]


@pytest.fixture
def run_for_tpu(run_script):
    """Returns a function that runs a program with topologies as arguments, which prints JSON about each."""
    folder = libtpu_folder()
    if folder is None:
        pytest.skip("libtpu is not installed: `make peers` adds it where there is a package for this machine.")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    # Without a chip there is none to share: several tests may compile at a time.
    env = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

    def run(program, *topologies):
        ran = run_script(PROGRAMS / program, *topologies, env=env)
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout.splitlines()[-1])
        assert found.keys() == {*topologies}
        return found

    return run
