"""Ctrl-C at any moment: what a step changes it has changed whole or not at all, and all of it goes on."""

import json
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"
# How often each of three kinds of training is interrupted at random.
FEW, MANY = "50", "700"
_ON_ITS_WAY = "all but the one on its way"


def found(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow("a step for each place, nine kinds of them")
@pytest.mark.parametrize("every", ["7", pytest.param("1", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_no_place_of_a_step_is_one_where_something_is_lost(run_program, devices, every):
    said = found(run_program(PROGRAMS / "interrupted_places.py", every, devices=devices))
    steps = {kind: said.pop(kind) for kind in ("loop", "checked", "native", "optimizer")}
    assert all(set(results) == {"whole"} and results["whole"] > 20 for results in steps.values()), steps
    assert len(said) == 5
    for results in said.values():
        assert results.keys() <= {"all", _ON_ITS_WAY}, said
        # Such places are the last few, where the element has been made.
        assert results["all"] > 5 * results.get(_ON_ITS_WAY, 0), said


@pytest.mark.slow("50 interrupts of each kind of training, at random times")
@pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_trainings_interrupted_at_random_go_on(run_program, devices, times):
    said = found(run_program(PROGRAMS / "interrupted_at_random.py", times, devices=devices))
    assert list(said.values()) == [{"whole": int(times)}] * 3, said
