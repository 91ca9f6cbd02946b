"""`fit` under a strategy: values, and where they lie."""

import copy
import pickle
import re

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import tfdist_jax.compat.tensorflow as tf

EVEN = {
    "sgd": {},
    "adam": {"optimizer": lambda: keras.optimizers.Adam(0.01)},
    "regularized": {"hidden": [lambda: keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.05))]},
    "activity loss": {"hidden": [lambda: keras.layers.ActivityRegularization(l2=0.01)]},
    "summed loss": {
        "optimizer": lambda: keras.optimizers.SGD(0.005),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
    },
    "clipped together": {"optimizer": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05)},
    "clipped one by one": {"optimizer": lambda: keras.optimizers.SGD(0.5, clipnorm=0.05)},
    "clipped by value": {"optimizer": lambda: keras.optimizers.SGD(0.5, clipvalue=0.01)},
    "loss scale": {"optimizer": lambda: keras.optimizers.SGD(0.1, loss_scale_factor=64.0)},
    "decayed weights": {"optimizer": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True)},
    "muon": {"optimizer": lambda: keras.optimizers.Muon(0.01)},
    "weight average": {"optimizer": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=3)},
    "schedule": {"optimizer": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5))},
    "embedding of integers": {"model": lambda: _integer_model()},
}


def _integer_model():
    inputs = keras.Input((8,))
    x = keras.layers.Lambda(lambda x: keras.ops.cast(keras.ops.abs(x) * 3, "int32") % 10)(inputs)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Flatten()(keras.layers.Embedding(10, 3)(x))))


@pytest.mark.sampled(5)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", EVEN)
def test_even_batches_train_as_on_one_device(case, any_strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(any_strategy, **EVEN[case]), make_model(**EVEN[case])
    atol = 1e-4 if case == "summed loss" else 1e-5  # Sums of 16 rows.
    assert_same_training(model, fit(model, data), alone, fit(alone, data), atol)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 10, 13])
def test_metrics_of_a_step_are_exact_for_any_number_of_rows(
    rows, any_strategy, make_model, fit, data, assert_same_history
):
    history = fit(make_model(any_strategy), data.rows(rows), epochs=1)
    assert_same_history(history, fit(make_model(), data.rows(rows), epochs=1), atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 10])
