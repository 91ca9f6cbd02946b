"""Parameter servers as TensorFlow's tutorial uses them, with one worker, so that all is in one order."""

import os
import sys

import numpy as np
import tensorflow as tf
from _clusters import make_cluster
from _facts import error, show

partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=32, max_shards=2)
strategy = tf.distribute.ParameterServerStrategy(make_cluster(workers=1, servers=2), variable_partitioner=partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

WORDS = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
LIKED = ["ironman", "hulk", "spiderman"]
contexts = []
with strategy.scope():
    table = tf.Variable(np.linspace(-1, 1, 8 * 3).reshape(8, 3).astype("float32"), name="table")
    kernel = tf.Variable([[0.5], [-0.25], [1.0]], name="kernel")
    seen = tf.Variable(0, dtype=tf.int64, trainable=False, name="seen")
    totals = [tf.Variable(0.0, trainable=False), tf.Variable(0.0, trainable=False)]
show("kinds", [type(table).__name__, isinstance(kernel, tf.Variable)])
show("parts", [part.shape.as_list() for part in table.variables])
show("on", [part.device for part in table.variables])
show("names", [part.name for part in table.variables])
show("whole", [table.shape.as_list(), table.dtype.name, table.name])


def make_lookup():
    keys = tf.constant(WORDS)
    values = tf.range(len(WORDS), dtype=tf.int64)
    return tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(keys, values), num_oov_buckets=1)


def dataset_fn(context):
    contexts.append([context.num_input_pipelines, context.input_pipeline_id, context.get_per_replica_batch_size(4)])
    lookup = make_lookup()
    words = np.array(WORDS + ["unknown"])[np.arange(24) * 5 % 8]
    labels = np.isin(words, LIKED).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((words, labels))
    return data.map(lambda word, label: (lookup.lookup(word), label)).repeat().batch(4).prefetch(2)


def logits(ids):
    return tf.squeeze(tf.nn.embedding_lookup(table, ids) @ kernel, axis=1)


@tf.function
def step_fn(iterator):
    def replica_fn(ids, labels):
        variables = [*table.variables, kernel]
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits(ids))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=4)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.5 * tf.convert_to_tensor(gradient))
        seen.assign_add(tf.size(ids, tf.int64))
        return loss

    ids, labels = next(iterator)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_fn, args=(ids, labels)), axis=None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


per_worker_dataset = coordinator.create_per_worker_dataset(per_worker_dataset_fn)
iterator = iter(per_worker_dataset)
show("elements", [(spec.shape.as_list(), spec.dtype.name) for spec in per_worker_dataset.element_spec])
show("context", contexts[0])
losses = []
for epoch in range(3):
    losses += [coordinator.schedule(step_fn, args=(iterator,)) for _ in range(6)]
    coordinator.join()
    show(f"losses of epoch {epoch}", [float(loss.fetch()) for loss in losses[-6:]])
show("type fetched", type(losses[0].fetch()).__name__)
show("seen", seen)
show("table", tf.convert_to_tensor(table))
show("rows", [table[0], table[5, 1], table[2:6:3], tf.gather(table, [7, 0])])
show("kernel", kernel)

checkpoint = tf.train.Checkpoint(table=table, kernel=kernel, seen=seen)
manager = tf.train.CheckpointManager(checkpoint, "loop", max_to_keep=1)
manager.save()
path = manager.save()
show("saved", [pair for pair in sorted(tf.train.list_variables(path)) if pair[0][0] != "_"])
kept = tf.convert_to_tensor(table).numpy()
table.assign(tf.zeros([8, 3]))
kernel.assign(tf.zeros([3, 1]))
show("zeros", tf.reduce_sum(tf.abs(tf.convert_to_tensor(table))))
checkpoint.restore(manager.latest_checkpoint).assert_consumed()
show("restored", [bool((tf.convert_to_tensor(table).numpy() == kept).all()), kernel])
error("of another shape", lambda: tf.train.Checkpoint(table=tf.Variable(tf.zeros([9, 3]))).restore(path))

# Evaluated by the coordinator.
lookup = make_lookup()
ids = lookup.lookup(tf.constant(WORDS))
show("logits", logits(ids))
show("accuracy", np.mean((logits(ids).numpy() > 0) == np.isin(WORDS, LIKED)))


# Evaluated by the worker.
def evaluation_fn():
    return tf.data.Dataset.from_tensor_slices((ids, np.isin(WORDS, LIKED))).batch(3)


@tf.function
def evaluate(iterator):
    for _ in range(3):
        ids, labels = next(iterator)
        hits = tf.cast(tf.equal(logits(ids) > 0, labels), tf.float32)
        totals[0].assign_add(tf.reduce_sum(hits))
        totals[1].assign_add(tf.cast(tf.size(hits), tf.float32))


evaluation = iter(coordinator.create_per_worker_dataset(evaluation_fn))
coordinator.schedule(evaluate, args=(evaluation,))
coordinator.join()
show("accuracy of the worker", totals[0] / totals[1])


def go_on():
    coordinator.schedule(evaluate, args=(evaluation,))
    coordinator.join()


error("no data left", go_on)
show("and on", coordinator.schedule(step_fn, args=(iterator,)).fetch() < losses[0].fetch())
sys.stdout.flush()
os._exit(0)  # TensorFlow's servers in this process would wait.
