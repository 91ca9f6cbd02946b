"""Folders of Keras's OrbaxCheckpoint, written and read by several processes."""


def test_processes_write_a_folder_together_and_each_reads_it(cluster, tmp_path):
    program = f"""
    import keras, numpy as np, tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = np.random.default_rng(0).normal(size=(16, 3)).astype("f4")

    def make():
        with strategy.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.01), "mse")
        return model

    model, other = make(), make()
    callback = keras.callbacks.OrbaxCheckpoint({str(tmp_path / "steps")!r})
    model.fit(x, x.sum(1), batch_size=8, epochs=2, verbose=0, callbacks=[callback])
    other.load_weights({str(tmp_path / "steps")!r})
    with strategy.scope():
        loaded = keras.models.load_model({str(tmp_path / "steps")!r})
    for name, one in {{"weights": other, "model": loaded}}.items():
        same = all(np.array_equal(a, b) for a, b in zip(one.get_weights(), model.get_weights(), strict=True))
        result(name, [same, int(one.optimizer.iterations)])
    """
    workers = cluster(2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    assert [[worker.result(name) for name in ("weights", "model")] for worker in workers] == [[[True, 4]] * 2] * 2
