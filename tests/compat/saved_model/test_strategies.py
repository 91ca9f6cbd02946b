"""SavedModels and strategies; Keras models that go on training."""

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow import keras

X = np.linspace(-1.0, 1.0, 32, dtype="f4").reshape(8, 4)


def make_model():
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(3),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(1),
    ]
    return keras.Sequential([keras.Input([4]), *layers])


def make_strategy(devices):
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])


def test_a_model_of_a_strategy_is_exported_and_loaded_by_any(tmp_path):
    with make_strategy(4).scope():
        model = make_model()
        model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=8, verbose=0)
    model.export(tmp_path, verbose=False)
    wanted = model.predict(X, verbose=0)
    np.testing.assert_allclose(tf.saved_model.load(tmp_path).serve(X), wanted, atol=1e-6)
    strategy = make_strategy(2)
    with strategy.scope():
        loaded = tf.saved_model.load(tmp_path)
    assert all(len(variable.values) == 2 for variable in loaded.variables)
    rows = strategy.run(lambda: loaded.serve(X[:3]))
    for each in strategy.experimental_local_results(rows):
        np.testing.assert_allclose(each, wanted[:3], atol=1e-6)


def test_training_under_a_strategy_is_training_on_one_device(tmp_path):
    make_model().export(tmp_path, verbose=False)

    def train(loaded, strategy):
        data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(4)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(loaded.serve(x) - y)) / 4.0
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                context = tf.distribute.get_replica_context()
                variable.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.SUM, gradient))

        variables = loaded.trainable_variables
        run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
        for _ in range(2):
            for x, y in strategy.experimental_distribute_dataset(data):
                run(x, y)
        return [variable.numpy() for variable in variables]

    alone = train(tf.saved_model.load(tmp_path), tf.distribute.get_strategy())
    strategy = make_strategy(2)
    with strategy.scope():
        loaded = tf.saved_model.load(tmp_path)
    for found, wanted in zip(train(loaded, strategy), alone, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_what_replicas_do_together_is_refused(tmp_path):
    strategy = make_strategy(2)
    module = tf.Module()
    module.f = tf.function(
        lambda x: strategy.reduce("SUM", strategy.run(lambda: x * 2.0), axis=None), input_signature=[tf.TensorSpec([2])]
    )
    with pytest.raises(ValueError, match=r"calls `strategy\.run`"):
        tf.saved_model.save(module, tmp_path)


def test_a_variable_of_each_replica_is_saved_as_one_but_in_no_function(tmp_path):
    with make_strategy(2).scope():
        module = tf.Module()
        module.total = tf.Variable(
            6.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
    tf.saved_model.save(module, tmp_path)
    assert module.total.read_value() == tf.saved_model.load(tmp_path).total == 12.0
    with make_strategy(4).scope():
        assert tf.saved_model.load(tmp_path).total.read_value() == 12.0
    module.f = tf.function(lambda: module.total + 1.0, input_signature=[])
    with pytest.raises(ValueError, match="synchronization=ON_READ"):
        tf.saved_model.save(module, tmp_path)


def test_a_layer_of_a_saved_model_is_trained_by_fit(tmp_path):
    make_model().export(tmp_path, verbose=False)
    layer = keras.layers.TFSMLayer(str(tmp_path))
    model = keras.Sequential([keras.Input([4]), layer, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    before = [weight.numpy() for weight in layer.trainable_weights]
    losses = model.fit(X, X[:, :1], epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    changed = [not np.array_equal(old, new) for old, new in zip(before, layer.trainable_weights, strict=True)]
    assert len(changed) == 6 and all(changed[:1])


def test_an_endpoint_that_trains_moves_statistics_and_drops(tmp_path):
    model = make_model()
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("train", lambda x: model(x, training=True), [tf.TensorSpec([None, 4])])
    archive.write_out(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    before = [variable.numpy() for variable in loaded.non_trainable_variables]
    first, second = loaded.train(X), loaded.train(X)
    assert not np.array_equal(first, second)
    assert [not np.array_equal(a, b) for a, b in zip(before, loaded.non_trainable_variables, strict=True)] == [True] * 3
    np.testing.assert_array_equal(model.layers[1].moving_mean, np.zeros(3)), "the model stays as it is"


def test_export_says_what_is_served(tmp_path, capsys):
    make_model().export(tmp_path)
    said = capsys.readouterr().out
    assert f"Saved artifact at '{tmp_path}'" in said and "* Endpoint 'serve'" in said and "shape=(None, 4)" in said


def test_other_formats_are_keras_own():
    with pytest.raises(ValueError, match="Unrecognized format"):
        make_model().export("x", format="other")
