"""`tf.GradientTape` with Keras, structures and strategies; `tests/parity` compares it with TensorFlow."""

import inspect
import logging
import threading

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf

X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
LABELS = np.array([0, 2, 1, 1])


def small_model(*layers):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((3,)), *layers])


def gradients_by_tape(model, loss_fn, x):
    with tf.GradientTape() as tape:
        loss = loss_fn(model(x, training=True))
    return loss, tape.gradient(loss, model.trainable_variables)


def gradients_by_jax(model, loss_fn, x):
    fixed = [variable.value for variable in model.non_trainable_variables]

    def loss(values):
        outputs, _ = model.stateless_call(values, fixed, x, training=True)
        return loss_fn(outputs)

    return jax.value_and_grad(loss)([variable.value for variable in model.trainable_variables])


def cross_entropy(logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, logits)


MODELS = {
    "dense": lambda: small_model(keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)),
    "normalized": lambda: small_model(
        keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Activation("gelu"), keras.layers.Dense(3)
    ),
    "layer_norm": lambda: small_model(
        keras.layers.Dense(8, activation="silu"), keras.layers.LayerNormalization(), keras.layers.Dense(3)
    ),
    "convolution": lambda: small_model(
        keras.layers.Reshape((3, 1)),
        keras.layers.Conv1D(4, 2, activation="tanh"),
        keras.layers.MaxPooling1D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ),
    "recurrent": lambda: small_model(keras.layers.Reshape((3, 1)), keras.layers.LSTM(5), keras.layers.Dense(3)),
    "embedding": lambda: small_model(
        keras.layers.Lambda(lambda x: keras.ops.cast(x > 0, "int32")),
        keras.layers.Embedding(2, 4),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_keras_models_are_those_of_jax(name, compiled):
    model = MODELS[name]()
    wanted_loss, wanted = gradients_by_jax(model, cross_entropy, X)
    step = lambda x: gradients_by_tape(model, cross_entropy, x)
    loss, found = (tf.function(step) if compiled else step)(tf.constant(X))
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_mixed_precision_layers_are_of_the_variables_type(compiled):
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(4, dtype="mixed_bfloat16")
    layer.build((None, 3))

    def step(x):
        with tf.GradientTape() as tape:
            y = layer(x)
            total = tf.reduce_sum(tf.cast(y, tf.float32))
        return y, tape.gradient(total, layer.trainable_variables)

    y, gradients = (tf.function(step) if compiled else step)(tf.constant(X))
    assert y.dtype == tf.bfloat16
    assert [g.dtype for g in gradients] == [tf.float32, tf.float32]
    np.testing.assert_allclose(gradients[1], np.full(4, 4.0))


def test_gradient_penalty_is_differentiated_by_an_outer_tape():
    critic = small_model(keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1))
    x = tf.constant(X)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            score = critic(x)
        slope = inner.gradient(score, x)
        penalty = tf.reduce_mean((tf.sqrt(tf.reduce_sum(slope**2, 1)) - 1) ** 2)
    found = outer.gradient(penalty, critic.trainable_variables)

    def by_jax(values):
        score = lambda x: jnp.sum(critic.stateless_call(values, [], x)[0])
        return jnp.mean((jnp.sqrt(jnp.sum(jax.grad(score)(X) ** 2, 1)) - 1) ** 2)

    wanted = jax.grad(by_jax)([variable.value for variable in critic.trainable_variables])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.zeros_like(b) if a is None else a, b, rtol=1e-4, atol=1e-6)


def test_target_network_with_the_same_weights_gets_no_gradient_of_the_others():
    online, target = MODELS["dense"](), MODELS["dense"]()
    target.set_weights(online.get_weights())
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((online(X) - tf.stop_gradient(target(X) + 1)) ** 2)
    gradients = tape.gradient(loss, [*online.trainable_variables, *target.trainable_variables])
    assert all(g is not None for g in gradients[:4])
    assert gradients[4:] == [None] * 4


def test_two_tapes_train_two_models_at_once():
    generator, critic = small_model(keras.layers.Dense(3)), small_model(keras.layers.Dense(1))
    with tf.GradientTape() as generator_tape, tf.GradientTape() as critic_tape:
        scores = critic(generator(X)), critic(X)
        generator_loss, critic_loss = -tf.reduce_mean(scores[0]), tf.reduce_mean(scores[0] - scores[1])
    found = generator_tape.gradient(generator_loss, generator.trainable_variables)
    assert all(g is not None for g in found)
    assert all(g is not None for g in critic_tape.gradient(critic_loss, critic.trainable_variables))
    assert len(generator_tape.watched_variables()) == 4


def test_keras_and_tf_variables_may_be_mixed():
    a, b = tf.Variable([1.0, 2.0]), keras.Variable([3.0, 4.0])
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(a * a * b)
    found = tape.gradient(y, {"a": a, "b": (b, [a])})
    np.testing.assert_allclose(found["a"], [6.0, 16.0])
    np.testing.assert_allclose(found["b"][0], [1.0, 4.0])
    np.testing.assert_allclose(found["b"][1][0], [6.0, 16.0])


