"""`FSDPStrategy`: steps of any kind are those of `MirroredStrategy`, with 1/N of the state on each device."""

import copy

import communication
import jax
import keras
import numpy as np
import pytest
from split_models import make_data

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.keras._training import _programs
from tfdist_jax.compat.tensorflow.keras._training._batch_feeder import stacked

# The last batch of an epoch has one row.
pytestmark = pytest.mark.filterwarnings("ignore:A step whose replicas' batches differ in size")

FSDPStrategy = tf.distribute.experimental.FSDPStrategy


def assert_split(variables):
    """Each variable of 1,024 numbers or more has an eighth of them on each device."""
    large = [variable for variable in variables if np.prod(variable.shape) >= 1024]
    assert len(large) >= 2
    for variable in large:
        shards = variable.stored.addressable_shards
        assert len(shards) == 8 and all(shard.data.size == variable.stored.size // 8 for shard in shards)


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
            model = Model([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.01, clipnorm=0.1), loss="mse")
        return model.fit(*make_data(), batch_size=32, epochs=2, shuffle=False, verbose=0).history["loss"], model

    losses, model = train(FSDPStrategy())
    np.testing.assert_allclose(losses, train(tf.distribute.MirroredStrategy())[0], rtol=1e-5)
    assert_split(model.optimizer.variables)


def compile_step(strategy, width=512):
    """Return a step of a model of two square kernels, with Adam: what it needs of memory, its collectives, and the bytes of its weights."""
    with strategy.scope():
        layers = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
        model = keras.Sequential([keras.Input((width,)), *layers])
        model.compile(keras.optimizers.Adam(global_clipnorm=1.0), "mse")
    batch = np.zeros((8, width), "f4"), np.zeros((8, width), "f4")
    model.fit(*batch, batch_size=8, verbose=0)
    compiled = communication.compile_step(model, batch)
    return (
        compiled.memory_analysis(),
        communication.collectives_of(compiled, strategy),
        sum(v.stored.nbytes for v in model.variables),
    )


def test_a_step_gathers_parameters_and_scatters_gradients_and_has_no_whole_slots():
    memory, collectives, weights = compile_step(FSDPStrategy())
    found = {one.kind: (one.count, one.bytes) for one in collectives}
    assert found.keys() == {"all-gather", "reduce-scatter", "all-reduce"} and len(collectives) == 3
    assert found["all-gather"] == (2, 2 * 512 * 512 * 4) and found["reduce-scatter"] == (2, 2 * 64 * 512 * 4)
    # What is left to add up over replicas: two biases, the metrics' totals, and the norms.
    assert found["all-reduce"][0] == 1 and found["all-reduce"][1] < 2 * 512 * 4 + 100
    # All weights at once, or their gradients, and nothing of their size beside them; Adam's two slots stay in parts.
    assert memory.temp_size_in_bytes < 1.5 * weights
    assert memory.argument_size_in_bytes < 3 * weights / 8 + 100_000
    mirrored = compile_step(tf.distribute.MirroredStrategy())[0]
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
