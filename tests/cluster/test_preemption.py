"""A process that is asked to stop lets all save the same step and leave; started again they end as if nothing had been."""

import math
import os
import signal
import threading
import time

import jax
import numpy as np
import pytest
from environment import LIMIT_S
from waiting import wait_until

from tfdist_jax._cluster import LOST_EXIT_CODE, LateSave, Preemption

NATIVE = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import tfdist_jax as td
me = td.initialize().process_id
mesh = td.make_mesh({"data": jax.device_count()})
put = lambda x: jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), x)
step = jax.jit(lambda total, x: total + x.sum())
total, done = jnp.zeros(()), 0
with td.Preemption() as preemption:
    for i in range(int(sys.argv[1])):
        if preemption.stops():
            result("saved", [i, float(total)])
            preemption.leave()
        # Processes are any number of steps apart.
        total = step(total, put(np.full(1, i, "f4")))
        result("step", i)
        time.sleep(0.03 * me)
result("end", float(total))
"""

# What a thread saves while the program sleeps: after six steps both processes do, or one of them, whom the other waits for.
LATE = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import tfdist_jax as td
me, sleeper = td.initialize().process_id, sys.argv[1]
mesh = td.make_mesh({"data": jax.device_count()})
put = lambda x: jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), x)
step = jax.jit(lambda total, x: total + x.sum(), donate_argnums=0)
now = (0, jnp.zeros(()))

def late():
    steps, total = now
    if total.is_deleted() or not total.is_ready():
        return None
    total = float(total)
    return td.LateSave(lambda: result("late", [steps, total]), steps)

with td.Preemption(late=late) as preemption:
    for i in range(50):
        if preemption.stops():
            result("saved", [i, float(now[1])])
            preemption.leave()
        now = i + 1, step(now[1], put(np.full(1, i, "f4")))
        now[1].block_until_ready()
        if i == 5 and sleeper in ("both", str(me)):
            result("sleeps", i)
            time.sleep(600 if sleeper == "both" else 6)
"""

# A custom loop, and `fit`, of two workers; "told" appears when the signal may be sent.
HANDLER = """
import sys, time
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
result(f"pid{INDEX}", os.getpid())
x = np.random.default_rng(0).normal(size=(40, 4)).astype("f4")
with strategy.scope():
    w = tf.Variable(tf.zeros([4]))
    done = tf.Variable(0, dtype=tf.int64)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(
    strategy.cluster_resolver, tf.train.Checkpoint(w=w, done=done), "checkpoints")
began = int(done.numpy())
result(f"began{INDEX}", [began, handler.total_run_calls])

@tf.function
def train(rows):
    def step(rows):
        mean = tf.reduce_mean(rows, axis=0)
        w.assign(w * 0.9 + tf.distribute.get_replica_context().all_reduce("MEAN", mean))
    strategy.run(step, args=(rows,))

data = tf.data.Dataset.from_tensor_slices(x).repeat().batch(4).skip(began)
iterator = iter(strategy.experimental_distribute_dataset(data))
for _ in range(began, 30):
    handler.run(train, next(iterator))
    done.assign_add(1)
    result(f"step{INDEX}", int(done.numpy()))
    time.sleep(0.02)
    if sys.argv[1:] == ["evaluates"] and done.numpy() == 10 and not os.path.exists(f"evaluated{INDEX}"):
        open(f"evaluated{INDEX}", "w").close()
        result(f"evaluating{INDEX}", 10)
        time.sleep(600)
result(f"weights{INDEX}", [w.numpy().tolist()])
"""

