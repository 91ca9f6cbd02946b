"""Trainings that are killed and go on with more or fewer workers train in each epoch on every sample once.

A variable counts how often the steps that have led to the model have used each sample; like the weights, it goes back to the
last checkpoint when a training is killed.
"""

import json
import random

import numpy as np
import pytest

EPOCHS, ROWS, BATCH = 3, 46, 6
STEPS = -(-ROWS // BATCH)

_BEGIN = f"""
import sys, time
import numpy as np, tensorflow as tf
EPOCHS, ROWS, BATCH = {EPOCHS}, {ROWS}, {BATCH}
folder = pathlib.Path(sys.argv[1])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = strategy.cluster_resolver.task_id

def make(context):
    mine = tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=3).shard(context.num_input_pipelines, context.input_pipeline_id)
    return mine.batch(context.get_per_replica_batch_size(BATCH))

def done(step):
    result("step", int(step))
    time.sleep(0.05)

def epoch_is_over(epoch, counts):
    if index == 0:
        new = folder / f"new{{epoch}}"
        new.write_text(json.dumps(np.asarray(counts).tolist()))
        new.rename(folder / f"epoch{{epoch}}")
"""

FIT = (
    _BEGIN
    + """
class Seen(tf.keras.layers.Layer):
    def build(self, shape):
        self.counts = self.add_weight(shape=(ROWS,), initializer="zeros", trainable=False, aggregation="sum")
    def call(self, x, training=False):
        if training:
            self.counts.assign_add(tf.reduce_sum(tf.one_hot(tf.cast(x[:, 0], tf.int32), ROWS), axis=0))
        return x

class Note(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        done(self.model.optimizer.iterations.numpy())
    def on_epoch_end(self, epoch, logs=None):
        epoch_is_over(epoch, self.model.layers[0].counts.numpy())

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), Seen(), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(1e-5), "mse")
x = np.arange(ROWS, dtype="f4")[:, None]
backup = tf.keras.callbacks.BackupAndRestore(folder / "backup", save_freq=3)
options = {"epochs": EPOCHS, "verbose": 0, "callbacks": [backup, Note()]}
if sys.argv[2] == "arrays":
    tf.keras.utils.set_random_seed(1)
    model.fit(x, x, batch_size=BATCH, **options)
elif sys.argv[2] == "own":
    with_targets = lambda rows: (tf.cast(rows, tf.float32)[:, None],) * 2
    model.fit(strategy.distribute_datasets_from_function(lambda context: make(context).map(with_targets)), **options)
else:
    model.fit(tf.data.Dataset.from_tensor_slices((x, x)).shuffle(ROWS, seed=7).batch(BATCH), **options)
"""
)

LOOP = (
    _BEGIN
    + """
if sys.argv[2] == "own":
    data = strategy.distribute_datasets_from_function(make)
elif sys.argv[2] == "own, off":
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    mine = tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=3).shard(workers, index)
    data = strategy.experimental_distribute_dataset(mine.batch(BATCH).with_options(options))
else:
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=3).batch(BATCH))
with strategy.scope():
    counts = tf.Variable(tf.zeros([ROWS]), aggregation=tf.VariableAggregation.SUM)
step, epoch = tf.Variable(0), tf.Variable(0)

@tf.function
def train(ids):
    strategy.run(lambda ids: counts.assign_add(tf.reduce_sum(tf.one_hot(ids, ROWS), axis=0)), args=(ids,))

checkpoint = tf.train.Checkpoint(counts=counts, step=step, epoch=epoch, iterator=iter(data))
manager = tf.train.CheckpointManager(checkpoint, folder / "checkpoints", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
while int(epoch) < EPOCHS:
    for ids in checkpoint.iterator:
        train(ids)
        step.assign_add(1)
        done(step)
        if int(step) % 3 == 0:
            manager.save()
    epoch_is_over(int(epoch), counts)
    epoch.assign_add(1)
    checkpoint.iterator = iter(data)
"""
)


def kill_at(workers, step, moments):
    """Kill a worker that has done a step; the others end by themselves."""
    victim = moments.choice(workers)
    while victim.wait_for_result("step") < step:
        assert victim.returncode is None, victim.log
    victim.kill()
    for worker in workers:
        assert worker.wait() != 0, worker.log


@pytest.mark.slow("up to three trainings, the last one of four workers")
@pytest.mark.parametrize(
    ("program", "data", "sizes"),
    [
        (FIT, "arrays", [(2, 1), (1, 3), (2, 2)]),
        pytest.param(FIT, "dataset", [(2, 1), (4, 1)], marks=pytest.mark.exhaustive),
        pytest.param(FIT, "own", [(2, 1), (2, 3)], marks=pytest.mark.exhaustive),
        pytest.param(LOOP, "same", [(2, 1), (4, 1), (1, 1)], marks=pytest.mark.exhaustive),
        (LOOP, "own", [(2, 1), (2, 3)]),
        pytest.param(LOOP, "own, off", [(2, 1), (2, 1)], marks=pytest.mark.exhaustive),
    ],
    ids=[
        "fit, arrays",
        "fit, dataset",
        "fit, data of each worker",
        "loop, same data",
        "loop, data of each worker",
        "loop, policy off",
    ],
)
def test_each_epoch_trains_on_every_sample_once(program, data, sizes, cluster, tmp_path):
    moments = random.Random(f"{data} {sizes}")
    for run, (workers, devices) in enumerate(sizes):
        if run and data.startswith("own"):
            (alone,) = cluster(1).start(program, str(tmp_path), data)
            assert alone.wait() == 1
            assert "2 process" in alone.log
        started = cluster(workers, devices).start(program, str(tmp_path), data)
        if run < len(sizes) - 1:
            kill_at(started, moments.randint(run * STEPS + 4, run * STEPS + STEPS + 1), moments)
        else:
            assert [worker.wait() for worker in started] == [0] * workers, started[0].log
    counts = [json.loads((tmp_path / f"epoch{epoch}").read_text()) for epoch in range(EPOCHS)]
    np.testing.assert_array_equal(counts, np.outer(range(1, EPOCHS + 1), np.ones(ROWS)))
    assert min(worker.result("step") for worker in started) > STEPS


def test_a_place_in_data_is_one_of_steps_of_the_same_size(cluster):
    program = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    def own(batch):
        make = lambda context: tf.data.Dataset.range(23 - 3 * context.input_pipeline_id).batch(batch)
        return strategy.distribute_datasets_from_function(make)
    data = {
        "same": lambda batch: strategy.experimental_distribute_dataset(tf.data.Dataset.range(46).batch(batch)),
        "own": own,
        "own, off": lambda batch: strategy.experimental_distribute_dataset(tf.data.Dataset.range(23).batch(batch).with_options(off)),
    }
    for name, make in data.items():
        iterator = iter(make(4))
        next(iterator), next(iterator)
        state = iterator.state()
        other = iter(make(4))
        other.restore_state(state)
        left = lambda steps: [np.concatenate(strategy.experimental_local_results(step)).tolist() for step in steps]
        try:
            iter(make(6)).restore_state(state)
        except ValueError as error:
            result(name, [state, str(error), left(iterator) == left(other) != []])
    """
    first, second = cluster(2).start(program)
    assert [first.wait(), second.wait()] == [0, 0], first.log
    for name, before, now in (("same", 4, 6), ("own", 8, 12), ("own, off", 4, 6)):
        state, message, goes_on = first.result(name)
        assert second.result(name) == [state, message, goes_on]
        assert f"first step had {before} rows; here it has {now}." in message
        assert goes_on
