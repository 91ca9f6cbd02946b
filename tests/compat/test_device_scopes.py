"""`tf.device` says where variables, operations and their gradients are; results are those of one device."""

import copy
import pickle

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

FULL = "/job:localhost/replica:0/task:0/device:CPU:"


def places(*values):
    return [int(value.device.removeprefix(FULL)) for value in values]


@pytest.fixture
def weights():
    """Two variables on devices of their own."""
    with tf.device("/cpu:1"):
        first = tf.Variable([[0.5, -0.25], [0.75, 1.0]])
    with tf.device("/cpu:2"):
        second = tf.Variable([[0.5], [0.25]])
    return first, second


def model(x, weights):
    with tf.device("/cpu:1"):
        hidden = tf.nn.relu(x @ weights[0])
    with tf.device("/cpu:2"):
        return tf.tanh(hidden @ weights[1])


def test_none_takes_scopes_back():
    with tf.device("/cpu:2"):
        with tf.device(None):
            assert places(tf.zeros([1]), tf.Variable(1.0)) == [0, 0]
        assert places(tf.zeros([1]), tf.Variable(1.0)) == [2, 2]


@pytest.mark.parametrize(
    ("name", "error"), [(3, ValueError), ("nonsense", ValueError), (lambda operation: "/cpu:1", RuntimeError)]
)
def test_what_names_no_device_is_refused_as_in_tensorflow(name, error):
    with pytest.raises(error), tf.device(name):
        pass


def test_operations_run_on_the_device_of_the_innermost_scope():
    x = tf.ones([2])
    with tf.device("/cpu:1"):
        y = x + 1
        with tf.device("/cpu:2"):
            z = x * y
        w = z + y
    assert places(x, y, z, w, tf.identity(z), y + z) == [0, 1, 2, 1, 0, 0]
    np.testing.assert_array_equal(y + z, [4, 4])


def test_a_variable_stays_on_its_device(weights):
    first, _ = weights
    assert places(first, first.value()) == [1, 1]
    first.assign(first + 1)
    with tf.device("/cpu:2"):
        first.assign_add(first)
    first.assign(tf.zeros([2, 2]))
    first[0].assign([5.0, 6.0])
    first.scatter_update(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1])))
    assert places(first, first + 0) == [1, 0]
    np.testing.assert_array_equal(first.numpy(), [[5, 6], [1, 1]])


def test_a_copy_of_a_variable_lies_beside_it(weights):
    twin = copy.deepcopy(weights)
    twin[0].assign_add(tf.ones([2, 2]))
    assert places(*twin) == [1, 2]
    np.testing.assert_array_equal(weights[0].numpy(), [[0.5, -0.25], [0.75, 1.0]])
    assert places(pickle.loads(pickle.dumps(weights[0]))) == [0]


def test_a_restored_variable_stays_on_its_device(weights, tmp_path):
    path = tf.train.Checkpoint(first=weights[0], second=weights[1]).save(str(tmp_path / "saved"))
    weights[0].assign(tf.zeros([2, 2]))
    tf.train.Checkpoint(first=weights[0], second=weights[1]).restore(path).assert_consumed()
    assert places(*weights) == [1, 2]
    np.testing.assert_array_equal(weights[0].numpy(), [[0.5, -0.25], [0.75, 1.0]])


@pytest.mark.parametrize("place", [None, "/cpu:3"])
@pytest.mark.parametrize("persistent", [False, True])
def test_gradients_are_those_of_one_device_and_lie_with_their_variables(weights, place, persistent):
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape(persistent=persistent) as tape:
        tape.watch(x)
        y = model(x, weights)
        loss = tf.reduce_sum(y * y) + tf.reduce_sum(weights[0] ** 2)
    with tf.device(place):
        gradients = tape.gradient(loss, [*weights, x])
    assert places(y, loss, *gradients) == [2, 0, 1, 2, 0]

    def alone(first, second, x):
        y = jax.numpy.tanh(jax.nn.relu(x @ first) @ second)
        return (y * y).sum() + (first**2).sum()

    wanted = jax.grad(alone, (0, 1, 2))(*(jax.numpy.asarray(value.numpy()) for value in (*weights, x)))
    for gradient, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-6)


def test_a_gradient_lies_with_its_variable_where_no_operation_had_a_scope(weights):
    x = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(x @ weights[0] @ weights[1])
    assert places(loss, *tape.gradient(loss, [*weights, x])) == [0, 1, 2, 0]
    assert places(tape.gradient(loss, weights[1])) == [2]


