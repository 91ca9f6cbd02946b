"""Trainings on several workers, of which some are killed, frozen or asked to stop, end as if they had not been."""

import sys
from pathlib import Path

import pytest
from environment import LIMIT_S

sys.path.insert(0, str(Path(__file__).parent))  # `soak.py`, which is run as a script, has the same faults.

from faults import PROGRAMS, Training, faults_of

NUMBER = 4


@pytest.mark.slow("five starts of two workers, some of which freeze")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [pytest.param("fit", marks=pytest.mark.exhaustive), "loop"])
def test_a_training_ends_as_if_nothing_had_happened(name, tmp_path):
    whole = Training(name, tmp_path / "whole")
    faults = faults_of(0, list(PROGRAMS).index(name), NUMBER)
    training = None
    try:
        assert whole.wait(LIMIT_S) == 0, whole.log
        training = Training(name, tmp_path / "disturbed", restarts=NUMBER)
        for attempt, fault in enumerate(faults):
            training.strike(attempt, fault, LIMIT_S)
        assert training.wait(LIMIT_S) == 0, training.log
        assert training.end() == whole.end()
        assert f"restart {NUMBER} of {NUMBER}" in training.log
        assert training.left() == []
    finally:
        for one in (whole, training):
            if one is not None:
                one.kill()


def test_a_seed_chooses_the_faults():
    chosen = faults_of(3, 1, 40)
    assert faults_of(3, 1, 40) == chosen
    assert faults_of(4, 1, 40) != chosen != faults_of(3, 2, 40)
    assert {(fault.signal, fault.victims) for fault in chosen} == {
        (signal, victims) for signal in ("SIGKILL", "SIGSTOP", "SIGTERM") for victims in ((0,), (1,), (0, 1))
    }
    assert len({fault.phase for fault in chosen}) == 5
