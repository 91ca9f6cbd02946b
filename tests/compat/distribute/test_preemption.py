"""SIGTERM to a custom loop with a `PreemptionCheckpointHandler`: what was trained is saved, whatever the program is doing."""

from pathlib import Path

import numpy as np
import pytest

from tfdist_jax._cluster import LOST_EXIT_CODE

PROGRAM = """
import hashlib, os, signal, sys, threading, time, warnings
import numpy as np
warnings.simplefilter("ignore")
import tensorflow as tf

def train(folder, how, moment, result):
    told = lambda: os.kill(os.getpid(), signal.SIGTERM)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    rows = np.random.default_rng(0).normal(size=(24, 4)).astype("f4")
    calls = 0

    def batches():
        for i in range(0, 24, 4):
            # A few batches are made before they are asked for.
            if moment == "data" and i == 16:
                told()
                time.sleep(60)
            yield rows[i : i + 4]

    data = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((4, 4), tf.float32))
    data = strategy.experimental_distribute_dataset(data.repeat(3))
    with strategy.scope():
        w = tf.Variable(tf.zeros([4]))
        rounds = tf.Variable(0, dtype=tf.int64)
        seen = tf.Variable(0, dtype=tf.int64, synchronization=tf.VariableSynchronization.ON_READ,
                           aggregation=tf.VariableAggregation.SUM)
        adam = tf.keras.optimizers.Adam(0.1)
    epoch, step = tf.Variable(0, dtype=tf.int64), tf.Variable(0, dtype=tf.int64)
    noise = tf.random.Generator.from_seed(7)
    iterator = iter(data)
    checkpoint = tf.train.Checkpoint(w=w, rounds=rounds, seen=seen, adam=adam, epoch=epoch, step=step, iterator=iterator,
                                     noise=noise)

    def exit_fn():
        open(result + ".exit_fn", "w").write(threading.current_thread().name)
        if moment != "exit_returns":
            sys.exit(7)

    options = {}
    if how == "own_exit" or moment == "exit_returns":
        options["exit_fn"] = exit_fn
    if how == "watch":
        options["termination_watcher_fn"] = lambda: os.path.exists(folder + ".notice")
        told = lambda: open(folder + ".notice", "w").close()
    if how == "grace":
        options["grace_period"] = 3.0
    config = tf.distribute.experimental.TerminationConfig(**options)
    if how == "manager":
        manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        handler = tf.distribute.experimental.PreemptionCheckpointHandler(None, manager, termination_config=config)
    else:
        handler = tf.distribute.experimental.PreemptionCheckpointHandler(None, checkpoint, folder, config)
    with open(result + ".begun", "a") as file:
        print(handler.total_run_calls, int(epoch), int(step), file=file)

    def replica(rows):
        if moment == "compilation" and calls == 5:
            # The main thread is in a call that lets no Python run, as while XLA compiles.
            threading.Timer(0.2, told).start()
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(rows, w) - rows[:, 0])) + noise.normal([]) * tf.reduce_sum(w)
        adam.apply_gradients([(tape.gradient(loss, w), w)])
        seen.assign_add(tf.cast(tf.shape(rows)[0], tf.int64))

    def train_step(iterator):
        strategy.run(replica, args=(next(iterator),))

    first_steps, later_steps = tf.function(train_step), tf.function(train_step)

    def one_step(iterator):
        nonlocal calls
        calls += 1
        (first_steps if calls < 5 else later_steps)(iterator)

    if moment == "before":
        told()
        time.sleep(60)
    while epoch.numpy() < 3:
        while step.numpy() < 6:
            handler.run(one_step, iterator)
            step.assign_add(1)
            rounds.assign_add(1)
            if moment == "step" and rounds.numpy() == 7:
                told()
        if moment == "evaluation" and epoch.numpy() == 1:
            told()
            time.sleep(60)
        if moment == "exit_returns" and epoch.numpy() == 1:
            told()
            deadline = time.monotonic() + 60
            while not os.path.exists(result + ".exit_fn") and time.monotonic() < deadline:
                time.sleep(0.01)
        epoch.assign_add(1)
        step.assign(0)
    np.savez(result, w=w.numpy(), seen=seen.numpy(), rounds=rounds.numpy(), calls=handler.total_run_calls,
             adam=[v.numpy() for v in adam.variables][-1])
"""


@pytest.fixture(scope="module")
def train(forking):
    """Return `train(folder, how, moment, result)`, which trains in a process of its own and returns its exit code."""
    return forking(PROGRAM)


def begun(result):
    """How many runs, epochs and steps each process has found at its beginning."""
    return [tuple(map(int, line.split())) for line in Path(f"{result}.begun").read_text().splitlines()]


def assert_ends_alike(result, wanted):
    with np.load(f"{result}.npz") as ours, np.load(f"{wanted}.npz") as theirs:
        assert ours.files == theirs.files
        for name in ours.files:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """What a training ends with that nobody has disturbed."""
    result = tmp_path_factory.mktemp("whole") / "whole"
    assert train(f"{result}.saved", "alone", "-", result) == 0
    return result


# How many calls, epochs and steps were saved; the data's source sleeps when a few batches are still on their way.
MOMENTS = {
    "step": (7, 1, 1),
    "data": (None, 0, None),
    "compilation": (4, 0, 4),
    "evaluation": (12, 1, 6),
    "before": (0, 0, 0),
}


@pytest.mark.slow("two trainings, and one for all")
@pytest.mark.parametrize(
    "moment",
    [
        "data",
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("compilation", "step", "evaluation", "before")),
    ],
)
def test_training_is_saved_whatever_it_is_doing(moment, train, whole, tmp_path):
    result, saved = tmp_path / "result", tmp_path / "saved"
    assert train(saved, "alone", moment, result) == LOST_EXIT_CODE
    assert train(saved, "alone", "-", result) == 0
    for found, wanted in zip(begun(result)[1], MOMENTS[moment], strict=True):
        assert found == wanted or (wanted is None and found > 0)
    assert_ends_alike(result, whole)


@pytest.mark.slow("two trainings")
@pytest.mark.parametrize(
    ("how", "moment"),
    [
        ("watch", "evaluation"),
        pytest.param("own_exit", "compilation", marks=pytest.mark.exhaustive),
        *(pytest.param(how, "evaluation", marks=pytest.mark.exhaustive) for how in ("grace", "manager", "own_exit")),
    ],
)
def test_a_handler_ends_a_busy_training_as_it_was_told_to(how, moment, train, tmp_path):
    result, saved = tmp_path / "result", tmp_path / "saved"
    assert train(saved, how, moment, result) == (7 if how == "own_exit" else LOST_EXIT_CODE)
    if how == "own_exit":
        thread = "MainThread" if moment == "evaluation" else "tfdist_jax preemption"
        assert (tmp_path / "result.exit_fn").read_text() == thread
    assert train(saved, "alone", "-", result) == 0
    assert begun(result)[1] == MOMENTS[moment]


@pytest.mark.slow("two trainings")
def test_a_training_whose_exit_function_returns_goes_on(train, whole, tmp_path):
    result = tmp_path / "result"
    assert train(tmp_path / "saved", "alone", "exit_returns", result) == 0
    assert (tmp_path / "result.exit_fn").read_text() == "MainThread"
    assert_ends_alike(result, whole)
    assert train(tmp_path / "saved", "alone", "-", result) == 0
    assert begun(result) == [(0, 0, 0), (12, 1, 6)]
    assert_ends_alike(result, whole)