def test_an_operation_is_differentiated_on_its_device(weights):
    seen = []

    @tf.custom_gradient
    def noting(x):
        def gradient(cotangent):
            seen.append(places(cotangent * 1)[0])
            return cotangent

        return x, gradient

    with tf.GradientTape() as tape:
        with tf.device("/cpu:1"):
            y = noting(weights[0] * 2)
        with tf.device("/cpu:2"):
            y = noting(y * 2)
    tape.gradient(y, weights[0])
    assert seen == [2, 1]


def test_gradients_of_gradients_pass_between_devices(weights):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = model(tf.constant([[1.0, 2.0]]), weights)
        first = tape.gradient(y, weights[0])
        norm = tf.reduce_sum(first**2)
    second = outer.gradient(norm, weights[1])
    assert places(first, second) == [1, 2]

    def of(second):
        alone = lambda first: jax.numpy.tanh(jax.nn.relu(jax.numpy.asarray([[1.0, 2.0]]) @ first) @ second).sum()
        return (jax.grad(alone)(jax.numpy.asarray(weights[0].numpy())) ** 2).sum()

    np.testing.assert_allclose(second, jax.grad(of)(jax.numpy.asarray(weights[1].numpy())), rtol=1e-5, atol=1e-12)


def test_rows_of_a_gradient_lie_with_the_table():
    with tf.device("/cpu:1"):
        table = tf.Variable(tf.reshape(tf.range(6.0), [3, 2]))
    with tf.GradientTape() as tape, tf.device("/cpu:2"):
        loss = tf.reduce_sum(tf.gather(table, [0, 2, 0]) ** 2)
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices) and places(gradient.values) == [1]
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), [[0, 4], [0, 0], [8, 10]])


def test_a_strategys_variables_are_the_strategys():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope(), tf.device("/cpu:3"):
        shared, alone = tf.Variable(1.0), tf.zeros([1])
    assert [part.device for part in shared.values] == [f"{FULL}0", f"{FULL}1"]
    assert places(alone) == [3]

    @tf.function
    def step():
        with tf.device("/cpu:5"):
            return shared * 2

    assert [float(value) for value in strategy.run(step).values] == [2, 2]


