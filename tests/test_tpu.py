"""What the steps become on TPU, seen without one: compiled ahead of time for the chips of several hosts."""

import importlib.util
import json
import os
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


@pytest.mark.slow("compiles for three TPU slices")
def test_steps_compile_for_tpu_slices(run_script):
    """Eight chips of two hosts, a slice of eight hosts, and two slices of four hosts each."""
    folder = libtpu_folder()
    if folder is None:
        pytest.skip("libtpu is not installed: `make peers` adds it where there is a package for this machine.")
    chips_of_a_slice = {"v5e:2x4": 8, "v5e:4x8": 32, "v5e:4x4*2": 16}
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    ran = run_script(PROGRAM, *chips_of_a_slice, env={"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"})
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found.keys() == chips_of_a_slice.keys()
    for topology, steps in found.items():
        # One fused reduction; under FSDP two kernels and a bias are gathered, and their gradients scattered.
        assert {name: step["asked"] for name, step in steps.items()} == {
            "keras": [1, 0, 0],
            "custom loop": [1, 0, 0],
            "fsdp": [1, 3, 3],
        }
        # Every collective is over all chips of a slice.
        assert [step["group_sizes"] for step in steps.values()] == [[chips_of_a_slice[topology]]] * 3
        # Weights and optimizer slots are updated in place.
        assert steps["keras"]["alias_bytes"] > 0.95 * steps["keras"]["argument_bytes"]
        assert max(step["temp_bytes"] for step in steps.values()) < 2_000_000
    for steps in (found["v5e:2x4"], found["v5e:4x8"]):
        # XLA leaves that so, but for gathers that it takes apart to compute meanwhile, and scatters that it joins.
        assert [steps[name]["compiled"] for name in ("keras", "custom loop")] == [[1, 0, 0]] * 2
        all_reduces, all_gathers, reduce_scatters = steps["fsdp"]["compiled"]
        assert all_reduces == 1
        assert all_gathers >= 2
        assert reduce_scatters == 2
    # Three arrays of each parameter; the share of a chip, in padded tiles.
    state_bytes = 3 * 4 * (64 * 4096 + 4096 + 4096 * 512 + 512)
    assert found["v5e:2x4"]["fsdp"]["alias_bytes"] < 1.05 * state_bytes / 8
    assert found["v5e:4x8"]["fsdp"]["alias_bytes"] < 1.05 * state_bytes / 32
    # Between slices each chip sends its part of what the slice has reduced: a sixteenth, in padded tiles.
    (kind, size), *rest = found["v5e:4x4*2"]["keras"]["between_slices"]
    assert (kind, rest) == ("ALL_REDUCE", [])
    assert 85_067 / 16 <= size < 1.2 * 85_067 / 16
    kinds = [kind for kind, _ in found["v5e:4x4*2"]["fsdp"]["between_slices"]]
    assert sorted(kinds) == ["ALL_GATHER"] * 3 + ["ALL_REDUCE"] + ["REDUCE_SCATTER"] * 3
