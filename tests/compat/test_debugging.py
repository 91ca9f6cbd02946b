"""`tf.debugging`: assertions eager and compiled, and settings."""

import pickle

import jax
import keras
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

X = tf.constant([1.0, 2.0, 3.0, 4.0])


def test_failed_assertion_shows_message_and_values():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sizes differ Condition x == y .*x: \[1 2 \.\.\.\]: y"):
        tf.debugging.assert_equal([1, 2, 3], [1, 2, 4], message="sizes differ", summarize=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="text"):
        tf.debugging.Assert(False, ["text", X])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a scalar"):
        tf.debugging.Assert([True, False], [])


CHECKS = {
    "equal": lambda x: tf.debugging.assert_equal(x, X),
    "less": lambda x: tf.debugging.assert_less(x, 5.0),
    "positive": lambda x: tf.debugging.assert_positive(x),
    "near": lambda x: tf.debugging.assert_near(x, X),
    "numerics": lambda x: tf.debugging.check_numerics(x, "text"),
    "none_equal": lambda x: tf.debugging.assert_none_equal(x, -1.0),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_compiled_function_is_checked_when_it_runs(check):
    @tf.function
    def program(x):
        check(x)
        return x + 1

    assert program(X)[0] == 2
    with pytest.raises(Exception, match=r"InvalidArgumentError|did not hold|not equal|Inf or NaN"):
        jax.block_until_ready(program(tf.constant([-1.0, np.nan, 9.0, 9.0])))
        jax.effects_barrier()


def test_a_function_whose_assertions_fail_changes_nothing_and_can_be_called_again():
    total = tf.Variable(0.0)

    @tf.function
    def add(x):
        total.assign_add(x)
        tf.debugging.assert_less(x, 10.0, message="first")
        tf.debugging.assert_less(x, 5.0, message="second")

    add(tf.constant(1.0))
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="first"):
            add(tf.constant(20.0))
        assert float(total) == 1.0
    add(tf.constant(2.0))
    assert float(total) == 3.0


def test_what_is_known_is_checked_while_tracing():
    with pytest.raises(ValueError, match="must have rank 2"):
        tf.function(lambda x: tf.debugging.assert_rank(x, 2))(X)


@pytest.mark.parametrize(
    ("shapes", "fits"),
    [
        ([(X, ("N",))], True),
        ([(X, 4)], True),
        ([(X, (3,))], False),
        ([(X, ("N",)), (tf.ones([4, 2]), ("N", "M"))], True),
        ([(X, ("N",)), (tf.ones([3, 2]), ("N", "M"))], False),
        ([(tf.ones([5, 6, 4]), (..., 4))], True),
        ([(tf.ones([5, 6, 4]), (5, "*"))], True),
        ([(tf.ones([5, 6, 4]), (6, "*"))], False),
        ([(X, (".",)), (X, (None,))], True),
        ([(tf.constant(1), ())], True),
        ({X.ref(): ("N",)}, True),
    ],
)
def test_shapes_match_their_symbols(shapes, fits):
    if fits:
        tf.debugging.assert_shapes(shapes)
    else:
        with pytest.raises(ValueError, match="does not match"):
            tf.debugging.assert_shapes(shapes)


def test_settings():
    tf.debugging.set_log_device_placement(True)
    assert tf.debugging.get_log_device_placement()
    tf.debugging.set_log_device_placement(False)
    tf.debugging.disable_traceback_filtering()
    assert not tf.debugging.is_traceback_filtering_enabled()
    tf.debugging.enable_traceback_filtering()
    assert tf.debugging.is_traceback_filtering_enabled()


def test_nan_is_an_error_on_request():
    tf.debugging.enable_check_numerics()
    try:
        with pytest.raises(FloatingPointError):
            tf.math.log(tf.constant(-1.0))
    finally:
        tf.debugging.disable_check_numerics()
    assert np.isnan(tf.math.log(tf.constant(-1.0)))


@pytest.mark.parametrize("replicas", [None, 2])
def test_nan_in_a_compiled_function_is_an_error_on_request_and_changes_nothing(replicas):
    strategy = (
        tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])
        if replicas
        else tf.distribute.get_strategy()
    )
    with strategy.scope():
        total = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        total.assign_add(x)
        return strategy.run(lambda: tf.math.log(x))

    tf.debugging.enable_check_numerics()
    try:
        step(tf.constant([1.0, 2.0]))
        for _ in range(2):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="NaN was found in 1 of the 2 results and variables"
            ):
                step(tf.constant([-1.0, 2.0]))
            assert total.numpy().tolist() == [2.0, 4.0]
    finally:
        tf.debugging.disable_check_numerics()
    step(tf.constant([-1.0, 2.0]))
    assert total.numpy().tolist() == [1.0, 6.0]


def test_nan_in_a_model_is_an_error_on_request():
    x = np.ones((4, 2), "f4")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], verbose=0)
    weights = model.get_weights()
    model.set_weights([w * np.nan for w in weights])
    tf.debugging.enable_check_numerics()
    try:
        for method in (model.fit, model.evaluate):
            with pytest.raises(tf.errors.InvalidArgumentError, match="NaN was found"):
                method(x, x[:, :1], verbose=0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="NaN was found"):
            model.predict(x, verbose=0)
        assert int(model.optimizer.iterations.numpy()) == 1
        model.set_weights(weights)
        model.fit(x, x[:, :1], verbose=0)
    finally:
        tf.debugging.disable_check_numerics()


def test_errors_have_codes_messages_and_a_common_base():
    error = tf.errors.OutOfRangeError(None, None, "at the end", "more")
    assert (error.message, error.error_code, str(error)) == ("at the end", tf.errors.OUT_OF_RANGE, "at the end")
    assert isinstance(error, tf.errors.OpError) and error.op is None and error.experimental_payloads == {}
    assert issubclass(tf.errors.OperatorNotAllowedInGraphError, TypeError)


def test_errors_are_made_anew_from_their_message_and_pickle():
    error = tf.errors.InvalidArgumentError(None, None, "of no use")
    for again in (type(error)(error.args[0] + ", here"), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error) and again.message.startswith("of no use")
        assert again.error_code == tf.errors.INVALID_ARGUMENT
    assert tf.errors.OpError(None, None, "other", 77).error_code == 77


def test_case_compares_structures():
    case = tf.test.TestCase()
    case.assertAllClose({"a": X}, {"a": X + 1e-8})
    case.assertAllEqual([X, X], [X, X])
    with pytest.raises(AssertionError):
        case.assertAllClose(X, X + 1)
    assert case.evaluate(X).tolist() == [1, 2, 3, 4]
