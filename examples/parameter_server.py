"""Handwritten digits with parameter servers: a custom loop over words, then `model.fit` and an evaluation beside it.

A plain TensorFlow program but for `fit`, which TensorFlow's own Keras 3 does not have with parameter servers. On JAX, all workers and
servers in one process: `tfdist-jax run examples/parameter_server.py`; each in its own:
`tfdist-jax launch --workers 2 --parameter-servers 2 examples/parameter_server.py`, also with `--evaluator`. A training that was broken off
goes on in its folder; each new one needs a folder of its own.
"""

import argparse
import os
import socket
import sys
import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 64
PIXELS, VALUES = 64, 17
WIDTH = 16


def digits():
    """The 1,797 images of scikit-learn as integers [n, 64] in 0..16, four fifths of them to train on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    x, y = images[order].astype("int64"), labels[order].astype("int64")
    split = len(x) * 4 // 5
    return (x[:split], y[:split]), (x[split:], y[split:])


def as_words(x):
    """Write images as texts, a word for each pixel: its number and its value."""
    return np.array([[f"{pixel}:{value}" for pixel, value in enumerate(image)] for image in x])


def make_cluster(workers=2, servers=2):
    """Start workers and servers in this process; return the resolver that knows them."""
    jobs = {"worker": workers, "ps": servers}
    spec = tf.train.ClusterSpec({job: [f"localhost:{free_port()}" for _ in range(n)] for job, n in jobs.items()})
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = workers + 1  # Each worker holds a thread while it waits for data.
    for job, count in jobs.items():
        for i in range(count):
            tf.distribute.Server(spec, job_name=job, task_index=i, config=config, protocol="grpc")
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")


def free_port():
    """Return a port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def train_with_loop(strategy, train, test, epochs, folder):
    """Learn the digits as bags of words; return what `evaluate_both` does."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        vocabulary = [f"{pixel}:{value}" for pixel in range(PIXELS) for value in range(VALUES)]
        lookup = tf.keras.layers.StringLookup(vocabulary=vocabulary, num_oov_indices=0)
        # The partitioner cuts the table: its parts are on one server after another.
        random = tf.random.Generator.from_seed(1)
        table = tf.Variable(random.normal((len(vocabulary), WIDTH), stddev=0.1))
        kernel = tf.Variable(random.normal((WIDTH, 10), stddev=0.3))
        optimizer = tf.keras.optimizers.Adam(0.02)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        variables = [*table.variables, kernel]
        optimizer.build(variables)
    print("The table's parts:", [(part.shape.as_list(), part.device) for part in table.variables])

    def dataset_fn(context):
        # Each worker has all images, in an order of its own.
        data = tf.data.Dataset.from_tensor_slices((as_words(train[0]), train[1])).shuffle(len(train[0])).repeat()
        return data.batch(BATCH).map(lambda x, y: (lookup(x), y)).prefetch(2)

    def per_worker_dataset_fn():
        return strategy.distribute_datasets_from_function(dataset_fn)

    def logits(ids):
        return tf.reduce_sum(tf.nn.embedding_lookup(table, ids), axis=1) @ kernel

    @tf.function
    def train_step(iterator):
        def replica(ids, labels):
            with tf.GradientTape() as tape:
                outputs = logits(ids)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            accuracy.update_state(labels, outputs)
            return loss

        losses = strategy.run(replica, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    epochs_done = tf.Variable(tf.constant(0), trainable=False)
    checkpoint = tf.train.Checkpoint(table=table, kernel=kernel, optimizer=optimizer, epochs_done=epochs_done)
    manager = tf.train.CheckpointManager(checkpoint, os.path.join(folder, "loop"), max_to_keep=2)
    manager.restore_or_initialize()
    steps = len(train[0]) // BATCH
    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    for epoch in range(int(epochs_done.numpy()), epochs):
        accuracy.reset_state()
        losses = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(steps)]
        coordinator.join()
        epochs_done.assign(epoch + 1)
        manager.save()
        print(f"epoch {epoch + 1}/{epochs} - last loss: {losses[-1].fetch():.4f} - accuracy: {accuracy.result():.4f}")

    test_data = tf.data.Dataset.from_tensor_slices((as_words(test[0]), test[1])).batch(BATCH)
    found = evaluate_both(strategy, logits, test_data.map(lambda x, y: (lookup(x), y)))
    table.assign(tf.zeros_like(table))
    checkpoint.restore(manager.latest_checkpoint)
    print("A row after restoring:", np.round(table[7][:4].numpy(), 3))
    return found


def evaluate_both(strategy, logits, data):
    """Return the accuracy as the coordinator finds it, which reads variables from their servers, and as the workers do."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    direct = tf.keras.metrics.SparseCategoricalAccuracy()
    for ids, labels in data:
        direct.update_state(labels, logits(ids))
    with strategy.scope():
        by_workers = tf.keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def test_step(iterator):
        ids, labels = next(iterator)
        by_workers.update_state(labels, logits(ids))

    # Each worker goes through the data on its own, and may take more batches than another: the result is nearly that of
    # the coordinator, not exactly.
    iterator = iter(coordinator.create_per_worker_dataset(data.repeat()))
    for _ in range(4 * int(data.cardinality())):
        coordinator.schedule(test_step, args=(iterator,))
    coordinator.join()
    return float(direct.result()), float(by_workers.result())


