"""`BatchNormalization(synchronized=True)` under a strategy is BatchNormalization of the whole batch on one device."""

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

RNG = np.random.default_rng(0)
X, Y = RNG.normal(2.0, 3.0, size=(26, 6)).astype("f4"), RNG.integers(0, 3, 26)


def make(strategy, **options):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        norm = tf.keras.layers.BatchNormalization(momentum=0.5, **options)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), norm, keras.layers.Dense(3)])
        # A sum: in a mean, rows of replicas that have fewer would weigh more.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    return model


@pytest.mark.parametrize("batch_size", [8, 13, 3])
def test_training_equals_one_device(batch_size):
    whole = make(tf.distribute.get_strategy())
    split = make(tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)]), synchronized=True)
    histories = [model.fit(X, Y, batch_size, epochs=2, shuffle=False, verbose=0).history for model in (whole, split)]
    np.testing.assert_allclose(histories[1]["accuracy"], histories[0]["accuracy"], rtol=1e-6)
    for one, other in zip(whole.get_weights(), split.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_custom_loop_equals_one_device():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    whole, split = make(tf.distribute.get_strategy()), make(strategy, synchronized=True)

    def gradients(model, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True)))
        found = tape.gradient(loss, model.trainable_variables)
        return tf.distribute.get_replica_context().all_reduce("SUM", found)

    for rows in (6, 5):
        wanted = gradients(whole, X[:rows])
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(X[:rows]))
        found = strategy.run(lambda x: gradients(split, x), args=(batch,))
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_allclose(strategy.experimental_local_results(other)[0], one, rtol=1e-3, atol=1e-4)


def test_it_goes_with_gradient_accumulation_and_files(tmp_path):
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(4)])
    models = []
    for where, options in ((tf.distribute.get_strategy(), {}), (strategy, {"synchronized": True})):
        model = make(where, **options)
        optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
        with where.scope():
            model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))
        model.fit(X, Y, 13, epochs=2, shuffle=False, verbose=0)
        models.append(model)
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    models[1].save(tmp_path / "model.keras")
    with strategy.scope():
        again = keras.models.load_model(tmp_path / "model.keras")
    assert again.layers[1].synchronized
    np.testing.assert_allclose(again.predict(X, verbose=0), models[1].predict(X, verbose=0), rtol=1e-5, atol=1e-6)


def test_variance_is_exact_beside_a_large_mean():
    x = (1000 + RNG.normal(size=(64, 3))).astype("f4")
    norm = keras.layers.BatchNormalization(synchronized=True, momentum=0.0)
    norm(x, training=True)
    np.testing.assert_allclose(norm.moving_variance.numpy(), x.astype("f8").var(0), rtol=1e-4)


def test_masked_rows_do_not_count():
    norm = keras.layers.BatchNormalization(synchronized=True, momentum=0.0)
    x = np.stack([X[:4], 100 * X[4:8]], 1)
    norm(x, training=True, mask=np.array([[True, False]] * 4))
    np.testing.assert_allclose(norm.moving_mean.numpy(), X[:4].mean(0), rtol=1e-5)


def test_it_is_saved_with_the_layer():
    norm = keras.layers.BatchNormalization(synchronized=True)
    assert norm.get_config()["synchronized"]
    assert keras.layers.BatchNormalization.from_config(norm.get_config()).synchronized


def test_masked_rows_may_be_no_numbers():
    norm, one = (keras.layers.BatchNormalization(momentum=0.5, synchronized=together) for together in (True, False))
    x = np.array([[[1.0, 2.0], [np.nan, 0.0]], [[3.0, 5.0], [np.inf, 1.0]]], "f4")
    for layer in (norm, one):
        layer(x, training=True, mask=np.array([[True, False]] * 2))
    for weight, expected in zip(norm.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-6)
    assert np.isfinite(norm.moving_variance.numpy()).all()