def test_uneven_step_averages_the_replicas_gradients(rows, strategy, make_model, fit, data):
    """TensorFlow's rule: each replica's mean counts as one of R, whatever its rows; empty ones count as zero."""
    model = make_model(strategy, optimizer=lambda: keras.optimizers.SGD(0.1))
    before = [weight.numpy() for weight in model.trainable_variables]

    def loss(weights, x, y):
        logits = model.stateless_call(weights, [], x)[0]
        return jnp.mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))

    parts = np.split(np.arange(rows), range(-(-rows // 4), rows, -(-rows // 4)))
    grads = [jax.grad(loss)(before, data.x[part], data.y[part]) for part in parts]
    expected = [w - 0.1 * sum(g) / 4 for w, *g in zip(before, *grads, strict=True)]
    fit(model, data.rows(rows), epochs=1)
    for weight, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, atol=1e-6)


class TensorFlowForm(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("kind", [keras.Sequential, TensorFlowForm])
@pytest.mark.parametrize("rows", [8, 7, 5])
def test_regularisers_count_in_full_where_replicas_have_no_rows(rows, kind, strategy):
    """TensorFlow lets them run without rows: after two steps a kernel of ones is 0.81 whatever their rows."""
    with strategy.scope():
        kernel = {"kernel_initializer": "ones", "kernel_regularizer": keras.regularizers.L2(0.5)}
        model = kind([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, **kernel)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(np.zeros((rows, 3)), np.zeros((rows, 1)), batch_size=4, verbose=0, shuffle=False).history
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), 0.81, atol=1e-6)
    if kind is keras.Sequential:
        np.testing.assert_allclose(history["loss"], (4 * 1.5 + (rows - 4) * 1.215) / rows, atol=1e-6)


@pytest.mark.parametrize("sizes", [(42, 16), (40, 10), (18, 16), (7, 3)])
def test_uneven_batches_first_and_last_train_to_the_same_state_everywhere(sizes, strategy, make_model, fit, data):
    rows, batch_size = sizes
    normalization = [keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.5)]
    model = make_model(strategy, hidden=normalization)
    fit(model, data.rows(rows), batch_size=batch_size)
    assert_state_is_everywhere(model, strategy)


def assert_state_is_everywhere(model, strategy):
    for variable in [*model.variables, *model.optimizer.variables]:
        value = variable.value
        assert value.sharding.device_set == set(strategy.native.mesh.devices.flat), variable.path
        assert value.sharding.spec == PartitionSpec(), variable.path
        first, *others = [np.asarray(shard.data) for shard in value.addressable_shards]
        for other in others:
            np.testing.assert_array_equal(first, other, err_msg=variable.path)


def test_state_lies_on_every_device_of_the_strategy(strategy, make_model, fit, data):
    model = make_model(strategy, optimizer=keras.optimizers.Adam)
    fit(model, data)
    assert_state_is_everywhere(model, strategy)


def test_model_made_outside_of_scopes_is_bound_to_no_device(make_model, fit, data):
    with jax.default_device(jax.devices()[2]):
        model = make_model(tf.distribute.get_strategy())
        fit(model, data)
    assert not any(v.value.committed for v in [*model.variables, *model.optimizer.variables])
    assert {device for v in model.variables for device in v.value.devices()} == {jax.devices()[2]}


def test_model_made_outside_of_scopes_ignores_the_scope_it_is_fitted_in(strategy, make_model, fit, data):
    expected = fit(make_model(), data)
    model = make_model()
    with strategy.scope():
        history = fit(model, data)
    assert history == expected


def test_model_is_fitted_outside_of_its_scope_and_inside_alike(strategy, make_model, fit, data):
    outside, inside = make_model(strategy), make_model(strategy)
    history = fit(outside, data)
    with strategy.scope():
        assert fit(inside, data) == history


def test_strategies_of_different_sizes_live_in_one_process(make_strategy, make_model, fit, data, assert_same_history):
    histories = []
    for replicas in (2, 4, 8, 1):
        strategy = make_strategy(replicas)
        model = make_model(strategy)
        histories.append(fit(model, data))
        assert_state_is_everywhere(model, strategy)
    for history in histories[1:]:
        assert_same_history(history, histories[0])


def test_one_device_strategy_trains_on_its_device(make_model, fit, data, assert_same_training):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:5")
    model, alone = make_model(strategy), make_model()
    history = fit(model, data.rows(42))
    assert {v.value.sharding.device_set == {jax.devices()[5]} for v in model.variables} == {True}
    assert_same_training(model, history, alone, fit(alone, data.rows(42)), atol=1e-6)


def test_weights_shared_with_a_model_of_another_strategy_move_along(strategy, make_strategy, make_model, fit, data):
    model = make_model(strategy)
    fit(model, data)
    small = make_strategy(2)
    with small.scope():
        part = keras.Sequential([keras.Input((8,)), *model.layers])
        part.compile("sgd", "mse")
    expected = model.predict(data.x, verbose=0)
    np.testing.assert_allclose(part.predict(data.x, verbose=0), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(data.x, verbose=0), expected, atol=1e-6)


def test_weights_that_are_set_between_fits_count(strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(strategy), make_model()
    for each in (model, alone):
        fit(each, data)
        each.set_weights([0.5 * weight for weight in each.get_weights()])
    assert_same_training(model, fit(model, data), alone, fit(alone, data))


def test_values_held_elsewhere_survive_training(strategy, make_model, fit, data):
    model = make_model(strategy)
    fit(model, data)
    held, copy = model.weights[0].value, keras.Variable(jnp.zeros((8, 16)))
    copy.assign(model.weights[0])
    outside = jnp.ones((16,))
    model.weights[1].assign(outside)
    fit(model, data)
    np.testing.assert_array_equal(held, copy.numpy())
    np.testing.assert_array_equal(outside, 1)
    assert not np.array_equal(held, model.weights[0].numpy())


def test_two_variables_may_hold_the_same_value(strategy, make_model, fit, data):
    model = make_model(strategy, hidden=[lambda: keras.layers.Dense(16)])
    model.layers[1].bias.assign(model.layers[0].bias)
    fit(model, data)
    assert not np.array_equal(model.layers[0].bias.numpy(), model.layers[1].bias.numpy())


def test_moving_mean_is_that_of_the_whole_batch(strategy, make_model, fit, data):
    """Also where batches are uneven: replicas count by their rows."""
    normalization = [lambda: keras.layers.BatchNormalization(momentum=0.5)]
    model, alone = make_model(strategy, hidden=normalization), make_model(hidden=normalization)
    for each in (model, alone):
        fit(each, data.rows(10), epochs=1)
    np.testing.assert_allclose(model.layers[1].moving_mean.numpy(), alone.layers[1].moving_mean.numpy(), atol=1e-6)


def test_batch_normalization_sees_its_replicas_rows_only(strategy, make_model, fit, data):
    normalization = [lambda: keras.layers.BatchNormalization(momentum=0.0)]
    model = make_model(strategy, hidden=normalization)
    dense = keras.Sequential(model.layers[:1])
    before = dense.predict(data.x[:16], verbose=0)
    fit(model, data.rows(16), epochs=1)
    expected = np.mean([before[4 * i : 4 * i + 4].var(0) for i in range(4)], 0)
    np.testing.assert_allclose(model.layers[1].moving_variance.numpy(), expected, atol=1e-5)


class DropsAlways(keras.layers.Layer):
    """Dropout that `predict` shows."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x):
        return keras.random.dropout(x, 0.5, seed=self.seed_generator)


def test_replicas_drop_different_units(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), DropsAlways()])
    kept = model.predict(np.ones((8, 64), "f4"), verbose=0) != 0
    assert 0.3 < kept.mean() < 0.7
    masks = kept.reshape(4, 2, 64)
    assert all(not np.array_equal(masks[i], masks[j]) for i in range(4) for j in range(i))


def test_dropout_repeats_with_its_seed_and_goes_on_from_step_to_step(strategy, make_model, fit, data):
    dropout = [lambda: keras.layers.Dropout(0.5, seed=3)]
    first, again = (make_model(strategy, hidden=dropout) for _ in range(2))
    assert fit(first, data) == fit(again, data)
    seed = first.layers[1].seed_generator.state
    assert seed.numpy()[1] == 8  # Two epochs of four batches.
    assert_state_is_everywhere(first, strategy)


def test_dropout_of_a_partly_empty_batch_advances_the_seed_once(strategy, make_model, fit, data):
    model = make_model(strategy, hidden=[lambda: keras.layers.Dropout(0.5, seed=3)])
    fit(model, data.rows(2), epochs=1)
    assert model.layers[1].seed_generator.state.numpy()[1] == 1
    assert_state_is_everywhere(model, strategy)


def test_sample_weights_count(strategy, make_model, fit, data, assert_same_training):
    weights = np.linspace(0, 2, 64, dtype="f4")
    options = {"weighted_metrics": ["accuracy"], "metrics": None}
    model, alone = make_model(strategy, **options), make_model(**options)
    histories = [fit(each, data, sample_weight=weights) for each in (model, alone)]
    assert_same_training(model, histories[0], alone, histories[1])


def test_class_weights_count(strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(strategy), make_model()
    histories = [fit(each, data, class_weight={0: 3.0, 1: 0.1, 2: 1.0, 3: 1.0}) for each in (model, alone)]
    assert_same_training(model, histories[0], alone, histories[1])


def test_validation_and_its_split_work(strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(strategy), make_model()
    histories = [fit(each, data, validation_split=0.25) for each in (model, alone)]
    assert "val_accuracy" in histories[0]
    assert_same_training(model, histories[0], alone, histories[1])


class Logs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((batch, logs))


def test_callbacks_see_what_all_replicas_did_so_far(any_strategy, make_model, fit, data, assert_same_history):
    ours, expected = Logs(), Logs()
    fit(make_model(any_strategy), data, callbacks=[ours])
    fit(make_model(), data, callbacks=[expected])
    assert len(ours.batches) == 8
    for (batch, logs), (expected_batch, expected_logs) in zip(ours.batches, expected.batches, strict=True):
        assert batch == expected_batch
        assert_same_history(logs, expected_logs)


def test_callbacks_read_and_change_the_model_during_training(strategy, make_model, fit, data, assert_same_training):
    class Halve(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.model.set_weights([weight / 2 for weight in self.model.get_weights()])

        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.05

    model, alone = make_model(strategy), make_model()
    histories = [fit(each, data, callbacks=[Halve()]) for each in (model, alone)]
    assert_same_training(model, histories[0], alone, histories[1])


def test_progress_bar_shows_the_steps(strategy, make_model, fit, data, capsys):
    fit(make_model(strategy), data.rows(42), epochs=1, verbose=1)
    printed = capsys.readouterr().out
    assert "3/3" in printed
    assert "accuracy:" in printed


def test_several_inputs_and_outputs_by_name(strategy, data, assert_same_history):
    def make():
        keras.utils.set_random_seed(7)
        first, second = keras.Input((8,), name="first"), keras.Input((8,), name="second")
        both = keras.layers.Concatenate()([first, second])
        outputs = {
            "scores": keras.layers.Dense(4, name="scores")(both),
            "mean": keras.layers.Dense(1, name="mean")(both),
        }
        model = keras.Model({"first": first, "second": second}, outputs)
        crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", {"scores": crossentropy, "mean": "mse"}, metrics={"scores": ["accuracy"]})
        return model

    with strategy.scope():
        model = make()
    alone = make()
    x = {"first": data.x, "second": data.x**2}
    y = {"scores": data.y, "mean": data.x.mean(1, keepdims=True)}
    histories = [each.fit(x, y, batch_size=16, shuffle=False, verbose=0).history for each in (model, alone)]
    assert_same_history(*histories)
    predictions = [each.predict(x, batch_size=10, verbose=0) for each in (model, alone)]
    for name in predictions[1]:
        np.testing.assert_allclose(predictions[0][name], predictions[1][name], atol=1e-5)


def test_callbacks_see_variables_as_the_last_step_left_them_and_may_change_them(any_strategy, make_model, fit, data):
    model = make_model(any_strategy, hidden=[keras.layers.BatchNormalization])
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            # Past `self.model`, which would tell Keras to put the values back.
            seen.append((int(model.optimizer.iterations.numpy()), model.layers[-1].bias.numpy().copy()))
            if batch == 1:
                model.layers[-1].bias.assign([9.0] * 4)

    fit(model, data, callbacks=[Watch()], epochs=1)
    assert [step for step, _ in seen] == [1, 2, 3, 4]
    assert not np.array_equal(seen[0][1], seen[1][1])
    assert (seen[2][1] > 8).all()


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_in_the_middle_of_an_epoch_loses_nothing(error, any_strategy, make_model, data):
    model = make_model(any_strategy)

    def batches():
        yield data.x[:16], data.y[:16]
        yield data.x[16:32], data.y[16:32]
        raise error("the disk is gone")

    with pytest.raises(error, match="the disk is gone"):
        model.fit(batches(), shuffle=False, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 2
    assert np.isfinite(model.predict(data.x, verbose=0)).all()


def test_a_batch_that_does_not_fit_leaves_a_trained_model(any_strategy, make_model, data):
    model = make_model(any_strategy)
    model.fit(data.x, data.y, shuffle=False, verbose=0)
    trained = model.get_weights()
    for wrong in (np.ones((16, data.x.shape[1] + 3), np.float32), np.ones((16, 2, 2), np.float32)):
        with pytest.raises(Exception, match=r"(?i)shape|incompatible|dimension"):
            model.fit(wrong, data.y[:16], verbose=0)
    for now, before in zip(model.get_weights(), trained, strict=True):
        np.testing.assert_array_equal(now, before)
    model.fit(data.x, data.y, shuffle=False, verbose=0)


def test_a_models_variable_can_be_copied_and_pickled(strategy, make_model):
    kernel = make_model(strategy).layers[0].kernel
    twin, elsewhere = copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))
    kernel.assign(2 * kernel.value)
    for other in (twin, elsewhere):
        np.testing.assert_allclose(2 * np.asarray(other.value), np.asarray(kernel.value))
        other.assign(np.zeros_like(other.value))
    assert twin.value.sharding == kernel.value.sharding


def test_a_keras_distribution_trains_with_kerass_own_engine_and_loses_nothing(data):
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=[f"cpu:{i}" for i in range(4)]))
    try:
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        batches = ((data.x[:16], data.y[:16]) for _ in range(3))
        with pytest.warns(UserWarning, match="ran out of data"):  # Before the second epoch's first batch.
            look = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: model.get_weights())
            model.fit(
                batches, steps_per_epoch=3, epochs=2, verbose=0, shuffle=False, validation_data=data, callbacks=[look]
            )
        assert int(model.optimizer.iterations.numpy()) == 3
        assert np.isfinite(model.evaluate(data.x, data.y, verbose=0)) and np.isfinite(model.get_weights()[0]).all()
        assert len(model.layers[0].kernel.value.devices()) == 4
    finally:
        keras.distribution.set_distribution(None)


@pytest.mark.parametrize("loss", ["mse", "huber", keras.losses.CosineSimilarity(name="angle")])
@pytest.mark.parametrize("shape", [(8, 2), (8,), (8, 4, 3)])
def test_targets_that_do_not_have_the_outputs_shape_are_an_error_that_names_both(loss, shape):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", loss)
    name = loss if isinstance(loss, str) else loss.name
    with pytest.raises(ValueError, match=re.escape(f"loss '{name}' got targets {shape}, predictions (8, 3)")):
        model.fit(np.ones((8, 4)), np.ones(shape), verbose=0)
