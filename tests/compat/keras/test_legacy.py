"""Names of TensorFlow 2's Keras that scripts still use."""

import copy
import random

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def test_lr_is_the_learning_rate():
    optimizer = tf.keras.optimizers.SGD(lr=0.25)
    assert float(optimizer.lr) == 0.25
    optimizer.lr = 0.5
    assert float(tf.keras.backend.get_value(optimizer.learning_rate)) == 0.5
    tf.keras.backend.set_value(optimizer.lr, 0.125)
    assert float(optimizer.lr) == 0.125


def test_decay_lowers_the_rate_of_legacy_optimizers():
    variable = keras.Variable([1.0])
    optimizer = tf.keras.optimizers.legacy.SGD(0.1, decay=0.5)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    np.testing.assert_allclose(variable.numpy(), 1 - 0.1 * (1 + 1 / 1.5 + 1 / 2), rtol=1e-6)


@pytest.mark.parametrize("name", ["Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"])
def test_legacy_optimizers_survive_saving(name, tmp_path, make_model, fit, data):
    model = make_model(optimizer=lambda: getattr(tf.keras.optimizers.legacy, name)(0.01, decay=0.1))
    fit(model, data, epochs=1)
    model.save(tmp_path / "m.keras")
    loaded = tf.keras.models.load_model(tmp_path / "m.keras")
    assert getattr(loaded.optimizer, "decay", 0.1) == 0.1
    assert getattr(loaded.optimizer, "schedule_decay", 0.004) == 0.004
    for mine, expected in zip(loaded.optimizer.get_weights(), model.optimizer.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_optimizers_give_and_take_weights(make_model, fit, data):
    model, other = make_model(), make_model()
    fit(model, data, epochs=1)
    other.optimizer.build(other.trainable_variables)
    other.optimizer.set_weights(model.optimizer.get_weights())
    np.testing.assert_array_equal(other.optimizer.get_weights()[-1], model.optimizer.get_weights()[-1])
    with pytest.raises(ValueError, match="got 1 weights"):
        other.optimizer.set_weights([0])


def test_generators_are_taken_by_methods_of_their_own(strategy, make_model, data):
    def batches():
        while True:
            yield data.x[:16], data.y[:16]

    model = make_model(strategy)
    with pytest.warns(DeprecationWarning, match="use `Model.fit`"):
        history = model.fit_generator(batches(), 2, epochs=2, verbose=0, workers=1)
    assert len(history.history["loss"]) == 2
    seen = []
    callback = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: seen.append(tf.distribute.get_strategy()))
    with pytest.warns(DeprecationWarning, match="use `Model.fit`"):
        model.fit_generator(batches(), 2, verbose=0, callbacks=[callback])
    assert seen == [strategy]
    with pytest.warns(DeprecationWarning, match="use `Model.predict`"):
        assert model.predict_generator(batches(), steps=2, verbose=0).shape == (32, 4)


def test_reduction_and_functions_have_their_old_names():
    loss = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)
    np.testing.assert_allclose(loss([[1.0], [3.0]], [[0.0], [0.0]]), [1, 9])
    np.testing.assert_allclose(tf.keras.losses.mean_squared_error([[1.0]], [[3.0]]), [4])
    metric = tf.keras.metrics.Mean()
    metric.update_state(3.0)
    metric.reset_states()
    assert float(metric.result()) == 0


def test_experimental_layers_are_todays():
    layers = tf.keras.layers.experimental
    assert layers.preprocessing.Rescaling is keras.layers.Rescaling
    assert layers.SyncBatchNormalization(axis=-1).synchronized
    assert tf.keras.callbacks.experimental.BackupAndRestore is keras.callbacks.BackupAndRestore


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda: tf.keras.utils.multi_gpu_model(None, 2), "MirroredStrategy"),
        (lambda: tf.keras.backend.function([], [], updates=[1]), "tf.function"),
        (lambda: tf.keras.backend.set_learning_phase(1), "training=True"),
        (lambda: tf.keras.backend.set_session(None), "set_memory_growth"),
        (lambda: tf.keras.experimental.PeepholeLSTMCell(2), "LSTMCell"),
        (lambda: tf.keras.layers.BatchNormalization(virtual_batch_size=2), "GroupNormalization"),
        (lambda: tf.keras.mixed_precision.experimental.Policy("mixed_float16", loss_scale=128), "initial_scale"),
        (lambda: tf.keras.layers.LSTM(2, time_major=True), "rows first"),
        (lambda: tf.keras.estimator.model_to_estimator(None), "fit"),
        (lambda: tf.keras.wrappers.scikit_learn.KerasClassifier(None), "SKLearnClassifier"),
    ],
)
def test_what_is_gone_names_what_to_use(call, instead):
    with pytest.raises(NotImplementedError, match=instead):
        call()


