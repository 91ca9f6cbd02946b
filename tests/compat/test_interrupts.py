"""Ctrl-C at any moment: what a step changes it has changed whole or not at all, and all of it goes on."""

import json
from pathlib import Path

import jax
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax._internals import current_trace, eval_trace
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.testing import interruptions

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
def test_no_place_of_a_step_is_one_where_something_is_lost(run_prepared, devices, every):
    said = found(run_prepared(PROGRAMS / "interrupted_places.py", every, devices=devices))
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
def test_trainings_interrupted_at_random_go_on(run_prepared, devices, times):
    said = found(run_prepared(PROGRAMS / "interrupted_at_random.py", times, devices=devices))
    assert list(said.values()) == [{"whole": int(times)}] * 3, said


@pytest.mark.slow("a new model is traced for each place")
@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize(
    "name, every",
    [
        ("train_on_batch", "997"),
        pytest.param("train_on_batch", "13", marks=pytest.mark.exhaustive),
        pytest.param("evaluate", "13", marks=pytest.mark.exhaustive),
        pytest.param("predict", "13", marks=pytest.mark.exhaustive),
    ],
)
def test_an_interrupt_while_a_step_is_traced_leaves_no_scope_open(run_prepared, name, every):
    said = found(run_prepared(PROGRAMS / "interrupted_tracing.py", name, every, timeout_s=3 * LIMIT_S))
    assert said["different"] == {} and said["interrupted"] > 8, said


def test_a_function_whose_tracing_is_interrupted_anywhere_leaves_no_scope_open():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = tf.Variable(0.0)

    def add():
        variable.assign_add(1.0)

    def run():
        strategy.run(add)

    places = 0
    for interruption in interruptions(4001):
        step = tf.function(run)
        with interruption:
            step()
        places += 1
        assert current_scope() is None and tf.distribute.get_strategy() is not strategy
        assert current_trace() is eval_trace and not jax.sharding.get_abstract_mesh().axis_names
    before = float(variable)
    step()
    assert places > 10 and float(variable) == before + 1
