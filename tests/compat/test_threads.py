"""Any number of threads: nothing crashes, no change is lost, no reader finds an array that is gone."""

import json
import threading
from pathlib import Path

import pytest

import tfdist_jax.compat.tensorflow as tf

PROGRAMS = Path(__file__).parents[1] / "programs"
# Operations of each of eight threads.
FEW, MANY = "500", "10000"


def found(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("devices", [1, 4])
def test_no_change_of_variables_is_lost(run_prepared, devices, count):
    said = found(run_prepared(PROGRAMS / "threads_of_variables.py", count, devices=devices))
    assert said.pop("errors") == []
    assert set(said.values()) == {True}, said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("devices", [1, 2])
def test_one_model_is_built_trained_and_used_by_several_threads(run_prepared, devices):
    assert found(run_prepared(PROGRAMS / "threads_of_one_model.py", devices=devices)) == {"errors": [], "steps": True}


def test_one_of_several_threads_that_call_a_model_for_the_first_time_builds_it(run_prepared):
    assert found(run_prepared(PROGRAMS / "threads_of_first_calls.py")) == {"errors": []}


@pytest.mark.parametrize("way", ["call", "predict"])
def test_data_of_a_training_may_be_made_by_another_new_model_in_another_thread(run_prepared, way):
    done = run_prepared(PROGRAMS / "threads_of_data.py", way)
    assert found(done) == {"steps": 6}


def test_a_change_that_an_uncompiled_step_would_undo_is_an_error():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = tf.Variable(0.0)
    change = lambda: variable.assign_add(1.0)

    def step():
        if float(tf.constant(1.0)) > 0:  # Takes the value, so that it cannot be compiled.
            variable.assign_add(1.0)
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()

    with pytest.raises(RuntimeError, match=r"Another thread .* tf.function"):
        strategy.run(step)
    assert float(variable) == 1.0


def test_scope_of_a_module_is_each_threads_own():
    module = tf.Module(name="shared")
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with module.name_scope:
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=stay)
    other.start()
    assert entered.wait(60)
    with module.name_scope:
        pass
    leave.set()
    other.join(60)
    assert tf.Variable(0.0, name="v").name == "v:0"
    with module.name_scope:
        assert tf.Variable(0.0, name="v").name == "shared/v:0"