def make_step(weights, count):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, weights) - y) ** 2)
        gradients = tape.gradient(loss, weights)
        for variable, gradient in zip(weights, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        count.assign_add(1)
        return loss, gradients

    return step


def test_a_function_runs_stage_by_stage(weights, stages):
    count = tf.Variable(0)
    twins, alone_count = [tf.Variable(value.numpy()) for value in weights], tf.Variable(0)
    step, alone = tf.function(make_step(weights, count)), make_step(twins, alone_count)
    for rows in (4, 4, 3):
        x = tf.reshape(tf.range(rows * 2.0), [rows, 2]) / 4
        loss, gradients = step(x, x[:, :1])
        wanted, wanted_gradients = alone(x, x[:, :1])
        np.testing.assert_allclose(loss, wanted, rtol=1e-6)
        for found, other in zip(gradients, wanted_gradients, strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-7)
        assert places(loss, *gradients, *weights, count) == [0, 0, 0, 1, 2, 0]
    for variable, twin in zip(weights, twins, strict=True):
        np.testing.assert_allclose(variable.numpy(), twin.numpy(), rtol=1e-6)
    assert int(count.numpy()) == 3
    # Forward, forward and back, back.
    assert [device for device in stages if device] == [1, 2, 1] * 3


def test_a_function_without_scopes_is_one_program(stages):
    v = tf.Variable(2.0)
    with tf.device("/cpu:0"):
        w = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.device("/cpu:0"):
            v.assign_add(x * w)
        return v + 1

    assert float(step(tf.constant(1.0))) == 6 and not stages


def test_a_function_on_one_other_device_is_one_program_there(stages):
    count = tf.Variable(1.0)
    with tf.device("/cpu:1"):
        w = tf.Variable(3.0)

    @tf.function
    def step(x):
        count.assign_add(x * w)
        w.assign(x)
        return count * 2

    result = step(tf.constant(2.0))
    assert float(result) == 14 and float(w.numpy()) == 2 and stages == [1]
    assert places(result, count, w) == [0, 0, 1]


def test_a_function_that_is_called_in_a_scope_runs_there(weights):
    @tf.function
    def double(x):
        return x * 2

    x = tf.ones([2])
    for place in (3, 0, 4, 3):
        with tf.device(f"/cpu:{place}"):
            assert places(double(x)) == [place]
    with tf.device("/cpu:3"):
        assert places(tf.function(lambda: weights[0] + 1)()) == [3]
    assert places(weights[0]) == [1]


def test_tensors_in_a_function_say_what_their_scope_was(weights):
    found = []

    @tf.function
    def fn(x):
        with tf.device("/cpu:1"):
            y = x * 2
        with tf.device("/cpu:2"), tf.device(None):
            z = y * 2
        found.extend([x.device, y.device, z.device, weights[1].device])
        return z

    assert places(fn(tf.ones([2]))) == [0]
    assert found == ["", "/device:CPU:1", "", f"{FULL}2"]


def test_control_flow_in_scopes_keeps_its_results(weights):
    @tf.function
    def fn(x):
        with tf.device("/cpu:1"):
            if tf.reduce_sum(x) > 0:
                x = x * 2
            for i in tf.range(3):
                with tf.device("/cpu:2"):
                    x = x + tf.cast(i, tf.float32)
        with tf.device("/cpu:3"):
            return x, tf.reduce_sum(x) + tf.reduce_sum(weights[0])

    x, total = fn(tf.ones([2]))
    np.testing.assert_array_equal(x, [5, 5])
    assert float(total) == 12


def test_a_tape_outside_of_a_function_goes_back_through_its_stages(weights, stages):
    fn = tf.function(lambda x: model(x, weights))
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    gradients = tape.gradient(y, [*weights, x])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x, weights)
    for found, wanted in zip(gradients, tape.gradient(y, [*weights, x]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert stages == [1, 2] and places(*gradients) == [1, 2, 0]


def test_a_failed_assertion_between_stages_keeps_variables(weights):
    @tf.function
    def step(x):
        with tf.device("/cpu:1"):
            weights[0].assign_add(tf.ones([2, 2]))
        with tf.device("/cpu:2"):
            tf.debugging.assert_positive(x)
            weights[1].assign_add(tf.ones([2, 1]))

    step(tf.constant(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant(-1.0))
    np.testing.assert_array_equal(weights[0].numpy(), [[1.5, 0.75], [1.75, 2.0]])
    np.testing.assert_array_equal(weights[1].numpy(), [[1.5], [1.25]])
    assert places(*weights) == [1, 2]


def test_a_tensor_that_holds_a_variables_value_keeps_it(weights):
    count = tf.Variable(0)
    step = tf.function(make_step(weights, count))
    x = tf.ones([2, 2])
    step(x, x[:, :1])
    held, before = weights[0].value(), weights[0].numpy()
    step(x, x[:, :1])
    np.testing.assert_array_equal(held, before)
    assert not np.array_equal(weights[0].numpy(), before)


def test_what_stages_print_comes_in_order(capfd):
    @tf.function
    def fn(x):
        with tf.device("/cpu:1"):
            slow = tf.reduce_sum(x @ x @ x @ x) * 0
            tf.print(slow, output_stream="file:///dev/stderr")
        with tf.device("/cpu:2"):
            tf.print(1.0, output_stream="file:///dev/stderr")

    for _ in range(3):
        fn(tf.ones([500, 500]))
    jax.effects_barrier()
    assert capfd.readouterr().err.split() == ["0", "1.0"] * 3


def test_draws_and_64_bits_pass_between_stages():
    @tf.function
    def fn(x):
        with tf.device("/cpu:1"):
            noise = tf.random.stateless_uniform([3], seed=[1, 2])
            x = x * 3
        with tf.device("/cpu:2"):
            return x + 1, noise * 2

    x, noise = fn(tf.constant([2**40, 1], tf.int64))
    assert x.dtype == tf.int64 and x.numpy().tolist() == [3 * 2**40 + 1, 4]
    np.testing.assert_array_equal(noise, tf.random.stateless_uniform([3], seed=[1, 2]) * 2)


@pytest.mark.parametrize("other", [None, "/cpu:2"])
def test_devices_count_in_what_jax_has_traced_for_another_function(stages, other):
    @jax.jit
    def inner(x):
        with tf.device("/cpu:1"):
            return jax.numpy.sin(x) * 2

    def outer(x):
        with tf.device(other):
            y = tf.convert_to_tensor(x) + 1
        return tf.identity(inner(y)) - y

    x = tf.constant([1.0, 2.0])
    for function in (tf.function(outer), tf.function(lambda x: outer(x))):
        stages.clear()
        np.testing.assert_allclose(function(x), 2 * np.sin([2.0, 3.0]) - [2, 3], rtol=1e-6)
        assert {1} <= set(stages) and (other is None or 2 in stages)
