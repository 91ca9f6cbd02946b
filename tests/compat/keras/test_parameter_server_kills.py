"""Trainings with parameter servers whose process is killed in the middle of an epoch, and go on when they are started again."""

import numpy as np
import pytest

PROGRAM = """
import os, signal, sys
import numpy as np
import tensorflow as tf

how, folder, result, killed_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
STEPS, EPOCHS = 5, 3
tf.keras.utils.set_random_seed(3)
jobs = {"worker": ["localhost:1", "localhost:2"], "ps": ["localhost:3", "localhost:4"]}
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(jobs))
strategy = tf.distribute.ParameterServerStrategy(resolver, max_staleness=0)
random = np.random.default_rng(0)
x, y = random.normal(size=(20, 4)).astype("f4"), random.normal(size=(20, 1)).astype("f4")
with strategy.scope():
    layers = [tf.keras.layers.Dense(8), tf.keras.layers.BatchNormalization(), tf.keras.layers.Dropout(0.2)]
    model = tf.keras.Sequential([tf.keras.Input((4,)), *layers, tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", steps_per_execution=2 if how == "executions" else 1)
    model.optimizer.build(model.trainable_variables)
steps = []

def ended(step):
    steps.append(step)
    if step == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)

class Steps(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        ended(int(self.model.optimizer.iterations))

def fit():
    backup = tf.keras.callbacks.BackupAndRestore(folder, save_freq=2, delete_checkpoint=False)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(20).batch(4)
    if how == "creator":
        make = lambda context: tf.data.Dataset.from_tensor_slices((x, y)).shuffle(20, seed=1).repeat().batch(4)
        data = tf.keras.utils.experimental.DatasetCreator(make)
    options = {"epochs": EPOCHS, "steps_per_epoch": STEPS if how == "creator" else None, "verbose": 0}
    return model.fit(data, callbacks=[backup, Steps()], **options).history["loss"]

def loop():
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)
    done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, total=total, done=done)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    manager.restore_or_initialize()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        weights = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        total.assign_add(loss)

    while done < STEPS * EPOCHS:
        for _ in range(min(2, STEPS * EPOCHS - int(done))):
            rows = np.arange(4) + 4 * (int(done) % STEPS)
            coordinator.schedule(step, args=(x[rows], y[rows]))
            done.assign_add(1)
            if done == killed_at:  # Two steps are on their way.
                os.kill(os.getpid(), signal.SIGKILL)
        coordinator.join()
        steps.append(int(model.optimizer.iterations))
        manager.save()
    return [float(total)]

losses = loop() if how == "loop" else fit()
values = [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)]
np.savez(result, *values, steps=steps, losses=losses[-1:])
"""


@pytest.mark.slow("three trainings in processes of their own")
# With the last step that was saved before: Keras counts one batch less at the start of an epoch if a call has several.
@pytest.mark.one_in(4)
@pytest.mark.parametrize(("how", "saved_at"), [("fit", 8), ("executions", 5), ("creator", 8), ("loop", 8)])
def test_a_training_that_was_killed_ends_with_the_same_weights(how, saved_at, run_prepared, tmp_path):
    def train(folder, killed_at=-1):
        result = tmp_path / f"{folder}.npz"
        ran = run_prepared(PROGRAM, how, str(tmp_path / folder), str(result), str(killed_at))
        if killed_at > 0:
            assert ran.returncode in (-9, 137) and not result.exists(), ran.stderr
            return None
        assert ran.returncode == 0, ran.stderr
        return np.load(result)

    expected = train("whole")
    train("killed", killed_at=9)
    again = train("killed")
    assert expected["steps"][-1] == again["steps"][-1] == 15
    assert again["steps"].tolist() == [step for step in expected["steps"] if step > saved_at]
    for name in set(expected.files) - {"steps"}:
        np.testing.assert_array_equal(again[name], expected[name], err_msg=name)
