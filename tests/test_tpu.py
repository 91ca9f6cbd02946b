"""What the steps become on TPU, seen without one: compiled ahead of time for eight chips."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs/tpu_steps.py"


def libtpu_folder():
    """The folder to import libtpu from: beside the other packages, since JAX would look for a TPU at every start."""
    beside = Path(sys.prefix) / "libtpu"
    if beside.exists():
        return beside
    spec = importlib.util.find_spec("libtpu")
    return None if spec is None or spec.origin is None else Path(spec.origin).parents[1]


@pytest.mark.slow
def test_steps_compile_for_eight_tpu_chips(run_script):
    folder = libtpu_folder()
    if folder is None:
        pytest.skip("libtpu is not installed: `make peers` adds it where there is a package for this machine.")
    ran = run_script(PROGRAM, env={"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"})
    assert ran.returncode == 0, ran.stderr
    steps = json.loads(ran.stdout.splitlines()[-1])
    collectives = {
        name: (step["all-reduce"], step["all-gather"], step["reduce-scatter"]) for name, step in steps.items()
    }
    # One fused reduction; under FSDP the two kernels are gathered and the scattered gradients share a reduction.
    assert collectives == {"keras": (1, 0, 0), "custom loop": (1, 0, 0), "flax": (1, 2, 1)}
    # Weights and optimizer slots are updated in place; FSDP's share is an eighth, in the chips' padded tiles.
    assert steps["keras"]["alias_bytes"] > 0.95 * steps["keras"]["argument_bytes"]
    assert steps["flax"]["alias_bytes"] < 0.4 * 3 * 4 * (64 * 256 + 256 * 10)
    assert max(step["temp_bytes"] for step in steps.values()) < 2_000_000
