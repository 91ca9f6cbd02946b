"""Keras's loops under `ParameterServerStrategy`: steps are given to workers, which change the variables beside each other."""

import functools

import keras
import numpy as np
import pytest
from digits import load_shuffled_digits
from served_strategies import KINDS, make as make, statistics

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training._served_steps import ServedSteps

X = np.linspace(-1, 1, 30 * 6, dtype="f4").reshape(30, 6) ** 3
Y = (X[:, :1] > 0).astype("f4")
Creator = tf.keras.utils.experimental.DatasetCreator


def make_model(strategy, model=keras.Sequential, **options):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        layers = [keras.layers.Dense(8, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        model = model([keras.Input((6,)), *layers, keras.layers.Dense(1, kernel_regularizer="l2")])
        model.compile(**{"optimizer": keras.optimizers.Adam(0.02), "loss": "mse", "metrics": ["mae"], **options})
    return model


class InJaxsForm(keras.Sequential):
    def train_step(self, state, data):
        return {"loss": 0.0}, state


@pytest.mark.one_in(7)
@pytest.mark.parametrize("kind", KINDS)
def test_without_staleness_fit_is_that_of_one_device(make, kind):
    results = []
    for strategy in (make(3, max_staleness=0), tf.distribute.OneDeviceStrategy("/cpu:0")):
        options = dict(KINDS[kind])
        if "optimizer" in options:
            options["optimizer"] = options["optimizer"]()
        model = make_model(strategy, **options)
        history = model.fit(X, Y, batch_size=7, epochs=2, shuffle=False, verbose=0, validation_data=(X[:9], Y[:9]))
        again = model.evaluate(X, Y, batch_size=7, verbose=0)
        results.append((history.history, again, model.predict(X, batch_size=7, verbose=0), model.get_weights()))
    (history, again, rows, weights), (expected, expected_again, expected_rows, expected_weights) = results
    for name, values in expected.items():
        # Adam magnifies the last bits of operations that are not compiled together.
        np.testing.assert_allclose(history[name], values, rtol=1e-4 if kind == "eagerly" else 2e-5)
    np.testing.assert_allclose(again, expected_again, rtol=1e-4 if kind == "eagerly" else 2e-5)
    np.testing.assert_allclose(rows, expected_rows, rtol=1e-4, atol=1e-5)
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_digits_are_learned_by_four_workers(make):
    strategy = make(4)
    x, y = load_shuffled_digits()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
    history = model.fit(x[:1500], y[:1500], epochs=12, verbose=0, validation_data=(x[1500:], y[1500:]))
    assert history.history["val_accuracy"][-1] >= 0.95 and int(model.optimizer.iterations) == 12 * 47
    # Each row has counted, in each epoch anew.
    assert int(model.metrics[1].metrics[0].count) == 297
    assert max(statistics(strategy).staleness) > 0


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_every_batch_counts_once_whichever_worker_gets_it(make, run_eagerly):
    model = make_model(make(4), run_eagerly=run_eagerly)
    seen = []
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    for _ in range(3):
        model.fit(data, verbose=0)
        seen.append(int(model.metrics[0].count))
    assert seen == [30] * 3 and int(model.optimizer.iterations) == 24
    assert model.evaluate(data, verbose=0, return_dict=True).keys() == {"loss", "mae"}


def test_a_batch_alone_returns_its_own_logs(make):
    model, one = make_model(make(2, max_staleness=0)), make_model(tf.distribute.OneDeviceStrategy("/cpu:0"))
    for method in ("train_on_batch", "test_on_batch", "train_on_batch", "test_on_batch"):
        found, expected = getattr(model, method)(X[:8], Y[:8]), getattr(one, method)(X[:8], Y[:8])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert int(model.optimizer.iterations) == 2 and model.predict_on_batch(X[:3]).shape == (3, 1)


def test_workers_draw_dropout_masks_of_their_own(make):
    strategy = make(2)
    with strategy.scope():
        generator = keras.random.SeedGenerator(5)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def draw():
        index = tf.distribute.coordinator.experimental_get_current_worker_index()
        generator.state.assign(np.array([5, 0], "uint32"))  # As if both had read it at once.
        return index, generator.next()

    drawn = {}
    while len(drawn) < 2:
        index, seed = coordinator.schedule(draw).fetch()
        drawn[int(index)] = seed.tolist()
    assert drawn[0] != drawn[1]


def test_callbacks_checkpoints_and_resuming(make, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def train(strategy, *callbacks):
        model = make_model(strategy)
        folder = tmp_path / type(strategy).__name__
        backup = tf.keras.callbacks.BackupAndRestore(str(folder / "backup"))
        best = keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True)
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
        return model, model.fit(data, epochs=4, verbose=0, validation_data=data, callbacks=[backup, best, *callbacks])

    results = []
    for make_one in (lambda: make(2, max_staleness=0), lambda: tf.distribute.OneDeviceStrategy("/cpu:0")):
        with pytest.raises(KeyboardInterrupt):
            train(make_one(), Stop())
        model, history = train(make_one())
        with make_one().scope():
            best = keras.models.load_model(tmp_path / type(make_one()).__name__ / "best.keras")
        results.append((history, int(model.optimizer.iterations), best.evaluate(X, Y, verbose=0)))
    (history, count, best), (expected, expected_count, expected_best) = results
    assert history.epoch == expected.epoch and count == expected_count == 20
    np.testing.assert_allclose(history.history["val_loss"], expected.history["val_loss"], rtol=1e-5)
    np.testing.assert_allclose(best, expected_best, rtol=1e-5)


def test_training_goes_on_with_the_same_numbers_after_saving(make, tmp_path):
    fit = functools.partial(keras.Model.fit, x=X, y=Y, batch_size=7, shuffle=False, verbose=0)
    model = make_model(make(2, max_staleness=0))
    fit(model)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    expected = fit(model).history
    again = make_model(make(3, max_staleness=0))
    again.optimizer.build(again.trainable_variables)
    tf.train.Checkpoint(model=again).restore(path).assert_consumed()
    assert fit(again).history == expected


def test_data_that_each_worker_makes(make):
    strategy = make(3)
    model, seen = make_model(strategy), []

    def make_dataset(context):
        seen.append(int(tf.distribute.coordinator.experimental_get_current_worker_index()))
        assert (context.num_input_pipelines, context.num_replicas_in_sync) == (1, 1)
        return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(30).repeat().batch(5)

    history = model.fit(Creator(make_dataset), epochs=2, steps_per_epoch=9, verbose=0)
    assert (
        sorted(set(seen)) == [0, 1, 2] and int(model.optimizer.iterations) == 18 and len(history.history["loss"]) == 2
    )
    assert len(model.evaluate(Creator(make_dataset), steps=3, verbose=0)) == 2
    with pytest.raises(ValueError, match="`steps_per_epoch` must be provided"):
        model.fit(Creator(make_dataset), verbose=0)
    with pytest.raises(ValueError, match="`validation_steps` must be provided"):
        model.fit(X, Y, validation_data=Creator(make_dataset), verbose=0)
    with pytest.raises(TypeError, match="must be a `callable`"):
        Creator(5)
    with pytest.raises(TypeError, match="must return a Dataset"):
        model.fit(Creator(lambda context: [X]), steps_per_epoch=1, verbose=0)


def test_data_that_are_made_for_another_strategy_or_none():
    def make_dataset(context):
        size = context.get_per_replica_batch_size(10)
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)

    mirrored = make_model(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]))
    mirrored.fit(Creator(make_dataset), steps_per_epoch=3, verbose=0)
    assert int(mirrored.optimizer.iterations) == 3
    alone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    alone.compile("sgd", "mse")
    alone.fit(Creator(make_dataset), steps_per_epoch=3, verbose=0)
    assert int(alone.optimizer.iterations) == 3


