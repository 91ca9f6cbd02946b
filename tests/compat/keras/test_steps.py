"""Steps that users write or set: custom steps, several per execution, eager ones, single batches."""

import functools

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import stacked
from tfdist_jax.compat.tensorflow.keras._training._step_function import StepFunction
from tfdist_jax.compat.tensorflow.keras._training._steps import make_train_step


class Custom(keras.Model):
    """A training step as the Keras guide writes it for JAX, with a log entry of its own."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.dense = keras.layers.Dense(4)

    def call(self, x, training=False):
        return self.dense(self.hidden(x))

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, metrics = state
        x, y = data
        gradient_of = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (loss, (_, y_pred, non_trainable, metrics)), grads = gradient_of(
            trainable, non_trainable, metrics, x, y, None, training=True, optimizer_variables=optimizer
        )
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, grads, trainable)
        logs, new_metrics = {"twice the loss": 2 * loss}, []
        for metric in self.metrics:
            values = metrics[len(new_metrics) : len(new_metrics) + len(metric.variables)]
            if metric.name == "loss":
                values = metric.stateless_update_state(values, loss, sample_weight=len(y))
            else:
                values = metric.stateless_update_state(values, y, y_pred)
            result = metric.stateless_result(values)
            logs.update(result if isinstance(result, dict) else {metric.name: result})
            new_metrics += values
        return logs, (trainable, non_trainable, optimizer, new_metrics)


class OnlyLoss(keras.Model):
    """A training step that updates no metric and returns its loss."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        trainable, non_trainable, optimizer, metrics = state

        def loss_fn(trainable):
            logits, _ = self.stateless_call(trainable, non_trainable, data[0])
            return self.loss(data[1], logits)

        loss, grads = jax.value_and_grad(loss_fn)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, grads, trainable)
        return {"my loss": loss}, (trainable, non_trainable, optimizer, metrics)


class CustomEvaluation(keras.Model):
    """Steps of its own for evaluation and prediction."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, x):
        return self.dense(x)

    def test_step(self, state, data):
        logs, state = super().test_step(state, data)
        return logs | {"rows": 10.0}, state

    def predict_step(self, state, data):
        outputs, non_trainable = super().predict_step(state, data)
        return keras.ops.argmax(outputs, -1), non_trainable


def test_custom_train_step_trains_as_on_one_device(strategy, make_model, fit, data, assert_same_training):
    model, alone = make_model(strategy, model=Custom), make_model(model=Custom)
    assert_same_training(model, fit(model, data), alone, fit(alone, data))


@pytest.mark.parametrize("rows", [2, 10, 42])
def test_custom_train_step_takes_uneven_batches_like_kerass_own(rows, strategy, make_model, fit, data):
    """The custom step does what Keras's does, so weights must come out equal, and only its own log is more."""
    custom, own = make_model(strategy, model=Custom), make_model(strategy, model=_same_layers)
    custom.predict(data.x[:4], verbose=0)  # Makes the weights.
    custom.set_weights(own.get_weights())
    history, expected = fit(custom, data.rows(rows)), fit(own, data.rows(rows))
    assert history.keys() == {"accuracy", "loss", "twice the loss"}
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, atol=1e-5)
    for weight, expected_weight in zip(custom.weights, own.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected_weight.numpy(), atol=1e-5)


def _same_layers():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])


def test_logs_of_a_custom_train_step_reach_the_user(strategy, make_model, fit, data):
    model, alone = make_model(strategy, model=OnlyLoss), make_model(model=OnlyLoss)
    history, expected = fit(model, data.rows(10)), fit(alone, data.rows(10))
    assert list(history) == ["my loss"]
    np.testing.assert_allclose(history["my loss"][0], expected["my loss"][0], atol=1e-6)  # Averaged over the rows.


def test_optimizer_is_left_as_it_was(strategy, make_model, fit, data):
    model = make_model(strategy, model=Custom)
    fit(model, data.rows(10))
    assert "stateless_apply" not in vars(model.optimizer)


