"""Trainings on several workers, of which some are killed, frozen or asked to stop, end as if they had not been."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `soak.py`, which is run as a script, has the same faults.

from faults import PROGRAMS, choose_faults, launch, read_end


@pytest.mark.exhaustive
@pytest.mark.slow("up to five starts of two workers, some of which freeze")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("loop", 2),
        pytest.param("loop", 4, marks=pytest.mark.exhaustive),
        pytest.param("fit", 4, marks=pytest.mark.exhaustive),
    ],
)
def test_a_training_ends_as_if_nothing_had_happened(chaos, name, number, tmp_path):
    assert name in PROGRAMS
    whole = launch(chaos, name, tmp_path / "whole")
    faults = choose_faults(chaos, number)
    whole.succeed()
    training = launch(chaos, name, tmp_path / "disturbed", restarts=number)
    for fault in faults:
        training.strike(fault)
    assert read_end(training.succeed()) == read_end(whole)
    assert training.starts == number + 1