def test_what_fails_in_a_step_is_raised_and_training_can_go_on(make):
    model = make_model(make(2))
    with pytest.raises(Exception, match="shape"):
        model.fit(X[:, :5], Y, verbose=0)
    model.fit(X, Y, verbose=0)
    assert int(model.optimizer.iterations) == 1

    def batches():
        for i in range(9):
            yield (X[:6, :5] if i == 3 else X[:6]), Y[:6]

    for _ in range(2):
        with pytest.raises(Exception, match=r"shape|incompatible"):
            model.fit(batches(), steps_per_epoch=9, shuffle=False, verbose=0)
        before = int(model.optimizer.iterations)
        model.fit(X, Y, verbose=0)
        assert int(model.optimizer.iterations) == before + 1


def test_what_would_lose_changes_is_refused(make):
    model = make_model(make(2), model=InJaxsForm)
    with pytest.raises(NotImplementedError, match="TensorFlow's form"):
        model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("wait", [False, True])
def test_a_step_that_fails_leaves_nothing_to_later_ones(make, wait):
    steps = ServedSteps(make(2))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            steps.run(lambda: 1 / 0, wait=wait)
        assert steps.run(lambda: {"loss": 2.0}, wait=True) == {"loss": 2.0}
        steps.join()
        steps._logs.clear()
