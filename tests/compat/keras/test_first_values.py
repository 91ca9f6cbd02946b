"""First values of variables: Keras's own numbers, drawn by few programs."""

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

SHAPES = [(), (1,), (127,), (64, 10), (3, 3, 16, 32), (64, 0), (200, 100), (1000, 1048), (1025, 1024)]
INITIALIZERS = [
    "glorot_uniform",
    "glorot_normal",
    "he_normal",
    "lecun_uniform",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "ones",
    "zeros",
]


@pytest.fixture
def compiled():
    """The programs that XLA compiles, in order."""
    names, is_over = [], []

    def note(event, _, **about):
        if event.endswith("backend_compile_duration") and not is_over:
            names.append(about.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    is_over.append(True)


def same(value, expected):
    assert (value.dtype, value.shape, value.weak_type) == (expected.dtype, expected.shape, expected.weak_type)
    assert (value.committed, value.sharding) == (expected.committed, expected.sharding)
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("name", INITIALIZERS)
def test_first_values_are_the_numbers_of_the_initializer(name):
    seeded = {} if name in ("ones", "zeros") else {"seed": 3}
    initializer = tf.keras.initializers.get({"class_name": name, "config": seeded})
    for shape in SHAPES:
        same(tf.keras.Variable(initializer, shape=shape).value, initializer(shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool"])
def test_first_values_of_other_types_are_the_same(dtype):
    names = ["zeros", "ones"] if dtype in ("int32", "bool") else INITIALIZERS
    for name in names:
        seeded = {} if name in ("ones", "zeros") else {"seed": 3}
        initializer = tf.keras.initializers.get({"class_name": name, "config": seeded})
        same(tf.keras.Variable(initializer, shape=(7, 9), dtype=dtype).value, initializer((7, 9), dtype))


def test_initializers_of_a_program_may_ask_for_anything():
    ops, random = tf.keras.ops, tf.keras.random
    for initializer in (
        lambda shape, dtype: random.uniform(shape, np.zeros(3), np.arange(1.0, 4.0), dtype, seed=1),
        lambda shape, dtype: ops.reshape(ops.zeros(6, dtype) + random.normal([6], 1.0, seed=2), shape),
        lambda shape, dtype: ops.ones(np.asarray(shape), dtype),
        lambda shape, dtype: jax.jit(lambda: random.truncated_normal(shape, dtype=dtype, seed=3))(),
        lambda shape, dtype: jax.vmap(lambda x: x * random.uniform((3,), seed=4))(ops.ones((2, 1), dtype)),
    ):
        np.testing.assert_array_equal(
            tf.keras.Variable(initializer, shape=(2, 3)).value, initializer((2, 3), "float32")
        )


def test_layers_of_many_shapes_take_few_programs(compiled):
    tf.keras.utils.set_random_seed(0)
    tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8)])
    compiled.clear()
    sizes = range(11, 20)
    tf.keras.Sequential([tf.keras.Input((10,)), *(tf.keras.layers.Dense(size) for size in sizes)])
    assert not compiled


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.keras.Variable(tf.keras.initializers.RandomNormal(), shape=(1201, 1003)),
        lambda: tf.Variable(lambda: tf.random.normal((1202, 1003))),
        lambda: tf.Variable(tf.random.normal((1203, 1003))),
    ],
)
def test_programs_that_draw_hold_no_constants_as_big_as_what_they_draw(compiled, make):
    make()
    assert [name for name in compiled if "normal" in name]
    assert not [name for name in compiled if "iota" in name]


def test_other_draws_are_as_long_as_asked_for(compiled):
    tf.keras.Variable("glorot_uniform", shape=(3, 5, 7, 2))
    compiled.clear()
    tf.keras.random.uniform((3, 5, 7, 2))
    assert "jit(_uniform)" in compiled


def test_variables_that_functions_make_have_the_same_first_values():
    made = []

    @tf.function
    def make():
        if not made:
            made.append(tf.keras.Variable(tf.keras.initializers.HeNormal(seed=5), shape=(4, 6)))
        return made[0] * 2

    expected = tf.keras.initializers.HeNormal(seed=5)((4, 6))
    np.testing.assert_array_equal(make(), expected * 2)


def test_first_values_may_be_given_to_a_step():
    weight = tf.keras.Variable("ones", shape=(64, 64))
    grow = tf.function(lambda: weight.assign(weight + 1))
    for _ in range(3):
        grow()
    np.testing.assert_array_equal(weight.value, np.full((64, 64), 4.0))
    np.testing.assert_array_equal(tf.keras.Variable("ones", shape=(64, 64)).value, np.ones((64, 64)))
