"""Control flow on tensors: what the recorded programs in tests/parity do not show."""

import functools
import logging
import traceback

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._functions._autograph import _expressions
from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted

HERE = __file__


@pytest.fixture
def strategy():
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def lines_of(error):
    """The lines of this file in an error's traceback, innermost last."""
    return [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == HERE]


def test_errors_show_the_users_own_lines():
    def helper(x):
        y = x + 1
        return tf.reshape(y, [7])  # This line.

    @tf.function
    def outer(x):
        if x[0] > 0:
            x = helper(x)
        return x

    with pytest.raises(Exception, match=r"reshape|7") as raised:
        outer(tf.ones([2]))
    assert "return tf.reshape(y, [7])  # This line." in lines_of(raised.value)
    assert "x = helper(x)" in lines_of(raised.value)


def test_closures_globals_defaults_and_methods_survive_conversion():
    factor = tf.constant(3)

    class Scale:
        offset = 10

        def __call__(self, x, *, extra=1):
            return x * factor + self.offset + extra if x > 0 else -x

    scale = Scale()
    run = tf.function(lambda x: scale(x) + functools.partial(scale, extra=5)(x))
    assert int(run(tf.constant(1))) == 14 + 18
    assert int(run(tf.constant(-1))) == 2


def test_recursion_with_known_depth():
    @tf.function
    def power(x, n):
        if n == 0:
            return tf.constant(1)
        return x * power(x, n - 1)

    assert int(power(tf.constant(2), 5)) == 32


def test_function_without_source_runs_as_it_is_and_says_so_when_it_matters(caplog):
    names = {}
    exec(compile("def f(x):\n    return x + 1 if True else x", "no_such_file.py", "exec"), names)
    with caplog.at_level(logging.WARNING):
        assert int(tf.function(names["f"])(tf.constant(1))) == 2
        assert int(tf.function(names["f"])(tf.constant(2))) == 3
    assert len([record for record in caplog.records if "AutoGraph could not convert" in record.message]) == 1


def test_library_code_and_marked_functions_are_left_alone():
    assert converted(np.mean) is np.mean
    assert converted(jax.nn.relu) is jax.nn.relu
    marked = tf.autograph.experimental.do_not_convert(lambda x: x)
    assert converted(marked) is marked
    once = converted(lines_of)
    assert once is not lines_of and converted(once) is once


@pytest.mark.parametrize("name", ["map_fn", "scan", "while_loop"])
def test_functions_that_call_functions_are_known_before_and_after_a_program_has_asked_for_them(name):
    given_out = getattr(tf, name)
    assert _expressions.calls_functions(given_out) and _expressions.calls_functions(given_out.__wrapped__)


def test_the_range_of_tensorflow_is_known_before_and_after_a_program_has_asked_for_it():
    assert _expressions.replacement(tf.range) is _expressions.replacement(tf.range.__wrapped__) is not None


def test_a_branch_may_change_attributes_and_items():
    class State:
        count = 0

    state, table = State(), {"a": 1}

    @tf.function
    def step(x):
        if x > 0:
            state.count = x
            table["a"] = x * 2
        else:
            state.count = -x
        result = state.count + table["a"]
        state.count, table["a"] = 0, 1
        return result

    assert int(step(tf.constant(3))) == 9 and int(step(tf.constant(-3))) == 4


def test_loops_over_tensors_are_loops_of_the_program():
    @tf.function
    def total(x):
        result = tf.constant(0.0)
        for row in x:
            result += tf.reduce_sum(row)
        return result

    x = tf.ones([1000, 2])
    assert float(total(x)) == 2000
    assert len(total.lower(x).as_text()) < 10_000


def test_loop_over_a_range_has_a_gradient_and_one_with_a_traced_bound_runs():
    w = tf.Variable(2.0)

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(3):
                x = x * w
        return tape.gradient(x, w)

    assert float(gradient(tf.constant(1.0))) == 12

    @tf.function
    def repeated(x, n):
        for i in tf.range(n):
            x = x + tf.cast(i, tf.float32)
        return x

    assert float(repeated(tf.constant(0.0), tf.constant(5))) == 10
    assert repeated.experimental_get_tracing_count() == 1


