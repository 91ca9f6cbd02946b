"""What users of Keras's trainer rely on, under a strategy of two replicas."""

import contextlib
import gc
import itertools

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


@pytest.fixture
def pair(make_strategy):
    return make_strategy(2)


def dense(units=4, **options):
    return keras.layers.Dense(units, **options)


def ones_model(pair, *, hidden=(), **options):
    """Give each row the sum of its features, once for each of two outputs."""
    with pair.scope():
        model = keras.Sequential([keras.Input((3,)), *hidden, dense(2, kernel_initializer="ones")])
        model.compile(**{"optimizer": keras.optimizers.SGD(0.0), "loss": "mse", **options})
    return model


X, Y = np.ones((10, 3), "f4"), np.zeros((10, 2), "f4")


def test_metrics_are_those_of_loss_compile_and_attributes(pair):
    class Counting(keras.Sequential):
        def __init__(self, *args):
            super().__init__(*args)
            self.rows = keras.metrics.Sum(name="rows")

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            self.rows.update_state(keras.ops.ones(keras.ops.shape(x)[:1]))
            return super().compute_loss(x, y, y_pred, sample_weight, training)

    with pair.scope():
        model = Counting([keras.Input((3,)), dense(2, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"], weighted_metrics=["mae"])
    assert model.metrics_names == ["loss", "rows"]  # Those of `compile` are made with the first batch.
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert sorted(history) == ["loss", "mae", "rows", "weighted_mae"]
    assert history["rows"] == [10.0, 10.0]  # Begun anew for each epoch.
    assert history["mae"] == history["weighted_mae"] == pytest.approx([3.0, 3.0])
    evaluated = dict(zip(model.metrics_names, model.evaluate(X, Y, batch_size=3, verbose=0), strict=True))
    assert evaluated == model.evaluate(X, Y, batch_size=3, verbose=0, return_dict=True)
    assert evaluated["rows"] == 10.0


class Counting(keras.layers.Layer):
    """Counts its rows in a metric."""

    def __init__(self):
        super().__init__()
        self.rows = keras.metrics.Sum(name="rows")

    def call(self, x):
        self.rows.update_state(keras.ops.ones(keras.ops.shape(x)[:1]))
        return x


@pytest.mark.parametrize("has_strategy", [True, False], ids=["two replicas", "no strategy"])
@pytest.mark.parametrize("batch_size", [2, 4, 3])
def test_a_metric_that_a_layers_call_updates_counts(pair, batch_size, has_strategy):
    with pair.scope() if has_strategy else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((3,)), Counting(), dense(2)])
        model.compile("sgd", "mse")
    history = model.fit(X, Y, batch_size=batch_size, epochs=2, verbose=0).history
    assert history["rows"] == [10.0, 10.0]
    assert model.evaluate(X, Y, batch_size=batch_size, verbose=0, return_dict=True)["rows"] == 10.0
    model.predict(X, batch_size=batch_size, verbose=0)
    assert float(model.layers[0].rows.result()) == 20.0  # Nothing begins anew for predictions.


def test_what_a_step_in_jaxs_form_would_lose_is_refused_with_the_remedy(pair):
    class Own(keras.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    with pair.scope():
        model = Own([keras.Input((3,)), Counting(), dense(2)])
        model.compile("sgd", "mse")
    with pytest.raises(NotImplementedError, match=r"in `compute_loss` or `train_step`"):
        model.train_on_batch(X, Y)


def test_metrics_of_a_model_inside_a_model_count_for_itself_only(pair):
    with pair.scope():
        inner = ones_model(pair, metrics=["mae"])
        outer = keras.Sequential([keras.Input((3,)), inner])
        outer.compile("sgd", "mse", metrics=["mse"])
    outer.fit(X, Y, verbose=0)
    assert sorted(outer.get_metrics_result()) == ["loss", "mse"]
    assert sorted(outer.evaluate(X, Y, verbose=0, return_dict=True)) == ["loss", "mse"]


@pytest.mark.parametrize("batch_sizes", [(1, 10), (2, 3), (4, 7)])
def test_loss_of_an_epoch_does_not_depend_on_the_batch_size(pair, batch_sizes, data):
    model = ones_model(pair)
    losses = [model.fit(data.x[:10, :3], Y, batch_size=size, verbose=0).history["loss"][0] for size in batch_sizes]
    losses += [model.evaluate(data.x[:10, :3], Y, batch_size=size, verbose=0) for size in batch_sizes]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def test_compiling_again_takes_effect(pair):
    model = ones_model(pair)
    assert model.evaluate(X, Y, verbose=0) == 9.0
    for loss, expected in (("mae", 3.0), ("mse", 9.0)):
        with pair.scope():
            model.compile(keras.optimizers.SGD(0.0), loss, metrics=["mae"])
        assert model.evaluate(X, Y, verbose=0) == [expected, 3.0]
        assert model.train_on_batch(X, Y) == pytest.approx([expected, 3.0])
    model.trainable = False
    model.compile(keras.optimizers.SGD(1.0), "mse")
    before = model.get_weights()
    model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])


