"""Keras training under MirroredStrategy: the numbers of real TensorFlow.

Not compared, since TensorFlow cannot run them or is less exact: uneven first batches and gradient accumulation
(errors), BatchNormalization's moving statistics (they drift apart), the losses of single outputs in uneven batches.
"""

from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"
PARTS = 3


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_fit_evaluate_and_predict_have_tensorflows_numbers(part, run_script, run_program, tmp_path):
    ours, theirs = tmp_path / "ours.npz", tmp_path / "theirs.npz"
    cases, options = PROGRAMS / "keras_cases.py", (str(part), str(PARTS))
    for ran in (
        run_program(cases, str(ours), *options, devices=4, timeout_s=400),
        run_script(PROGRAMS / "on_logical_devices.py", "4", str(cases), str(theirs), *options, timeout_s=400),
    ):
        assert ran.returncode == 0, ran.stderr
        assert "replicas: 4" in ran.stdout
    actual, expected = np.load(ours), np.load(theirs)
    assert set(actual) == set(expected)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], atol=1e-5, rtol=0, err_msg=name)