def test_custom_evaluation_and_prediction_run_per_replica(strategy, make_model, data):
    model, alone = make_model(strategy, model=CustomEvaluation), make_model(model=CustomEvaluation)
    logs, expected = (m.evaluate(data.x[:10], data.y[:10], verbose=0, return_dict=True) for m in (model, alone))
    assert logs == {name: pytest.approx(value, abs=1e-6) for name, value in expected.items()}
    np.testing.assert_array_equal(model.predict(data.x[:10], verbose=0), alone.predict(data.x[:10], verbose=0))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("steps", [3, 9])
def test_several_steps_per_execution_train_as_single_ones(
    steps, any_strategy, make_model, fit, data, assert_same_training
):
    together, single = make_model(any_strategy, steps_per_execution=steps), make_model(any_strategy)
    histories = [fit(model, data.rows(42), batch_size=4) for model in (together, single)]
    assert_same_training(together, histories[0], single, histories[1], atol=1e-6)
    evaluated = [model.evaluate(data.x[:42], data.y[:42], batch_size=4, verbose=0) for model in (together, single)]
    np.testing.assert_allclose(*evaluated, atol=1e-6)
    predicted = [model.predict(data.x[:42], batch_size=4, verbose=0) for model in (together, single)]
    np.testing.assert_allclose(*predicted, atol=1e-6)


@pytest.mark.parametrize("rows", [16, 10])
def test_logs_may_be_python_numbers(rows, strategy, make_model, fit, data):
    class Plain(keras.Sequential):
        def train_step(self, state, data):
            logs, state = super().train_step(state, data)
            return logs | {"ten": 10.0, "two": 2}, state

    history = fit(
        make_model(strategy, model=lambda: Plain([keras.Input((8,)), keras.layers.Dense(4)])), data.rows(rows)
    )
    assert history["ten"] == pytest.approx([10.0, 10.0]) and history["two"] == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("model", [None, Custom])
def test_eager_training_equals_compiled_training(model, any_strategy, make_model, fit, data, assert_same_training):
    eager, compiled = make_model(any_strategy, model=model, run_eagerly=True), make_model(any_strategy, model=model)
    histories = [fit(each, data.rows(10), batch_size=8, epochs=1) for each in (eager, compiled)]
    assert_same_training(eager, histories[0], compiled, histories[1])
    predicted = [each.predict(data.x[:7], verbose=0) for each in (eager, compiled)]
    np.testing.assert_allclose(*predicted, atol=1e-5)


def test_eager_evaluation_shows_numbers_to_the_models_code(strategy, make_model, data):
    seen = []

    class Watching(keras.layers.Layer):
        def call(self, x):
            if not isinstance(x, jax.core.Tracer):
                seen.append(np.asarray(x))
            return x

    model = make_model(strategy, hidden=[Watching], run_eagerly=True)
    model.test_on_batch(data.x[:10], data.y[:10])
    assert [len(rows) for rows in seen] == [3, 3, 3, 1]


def test_training_that_is_not_to_be_compiled_is_compiled_all_the_same(strategy, make_model, fit, data):
    model, usual = make_model(strategy, jit_compile=False), make_model(strategy)
    assert fit(model, data) == fit(usual, data)


@pytest.mark.parametrize("rows", [16, 10, 1])
def test_single_batches(rows, any_strategy, make_model, data):
    model, alone = make_model(any_strategy), make_model()
    x, y = data.rows(rows)
    for method in ("train_on_batch", "test_on_batch"):
        results = [getattr(each, method)(x, y, return_dict=True) for each in (model, alone)]
        if method == "train_on_batch" or rows == 16:  # Uneven gradients follow TensorFlow's rule.
            assert results[0] == {name: pytest.approx(value, abs=1e-5) for name, value in results[1].items()}
    alone.set_weights(model.get_weights())
    np.testing.assert_allclose(model.predict_on_batch(x), alone.predict_on_batch(x), atol=1e-6)
    assert len(model.weights[0].value.sharding.device_set) == any_strategy.num_replicas_in_sync


