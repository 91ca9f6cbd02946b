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
        first = tf.Variable([[1.0, -2.0], [3.0, 4.0]])
    with tf.device("/cpu:2"):
        second = tf.Variable([[1.0], [2.0]])
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
    np.testing.assert_array_equal(weights[0].numpy(), [[1, -2], [3, 4]])
    assert places(pickle.loads(pickle.dumps(weights[0]))) == [0]


def test_a_restored_variable_stays_on_its_device(weights, tmp_path):
    path = tf.train.Checkpoint(first=weights[0], second=weights[1]).save(str(tmp_path / "saved"))
    weights[0].assign(tf.zeros([2, 2]))
    tf.train.Checkpoint(first=weights[0], second=weights[1]).restore(path).assert_consumed()
    assert places(*weights) == [1, 2]
    np.testing.assert_array_equal(weights[0].numpy(), [[1, -2], [3, 4]])


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
