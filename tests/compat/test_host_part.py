"""Strings in functions that are compiled: the host computes with them before each run, and the function is traced once."""

import threading

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow._functions import _calls


@pytest.fixture
def counted():
    """A function of strings and numbers, and how often it has been traced."""
    traces = []

    @tf.function
    def function(text, number):
        traces.append(text)
        return tf.strings.to_number(text) * number, tf.strings.join([text, "!"])

    return function, traces


def test_other_strings_need_no_other_trace(counted):
    function, traces = counted
    for text in ("1", "2.5", "-3"):
        product, joined = function(tf.constant(text), tf.constant(2.0))
        assert product.numpy() == 2 * float(text) and joined.numpy() == f"{text}!".encode()
    assert len(traces) == 1


def test_another_shape_is_another_program(counted):
    function, traces = counted
    for count in (1, 2, 1, 2):
        product, joined = function(tf.constant(["3"] * count), tf.constant(2.0))
        assert product.numpy().tolist() == [6.0] * count and joined.shape == (count,)
    assert len(traces) == 2


def test_arrays_of_numpy_are_strings_too(counted):
    function, traces = counted
    for given in (np.array("1"), np.array(b"2"), np.array("3", object), tf.constant("4")):
        function(given, 2.0)
    assert len(traces) == 1


def test_sizes_that_follow_from_strings_are_programs_until_there_are_too_many(monkeypatch):
    monkeypatch.setattr(_calls, "_MOST_SIZES", 3)
    traces = []

    @tf.function
    def function(text):
        traces.append(text)
        return tf.reduce_sum(tf.strings.to_number(tf.strings.split(text)))

    for count in (1, 2, 3, 2, 1):
        assert function(tf.constant("2 " * count)).numpy() == 2 * count
    assert len(traces) == 3
    for count in (4, 1, 5):
        assert function(tf.constant("2 " * count)).numpy() == 2 * count
    assert len(traces) > 3  # It runs as Python now.


def test_what_changes_something_is_done_once_in_each_call():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    seen = []

    @tf.function
    def count(text):
        table.insert(text, table.lookup(text) + 1)
        tf.py_function(lambda t: seen.append(t.numpy().tolist()), [text], [])
        return table.size()

    for text in (["a", "b"], ["a", "c"], ["a", "b"]):
        size = count(tf.constant(text))
    assert size.numpy() == 3
    assert table.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [3, 2, 1]
    assert seen == [[b"a", b"b"], [b"a", b"c"], [b"a", b"b"]]


def test_variables_stay_when_a_string_is_wrong():
    total = tf.Variable(1.0)

    @tf.function
    def add(text):
        total.assign_add(tf.strings.to_number(text))

    add(tf.constant("2"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="correctly convert string: two"):
        add(tf.constant("two"))
    add(tf.constant("4"))
    assert total.numpy() == 7.0


def test_gradients_go_through_the_numbers():
    weight = tf.Variable([2.0, 3.0])

    @tf.function
    def loss(text):
        return tf.reduce_sum(weight * tf.strings.to_number(text))

    for text in (["5", "7"], ["1", "-1"]):
        with tf.GradientTape() as tape:
            value = loss(tf.constant(text))
        assert tape.gradient(value, weight).numpy().tolist() == list(map(float, text))


def test_a_number_that_the_program_computes_lets_the_function_run_as_python(caplog):
    @tf.function
    def spell(x):
        return tf.strings.as_string(x * 2, precision=1)

    assert [spell(tf.constant(x)).numpy() for x in (1.0, 2.5)] == [b"2.0", b"5.0"]
    assert "runs as Python" in caplog.text and "takes a number" in caplog.text


def test_arguments_that_are_numbers_are_known_to_the_host(caplog):
    traces = []

    @tf.function
    def spell(x, text):
        traces.append(x)
        return tf.strings.join([text, tf.strings.as_string(x)]), x + 1

    for x in (1, 2, 3):
        joined, more = spell(tf.constant(x), tf.constant("n"))
        assert joined.numpy() == b"n%d" % x and more.numpy() == x + 1
    assert len(traces) == 1 and "runs as Python" not in caplog.text


def test_functions_within_functions():
    @tf.function
    def inner(text):
        return tf.strings.length(text) * 2

    @tf.function
    def outer(text):
        if tf.equal(text, "stop"):
            return tf.constant(-1)
        return inner(text + "!") + 1

    assert [outer(tf.constant(text)).numpy() for text in ("a", "abc", "stop", "")] == [5, 9, -1, 3]


def test_a_string_of_another_function_is_out_of_scope():
    kept = []

    @tf.function
    def keep(text):
        kept.append(text)
        return tf.strings.length(text)

    @tf.function
    def use(text):
        return tf.strings.join([text, kept[0]])

    keep(tf.constant("a"))
    with pytest.raises((TypeError, ValueError), match="out of scope"):
        use(tf.constant("b"))


def test_a_string_has_no_value_while_a_function_is_traced():
    @tf.function
    def function(text):
        return len(text.numpy())

    with pytest.raises(AttributeError, match="no value while a function is traced"):
        function(tf.constant("a"))


def test_threads_get_their_own_strings(counted):
    function, traces = counted
    function(tf.constant("0"), tf.constant(1.0))
    wrong = []

    def run(number):
        for i in range(30):
            product, joined = function(tf.constant(str(number * 100 + i)), tf.constant(1.0))
            if product.numpy() != number * 100 + i or joined.numpy() != b"%d!" % (number * 100 + i):
                wrong.append((number, i))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong and len(traces) == 1


def test_a_dataset_traces_a_function_of_strings_once():
    traces = []

    def parse(text):
        traces.append(text)
        return tf.strings.to_number(text) + tf.random.stateless_uniform([], [1, 2]) * 0, text

    dataset = tf.data.Dataset.from_tensor_slices([str(i) for i in range(20)]).map(parse)
    assert [(float(number), text) for number, text in dataset.as_numpy_iterator()] == [
        (i, b"%d" % i) for i in range(20)
    ]
    assert len(traces) == 1


def test_a_dataset_of_many_sizes_runs_in_python_at_last():
    lines = ["1 " * (i % 9 + 1) for i in range(30)]
    dataset = tf.data.Dataset.from_tensor_slices(lines).map(lambda text: tf.strings.to_number(tf.strings.split(text)))
    assert [row.tolist() for row in dataset.as_numpy_iterator()] == [[1.0] * (i % 9 + 1) for i in range(30)]
    assert dataset.element_spec.shape.as_list() == [None]


def test_random_numbers_do_not_depend_on_how_a_function_runs():
    draw = lambda text: tf.strings.to_number(text) + tf.random.uniform([])
    drawn = []
    for change in (lambda text: text, lambda text: tf.strings.reduce_join(tf.strings.split(text))):
        tf.random.set_seed(3)
        dataset = tf.data.Dataset.from_tensor_slices(["1", "2"]).map(lambda text, change=change: draw(change(text)))
        drawn.append(list(dataset.as_numpy_iterator()))
    np.testing.assert_allclose(*drawn)


def test_numbers_that_become_strings_are_mapped_element_by_element():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)

    def put(x):
        table.insert(x, 10 * x)
        return tf.strings.as_string(x), table.lookup(x) + 1

    dataset = tf.data.Dataset.range(2, 5).map(put)
    assert dataset.element_spec[0].dtype == tf.string
    assert list(dataset.as_numpy_iterator()) == [(b"2", 21), (b"3", 31), (b"4", 41)]
    assert sorted(table.export()[0].numpy().tolist()) == [2, 3, 4]


