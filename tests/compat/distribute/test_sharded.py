"""Strategies that keep variables in parts: training is that of `MirroredStrategy`, with 1/N of the state on each device."""

import copy
import re
import warnings

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training import _programs
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import stacked

FSDPStrategy = tf.distribute.experimental.FSDPStrategy

OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "clipped by norm": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "averaged": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, weight_decay=0.1),
    "by layer": lambda: keras.optimizers.Lamb(0.01),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
    "factored": lambda: keras.optimizers.Adafactor(0.01),
}


def make_data(rows=65):
    random = np.random.RandomState(0)
    return random.randn(rows, 32).astype("f4"), random.randn(rows, 1).astype("f4")


def make_model(strategy, optimizer=OPTIMIZERS["momentum"], policy=None):
    """Return a model of which two kernels are split and all else is whole."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(64, activation="relu", dtype=policy),
            keras.layers.BatchNormalization(dtype=policy),
            keras.layers.Dropout(0.5, dtype=policy),
            keras.layers.Dense(32, activation="relu", dtype=policy),
        ]
        model = keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(1, dtype="float32")])
        model.compile(optimizer(), "mse", metrics=["mae"])
    return model


def fit(strategy, model):
    """Return all losses and metrics, with batches of 32, 32 and 1 rows."""
    x, y = make_data()
    history = model.fit(
        x, y, batch_size=32, epochs=2, shuffle=False, verbose=0, validation_data=(x[:20], y[:20])
    ).history
    return [*np.ravel([*history.values()]), *model.evaluate(x, y, batch_size=32, verbose=0)]


def step_by_step(strategy, model, *, wrap=lambda run: run, needs_values=False):
    optimizer = model.optimizer

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                tf.reduce_sum((model(x, training=True) - y) ** 2, 1), global_batch_size=32
            )
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        if needs_values:
            float(loss)
        return loss

    run = wrap(lambda x, y: strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None))
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(make_data()).batch(32))
    return [float(run(*batch)) for _ in range(2) for batch in batches]


def assert_split(variables, parts=8):
    """Each variable of 1,024 numbers or more has an N-th of them on each device."""
    large = [variable for variable in variables if np.prod(variable.shape) >= 1024]
    assert len(large) >= 2
    for variable in large:
        shards = variable.stored.addressable_shards
        assert len(shards) == parts and all(shard.data.size == variable.stored.size // parts for shard in shards)


def assert_same(model, expected):
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def compare(train, **options):
    """Train under both strategies; return the model whose variables are split."""
    mirrored, sharded = tf.distribute.MirroredStrategy(), FSDPStrategy()
    expected, model = make_model(mirrored, **options), make_model(sharded, **options)
    wanted = train(mirrored, expected)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="A step needs all of the optimizer's state")
        losses = train(sharded, model)
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert_same(model, expected)
    assert_split(model.variables)
    return model, expected


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fit_is_that_of_mirrored_variables(name):
    model, expected = compare(fit, optimizer=OPTIMIZERS[name])
    if name != "factored":  # What that one keeps of a matrix is smaller than it.
        assert_split([v for v in model.optimizer.variables if v.path.endswith(("momentum", "velocity", "accumulator"))])
    x, _ = make_data(13)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("train", [fit, step_by_step])
def test_training_in_bfloat16_is_that_of_mirrored_variables(train):
    model, _ = compare(train, policy="mixed_bfloat16")
    assert_split(model.optimizer.variables)


@pytest.mark.parametrize("name", ["momentum", "clipped by norm", "averaged", "accumulating", "scaled"])
def test_loops_are_those_of_mirrored_variables(name):
    model, _ = compare(lambda *args: step_by_step(*args, wrap=tf.function), optimizer=OPTIMIZERS[name])
    assert_split(model.optimizer.variables)


@pytest.mark.parametrize(
    "needs_values",
    [False, pytest.param(True, marks=pytest.mark.slow("eight replicas one by one, without a program"))],
)
def test_eager_loops_are_those_of_mirrored_variables(needs_values):
    model, _ = compare(lambda *args: step_by_step(*args, needs_values=needs_values))
    assert_split(model.optimizer.variables)


def test_train_steps_of_the_users_are_those_of_mirrored_variables():
    class Model(keras.Sequential):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    def train(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = Model([keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.01, clipnorm=0.1), loss="mse")
        return model.fit(*make_data(), batch_size=32, epochs=2, shuffle=False, verbose=0).history["loss"], model

    losses, model = train(FSDPStrategy())
    np.testing.assert_allclose(losses, train(tf.distribute.MirroredStrategy())[0], rtol=1e-5)
    assert_split(model.optimizer.variables)


def compile_step(strategy, width=512):
    """Return a compiled step of a model of two square kernels, with Adam, and the bytes of its weights."""
    with strategy.scope():
        layers = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((width,)), *layers])
        model.compile(keras.optimizers.Adam(global_clipnorm=1.0), "mse")
    batch = np.zeros((8, width), "f4"), np.zeros((8, width), "f4")
    model.fit(*batch, batch_size=8, verbose=0)
    return model.train_function.lower(batch).compile(), sum(v.stored.nbytes for v in model.variables)


def test_a_step_gathers_parameters_and_scatters_gradients_and_has_no_whole_slots():
    compiled, weights = compile_step(FSDPStrategy())
    found = re.findall(
        r"= (\(.*?\)|\S+) (all-gather|reduce-scatter|all-reduce|all-to-all|collective-permute)\(", compiled.as_text()
    )
    shapes = {kind: [re.findall(r"\w+\[[\d,]*\]", each) for each, other in found if other == kind] for _, kind in found}
    assert shapes["all-gather"] == [["f32[512,512]"]] * 2 and shapes["reduce-scatter"] == [["f32[64,512]"]] * 2
    # What is left to add up over replicas: two biases, the metrics' totals, and the norms.
    (rest,) = shapes.pop("all-reduce")
    assert all(np.prod([int(n) for n in re.findall(r"\d+", shape[3:])]) < 2000 for shape in rest) and len(shapes) == 2
    memory = compiled.memory_analysis()
    # All weights at once, or their gradients, and nothing of their size beside them; Adam's two slots stay in parts.
    assert memory.temp_size_in_bytes < 1.5 * weights
    assert memory.argument_size_in_bytes < 3 * weights / 8 + 100_000
    mirrored = compile_step(tf.distribute.MirroredStrategy())[0].memory_analysis()
    assert mirrored.temp_size_in_bytes + mirrored.argument_size_in_bytes > 4 * weights


def test_several_steps_in_one_program_have_no_whole_slots(monkeypatch):
    """As on GPUs, where they are a loop."""
    monkeypatch.setattr(_programs, "runs_on_cpu", lambda mesh: False)
    strategy = FSDPStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((512,)), *[keras.layers.Dense(512) for _ in range(2)]])
        model.compile(keras.optimizers.Adam(global_clipnorm=1.0), "mse", steps_per_execution=2)
    rows = np.ones((32, 512), "f4")
    first, second = model.fit(rows, rows, batch_size=8, epochs=2, verbose=0).history["loss"]
    assert second < first
    assert_split([v for v in model.optimizer.variables if v.path.endswith("kernel_velocity")])
    step = model.train_function
    (program, _), leaves = step._find_program(step.variable_ids(), (1,) * 8, stacked([(rows[:8], rows[:8])] * 2))
    memory = program.lower([*leaves, np.zeros(3, np.uint32)]).compile().memory_analysis()
    weights = sum(v.stored.nbytes for v in model.variables)
    # Parts of the state before and after a step, and weights or gradients; Adam's slots would be two of their size.
    assert memory.temp_size_in_bytes < 2.5 * weights


def test_steps_that_use_variables_after_an_update_are_exact():
    def train(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            weights = [tf.Variable(np.linspace(0, 1, 2048, dtype="f4").reshape(64, 32), name=name) for name in "ab"]
            optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)]
            count = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

        def step(x):
            losses = []
            for optimizer, weight in zip(optimizers, weights, strict=True):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((x @ tf.transpose(weights[1]) @ weights[0]) ** 2)
                optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
                count.assign_add(1.0)
                losses.append(loss)
            return tf.stack(losses)

        rows = np.random.RandomState(0).randn(16, 32).astype("f4")
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(rows).unbatch().batch(16))
        run = tf.function(lambda batch: strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None))
        losses = [run(batch).numpy() for _ in range(3)]
        assert float(count) == 6
        return losses, weights

    expected, _ = train(tf.distribute.MirroredStrategy())
    with pytest.warns(UserWarning, match=r"all of the optimizer's state.*'a' after the optimizer's update"):
        losses, weights = train(FSDPStrategy())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert_split(weights)


def test_steps_that_use_what_an_update_changes_beside_its_variables_are_exact():
    class Counting(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate)
            updates.assign_add(1.0)

    strategy = FSDPStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        weight, optimizer = tf.Variable(tf.zeros((64, 32))), Counting(1.0)
        updates = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def step():
        optimizer.apply([tf.ones((64, 32))], [weight])
        return updates + 0.0

    for count in (1, 2):
        found = strategy.experimental_local_results(strategy.run(step))
        assert [float(each) for each in found] == [count] * 2 and weight.numpy()[0, 0] == -2 * count
    strategy.run(lambda: optimizer.apply([tf.ones((64, 32))], [weight]))
    assert float(updates) == 3 and weight.numpy()[0, 0] == -6


def run_in_loop(strategy, step, batch):
    total = 0.0
    for _ in tf.range(3):
        total += strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)
    return total


def run_once(strategy, step, batch):
    return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)


@pytest.mark.parametrize("run", [run_in_loop, run_once])
@pytest.mark.parametrize("kind", ["two optimizers", "in a conditional", "sparse"])
def test_updates_in_control_flow_are_exact(kind, run):
    def train(strategy):
        with strategy.scope():
            weights = [tf.Variable(np.linspace(-1, 1, 2048, dtype="f4").reshape(64, 32), name=name) for name in "ab"]
            optimizers = [keras.optimizers.Adam(0.01, clipnorm=0.5), keras.optimizers.SGD(0.01)]
            for optimizer in optimizers:
                optimizer.build(weights)
            is_on = tf.Variable(1.0)

        def step(rows):
            with tf.GradientTape() as tape:
                taken = tf.nn.embedding_lookup(weights[1], rows) if kind == "sparse" else weights[1]
                loss = tf.reduce_mean((taken @ tf.transpose(weights[0])) ** 2) + 1e-3 * tf.reduce_sum(
                    tf.cast(rows, "float32")
                )
            gradients = tape.gradient(loss, weights)
            if kind != "in a conditional" or is_on > 0.0:
                optimizers[0].apply_gradients([(gradients[0], weights[0])])
            optimizers[1].apply_gradients([(gradients[1], weights[1])])
            return loss

        rows = tf.data.Dataset.from_tensor_slices(np.arange(16, dtype="i4")).batch(16)
        (batch,) = strategy.experimental_distribute_dataset(rows)
        compiled = tf.function(lambda batch: run(strategy, step, batch))
        return [float(compiled(batch)) for _ in range(2)], weights

    losses, weights = train(FSDPStrategy())
    expected, wanted = train(tf.distribute.MirroredStrategy())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, other in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
    assert_split(weights)


def test_what_a_step_writes_before_and_after_an_update_comes_in_this_order():
    strategy = FSDPStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        weight = tf.Variable(tf.zeros((64, 32)))
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([weight])
        steps = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    @tf.function
    def step(rate):
        def replica():
            optimizer.learning_rate.assign(rate)
            optimizer.apply_gradients([(tf.ones((64, 32)), weight)])
            steps.assign_add(1.0)

        strategy.run(replica)

    for rate in (0.5, 0.25):
        step(tf.constant(rate))
    assert weight.numpy()[0, 0] == -2 * (0.5 + 0.25) and float(steps) == 2


def test_small_variables_stay_whole_and_large_ones_that_do_not_divide_are_told():
    strategy = FSDPStrategy(min_size=100)
    with strategy.scope():
        small, odd, large = (tf.Variable(tf.zeros(shape)) for shape in ((99,), (7, 31), (13, 8)))
        with pytest.warns(UserWarning, match=r"kernel of shape \(1025, 333\) stays whole.*divisible by 8"):
            tf.Variable(tf.zeros((1025, 333)), name="kernel")
    shapes = [tuple(v.stored.addressable_shards[0].data.shape) for v in (small, odd, large)]
    assert shapes == [(99,), (7, 31), (13, 1)]


@pytest.mark.parametrize("size", [0, 2.5, "many"])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match="`min_size` must be a number of elements"):
        FSDPStrategy(min_size=size)


def test_devices_are_named_as_elsewhere():
    strategy = FSDPStrategy(["/cpu:2", "/cpu:3"])
    assert strategy.num_replicas_in_sync == 2 and list(strategy.native.mesh.devices) == jax.devices()[2:4]
    with pytest.raises(ValueError, match="named once"):
        FSDPStrategy(["/cpu:0", "/cpu:0"])


STRATEGIES = {
    "all devices": FSDPStrategy,
    "two devices": lambda: FSDPStrategy(["/cpu:0", "/cpu:1"]),
    "mirrored": tf.distribute.MirroredStrategy,
    "none": tf.distribute.get_strategy,
}


def save_model(model, path):
    model.save(path / "model.keras")
    return lambda strategy: load_model(strategy, path / "model.keras")


def load_model(strategy, path):
    with strategy.scope():
        return keras.models.load_model(path)


def save_checkpoint(model, path):
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(path / "ckpt"))

    def restore(strategy):
        again = make_model(strategy, OPTIMIZERS["clipped by norm"])
        again.optimizer.build(again.trainable_variables)
        tf.train.Checkpoint(model=again, optimizer=again.optimizer).restore(saved).assert_consumed()
        return again

    return restore


def save_weights(model, path):
    model.save_weights(path / "model.weights.h5")

    def restore(strategy):
        again = make_model(strategy, OPTIMIZERS["clipped by norm"])
        again.optimizer.build(again.trainable_variables)
        again.load_weights(path / "model.weights.h5")
        return again

    return restore


@pytest.mark.parametrize("save", [save_model, save_checkpoint, save_weights])
@pytest.mark.parametrize(
    "names", [("all devices", "two devices"), ("all devices", "none"), ("mirrored", "all devices")]
)
def test_training_goes_on_under_another_strategy(save, names, tmp_path):
    first, second = (STRATEGIES[name]() for name in names)
    model = make_model(first, OPTIMIZERS["clipped by norm"])
    fit(first, model)
    again = save(model, tmp_path)(second)
    if "all devices" in names[1:]:
        assert_split(again.variables)
        assert_split(again.optimizer.variables)
    elif "two devices" in names:
        assert_split(again.optimizer.variables, parts=2)
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    x, y = make_data(32)
    # Dropout draws for each replica: what follows is compared without it.
    np.testing.assert_allclose(again.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0), rtol=1e-5)
    again.fit(x, y, verbose=0)


def test_an_interrupted_training_goes_on_with_split_variables(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def train(*callbacks, epochs=4, folder=None):
        strategy = FSDPStrategy()
        model = make_model(strategy, OPTIMIZERS["clipped by norm"])
        backup = [] if folder is None else [keras.callbacks.BackupAndRestore(folder)]
        x, y = make_data()
        history = model.fit(
            x, y, batch_size=32, epochs=epochs, shuffle=False, verbose=0, callbacks=[*backup, *callbacks]
        ).history
        return history["loss"], model

    expected, _ = train()
    with pytest.raises(KeyboardInterrupt):
        train(Stop(), folder=tmp_path)
    losses, model = train(folder=tmp_path)
    np.testing.assert_allclose(losses, expected[2:], rtol=1e-6)
    assert_split(model.optimizer.variables)


def test_variables_are_assigned_copied_and_read_as_whole_ones():
    strategy = FSDPStrategy()
    with strategy.scope():
        v = tf.Variable(tf.reshape(tf.range(2048.0), (64, 32)))
    twin = copy.deepcopy(v)
    v[1:].assign(tf.zeros((63, 32)))
    v.assign_add(tf.ones((64, 32)))
    assert v.numpy().sum() == 32 * 31 / 2 + 2048 and twin.numpy().sum() == 2047 * 1024 and float(v[0, 3]) == 4
    assert_split([v, twin])
    total = tf.function(lambda: tf.reduce_sum(v.assign_add(v)))
    assert float(total()) == 2 * (32 * 31 / 2 + 2048)
    (value,) = {
        float(tf.reduce_sum(part)) for part in strategy.experimental_local_results(strategy.run(lambda: v + 0.0))
    }
    assert value == 2 * (32 * 31 / 2 + 2048)
    assert_split([v, twin])