def two_outputs(pair, **options):
    with pair.scope():
        x = keras.Input((3,))
        outputs = [dense(1, name="a", kernel_initializer="ones")(x), dense(1, name="b", kernel_initializer="zeros")(x)]
        model = keras.Model(x, outputs)
        model.compile(keras.optimizers.SGD(0.0), **options)
    return model


TARGETS = [np.zeros((10, 1), "f4"), np.ones((10, 1), "f4")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"loss": "mse"}, 10.0),
        ({"loss": ["mse", "mae"], "loss_weights": [1.0, 3.0]}, 12.0),
        ({"loss": ["mse", None]}, 9.0),
        ({"loss": {"a": "mae", "b": "mse"}, "loss_weights": {"a": 2.0, "b": 0.5}}, 6.5),
    ],
)
def test_losses_of_several_outputs_add_up_by_their_weights(pair, options, expected):
    model = two_outputs(pair, **options)
    assert model.evaluate(X, TARGETS, batch_size=4, verbose=0, return_dict=True)["loss"] == pytest.approx(expected)
    assert model.fit(X, TARGETS, batch_size=5, verbose=0).history["loss"] == pytest.approx([expected])


def test_evaluate_lists_the_loss_first_and_metrics_in_their_order(pair):
    model = two_outputs(pair, loss="mse", metrics=[["mae"], ["mse", "mae"]])
    logs = model.evaluate(X, TARGETS, verbose=0, return_dict=True)
    values = model.evaluate(X, TARGETS, verbose=0)
    assert values[0] == logs["loss"]
    assert values[3:] == [logs["a_mae"], logs["b_mse"], logs["b_mae"]] == pytest.approx([3.0, 1.0, 1.0])


def test_predictions_keep_the_structure_of_the_outputs(pair):
    with pair.scope():
        x = {"left": keras.Input((3,), name="left"), "right": [keras.Input((3,)), keras.Input((1,))]}
        model = keras.Model(x, {"sum": x["left"] + x["right"][0], "others": (x["right"][1], [2 * x["left"]])})
    inputs = {"left": X, "right": [2 * X, X[:, :1]]}
    for predicted in (model.predict(inputs, batch_size=3, verbose=0), model.predict_on_batch(inputs)):
        assert predicted["sum"].shape == (10, 3) and float(predicted["sum"][9, 0]) == 3.0
        assert isinstance(predicted["others"], tuple) and predicted["others"][1][0].shape == (10, 3)


def numbered(start, stop, sizes):
    """Batches of rows that hold their own number."""
    rows = iter(np.arange(start, stop, dtype="f4"))
    for size in itertools.cycle(sizes):
        batch = list(itertools.islice(rows, size))
        if not batch:
            return
        yield (np.array(batch)[:, None] * np.ones(3, "f4"),)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("steps_per_execution", [1, 3, 50])