FIT = """
import sys, time
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
result(f"pid{INDEX}", os.getpid())

class Note(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        result(f"began{INDEX}", [self.model._initial_epoch, int(self.model.optimizer.iterations.numpy())])
    def on_train_batch_end(self, batch, logs=None):
        result(f"step{INDEX}", int(self.model.optimizer.iterations.numpy()))
        time.sleep(0.02)
    def on_test_batch_end(self, batch, logs=None):
        result(f"validating{INDEX}", int(self.model.optimizer.iterations.numpy()))
        time.sleep(0.02)

tf.keras.utils.set_random_seed(5)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dropout(0.2),
                                 tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(46, 4)).astype("f4")
backup = tf.keras.callbacks.BackupAndRestore("backup")
y, batch_size, validation = x[:, :1], 8, (x, x[:, :1])
if sys.argv[1:]:
    rows = x
    def batches():
        for i in range(0, 46, 8):
            # Not while fit looks at the types, nor when the training goes on.
            if i == 40 and os.path.exists(f"step{INDEX}") and sys.argv[1] == "waits" and not os.path.exists(f"waiting{INDEX}"):
                result(f"waiting{INDEX}", 1)
                time.sleep(600)
            yield rows[i : i + 8], rows[i : i + 8, :1]
    types = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    x, y, batch_size, validation = tf.data.Dataset.from_generator(batches, output_signature=types), None, None, None
# Nothing is ever so much better: the rate gets smaller in each epoch.
plateau = tf.keras.callbacks.ReduceLROnPlateau("val_loss" if validation else "loss", min_delta=100, patience=1, factor=0.5)
model.fit(x, y, batch_size=batch_size, epochs=4, verbose=0, callbacks=[backup, Note(), plateau], validation_data=validation,
          validation_batch_size=2)
result(f"weights{INDEX}", [w.tolist() for w in model.get_weights()])
"""


def end_of(launcher):
    """Both workers' weights at the end, which are equal."""
    assert launcher.wait() == 0, launcher.log
    first, second = launcher.result("weights0"), launcher.result("weights1")
    assert first == second
    return [np.array(w) for w in first]


def tell(launcher, victim, name, at_least):
    """Send SIGTERM to a worker when it has come so far; return what it had come to."""
    deadline = time.monotonic() + LIMIT_S
    while launcher.wait_for_result(f"{name}{victim}") < at_least:
        assert time.monotonic() < deadline, launcher.log
        time.sleep(0.01)
    os.kill(launcher.result(f"pid{victim}"), signal.SIGTERM)
    return launcher.result(f"{name}{victim}")


def test_all_stop_before_the_same_step(cluster):
    first, second = cluster(2).start(NATIVE, "400")
    while second.wait_for_result("step") < 3:
        time.sleep(0.01)
    second.terminate()
    assert [first.wait(), second.wait()] == [LOST_EXIT_CODE] * 2, first.log + second.log
    assert first.result("saved") == second.result("saved")
    step, total = first.result("saved")
    assert total == sum(range(step)) * 2
    assert "is gone" not in first.log + second.log


def test_a_notice_after_the_last_step_is_not_waited_for(cluster):
    program = NATIVE.replace('result("end"', "result('done', 1)\ntime.sleep(600)\nresult(\"end\"")
    workers = cluster(2).start(program, "3")
    for worker in workers:
        worker.wait_for_result("done")
    workers[1].terminate()
    assert workers[1].wait() == -signal.SIGTERM
    assert workers[0].wait() == LOST_EXIT_CODE


def test_all_save_the_same_step_while_they_are_busy(cluster):
    workers = cluster(2).start(LATE, "both")
    for worker in workers:
        worker.wait_for_result("sleeps")
    workers[1].terminate()
    assert [worker.wait() for worker in workers] == [LOST_EXIT_CODE] * 2, workers[0].log + workers[1].log
    assert [worker.result("late") for worker in workers] == [[6, sum(range(6)) * 2]] * 2


def test_nobody_leaves_a_step_in_which_another_one_waits_for_it(cluster):
    workers = cluster(2).start(LATE, "1")
    workers[1].wait_for_result("sleeps")
    workers[1].terminate()
    assert [worker.wait() for worker in workers] == [LOST_EXIT_CODE] * 2, workers[0].log + workers[1].log
    assert [worker.result("saved") for worker in workers] == [[7, sum(range(7)) * 2]] * 2
    assert not any((worker.results / "late").exists() for worker in workers)


def fail():
    raise OSError("the disk is full")