class Listing(keras.metrics.Metric):
    """A metric whose reset does more than assign to variables."""

    def __init__(self):
        super().__init__(name="listing")
        self.resets = 0
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(keras.ops.cast(keras.ops.size(y_true), "float32"))

    def result(self):
        return self.total

    def reset_state(self):
        self.resets += 1
        self.total.assign(0.0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("has_own_reset", [False, True])
def test_metrics_of_single_batches_are_of_that_batch(strategy, make_model, data, has_own_reset, run_eagerly):
    metric = Listing() if has_own_reset else keras.metrics.SparseCategoricalAccuracy(name="listing")
    model = make_model(strategy, metrics=[metric], run_eagerly=run_eagerly)
    batches = [(data.x[i : i + 16], data.y[i : i + 16]) for i in range(0, 64, 16)]
    for x, y in batches:
        expected = model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
        assert model.test_on_batch(x, y, return_dict=True) == {name: pytest.approx(v) for name, v in expected.items()}
        assert model.train_on_batch(x, y, return_dict=True) == {name: pytest.approx(v) for name, v in expected.items()}
    if has_own_reset:
        # Each `evaluate` resets too.
        assert metric.resets == 3 * len(batches)
        assert float(metric.result()) == 16
        model.fit(data.x, data.y, batch_size=16, epochs=2, verbose=0)
        assert float(metric.result()) == 64


class Batchwise(Custom):
    """The same for single batches, which Keras gives a weight, too."""

    def train_step(self, state, data):
        return super().train_step(state, data[:2])


@pytest.mark.parametrize("rows", [16, 10, 1])
def test_a_step_of_ones_own_begins_with_metrics_at_zero(rows, any_strategy, data):
    with any_strategy.scope():
        model = Batchwise()
    model.compile(
        keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    x, y = data.rows(rows)
    first = model.train_on_batch(x, y, return_dict=True)
    model.train_on_batch(data.x, data.y)
    assert model.train_on_batch(x, y, return_dict=True) == {
        name: pytest.approx(v, abs=1e-6) for name, v in first.items()
    }


def test_metrics_are_reset_before_a_single_batch_that_fails(strategy, make_model, data):
    model = make_model(strategy)
    model.train_on_batch(data.x, data.y)
    (loss,) = [metric for metric in model.metrics if metric.name == "loss"]
    assert float(loss.result()) > 0
    with pytest.raises(ValueError, match="incompatible with the layer"):
        model.train_on_batch(data.x[:, :5], data.y)
    assert float(loss.count) == 0


@pytest.mark.parametrize("rows", [1, 5, 10, 16, 50])
def test_predictions_come_in_the_order_of_their_inputs(rows, any_strategy, make_model, data):
    model, alone = make_model(any_strategy), make_model()
    predicted = model.predict(data.x[:rows], batch_size=16, verbose=0)
    np.testing.assert_allclose(predicted, alone.predict(data.x[:rows], batch_size=16, verbose=0), atol=1e-6)


def test_a_model_that_is_not_compiled_predicts(strategy, data):
    with strategy.scope():
        model = _same_layers()
    assert model.predict(data.x, verbose=0).shape == (64, 4)


def test_a_step_that_fails_says_why(strategy, make_model, data):
    model = make_model(strategy)
    with pytest.raises(ValueError, match="incompatible with the layer"):
        model.train_on_batch(data.x[:, :5], data.y)
    with pytest.raises(ValueError, match="Arguments `target` and `output`"):
        make_model(strategy).train_on_batch(data.x, np.stack([data.y, data.y], 1))


class TensorFlowForm(Custom):
    """The same step as `Custom`, as the Keras guide writes it for TensorFlow."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=len(y))
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics if metric.name != "loss"}

    def predict_step(self, data):
        return 2 * self(data, training=False)


@pytest.mark.parametrize("rows", [16, 42, 2])
def test_steps_in_tensorflows_form_train_like_kerass_own(rows, strategy, make_model, fit, data):
    model, own = make_model(strategy, model=TensorFlowForm), make_model(strategy, model=_same_layers)
    model.predict(data.x[:4], verbose=0)
    model.set_weights(own.get_weights())
    history, expected = fit(model, data.rows(rows)), fit(own, data.rows(rows))
    np.testing.assert_allclose(history["accuracy"], expected["accuracy"], atol=1e-5)
    # Under TensorFlow, too, a step sees its replica's part of the loss.
    np.testing.assert_allclose(history["loss"], np.array(expected["loss"]) / 4, atol=1e-5)
    for weight, expected_weight in zip(model.weights, own.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected_weight.numpy(), atol=1e-5)
    assert model.evaluate(data.x[:rows], data.y[:rows], verbose=0) == pytest.approx(
        own.evaluate(data.x[:rows], data.y[:rows], verbose=0)[1], abs=1e-6
    )
    np.testing.assert_allclose(
        model.predict(data.x[:rows], verbose=0), 2 * own.predict(data.x[:rows], verbose=0), atol=1e-5
    )


def test_steps_in_tensorflows_form_need_no_strategy(make_model, fit, data, assert_same_history):
    model, own = make_model(model=TensorFlowForm), make_model(model=_same_layers)
    model.predict(data.x[:4], verbose=0)
    model.set_weights(own.get_weights())
    assert_same_history(fit(model, data), fit(own, data))


@pytest.mark.parametrize("clip", ["clipnorm", "global_clipnorm", "clipvalue"])
@pytest.mark.parametrize("model", [Custom, TensorFlowForm])
def test_custom_steps_clip_the_sum_of_the_replicas_gradients(model, clip, strategy, make_model, fit, data):
    options = {"optimizer": lambda: keras.optimizers.SGD(0.5, **{clip: 0.02}), "model": model}
    ours, alone = make_model(strategy, **options), make_model(**options)
    for each in (ours, alone):
        each.predict(data.x[:4], verbose=0)
    ours.set_weights(alone.get_weights())
    for each in (ours, alone):
        fit(each, data, epochs=1)
    for weight, expected in zip(ours.weights, alone.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=1e-6)


class Augmenting(keras.Model):
    """Steps in TensorFlow's form around Keras's own."""

    def train_step(self, data):
        x, *others = data
        return super().train_step((2 * x, *others))

    def test_step(self, data):
        return super().test_step(data) | {"rows": 10.0}

    def predict_step(self, data):
        return 2 * super().predict_step(data)


OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1024),
    "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
}


@pytest.mark.one_in(4)
@pytest.mark.slow("several trainings")
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("replicas", [0, 4])
def test_steps_in_tensorflows_form_may_call_kerass_own(
    optimizer, replicas, make_strategy, make_model, data, assert_same_training
):
    def layers(kind):
        x = keras.Input((8,))
        penalty = {"kernel_regularizer": "l2", "activity_regularizer": "l2"}
        y = keras.layers.BatchNormalization()(keras.layers.Dense(16, activation="relu", **penalty)(x))
        return kind(x, keras.layers.Dense(4)(y))

    weighted = lambda: keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="weighted")
    strategy = make_strategy(replicas) if replicas else None
    model, own = (
        make_model(strategy, model=functools.partial(layers, kind), optimizer=optimizer, weighted_metrics=[weighted()])
        for kind in (Augmenting, keras.Model)
    )
    options = {"sample_weight": np.linspace(0.5, 2, 42), "batch_size": 16, "verbose": 0}
    training = {"epochs": 2, "shuffle": False} | options
    x, y = data.rows(42)
    histories = [each.fit(given, y, **training).history for each, given in ((model, x), (own, 2 * x))]
    assert_same_training(model, histories[0], own, histories[1])
    logs, expected = (each.evaluate(x, y, return_dict=True, **options) for each in (model, own))
    assert logs == {name: pytest.approx(value, abs=1e-5) for name, value in expected.items()} | {"rows": 10.0}
    np.testing.assert_allclose(model.predict(x, verbose=0), 2 * own.predict(x, verbose=0), atol=1e-5)


def test_steps_without_a_loop_change_the_model_themselves(make_model, data):
    model, own = make_model(), make_model()
    logs = model.train_step(data.rows(16))
    assert logs == {name: pytest.approx(v) for name, v in own.train_on_batch(*data.rows(16), return_dict=True).items()}
    np.testing.assert_allclose(model.predict_step((data.x,)), own.predict(data.x, verbose=0), atol=1e-6)


@pytest.mark.parametrize("rows", [16, 10, 2])
def test_a_step_in_tensorflows_form_may_assign_any_variable(rows, strategy, data):
    class Counting(keras.Sequential):
        def train_step(self, data):
            x, y = data
            counted.assign_add(float(x.shape[0]))
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(self.compute_loss(x=x, y=y, y_pred=self(x, training=True)))
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    with strategy.scope():
        counted = tf.Variable(0.0, trainable=False, aggregation=tf.VariableAggregation.SUM)
        model = Counting([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data.x[:rows], data.y[:rows], batch_size=16, epochs=3, verbose=0)
    assert float(counted) == 3 * rows


@pytest.mark.one_in(3)
@pytest.mark.parametrize("synchronized", [True, False])
@pytest.mark.parametrize("sizes", [(2, 0, 1, 0), (0, 2, 0, 1)])
def test_replicas_without_rows_may_be_any_of_them(sizes, synchronized, strategy, make_model, data):
    """With several processes any of them may have none left; in lock-step, and as one program."""

    def trained(sizes):
        norm = functools.partial(keras.layers.BatchNormalization, synchronized=synchronized)
        model = make_model(strategy, hidden=[Counter, norm, lambda: keras.layers.Dropout(0.0, seed=1)])
        model._symbolic_build(data_batch=(data.x[:3], data.y[:3]))
        rows = iter(range(3))
        places = [next(rows) if row < size else 0 for size in sizes for row in range(2)]
        function = StepFunction(make_train_step(model, strategy.num_replicas_in_sync), strategy)
        batch = stacked([(data.x[places], data.y[places])])
        logs = [function._dispatch(function.variable_ids(), sizes, batch) for _ in range(2)][-1]
        return [float(logs["loss"]), *(variable.numpy() for variable in model.variables)]

    for value, expected in zip(trained(sizes), trained((2, 1, 0, 0)), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-6)
    assert any(np.array_equal(value, 2) for value in trained(sizes))  # The steps that the layer has counted.


class Counter(keras.layers.Layer):
    """Counts its calls in a whole number, which no mean is taken of."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.calls.assign_add(1)
        return x


@pytest.mark.parametrize("rows", [16, 10])
def test_a_part_of_kerass_step_that_the_model_overrides_is_used(rows, strategy, make_model, fit, data):
    class Doubled(keras.Sequential):
        def compute_loss_and_updates(self, *args, **kwargs):
            loss, aux = super().compute_loss_and_updates(*args, **kwargs)
            return 2 * loss, (2 * aux[0], *aux[1:])

    layers = lambda: [keras.Input((8,)), keras.layers.Dense(4)]
    models = [
        make_model(chosen, model=lambda: Doubled(layers()), optimizer=lambda: keras.optimizers.SGD(0.1))
        for chosen in (strategy, None)
    ]
    histories = [fit(model, data.rows(rows), batch_size=16) for model in models]
    plain = fit(make_model(strategy, model=lambda: keras.Sequential(layers())), data.rows(rows), batch_size=16)
    assert histories[0]["loss"][0] == pytest.approx(histories[1]["loss"][0], rel=1e-5)
    assert histories[0]["loss"][0] == pytest.approx(2 * plain["loss"][0], rel=1e-5)
    if rows == 16:  # Means of unequal parts differ from the mean of all.
        np.testing.assert_allclose(*[model.get_weights()[0] for model in models], atol=1e-5)
    evaluated = [model.evaluate(data.x, data.y, verbose=0)[0] for model in models]
    if rows == 16:
        assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-4)


def test_whole_numbers_that_replicas_assign_come_from_the_first(strategy):
    with strategy.scope():
        number = keras.Variable(0, dtype="int32", trainable=False)

    @tf.function
    def step():
        def replica():
            number.assign(7 + tf.distribute.get_replica_context().replica_id_in_sync_group)

        strategy.run(replica)

    step()
    assert [int(shard.data) for shard in number.stored.addressable_shards] == [7] * 4