@pytest.mark.parametrize("sizes", [(4,), (3, 5, 1)])
def test_predictions_come_in_order_whatever_runs_together(pair, steps_per_execution, sizes):
    model = ones_model(pair, steps_per_execution=steps_per_execution)
    predicted = model.predict(numbered(0, 43, sizes), verbose=0)
    np.testing.assert_allclose(predicted[:, 0], 3 * np.arange(43))


@pytest.mark.parametrize("steps_per_execution", [1, 3, 7])
def test_steps_are_counted_in_batches(pair, steps_per_execution):
    counted = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: counted.append(batch))
    model = ones_model(pair, steps_per_execution=steps_per_execution)
    model.fit(np.ones((70, 3)), np.ones((70, 2)), batch_size=10, epochs=2, verbose=0, callbacks=[count])
    assert int(model.optimizer.iterations) == 14
    # The last execution may have fewer than it says.
    assert counted == [i + steps_per_execution - 1 for i in range(0, 7, steps_per_execution)] * 2


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_epochs_of_some_steps_go_through_the_data_once(pair, steps):
    seen = []
    data = list(numbered(0, 24, (4,)))
    model = ones_model(pair, metrics=[lambda y, y_pred: keras.ops.max(y_pred, -1)])
    epochs = 6 // steps
    batches = ((x, Y[:4]) for (x,) in data)
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["lambda"]))
    model.fit(batches, epochs=epochs, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[note])
    rows = 3 * np.arange(24).reshape(epochs, -1)
    np.testing.assert_allclose(seen, rows.mean(1))


def test_validation_takes_as_many_steps_of_an_endless_generator_as_it_is_told(pair):
    drawn = []

    def endless():
        for i in itertools.count():
            drawn.append(i)
            yield X[:4] * i, Y[:4]

    model = ones_model(pair)
    history = model.fit(X, Y, validation_data=endless(), validation_steps=2, epochs=3, verbose=0).history
    assert len(history["val_loss"]) == 3 and len(drawn) <= 8


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_callbacks_stop_each_loop(pair, method):
    kind = {"fit": "train", "evaluate": "test", "predict": "predict"}[method]
    counted = []

    class Stop(keras.callbacks.Callback):
        def on_batch_end(self, batch):
            counted.append(batch)
            if batch == 2:
                setattr(
                    self.model,
                    {"fit": "stop_training", "evaluate": "stop_evaluating"}.get(method, "stop_predicting"),
                    True,
                )

    setattr(Stop, f"on_{kind}_batch_end", lambda self, batch, logs=None: self.on_batch_end(batch))
    model, labels = ones_model(pair), () if method == "predict" else (Y,)
    getattr(model, method)(X, *labels, batch_size=1, verbose=0, callbacks=[Stop()])
    assert counted == [0, 1, 2]


def test_events_come_in_keras_order(pair):
    events = []

    class Note(keras.callbacks.Callback):
        def __getattribute__(self, name):
            if name.startswith("on_") and "_batch" not in name:
                return lambda *args, **kwargs: events.append(name)
            return super().__getattribute__(name)

    model = ones_model(pair)
    model.fit(X, Y, validation_split=0.5, epochs=2, verbose=0, callbacks=[Note()])
    epoch = ["on_epoch_begin", "on_test_begin", "on_test_end", "on_epoch_end"]
    assert events == ["on_train_begin", *epoch, *epoch, "on_train_end"]


def test_constraints_hold_after_each_step(pair, data):
    with pair.scope():
        model = keras.Sequential(
            [keras.Input((8,)), dense(2, kernel_constraint="non_neg", bias_constraint="unit_norm")]
        )
        model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit(data.x, -data.x[:, :2], batch_size=16, verbose=0)
    kernel, bias = model.get_weights()
    assert kernel.min() >= 0
    np.testing.assert_allclose(np.linalg.norm(bias), 1, rtol=1e-5)


def test_training_argument_says_what_runs(pair):
    class Says(keras.layers.Layer):
        def call(self, x, training=None):
            return x * (2.0 if training else 1.0)

    model = ones_model(pair, hidden=[Says()])
    assert model.train_on_batch(X, Y) == 36.0
    assert model.evaluate(X, Y, verbose=0) == 9.0
    assert model.predict(X, verbose=0)[0, 0] == 3.0


