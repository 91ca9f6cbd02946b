"""`strategy.run` and what happens inside: replicas, their collectives, variables and training."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import PerReplica
from tfdist_jax.compat.tensorflow._functions._execution_plan import Way
from tfdist_jax.compat.tensorflow.distribute._planned_steps import PlannedSteps


@pytest.fixture
def strategy():
    return tf.distribute.MirroredStrategy(devices=[f"/cpu:{i}" for i in range(4)])


def per_replica(strategy, array):
    """One batch, split over the replicas."""
    dataset = tf.data.Dataset.from_tensors(array)
    return next(iter(strategy.experimental_distribute_dataset(dataset)))


def floats(value):
    return [float(v) for v in value.values]


def test_results_are_per_replica(strategy):
    ids = strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group)
    assert [int(i) for i in strategy.experimental_local_results(ids)] == [0, 1, 2, 3]


def test_one_replica_gives_plain_tensors():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:2")
    result = strategy.run(lambda x: x + 1, args=(tf.constant([1.0]),))
    assert result.numpy().tolist() == [2.0]
    assert strategy.num_replicas_in_sync == 1


def test_structures_and_keyword_arguments_pass_through(strategy):
    x = per_replica(strategy, np.arange(8, dtype="f4"))
    result = strategy.run(lambda a, b: {"sum": (a["x"] + b, None)}, args=({"x": x},), kwargs={"b": 1})
    assert result["sum"][1] is None
    np.testing.assert_array_equal(strategy.gather(result["sum"][0], axis=0), np.arange(8) + 1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [8, 10, 5, 2])
def test_collectives_reach_all_replicas_however_uneven(strategy, compiled, rows):
    def step(x):
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, x.sum())
        return total, context.all_gather(x, axis=0).sum(), context.all_reduce("MEAN", x.sum())

    run = lambda x: strategy.run(step, args=(x,))
    total, gathered, mean = (tf.function(run) if compiled else run)(per_replica(strategy, np.arange(rows, dtype="f4")))
    expected = rows * (rows - 1) / 2
    assert floats(total) == [expected] * 4
    assert floats(gathered) == [expected] * 4
    assert floats(mean) == [expected / 4] * 4


def test_merge_call_sees_the_strategy_and_can_reduce(strategy):
    def merge(strategy, x):
        assert tf.distribute.in_cross_replica_context()
        return strategy.reduce("SUM", x, axis=None)

    step = lambda x: tf.distribute.get_replica_context().merge_call(merge, args=(x.sum(),))
    total = strategy.run(step, args=(per_replica(strategy, np.arange(8, dtype="f4")),))
    assert float(total) == 28 and len(strategy.experimental_local_results(total)) == 1


def test_global_names_of_inner_functions_count(strategy):
    global factor
    step = lambda: tf.distribute.get_replica_context().merge_call(lambda strategy, x: x * factor, args=(1.0,))
    factor = 2.0
    assert strategy.run(step) == 2
    factor = 3.0
    assert strategy.run(step) == 3


def test_a_list_that_a_step_only_appends_to_does_not_trace_it_again(strategy):
    traces, seen = [], []

    def step():
        traces.append(1)
        return tf.constant(1.0)

    def reading():
        traces.append(len(seen))
        return tf.constant(1.0)

    for _ in range(3):
        strategy.run(step)
    assert traces == [1]
    for _ in range(3):
        strategy.run(reading)
        seen.append(1)
    assert traces == [1, 0, 1, 2]


losses = []


def test_attributes_that_a_step_reads_count_and_what_is_named_like_them_does_not(strategy):
    class Settings:
        scale, seen = 1.0, 0
        losses = (1.0,)

        def __call__(self):
            return tf.constant(self.scale)

    settings, traces = Settings(), []
    settings.scale = 2.0

    def step():
        traces.append(1)
        return tf.constant(settings.scale * settings.losses[0])

    for number in range(3):
        assert floats(strategy.run(step)) == [2.0] * 4
        settings.seen = number
        losses.append(number)
    assert len(traces) == 1
    assert floats(strategy.run(settings)) == [2.0] * 4
    settings.scale = 3.0
    assert floats(strategy.run(step)) == floats(strategy.run(settings)) == [3.0] * 4


def test_a_run_inside_a_run_is_refused_as_in_tensorflow(strategy):
    with pytest.raises(RuntimeError, match="Method requires being in cross-replica context"):
        strategy.run(lambda: strategy.run(lambda: 1))


def test_replicas_that_disagree_on_collectives_are_told(strategy):
    def step(x):
        if x.shape[0] == 3:
            return tf.distribute.get_replica_context().all_reduce("SUM", x.sum())
        return x.sum()

    with pytest.raises(RuntimeError, match="Every replica must make the same calls"):
        strategy.run(step, args=(per_replica(strategy, np.arange(10, dtype="f4")),))


def test_an_error_in_one_uneven_replica_reaches_the_caller(strategy):
    def step(x):
        tf.distribute.get_replica_context().all_reduce("SUM", x.sum())
        if x.shape[0] == 1:
            raise KeyError("mine")
        return x.sum()

    with pytest.raises(KeyError, match="mine"):
        strategy.run(step, args=(per_replica(strategy, np.arange(10, dtype="f4")),))


@pytest.mark.parametrize(("aggregation", "expected"), [("SUM", 11.0), ("MEAN", 3.5), ("ONLY_FIRST_REPLICA", 2.0)])
def test_assignments_of_replicas_are_aggregated(strategy, aggregation, expected):
    with strategy.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation[aggregation])
    replica = lambda: tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
    strategy.run(lambda: v.assign_add(1.0 + replica()))
    assert float(v) == expected


@pytest.mark.parametrize("rows", [8, 10])
@pytest.mark.parametrize("looks", [False, True])
def test_a_variable_of_no_strategy_takes_what_all_replicas_add_and_the_last_one_assigns(strategy, rows, looks):
    added, assigned = tf.Variable(1.0), tf.Variable(1.0)

    def step(x):
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        if looks:
            float(number)
        added.assign_add(number)
        assigned.assign(number)

    strategy.run(step, args=(per_replica(strategy, np.ones(rows, "f4")),))
    assert (float(added), float(assigned)) == (7.0, 3.0)


@pytest.mark.parametrize("rows", [8, 10])
def test_without_aggregation_each_replica_changes_its_own_copy(strategy, rows):
    with strategy.scope():
        average = tf.Variable(1.0)

    def step(x):
        average.assign(0.5 * average + 2.0)

    strategy.run(step, args=(per_replica(strategy, np.ones(rows, "f4")),))
    assert floats(average) == [2.5] * 4


@pytest.mark.parametrize("rows", [8, 10])
def test_a_variable_on_read_has_a_value_for_each_replica(strategy, rows):
    with strategy.scope():
        v = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def step(x):
        v.assign_add(x.sum())
        return v.read_value()

    x = per_replica(strategy, np.arange(rows, dtype="f4"))
    first = floats(strategy.run(step, args=(x,)))
    assert first == [float(part.sum()) for part in np.split(np.arange(rows), [2, 4, 6] if rows == 8 else [3, 6, 9])]
    assert floats(strategy.run(step, args=(x,))) == [2 * value for value in first]
    assert float(v.read_value()) == 2 * sum(first)
    assert not v.trainable


def test_a_step_is_not_traced_again_for_a_fresh_lambda_but_for_a_changed_closure(strategy):
    traces = itertools.count()

    def step(x, scale):
        next(traces)
        return x.sum() * scale

    x = per_replica(strategy, np.arange(8, dtype="f4"))
    for scale in (1.0, 1.0, 2.0, 2.0):
        result = strategy.run(lambda x, scale=scale: step(x, scale), args=(x,))
        assert sum(floats(result)) == 28 * scale
    assert next(traces) == 2


def test_python_numbers_that_change_are_said_once(strategy, caplog):
    def step(rate, flag):
        return tf.constant(2.0) * rate

    def results(rates):
        return [floats(strategy.run(step, args=(rate, True)))[0] for rate in rates]

    assert results([0.5, 1.5, 2.5, 3.5, 0.5]) == [1.0, 3.0, 5.0, 7.0, 1.0]
    assert not caplog.text
    results([4.5, 5.5, 6.5])
    assert caplog.text.count("step is compiled for the 5th time") == 1
    strategy.run(lambda rate, other: rate, args=(0.5, object()))  # Of which nothing is known but which it is.
    assert "now [4.5]. Pass numbers that change as tensors, such as tf.constant(4.5)" in caplog.text


def test_steps_made_anew_for_each_call_do_not_keep_their_tensors(strategy):
    strategy._steps = PlannedSteps(limit=3)
    captured = []
    for i in range(8):
        x = tf.constant([float(i)])
        captured.append(weakref.ref(x))
        strategy.run(lambda x=x: x + 1)
        strategy.run(lambda x=x: tf.constant(float(x[0])))
    del x
    gc.collect()
    assert sum(ref() is not None for ref in captured) <= 3


def test_a_step_that_is_used_again_and_again_is_decided_on_once(strategy, caplog):
    strategy._steps = PlannedSteps(limit=3)
    traces = itertools.count()

    def step(x):
        next(traces)
        return float(x.sum())

    for i in range(8):
        strategy.run(step, args=(tf.ones(i + 1),))
        strategy.run(lambda i=i: tf.constant(i))
    # Once in an attempt to compile it, then by each replica.
    assert next(traces) == 1 + 8 * strategy.num_replicas_in_sync
    assert caplog.text.count("step runs replica by replica, uncompiled") == 1


def test_how_a_step_runs_and_why_can_be_printed(strategy):
    traces = itertools.count()

    def reading(x):
        return x + float(x.sum())

    def by_device(x):
        next(traces)
        return x + len(tf.distribute.get_replica_context().devices)

    def alike(x):
        return x + 1

    for shape in ((), (1,)):
        for step in (alike, by_device, reading):
            strategy.run(step, args=(tf.ones(shape),))
    assert str(strategy.execution_plan(alike)) == "as one program: all replicas do the same"
    assert str(strategy.execution_plan(by_device)).startswith("as one program, traced replica by replica: it asks for")
    # Once for all replicas, in vain; then each replica of each shape.
    assert next(traces) == 1 + 2 * strategy.num_replicas_in_sync
    plan = strategy.execution_plan(reading)
    assert not plan.is_compiled and plan.line.endswith("return x + float(x.sum())")
    assert str(plan) == f"replica by replica, uncompiled ({plan.line}): {plan.reason}"
    assert strategy.execution_plan(lambda: 1) is None


def test_a_step_that_makes_a_variable_when_it_first_runs_can_follow_others(strategy):
    made = []

    def step():
        if not made:
            made.append(tf.Variable(2.0))
        return made[0] + 1

    strategy.run(lambda: tf.constant(1.0))
    assert set(floats(strategy.run(step))) == set(floats(strategy.run(step))) == {3.0}


def test_batches_of_different_sizes_do_not_change_how_a_step_runs(strategy):
    step = lambda x: x.sum()
    uneven = PerReplica.uneven([tf.ones(i + 1) for i in range(strategy.num_replicas_in_sync)])
    for x in (uneven, per_replica(strategy, np.arange(8, dtype="f4"))):
        strategy.run(step, args=(x,))
        assert strategy.execution_plan(step).way is Way.ONE_PROGRAM


def data(rows):
    random = np.random.RandomState(0)
    return random.rand(rows, 12).astype("f4"), random.randint(0, 5, rows)


def make(rate=0.05):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(5)])
    return model, keras.optimizers.SGD(rate, momentum=0.9)


def train(strategy, *, compiled, batches=((0, 16), (16, 32), (32, 42))):
    """Train a model in its own loop; returns the losses and the weights."""
    x, y = data(42)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    with strategy.scope():
        model, optimizer = make()

    def step(x, y, count):
        with tf.GradientTape() as tape:
            loss = losses(y, model(x, training=True)).sum() / count
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def distributed(x, y, count):
        return strategy.reduce("SUM", strategy.run(step, args=(x, y, count)), axis=None)

    distributed = tf.function(distributed) if compiled else distributed
    curve = []
    for start, end in batches:
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors((x[start:end], y[start:end])))
        curve.append(float(distributed(*batch, end - start)))
    return curve, [w.numpy() for w in model.weights], model


@pytest.mark.parametrize("compiled", [False, True])
def test_training_equals_one_device_with_an_uneven_last_batch(strategy, compiled):
    expected = train(tf.distribute.OneDeviceStrategy("/cpu:0"), compiled=True)
    actual = train(strategy, compiled=compiled)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
    for weights, reference in zip(actual[1], expected[1], strict=True):
        np.testing.assert_allclose(weights, reference, rtol=1e-4, atol=2e-6)


def test_weights_stay_on_all_devices_of_the_strategy(strategy):
    *_, model = train(strategy, compiled=True)
    kernel = model.trainable_variables[0].value
    assert kernel.sharding.is_fully_replicated
    assert kernel.sharding.device_set == set(strategy.native.mesh.devices.flat)


def test_strategies_of_different_size_share_a_process(strategy):
    all_eight = tf.distribute.MirroredStrategy()
    assert all_eight.num_replicas_in_sync == 8
    np.testing.assert_allclose(train(all_eight, compiled=True)[0], train(strategy, compiled=True)[0], rtol=1e-5)


def test_metrics_count_every_example_once(strategy):
    with strategy.scope():
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        mean = keras.metrics.Mean()
    logits, labels = np.eye(5, dtype="f4")[np.arange(10) % 5], np.array([0] * 10)

    def step(x, y):
        accuracy.update_state(y, x)
        mean.update_state(y + 1)

    for _ in range(2):
        strategy.run(step, args=per_replica(strategy, (logits, labels)))
    assert float(accuracy.result()) == pytest.approx(0.2)
    assert float(mean.result()) == 1.0


def test_batch_statistics_are_the_mean_over_replicas_and_dropout_differs(strategy):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((12,)), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dropout(0.5)]
        )
    x = data(16)[0]
    outputs = strategy.run(lambda x: model(x, training=True), args=(per_replica(strategy, x),))
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), 0.5 * x.mean(0), rtol=1e-5)
    masks = [np.asarray(v) != 0 for v in outputs.values]
    assert not np.array_equal(masks[0], masks[1])
    again = strategy.run(lambda x: model(x, training=True), args=(per_replica(strategy, x),))
    assert not np.array_equal(np.asarray(again.values[0]) != 0, masks[0])


def test_random_first_value_of_a_variable_made_in_replicas_of_a_function_is_one_for_all():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])

    class Noise(tf.Module):
        kept = None

        def __call__(self):
            if self.kept is None:
                self.kept = tf.Variable(tf.random.normal([4]))
            return self.kept + 0.0

    noise = Noise()
    step = tf.function(lambda: strategy.run(noise))
    first, second = strategy.experimental_local_results(step())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, noise.kept)
    assert np.unique(first).size == 4
