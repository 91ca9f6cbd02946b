"""Keras training under MirroredStrategy: the numbers of real TensorFlow, recorded.

Not compared, since TensorFlow cannot run them or is less exact: uneven first batches, gradient accumulation,
`steps_per_execution`, `jit_compile=True` and averages that overwrite the weights (errors), BatchNormalization's moving
statistics (they drift apart), the losses of single outputs in uneven batches, generators (their first batches are lost).

To record again, for each PART of 0, 1, 2, 3, 4:
python tests/programs/on_logical_devices.py 4 tests/programs/keras_cases.py tests/parity/recorded/keras_PART.npz PART 5
"""

from pathlib import Path

import numpy as np
import pytest
from environment import LIMIT_S

PROGRAMS = Path(__file__).parents[1] / "programs"
RECORDED = Path(__file__).parent / "recorded"
PARTS = 5
# Halves of float32: other sums are rounded otherwise.
TOLERANCES = {"bfloat16": 2e-2, "float16": 5e-4}


def assert_equal_results(actual, expected):
    assert set(actual) == set(expected)
    for name in expected:
        atol = TOLERANCES.get(name.partition("/")[0], 1e-5)
        np.testing.assert_allclose(actual[name], expected[name], atol=atol, rtol=1e-6, err_msg=name)


@pytest.mark.sampled(3)
@pytest.mark.slow("a fifth of all recorded trainings")
@pytest.mark.parametrize(
    "part", [part if part % 3 == 0 else pytest.param(part, marks=pytest.mark.exhaustive) for part in range(PARTS)]
)
def test_fit_evaluate_and_predict_have_tensorflows_numbers(part, run_prepared, tmp_path):
    ours, options = tmp_path / "ours.npz", (str(part), str(PARTS))
    ran = run_prepared(PROGRAMS / "keras_cases.py", str(ours), *options, devices=4)
    assert ran.returncode == 0, ran.stderr
    assert "replicas: 4" in ran.stdout
    assert_equal_results(np.load(ours), np.load(RECORDED / f"keras_{part}.npz"))


@pytest.mark.exhaustive
@pytest.mark.peers
@pytest.mark.slow("TensorFlow takes minutes for all cases")
@pytest.mark.timeout(4 * LIMIT_S)
def test_recording_is_what_tensorflow_computes(run_script, tmp_path):
    fresh, options = tmp_path / "fresh.npz", ("0", str(PARTS))
    cases = PROGRAMS / "keras_cases.py"
    ran = run_script(PROGRAMS / "on_logical_devices.py", "4", str(cases), str(fresh), *options, timeout_s=3 * LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    assert_equal_results(np.load(fresh), np.load(RECORDED / "keras_0.npz"))


def test_at_least_fifty_cases_are_recorded():
    names = {name.partition("/")[0] for part in range(PARTS) for name in np.load(RECORDED / f"keras_{part}.npz")}
    assert len(names) >= 50