def make_model():
    """A small network."""
    model = tf.keras.Sequential(
        [tf.keras.Input((PIXELS,)), tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(10)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def scaled(x):
    return x.astype("float32") / (VALUES - 1)


def train_with_fit(strategy, train, epochs, folder):
    """Train with Keras, each worker with data of its own, and save each epoch."""

    def dataset_fn(context):
        data = tf.data.Dataset.from_tensor_slices((scaled(train[0]), train[1])).shuffle(len(train[0])).repeat()
        return data.batch(BATCH)

    with strategy.scope():
        model = make_model()
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(os.path.join(folder, "fit", "ckpt-{epoch}"), save_weights_only=True),
        tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup")),
    ]
    creator = tf.keras.utils.experimental.DatasetCreator(dataset_fn)
    model.fit(creator, epochs=epochs, steps_per_epoch=len(train[0]) // BATCH, callbacks=callbacks, verbose=2)


class Results(tf.keras.callbacks.Callback):
    """Says what an evaluation has found, and at which step."""

    def on_test_end(self, logs=None):
        step = int(self.model.optimizer.iterations)  # pyright: ignore[reportOptionalMemberAccess]
        print(f"after step {step}: test accuracy {(logs or {})['accuracy']:.4f}", flush=True)


def evaluate(test, epochs, folder):
    """Evaluate what `fit` saves, until the last epoch: while it trains, in a task of its own, or afterwards."""
    data = tf.data.Dataset.from_tensor_slices((scaled(test[0]), test[1])).batch(BATCH)
    saved = os.path.join(folder, "fit")
    tf.keras.utils.SidecarEvaluator(make_model(), data, saved, max_evaluations=epochs, callbacks=[Results()]).start()


def coordinate(resolver, folder, epochs):
    """Be the coordinator: train both ways, from where another process has stopped."""
    finished = os.path.join(folder, "finished")
    if os.path.exists(finished):  # An evaluator would find the last checkpoint of that one, and end.
        sys.exit(
            f"The folder {folder!r} has a training that is finished. Give another one as `--folder`, or delete it."
        )
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=16 << 10, max_shards=2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    train, test = digits()
    found = train_with_loop(strategy, train, test, epochs, folder)
    print("custom loop: test accuracy {:.4f} as the coordinator, {:.4f} as the workers find it".format(*found))
    train_with_fit(strategy, train, epochs, folder)
    if "evaluator" not in resolver.cluster_spec().jobs:
        evaluate(test, epochs, folder)
    with open(finished, "w"):
        pass


def main():
    """Be the task of the cluster that TF_CONFIG names, or all of a small cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--folder", default=os.environ.get("TRAIN_FOLDER"), help="for checkpoints, seen by all tasks")
    args = parser.parse_args()
    if "TF_CONFIG" not in os.environ:
        coordinate(make_cluster(), args.folder or tempfile.mkdtemp(), args.epochs)
        return
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    folder = args.folder or "parameter_server_checkpoints"
    if resolver.task_type in ("worker", "ps"):
        spec = resolver.cluster_spec()
        tf.distribute.Server(spec, job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc").join()
    elif resolver.task_type == "evaluator":
        evaluate(digits()[1], args.epochs, folder)
    else:
        coordinate(resolver, folder, args.epochs)


if __name__ == "__main__":
    main()