def test_predicting_moves_random_layers_on(pair):
    class Noisy(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.seed_generator = keras.random.SeedGenerator(1)

        def call(self, x):
            return x + keras.random.normal(keras.ops.shape(x), seed=self.seed_generator)

    model = ones_model(pair, hidden=[Noisy()])
    state = model.layers[0].seed_generator.state.numpy()
    first, second = (model.predict(X, verbose=0) for _ in range(2))
    assert not np.array_equal(first, second)
    assert not np.array_equal(state, model.layers[0].seed_generator.state.numpy())


def test_dropout_is_off_in_predictions(pair):
    model = ones_model(pair, hidden=[keras.layers.Dropout(0.5)])
    np.testing.assert_array_equal(model.predict(X, verbose=0), 3.0)


def test_a_loss_from_layers_alone_is_enough(pair, data):
    class Distance(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.mean(keras.ops.square(inputs[0] - inputs[1])))
            return inputs[0]

    with pair.scope():
        x, y = keras.Input((8,)), keras.Input((1,))
        model = keras.Model([x, y], Distance()([dense(1, kernel_initializer="zeros")(x), y]))
        model.compile(keras.optimizers.SGD(0.1))
    inputs = [data.x, 2 * data.x[:, :1]]
    assert model.evaluate(inputs, verbose=0) == pytest.approx(float(np.mean(inputs[1] ** 2)), rel=1e-5)
    losses = model.fit(inputs, epochs=4, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_a_model_that_nobody_has_built_is_built_by_its_first_batch(pair, data):
    with pair.scope():
        model = keras.Sequential([dense(), keras.layers.BatchNormalization(), dense()])
        model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(data.x[:10], data.x[:10, :4], verbose=0).history
    assert sorted(history) == ["loss", "mae"]
    assert len(model.weights) == 8 and len(model.optimizer.variables) == 2 + 2 * 6


def test_batch_methods_return_numbers_or_dictionaries(pair):
    model = ones_model(pair, metrics=["mae"])
    for method in (model.train_on_batch, model.test_on_batch):
        assert method(X, Y) == pytest.approx([9.0, 3.0])
        assert method(X, Y, return_dict=True) == pytest.approx({"loss": 9.0, "mae": 3.0})
    assert model.test_on_batch(X, Y, sample_weight=np.zeros(10, "f4"))[0] == 0.0
    assert model.train_on_batch(X, Y[:, :1], class_weight={0: 0.5})[0] == pytest.approx(4.5)
    assert model.predict_on_batch(X).shape == (10, 2)


def test_python_of_a_model_runs_once_for_each_shape(pair):
    traced = []

    class Counted(keras.Sequential):
        def call(self, x, training=None):
            traced.append(np.shape(x))
            return super().call(x, training=training)

    with pair.scope():
        model = Counted([keras.Input((3,)), dense(2)])
        model.compile("sgd", "mse")
    model.fit(np.ones((40, 3)), np.ones((40, 2)), batch_size=10, epochs=2, verbose=0)
    after = len(traced)
    model.fit(np.ones((40, 3)), np.ones((40, 2)), batch_size=10, epochs=2, verbose=0)
    assert len(traced) == after
    model.predict(X, verbose=0)
    after = len(traced)
    model.predict(X, verbose=0)
    assert len(traced) == after


def test_callbacks_see_and_change_the_weights_at_batch_boundaries(pair):
    class Double(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.layers[0].kernel.assign(2 * self.model.layers[0].kernel)

        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(self.model.layers[0].kernel.numpy()[0, 0]))

    seen = []
    ones_model(pair).fit(X, Y, batch_size=4, verbose=0, callbacks=[Double()])
    assert seen == [2.0, 4.0, 8.0]


def test_compute_loss_may_be_the_models_own(pair):
    class Own(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, y, y_pred, sample_weight) * (2.0 if training else 3.0)

    with pair.scope():
        model = Own([keras.Input((3,)), dense(2, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    assert model.fit(X, Y, batch_size=4, verbose=0).history["loss"] == pytest.approx([18.0])
    assert model.evaluate(X, Y, batch_size=4, verbose=0) == pytest.approx(27.0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("limit", ["epochs", "steps"])
def test_keras_limits_for_quick_trials_are_kept(pair, limit, monkeypatch):
    getter, setter = (
        getattr(keras.config, f"{verb}max_{limit}{'' if limit == 'epochs' else '_per_epoch'}") for verb in ("", "set_")
    )
    before = getter()
    setter(2)
    try:
        model = ones_model(pair)
        with pytest.warns(UserWarning, match="Limiting"):
            history = model.fit(X, Y, batch_size=2, epochs=3, verbose=0).history
    finally:
        setter(before)
    assert len(history["loss"]) == (2 if limit == "epochs" else 3)
    assert int(model.optimizer.iterations) == (10 if limit == "epochs" else 5)


def test_mixed_precision_wraps_the_optimizer_and_keeps_small_gradients(pair):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = ones_model(
            pair, optimizer=keras.optimizers.SGD(1e6), loss=lambda y, y_pred: 1e-6 * keras.ops.mean(y_pred, -1)
        )
    finally:
        keras.config.set_dtype_policy(before)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.fit(1e-2 * X, Y, verbose=0)
    # The gradient, 1e-8 / 2, is zero in float16 unless the loss is scaled.
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), 1 - 0.005, rtol=1e-3)


def test_datasets_without_labels_and_with_weights_are_told_apart(pair):
    model = ones_model(pair)
    weights = np.arange(10, dtype="f4")
    batches = tf.data.Dataset.from_tensor_slices((X, Y, weights)).batch(4)
    expected = 9 * weights.mean()
    assert model.evaluate(batches, verbose=0) == pytest.approx(model.evaluate(X, Y, sample_weight=weights, verbose=0))
    assert model.evaluate(X, Y, sample_weight=weights, batch_size=10, verbose=0) == pytest.approx(expected)
    assert model.predict(batches, verbose=0).shape == (10, 2)


class OwnSteps(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("makes_dataset", [False, True])
@pytest.mark.parametrize("replicas", [None, 2])
def test_empty_data_are_said_also_before_the_first_training(replicas, makes_dataset, is_built, make_strategy):
    with make_strategy(replicas).scope() if replicas else contextlib.nullcontext():
        model = keras.Sequential([*[keras.Input((3,))] * is_built, dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    pairs = (tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).take(0),) if makes_dataset else (X[:0], Y[:0])
    inputs = pairs[0].map(lambda x, y: x) if makes_dataset else X[:0]
    for _ in range(2):
        with pytest.raises(ValueError, match="`fit` has got no batch of data"):
            model.fit(*pairs, verbose=0)
        with pytest.raises(ValueError, match="`predict` has got no batch of data"):
            model.predict(inputs, verbose=0)
        assert model.evaluate(*pairs, verbose=0) == []
        model.fit(X, Y, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 2
    assert model.predict(X, verbose=0).shape == (10, 2)


def test_programs_of_models_are_freed_with_them():
    left = []
    for width in range(3, 8):
        keras.backend.clear_session()
        gc.collect()
        left.append(len(jax.devices()[0].client.live_executables()))
        model = keras.Sequential([dense(width), dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, validation_data=(X, Y), verbose=0)
        model.predict(X, verbose=0)
        del model
    # A small program that all share may have come meanwhile; what a model leaves would come each time.
    assert min(after - before for before, after in itertools.pairwise(left[1:])) <= 0


@pytest.mark.parametrize("kind", [keras.Sequential, OwnSteps])
@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("replicas", [None, 2])
def test_nothing_is_lost_where_there_is_no_data(replicas, validates, kind, make_strategy):
    with make_strategy(replicas).scope() if replicas else contextlib.nullcontext():
        model = kind([keras.Input((3,)), dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, batch_size=5, verbose=0)
    weights = model.get_weights()
    with pytest.raises(ValueError, match="no batch of data"):
        model.fit(X[:0], Y[:0], verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 2
    np.testing.assert_array_equal(model.get_weights()[0], weights[0])

    batches = ((X[:2], Y[:2]) for _ in range(4))
    validation = {"validation_data": (X, Y)} if validates else {}
    with pytest.warns(UserWarning, match="ran out of data"):
        fitted = model.fit(batches, steps_per_epoch=4, epochs=2, shuffle=False, verbose=0, **validation)
    assert fitted.history["loss"][1] == 0.0  # As under TensorFlow.
    assert int(model.optimizer.iterations.numpy()) == 6
    assert np.isfinite(model.get_weights()[0]).all()


class Extremes(keras.layers.Layer):
    """Keeps the smallest value seen, from where `first` says, and counts its batches."""

    def __init__(self, first):
        super().__init__()
        self.smallest = self.add_weight(initializer=keras.initializers.Constant(first), trainable=False)
        self.batches = self.add_weight(initializer="zeros", trainable=False)

    def call(self, x):
        self.smallest.assign(keras.ops.minimum(self.smallest, keras.ops.min(x)))
        self.batches.assign_add(1.0)
        return x


@pytest.mark.parametrize("first", [np.inf, 1e30])
@pytest.mark.parametrize("rows", [16, 10])
def test_statistics_may_begin_at_large_or_infinite_values(first, rows, strategy, fit, data):
    with strategy.scope():
        seen = Extremes(first)
        model = keras.Sequential([keras.Input((8,)), seen, keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(model, data.rows(rows), epochs=3)
    sizes = np.diff([0, 4, 8, 12, 16] if rows == 16 else [0, 3, 6, 9, 10])
    parts = np.split(data.x[:rows], np.cumsum(sizes)[:-1])
    # The mean of the replicas, then the smaller of that and what each has seen.
    expected = first
    for _ in range(3):
        expected = np.average([min(expected, part.min()) for part in parts], weights=sizes)
    assert float(seen.smallest.numpy()) == pytest.approx(expected, rel=1e-5)
    assert float(seen.batches.numpy()) == 3


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_batches_without_rows_give_what_one_device_gives(run_eagerly, strategy, make_model, data):
    model, alone = make_model(strategy, run_eagerly=run_eagerly), make_model()
    x, y = data.rows(0)
    for each in (model, alone):
        assert each.predict_on_batch(x).shape == (0, 4)
        assert each.test_on_batch(x, y) == [0, 0]
    chunks = lambda: ((rows,) for rows in (data.x[:6], x, data.x[6:10]))
    np.testing.assert_allclose(
        model.predict(chunks(), steps=3, verbose=0), alone.predict(data.x[:10], verbose=0), atol=1e-6
    )
    with pytest.raises(ValueError, match="A batch to train on has no rows"):
        model.train_on_batch(x, y)
    model.train_on_batch(*data.rows(8))


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("rows", [16, 10, 3])
def test_a_row_may_have_several_predictions(rows, run_eagerly, strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Lambda(lambda x: keras.ops.reshape(x, (-1, 2)))])
        model.compile(run_eagerly=run_eagerly)
    np.testing.assert_array_equal(model.predict(data.x[:rows], verbose=0), data.x[:rows].reshape(-1, 2))


def test_predictions_that_belong_to_no_row_need_equal_shares(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Lambda(lambda x: keras.ops.sum(x, 0, keepdims=True))])
    with pytest.raises(ValueError, match="cannot be divided among rows"):
        model.predict(data.x[:10], verbose=0)


def test_one_target_for_the_first_of_two_outputs_is_whole_in_batches_of_two_rows():
    inputs = keras.Input((3,))
    outputs = dense(1, kernel_initializer="ones", name="a")(inputs), dense(1, name="b")(inputs)
    model = keras.Model(inputs, list(outputs))
    model.compile("sgd", loss=["mse", None])
    target = np.array([[1.0], [5.0], [3.0], [3.0]], "f4")
    assert model.evaluate(X[:4], target, batch_size=2, verbose=0) == 2  # Of 4, 4, 0 and 0: the sums are 3.
