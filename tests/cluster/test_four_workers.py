"""Four workers: fit, evaluate and predict, a custom loop, and data of which each worker has another amount."""

import numpy as np
import pytest

_SAME = """
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(22, 3)).astype("f4"), rng.integers(0, 3, 22)
    with strategy.scope():
        ones = tf.keras.initializers.Constant(0.1)
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4, "tanh", kernel_initializer=ones),
                                     tf.keras.layers.Dense(3, kernel_initializer=ones)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    data = {"x": x, "y": y, "batch_size": 8, "epochs": 2, "verbose": 0, "shuffle": False}
    history = model.fit(**data, class_weight={0: 2.0, 2: 0.5}, validation_data=(x[:7], y[:7]), validation_batch_size=4).history
    more = model.fit(**data, sample_weight=np.linspace(0.0, 2.0, 22)).history
    result("fit", [history, more])
    result("evaluate", model.evaluate(x, y, batch_size=8, verbose=0))
    result("predict", model.predict({"x": x}["x"], batch_size=8, verbose=0).tolist())
    pairs = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(6))
    result("distributed", [model.evaluate(pairs, verbose=0), model.fit(pairs, validation_data=pairs, verbose=0).history])

    @tf.function
    def step(batch):
        def replica(rows, labels):
            with tf.GradientTape() as tape:
                each = tf.keras.losses.sparse_categorical_crossentropy(labels, model(rows), from_logits=True)
                mean = tf.nn.compute_average_loss(each, global_batch_size=6)
            model.optimizer.apply_gradients(zip(tape.gradient(mean, model.trainable_variables), model.trainable_variables))
            return mean
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)
    result("loop", [float(step(batch)) for batch in pairs])
    result("weights", [w.tolist() for w in model.get_weights()])
"""


@pytest.mark.exhaustive
def test_four_workers_compute_what_one_process_with_four_devices_does(cluster):
    group, (alone,) = cluster(4), cluster(1, devices_per_worker=4).start(_SAME)
    assert alone.wait() == 0, alone.log
    workers = group.start(_SAME)
    assert group.wait() == [0] * 4, "".join(worker.log for worker in workers)
    for name in ("fit", "evaluate", "predict", "distributed", "loop", "weights"):
        found = [worker.result(name) for worker in workers]
        assert all(one == found[0] for one in found), name
        _assert_close(found[0], alone.result(name), name)


def _assert_close(found, wanted, name):
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            _assert_close(found[key], value, f"{name} {key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for i, value in enumerate(wanted):
            _assert_close(found[i], value, f"{name} {i}")
    else:
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6), name


@pytest.mark.slow("four processes")
def test_four_workers_with_different_amounts_of_data_of_their_own(cluster):
    counts = [5, 3, 0, 8]
    program = f"""
    import numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    count = {counts}[me]
    x = 10.0 * me + np.arange(count, dtype="f4")[:, None]
    y = (np.arange(count) + me) % 3
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(3, kernel_initializer="ones")])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metric = tf.keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="weighted")
        model.compile(tf.keras.optimizers.SGD(0.0), loss, weighted_metrics=[metric])
    def of(*columns):
        rows = tf.data.Dataset.from_tensor_slices(columns)
        return lambda context: rows.batch(context.get_per_replica_batch_size(8))
    mine = strategy.distribute_datasets_from_function(of(x, y))
    result("classes", model.fit(mine, class_weight={{0: 3.0, 2: 0.5}}, epochs=2, verbose=0).history)
    weights = strategy.distribute_datasets_from_function(of(x, y, (x[:, 0] / 8).astype("f4")))
    result("weights", model.fit(weights, validation_data=mine, verbose=0).history)
    result("evaluate", model.evaluate(mine, verbose=0))
    result("predict", model.predict(strategy.distribute_datasets_from_function(of(x)), verbose=0)[:, 0].tolist())

    @tf.function
    def both(rows, labels):
        sums, sizes = strategy.run(lambda rows, labels: (tf.reduce_sum(rows), tf.shape(labels)[0]), args=(rows, labels))
        return strategy.reduce("SUM", sums, axis=None), strategy.reduce("SUM", sizes, axis=None)
    result("loop", [[float(value) for value in both(*batch)] for batch in mine])
    """
    group = cluster(4)
    workers = group.start(program)
    assert group.wait() == [0] * 4, "".join(worker.log for worker in workers)
    x = [10.0 * i + np.arange(count) for i, count in enumerate(counts)]
    y = np.concatenate([(np.arange(count) + i) % 3 for i, count in enumerate(counts)])
    steps = [np.concatenate([rows[start : start + 2] for rows in x]) for start in range(0, 8, 2)]
    for worker in workers:
        # All logits are equal.
        each = np.log(3.0)
        by_class = np.array([3.0, 1.0, 0.5])[y]
        history = worker.result("classes")
        np.testing.assert_allclose(history["loss"], [each * by_class.mean()] * 2, rtol=1e-5)
        np.testing.assert_allclose(history["weighted"], [each] * 2, rtol=1e-5)
        history = worker.result("weights")
        np.testing.assert_allclose(history["loss"], [each * np.concatenate(x).mean() / 8], rtol=1e-5)
        np.testing.assert_allclose(history["val_loss"], [each], rtol=1e-5)
        np.testing.assert_allclose(worker.result("evaluate")[0], each, rtol=1e-5)
        np.testing.assert_allclose(worker.result("predict"), np.concatenate(steps), rtol=1e-6)
        np.testing.assert_allclose(worker.result("loop"), [[step.sum(), len(step)] for step in steps], rtol=1e-6)
