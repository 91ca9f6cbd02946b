"""Training on a GPU gives what training on the CPU gives; skipped where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
import tfdist_jax.compat.tensorflow as tf

keras = tf.keras
pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="no GPU")

ROWS, BATCH = 96, 32


def make_data():
    random = np.random.default_rng(0)
    return random.normal(size=(ROWS, 8, 8, 3)).astype("f4"), random.integers(0, 10, ROWS)


def make_model(strategy, **options):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(8, 3),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"], **options)
    return model


def fit(model):
    x, y = make_data()
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    evaluated = model.evaluate(x, y, batch_size=40, verbose=0)
    return [*history["loss"], *history["accuracy"], *evaluated, *model.predict(x[:5], verbose=0).ravel()]


def loop(strategy):
    model = make_model(strategy)
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(losses(y, model(x, training=True)), global_batch_size=BATCH)
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

    dataset = tf.data.Dataset.from_tensor_slices(make_data()).batch(BATCH)
    return [float(step(x, y)) for _ in range(2) for x, y in strategy.experimental_distribute_dataset(dataset)]


@pytest.fixture(scope="module", autouse=True)
def exact():
    with jax.default_matmul_precision("highest"):
        yield


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 3}, {"run_eagerly": True}])
def test_fit(options):
    gpu, cpu = (fit(make_model(tf.distribute.MirroredStrategy([device]), **options)) for device in ("/gpu:0", "/cpu:0"))
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-3)


def test_custom_loop():
    gpu, cpu = (loop(tf.distribute.MirroredStrategy([device])) for device in ("/gpu:0", "/cpu:0"))
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-3)


def test_mixed_precision_learns():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model(tf.distribute.MirroredStrategy(["/gpu:0"]))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    x, y = make_data()
    history = model.fit(x, y, batch_size=BATCH, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]


def test_variables_stay_on_the_gpu_and_their_memory_is_reused():
    model = make_model(tf.distribute.MirroredStrategy(["/gpu:0"]))
    x, y = make_data()
    model.train_on_batch(x[:BATCH], y[:BATCH])
    before = {variable.stored.unsafe_buffer_pointer() for variable in model.trainable_variables}
    model.train_on_batch(x[:BATCH], y[:BATCH])
    assert {variable.stored.unsafe_buffer_pointer() for variable in model.trainable_variables} == before
    assert all(variable.stored.devices() == {jax.devices()[0]} for variable in model.variables)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_kernel_for_attention_computes_what_tiles_do(is_causal):
    """Of 16 bits, with key heads that serve two heads each; and it is the kernel that the program has."""
    strategy = td.SingleDevice()
    normal = lambda key, heads: jax.random.normal(jax.random.key(key), (2, 600, heads, 64), jnp.bfloat16)
    params = strategy.init(lambda: {"query": normal(0, 4), "key": normal(1, 2), "value": normal(2, 2)})

    def make_gradients(implementation):
        def loss(params, factor):
            attended = td.attend(**params, is_causal=is_causal, implementation=implementation)
            return (attended.astype("float32") ** 2).mean() * factor.mean()

        return strategy.value_and_grad(loss, has_aux=False)

    factor = strategy.put(np.ones(4, np.float32))
    assert "cudnn" in make_gradients(None).lower(params, factor).as_text()
    found, expected = (make_gradients(one)(params, factor) for one in (None, "xla"))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        theirs = np.asarray(theirs, np.float32)
        np.testing.assert_allclose(np.asarray(ours, np.float32), theirs, atol=0.02 * np.abs(theirs).max())
