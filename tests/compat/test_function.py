import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf


def counting(fn):
    traces = []

    def traced(*args, **kwargs):
        traces.append(1)
        return fn(*args, **kwargs)

    return tf.function(traced), traces


def test_a_function_is_traced_once_for_each_signature():
    double, traces = counting(lambda x: x * 2)
    for x in ([1.0], [2.0], [1.0, 2.0], [1]):
        double(tf.constant(x))
    assert len(traces) == 3
    assert double.experimental_get_tracing_count() == 3


def test_python_arguments_are_constants():
    scale, traces = counting(lambda x, by, mode="sum": tf.reduce_sum(x) * by if mode == "sum" else x)
    x = tf.constant([1.0, 2.0])
    assert float(scale(x, 2)) == 6
    assert float(scale(x, 3)) == 9
    assert float(scale(x, 3)) == 9
    assert scale(x, 3, mode="none").tolist() == [1.0, 2.0]
    assert len(traces) == 3
    assert float(scale(x, 2.0)) == 6
    assert len(traces) == 4


def test_numpy_arguments_are_inputs():
    total, traces = counting(tf.reduce_sum)
    assert [float(total(np.array([i, 1.0]))) for i in range(3)] == [1, 2, 3]
    assert len(traces) == 1


def test_variables_are_read_when_the_function_runs():
    v = tf.Variable(1.0)
    read = tf.function(lambda: v + 1)
    assert float(read()) == 2
    v.assign(5.0)
    assert float(read()) == 6


def test_a_variable_written_and_read_has_the_new_value():
    v, w = tf.Variable(1.0), tf.Variable(0.0)

    @tf.function
    def step(x):
        v.assign_add(x)
        w.assign(v * 10)
        return v.read_value() + w

    assert float(step(tf.constant(2.0))) == 33
    assert (float(v), float(w)) == (3, 30)


def test_a_variable_may_be_made_at_the_first_call():
    class Counter(tf.Module if hasattr(tf, "Module") else object):
        count = None

        @tf.function
        def add(self, x):
            if self.count is None:
                self.count = tf.Variable(0.0)
            return self.count.assign_add(x)

    counter = Counter()
    assert [float(counter.add(tf.constant(2.0))) for _ in range(3)] == [2, 4, 6]


def test_functions_inside_functions_are_one_program():
    v = tf.Variable(0.0)
    inner = tf.function(lambda: v.assign_add(1.0))

    @tf.function
    def outer():
        inner()
        inner()
        return v.read_value()

    assert float(outer()) == 2
    assert float(outer()) == 4


def test_methods_keep_their_objects_apart():
    class Scale:
        def __init__(self, by):
            self.by = by

        @tf.function
        def __call__(self, x):
            return x * self.by

    x = tf.constant(3.0)
    assert (float(Scale(2.0)(x)), float(Scale(5.0)(x))) == (6, 15)


def test_none_and_structures_are_results():
    result = tf.function(lambda x: {"a": (x, None), "b": [1, 2.5]})(tf.constant(1.0))
    assert result["a"][1] is None
    assert [float(r) for r in result["b"]] == [1, 2.5]


def test_a_result_that_is_no_tensor_is_refused_by_name():
    with pytest.raises(TypeError, match="returned a object"):
        tf.function(lambda: object())()


def test_functions_run_eagerly_on_request():
    seen = []
    tf.config.run_functions_eagerly(True)
    try:
        tf.function(lambda x: seen.append(float(x)))(tf.constant(2.0))
    finally:
        tf.config.run_functions_eagerly(False)
    assert seen == [2.0]


def test_an_error_leaves_variables_as_they_were():
    v = tf.Variable(1.0)

    @tf.function
    def fail():
        v.assign(2.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert float(v) == 1


def test_functions_that_are_traced_at_half_of_their_last_calls_are_told_of_twice(caplog):
    told = lambda: caplog.text.count("triggered tf.function retracing")

    def shapes(x):
        return x

    changing = tf.function(shapes)
    for size in (1, 2, 3, 4):
        changing(tf.ones([size]))
    assert told() == 0
    for size in (5, 6, 7, 8):
        changing(tf.ones([size]))
    assert told() == 2
    assert "5 out of the last 5 calls to shapes triggered tf.function retracing" in caplog.text


def test_functions_that_are_traced_now_and_then_are_not_told_of(caplog):
    steady = tf.function(lambda x: x * 1.0)
    for size in range(1, 8):
        for _ in range(4):
            steady(tf.ones([size]))
    assert "triggered tf.function retracing" not in caplog.text


def test_functions_made_in_each_turn_of_a_loop_are_told_of(caplog):
    for _ in range(5):
        tf.function(lambda x: x + 1.0)(tf.ones([]))
    assert "triggered tf.function retracing" in caplog.text


def test_decorator_is_put_around_a_function_that_has_not_been_traced():
    double = tf.function(lambda x: x * 2)
    double._decorate(lambda function: lambda *args: function(*args) + 1)
    assert double(tf.constant(3.0)).numpy() == 7.0
    with pytest.raises(ValueError, match="after they have been traced"):
        double._decorate(lambda function: function)