def test_watched_variables_are_the_objects_themselves():
    a, b = tf.Variable(1.0), keras.Variable(2.0)
    with tf.GradientTape() as tape:
        b + a
    assert [id(v) for v in tape.watched_variables()] == [id(b), id(a)]
    assert tape.gradient(tf.constant(1.0), a) is None
    assert [id(v) for v in tape.watched_variables()] == [id(b), id(a)]


def test_watching_integers_warns_and_goes_on(caplog):
    with caplog.at_level(logging.WARNING), tf.GradientTape() as tape:
        tape.watch(tf.constant(2))
    assert "must be floating" in caplog.text


@pytest.mark.parametrize("compiled", [False, True])
def test_tensor_of_64_bits_gives_gradients_of_64_bits(compiled):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.math.cumprod(x) * 0.1)
        return tape.gradient(y, x)

    gradient = (tf.function(step) if compiled else step)(tf.constant([1.0, 2.0], tf.float64))
    assert gradient.dtype == tf.float64
    np.testing.assert_allclose(gradient, [0.3, 0.1], rtol=1e-15)


def test_function_with_a_gradient_through_a_while_loop_runs_as_python():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x))
        return tape.gradient(y, x)

    assert float(tf.function(step)(tf.constant(3.0))) == 108
    with pytest.raises(RuntimeError, match=r"has a bound .* Try using lax\.scan"):
        jax.jit(step)(tf.constant(3.0))


def test_tape_around_a_function_with_a_while_loop():
    @tf.function
    def power(x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]

    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = power(x)
    assert float(y) == 81 and float(tape.gradient(y, x)) == 108
    assert float(power(x)) == 81 and power.lower(x)


def test_large_jacobian_is_made_of_gradients():
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.tanh(x @ tf.transpose(x))
    found = tape.jacobian(y, x)
    assert found.shape == (4, 4, 4, 3)
    np.testing.assert_allclose(found, jax.jacrev(lambda x: jnp.tanh(x @ x.T))(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, tape.jacobian(y, x, experimental_use_pfor=False), rtol=1e-6)


def test_jacobian_by_keras_variables():
    model = MODELS["dense"]()
    with tf.GradientTape() as tape:
        y = model(X)
    found = tape.jacobian(y, model.trainable_variables)
    assert [j.shape for j in found] == [(4, 3, *v.shape) for v in model.trainable_variables]


def test_gradient_that_does_not_exist_is_a_lookup_error_that_names_the_operation():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(X.shape, X.dtype), x)
    with pytest.raises(LookupError, match="pure_callback"):
        tape.gradient(y, x)


@pytest.mark.parametrize("wrong", [None, 2.0, "x"])
def test_source_that_is_not_a_tensor_is_an_error_that_shows_it(wrong):
    with tf.GradientTape() as tape:
        y = tf.constant(1.0) * 2
    with pytest.raises(TypeError, match="tensors or variables"):
        tape.gradient(y, [y, wrong])


def test_watch_outside_of_the_block_is_an_error():
    with pytest.raises(ValueError, match="inside `with tape:`"):
        tf.GradientTape().watch(tf.constant(1.0))


def test_watch_of_a_variable_while_not_recording_counts_later_reads_only():
    a, b = tf.Variable(2.0), tf.Variable(0.0)
    b.assign(a)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        with tape.stop_recording():
            tape.watch(a)
        y = a * b
    assert float(tape.gradient(y, a)) == 2.0


def test_threads_have_tapes_of_their_own():
    found = {}

    def work(i):
        v = tf.Variable(float(i))
        with tf.GradientTape() as tape:
            y = v * v
        found[i] = float(tape.gradient(y, v))

    with tf.GradientTape() as outer:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=LIMIT_S)
    assert found == {i: 2.0 * i for i in range(4)}
    assert outer.watched_variables() == ()


def test_signatures_are_tensorflows():
    def parameters(method):
        return [(p.name, p.default) for p in list(inspect.signature(method).parameters.values())[1:]]

    empty, none = inspect.Parameter.empty, tf.UnconnectedGradients.NONE
    options = [("unconnected_gradients", none), ("parallel_iterations", None), ("experimental_use_pfor", True)]
    assert parameters(tf.GradientTape.__init__) == [("persistent", False), ("watch_accessed_variables", True)]
    assert parameters(tf.GradientTape.gradient) == [
        ("target", empty),
        ("sources", empty),
        ("output_gradients", None),
        ("unconnected_gradients", none),
    ]
    assert parameters(tf.GradientTape.jacobian) == [("target", empty), ("sources", empty), *options]
    assert parameters(tf.GradientTape.batch_jacobian) == [("target", empty), ("source", empty), *options]
    assert tf.UnconnectedGradients("zero") is tf.UnconnectedGradients.ZERO