@pytest.mark.parametrize(
    ("late", "message"),
    [(fail, "was not found"), (lambda: LateSave(fail), "has failed")],
    ids=["offering fails", "saving fails"],
)
def test_what_cannot_be_saved_late_is_told_and_left_to_the_next_step(late, message, caplog):
    told = threading.Event()
    with Preemption(watch=told.is_set, late=late) as preemption:
        assert not preemption.stops()
        told.set()
        wait_until(lambda: message in caplog.text)
        assert "the disk is full" in caplog.text
        assert preemption.stops()
        preemption.part()
        preemption.resume(math.inf)
        assert not preemption.stops()


def test_nobody_waits_for_answers_when_the_first_process_is_gone(caplog, monkeypatch):
    told, said = threading.Event(), []

    def say(value):
        said.append(value)
        if len(said) == 2:  # The first one agrees on the last step, the second one asks who can save.
            raise jax.errors.JaxRuntimeError("UNAVAILABLE")
        return [value]

    preemption = Preemption(watch=told.is_set, late=lambda: None)
    monkeypatch.setattr(preemption, "_say", say)
    told.set()
    wait_until(lambda: "not heard any more" in caplog.text)
    assert preemption.stops()
    preemption.part()
    preemption.resume(math.inf)
    preemption.abandon()


@pytest.mark.slow("two starts of two workers")
def test_a_handler_saves_during_an_evaluation(launch):
    launcher = launch(HANDLER, "--workers", "2", "--max-restarts", "1", args=("evaluates",))
    tell(launcher, 1, "evaluating", 10)
    end_of(launcher)
    assert launcher.result("began0") == launcher.result("began1") == [10, 10]


@pytest.mark.exhaustive
def test_fit_is_saved_while_all_workers_wait_for_data(launch):
    whole = end_of(launch(FIT, "--workers", "2", args=("data",)))
    launcher = launch(FIT, "--workers", "2", "--max-restarts", "1", args=("waits",))
    tell(launcher, 1, "waiting", 0)
    for weight, wanted in zip(end_of(launcher), whole, strict=True):
        np.testing.assert_array_equal(weight, wanted)
    assert "busy" in launcher.log and "restart 1 of 1" in launcher.log
    epoch, iterations = launcher.result("began0")
    assert epoch == 0 and 0 < iterations < 6


@pytest.mark.exhaustive
def test_a_worker_that_closes_late_is_not_taken_for_one_that_leaves(launch):
    program = FIT.replace(
        "class Note(tf.keras.callbacks.Callback):",
        """class Note(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        time.sleep(5 * (1 - INDEX))
""",
    )
    launcher = launch(program, "--workers", "2")
    end_of(launcher)
    assert "is saved" not in launcher.log


@pytest.mark.slow("up to eight starts of two workers")
@pytest.mark.parametrize(
    ("program", "name", "moments"),
    [
        (HANDLER, "step", (4, 17)),
        pytest.param(FIT, "step", (3, 14), marks=pytest.mark.exhaustive),
        pytest.param(FIT, "validating", (6, 18), marks=pytest.mark.exhaustive),
    ],
    ids=["handler", "fit", "validation"],
)
def test_a_training_that_is_asked_to_stop_goes_on_where_it_was(program, name, moments, launch):
    whole = end_of(launch(program, "--workers", "2"))
    launcher = launch(program, "--workers", "2", "--max-restarts", "2")
    for victim, moment in enumerate(moments):
        reached = tell(launcher, victim, name, moment)
        deadline = time.monotonic() + LIMIT_S
        while launcher.result("began0")[-1] < reached:
            assert time.monotonic() < deadline, launcher.log
            time.sleep(0.02)
        # Nothing is lost but steps that were under way: they are done in the end.
        assert launcher.result("began0")[-1] <= reached + 3
    for weight, wanted in zip(end_of(launcher), whole, strict=True):
        np.testing.assert_array_equal(weight, wanted)
    assert "restart 2 of 2" in launcher.log
    assert "is gone" not in launcher.log