def test_automatic_reduction_is_the_mean():
    auto = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.AUTO)
    assert float(auto(np.ones((4, 2)), np.zeros((4, 2)))) == 1.0
    assert auto.reduction == "sum_over_batch_size"
    with pytest.raises(ValueError, match="Invalid value for argument `reduction`"):
        tf.keras.losses.MeanSquaredError(reduction="median")


@pytest.mark.parametrize(("aggregation", "of"), [("SUM", sum), ("MEAN", np.mean), ("ONLY_FIRST_REPLICA", min)])
@pytest.mark.parametrize("synchronization", ["AUTO", "ON_READ"])
def test_weights_are_aggregated_as_keras_2_says(synchronization, aggregation, of):
    class Counter(tf.keras.layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(
                "count",
                (),
                tf.float32,
                "zeros",
                trainable=None,
                synchronization=tf.VariableSynchronization[synchronization],
                aggregation=tf.VariableAggregation[aggregation],
            )

        def call(self, x):
            self.count.assign(self.count + x)
            return x

    strategy = tf.distribute.MirroredStrategy()
    numbers = range(1, strategy.num_replicas_in_sync + 1)
    with strategy.scope():
        layer = Counter()
        layer.build(())
    x = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(float(numbers[context.replica_id_in_sync_group]))
    )
    for _ in range(2):
        tf.function(strategy.run)(layer, (x,))
    np.testing.assert_allclose(layer.count.numpy(), 2 * of(numbers))
    assert bool(layer.trainable_weights) == (synchronization == "AUTO")


def test_a_weight_with_a_value_per_replica_is_not_trainable():
    with pytest.raises(ValueError, match="not trainable"):
        tf.keras.layers.Layer().add_weight(
            "w", (2,), trainable=True, synchronization=tf.VariableSynchronization.ON_READ
        )


def test_a_sequential_model_has_its_input_and_output():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    assert (model.input.shape, model.output.shape) == ((None, 4), (None, 1))
    hidden = tf.keras.backend.function([model.input], [model.layers[0].output])([np.ones((3, 4), "f4")])
    assert np.shape(hidden[0]) == (3, 2)
    with pytest.raises(AttributeError, match="has no defined inputs yet"):
        _ = keras.Sequential([keras.layers.Dense(1)]).input


def test_a_metrics_weights_are_named_first_and_have_shapes_of_numbers():
    class Counts(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.counts = self.add_weight("counts", 3, dtype=tf.int64)
            self.total = self.add_weight("total", initializer="ones")
            self.today = self.add_weight((2,), "ones")

        def update_state(self, y_true, y_pred, sample_weight=None):
            pass

        def result(self):
            return self.total

    metric = Counts()
    assert [weight.shape for weight in metric.variables] == [(3,), (), (2,)]
    assert [weight.dtype for weight in metric.variables] == ["int64", "float32", "float32"]
    assert metric.total.numpy() == 1 and metric.today.numpy().sum() == 2 and metric.counts.name == "counts"


def test_shapes_answer_as_in_keras_2():
    class Scaling(keras.layers.Layer):
        def build(self, input_shape):
            self.sizes = input_shape.as_list()
            self.scale = self.add_weight("scale", input_shape[1:].as_list(), initializer="ones")

        def call(self, x):
            return x * self.scale

    inputs = keras.Input((4,))
    layer = Scaling()
    outputs = layer(inputs)
    assert layer.sizes == [None, 4] and outputs.shape == (None, 4) and isinstance(outputs.shape, tuple)
    assert (outputs.shape.rank, outputs.shape.ndims, outputs.shape[1:].num_elements()) == (2, 2, 4)
    assert repr(outputs.shape) == "(None, 4)" and copy.deepcopy(outputs.shape) == (None, 4)
    assert keras.tree.flatten([outputs.shape]) == tf.nest.flatten([outputs.shape]) == [None, 4]
    assert keras.tree.map_structure(str, outputs.shape) == ("None", "4") and jax.tree.leaves(outputs.shape) == [4]
    with pytest.raises(AttributeError, match="no attribute 'width'"):
        _ = outputs.shape.width
    model = keras.Model(inputs, outputs)
    assert keras.Model.from_config(model.get_config(), {"Scaling": Scaling}).output_shape == (None, 4)


def test_skipgrams_are_shuffled_without_a_seed():
    skipgrams = tf.keras.preprocessing.sequence.skipgrams
    drawn = []
    for seed in (1, 1, 2):
        random.seed(seed)
        drawn.append(skipgrams([1, 2, 3, 4, 5], 6, window_size=2, negative_samples=1.0))
    assert drawn[0] == drawn[1] != drawn[2]
    couples, labels = skipgrams([1, 2, 3], 4, 1, 0.0, shuffle=False)
    assert couples == [[1, 2], [2, 1], [2, 3], [3, 2]] and labels == [1] * 4
    assert sorted(skipgrams([1, 2, 3], 4, 1, 0.0)[0]) == couples