def test_effects_are_those_of_runs_alone(capfd):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)

    @tf.function
    def count(text, x):
        table.insert(text, table.lookup(text) + 1)
        tf.print("counted", text)
        return tf.strings.as_string(x * 2)  # It runs as Python.

    count(tf.constant("a"), tf.constant(1))
    assert table.lookup(tf.constant("a")).numpy() == 1
    assert capfd.readouterr().err.splitlines().count('counted "a"') == 1

    @tf.function
    def tell(text):
        tf.print("told", text)
        return tf.strings.length(text)

    for text in ("b", "c"):
        tell(tf.constant(text))
    assert [line for line in capfd.readouterr().err.splitlines() if "told" in line] == ['told "b"', 'told "c"']


def test_what_comes_behind_an_effect_must_keep_its_size():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)

    @tf.function
    def function(text):
        table.insert(text, tf.constant(1, tf.int64))
        return tf.strings.bytes_split(text).to_tensor() if text.shape.rank else tf.strings.bytes_split(text)

    assert function(tf.constant("ab")).shape == (2,)
    with pytest.raises(RuntimeError, match="has been called, and behind it"):
        function(tf.constant("abc"))


@tf.function
def in_another_case(text):
    if tf.strings.length(text) > 3:
        return tf.strings.upper(text)
    return tf.strings.lower(text)


@tf.function
def filled_up(text):
    while tf.strings.length(text) < 4:
        text = text + "-"
    return text


def test_strings_that_a_branch_or_a_loop_changes_are_computed_by_python():
    assert [in_another_case(tf.constant(text)).numpy() for text in ("abCd", "AB")] == [b"ABCD", b"ab"]
    assert [filled_up(tf.constant(text)).numpy() for text in ("abcde", "a")] == [b"abcde", b"a---"]


def test_python_functions_of_constants_are_called_in_each_run():
    found = []

    @tf.function
    def note(x):
        tf.py_function(found.append, inp=[x], Tout=[])
        tf.numpy_function(found.append, [2], [])

    for _ in range(3):
        note(1)
    assert [int(x) for x in found] == [1, 2] * 3


def test_what_stands_for_strings_prints_as_tensors_do():
    printed = []

    @tf.function
    def f(text):
        printed.append(f"{text} {text!r}")
        return text + text

    f(tf.constant(["a"]))
    assert printed == ["Tensor(shape=(1,), dtype=string) <tf.Tensor shape=(1,) dtype=string>"]


def test_a_concrete_function_of_strings_prints_without_its_results():
    @tf.function
    def double(text):
        return text + text

    concrete = double.get_concrete_function(tf.TensorSpec([], tf.string))
    assert concrete(tf.constant("a")).numpy() == b"aa"
    assert str(concrete.function_type) == "(text: TensorSpec(shape=(), dtype=tf.string, name=None)) -> <unknown>"
    assert str(concrete).startswith("ConcreteFunction Input Parameters:\n  text (POSITIONAL_OR_KEYWORD): TensorSpec")