def test_while_loop_with_a_bound_has_a_gradient():
    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            while y < 100.0:
                tf.autograph.experimental.set_loop_options(maximum_iterations=10)
                y = y * x
        return tape.gradient(y, x), y

    slope, value = gradient(tf.constant(3.0))
    assert float(value) == 243 and float(slope) == 5 * 81


def test_break_in_a_python_loop_may_depend_on_tensors():
    @tf.function
    def first_above(x, limit):
        found = -1
        for i in range(4):
            if x[i] > limit:
                found = i
                break
        return found

    x = tf.constant([1, 5, 3, 9])
    assert [int(first_above(x, tf.constant(limit))) for limit in (0, 4, 5, 9)] == [0, 1, 3, -1]


def test_list_that_grows_in_a_loop_names_tensor_array():
    @tf.function
    def collect(n):
        found = []
        for i in tf.range(n):
            found = [*found, i]
        return found

    with pytest.raises(TypeError, match=r"'found' does not have the same structure.*TensorArray"):
        collect(tf.constant(3))


def test_function_whose_branches_give_different_shapes_runs_as_python(caplog):
    @tf.function
    def choose(x):
        return tf.ones([2]) if x > 0 else tf.ones([3])

    assert [len(choose(tf.constant(sign))) for sign in (1, -1)] == [2, 3]
    assert caplog.text.count("choose runs as Python") == 1 and "tf.ones([2]) if x > 0" in caplog.text
    branches = tf.function(lambda x: tf.cond(x > 0, lambda: tf.ones([2]), lambda: tf.ones([3])))
    assert [len(branches(tf.constant(sign))) for sign in (1, -1)] == [2, 3]


def test_print_of_a_tensor_happens_at_tracing_unless_builtins_are_converted(capfd):
    def show(x):
        if x > 0:
            print("positive", x)
        return x

    jax.block_until_ready(tf.function(show)(tf.constant(-1)))
    assert capfd.readouterr().out.startswith("positive ")
    options = tf.autograph.experimental.Feature.BUILTIN_FUNCTIONS
    shown = tf.function(show, experimental_autograph_options=options)
    jax.block_until_ready([shown(tf.constant(-1)), shown(tf.constant(2))])
    jax.effects_barrier()
    assert "positive 2" in "".join(capfd.readouterr())
    with pytest.raises(ValueError, match="Invalid AutoGraph option"):
        tf.function(show, experimental_autograph_options="print")


def test_body_of_a_loop_over_a_dataset_is_traced_once(strategy):
    traces = []
    with strategy.scope():
        weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def epoch(batches, scale):
        for x in batches:
            traces.append(1)
            last = strategy.run(lambda x: weight.assign_add(tf.reduce_sum(x)), args=(x,))
            total = strategy.reduce("MEAN", last, axis=None) * scale
        return total

    dataset = tf.data.Dataset.range(8).map(lambda x: tf.cast(x, tf.float32)).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)
    assert float(epoch(distributed, tf.constant(1.0))) == 28
    traced = len(traces)
    assert traced <= 2  # Once to find out what the body defines, once for the program.
    assert float(epoch(distributed, tf.constant(2.0))) == 112
    assert len(traces) == traced


def test_dataset_inside_replicas_is_iterated_over_by_each(strategy):
    dataset = tf.data.Dataset.range(3)

    @tf.function
    def step(x):
        total = tf.constant(0, tf.int64)
        for entry in dataset:
            total += entry
        return total + x

    assert [int(v) for v in strategy.run(step, args=(tf.constant(1, tf.int64),)).values] == [4, 4]


