"""The demo's program, unchanged, under real TensorFlow and here."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits.py"
UNDER_TENSORFLOW = ROOT / "tests/programs/on_logical_devices.py"
STEPS = 20


@pytest.mark.exhaustive
@pytest.mark.peers
def test_the_demo_has_tensorflows_losses(run_script, run_prepared, tmp_path):
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    once = ["--epochs", "1", "--picture", str(tmp_path / "picture.png")]
    ran = run_prepared(DIGITS, *once, "--losses", str(ours), devices=4)
    assert ran.returncode == 0, ran.stderr
    ran = run_script(UNDER_TENSORFLOW, "4", str(DIGITS), *once, "--losses", str(theirs))
    assert ran.returncode == 0, ran.stderr
    losses = [json.loads(path.read_text()) for path in (ours, theirs)]
    for way in ("model.fit", "custom loop"):
        actual, expected = (run[way] for run in losses)
        assert len(actual) == len(expected) > STEPS
        np.testing.assert_allclose(actual[:STEPS], expected[:STEPS], atol=1e-5, rtol=0)