def test_tensor_array_checks_its_places():
    array = tf.TensorArray(tf.float32, size=2)
    with pytest.raises(tf.errors.OutOfRangeError, match="not resizeable"):
        array.write(2, 1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        array.write(0, [1.0, 2.0]).write(1, [1.0])
    grown = tf.TensorArray(tf.float32, size=0, dynamic_size=True).write(0, 1.0).write(2, 3.0)
    assert grown.stack().tolist() == [1, 0, 3] and int(grown.size()) == 3
    assert grown.gather([2, 0]).tolist() == [3, 1] and float(grown.read(2)) == 3
    with pytest.raises(tf.errors.OutOfRangeError, match="size is: 3"):
        grown.read(3)
    rows = tf.TensorArray(tf.int32, size=2).unstack([[1, 2], [3, 4]])
    assert rows.concat().tolist() == [1, 2, 3, 4] and rows.element_shape == (2,)
    assert rows.scatter([1, 0], [[9, 9], [8, 8]]).stack().tolist() == [[8, 8], [9, 9]]
    with pytest.raises(tf.errors.OutOfRangeError, match="not resizeable"):
        tf.function(lambda: tf.TensorArray(tf.int32, size=0).write(tf.constant(0) + 0, 1))()
    with pytest.raises(ValueError, match="`size`"):
        tf.function(lambda i: tf.TensorArray(tf.int32, size=0).write(i, 1))(tf.constant(0))


def test_array_that_grows_in_a_loop_of_known_length_is_part_of_one_loop(caplog):
    @tf.function
    def double(rows):
        doubled, place = tf.TensorArray(tf.float32, size=0, dynamic_size=True), 200
        for row in rows:
            place -= 2
            doubled = doubled.write(place // 2, 2 * row)
        return doubled.stack(), doubled.size()

    rows = tf.range(100.0)
    assert double(rows)[0].tolist() == (2 * rows)[::-1].tolist() and int(double(rows)[1]) == 100
    assert "while" in double.lower(rows).as_text() and not caplog.text


@pytest.mark.parametrize(("length", "compiled"), [(4, True), (70, False)])
def test_loop_that_asks_for_the_size_of_what_grows_is_unrolled_or_runs_as_python(caplog, length, compiled):
    @tf.function
    def sums(rows):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for row in rows:
            found = found.write(found.size(), tf.reduce_sum(row))
        return found.stack()

    assert sums(tf.ones([length, 2])).tolist() == [2.0] * length
    assert ("sums runs as Python" in caplog.text) is not compiled


def test_array_that_grows_in_one_branch_runs_as_python(caplog):
    @tf.function
    def above(numbers, limit):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(4):
            if numbers[i] > limit:
                found = found.write(found.size(), numbers[i])
        return found.stack()

    assert above(tf.constant([1.0, 3.0, 2.0, 4.0]), 2.0).tolist() == [3.0, 4.0]
    assert "'found' grows in one branch" in caplog.text


def add_if_positive(total, x):
    if x > 0:
        total = total + x
    return total


def test_functions_given_by_name_to_operations_that_call_them_are_converted():
    def less_than_three(i, total):
        return i < 3 and total < 100.0

    def step(i, total):
        return i + 1, add_if_positive(total, tf.cast(i, tf.float32))

    @tf.function
    def everything(x):
        return (
            tf.scan(add_if_positive, x),
            tf.foldl(add_if_positive, x, 0.0),
            tf.foldr(add_if_positive, x),
            tf.while_loop(less_than_three, step, [0, 0.0])[1],
            tf.switch_case(
                tf.cast(x[0], tf.int32), [functools.partial(add_if_positive, x[0], each) for each in (x[1], x[2])]
            ),
        )

    scanned, left, right, looped, switched = everything(tf.constant([1.0, -2.0, 3.0]))
    assert scanned.numpy().tolist() == [1, 1, 4]
    assert [float(value) for value in (left, right, looped, switched)] == [4, 4, 3, 4]


def test_variable_that_both_branches_name_stays_one():
    # In TensorFlow it has become a tensor, which cannot be assigned.
    held = tf.Variable(1.0)

    @tf.function
    def add(condition):
        if condition:
            variable, y = held, 1.0
        else:
            variable, y = held, 2.0
        variable.assign_add(y)

    add(tf.constant(True))
    add(tf.constant(False))
    assert held.numpy() == 4.0
