"""`tf.cond`, `tf.while_loop` and the like: eager and compiled they do the same, variables included."""

import jax
import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

X = tf.constant([[1.0, 0.0], [2.0, 2.0]])

PROGRAMS = {
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 1, lambda: x + 1, lambda: {"no": x}["no"]),
    "switch_case": lambda x: tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: 10, lambda: 20], default=lambda: 0),
    "switch_case_default": lambda x: tf.switch_case(tf.cast(x[1, 0], tf.int32), [lambda: 10, lambda: 20], lambda: 5),
    "case": lambda x: tf.case([(x[0, 0] > 9, lambda: 1), (x[1, 0] > 1, lambda: 2)], default=lambda: 3),
    "case_without_default": lambda x: tf.case([(x[0, 0] > 9, lambda: 1), (x[1, 0] > 9, lambda: 2)]),
    "while_loop": lambda x: tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + x), (0, tf.zeros([2, 2]))),
    "bounded_while_loop": lambda x: tf.while_loop(lambda i: x[1, 0] > 0, lambda i: [i * 2], [1], maximum_iterations=4),
    "map_fn": lambda x: tf.map_fn(lambda row: tf.reduce_sum(row), x),
    "map_fn_of_structures": lambda x: tf.map_fn(lambda p: (p[0] + p[1], p[0]), (x, x)),
    "vectorized_map": lambda x: tf.vectorized_map(lambda row: row * 2, x),
    "scan": lambda x: tf.scan(lambda a, b: a + b, x),
    "scan_from": lambda x: tf.scan(lambda a, b: a - b, x, initializer=tf.ones([2])),
    "scan_reverse": lambda x: tf.scan(lambda a, b: a + b, x, reverse=True),
    "foldl": lambda x: tf.foldl(lambda a, b: a * 2 + b, x),
    "foldr": lambda x: tf.foldr(lambda a, b: a * 2 + b, x, initializer=tf.zeros([2])),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_compiled_equals_eager(program):
    eager, compiled = program(X), tf.function(program)(X)
    assert jax.tree.structure(eager) == jax.tree.structure(compiled)
    jax.tree.map(np.testing.assert_allclose, eager, compiled)


NONE = {
    "map_fn_of_no_entries": (lambda x: tf.map_fn(lambda row: row[0], x), (0,), tf.float32),
    "map_fn_in_a_type": (lambda x: tf.map_fn(lambda row: tf.cast(row[0], tf.int64), x, tf.int64), (0,), tf.int64),
    "map_fn_of_a_shape": (
        lambda x: tf.map_fn(lambda r: tf.argsort(r), x, fn_output_signature=tf.TensorSpec([2], tf.int32)),
        (0, 2),
        tf.int32,
    ),
    "scan_of_no_entries": (lambda x: tf.scan(lambda a, b: a + b[0], x, initializer=1.0), (0,), tf.float32),
    "scan_of_one_entry": (lambda x: tf.scan(lambda a, b: a + b, tf.ones([1, 2])), (1, 2), tf.float32),
    "foldl_of_no_entries": (lambda x: tf.foldl(lambda a, b: a + b, x, initializer=tf.ones([2])), (2,), tf.float32),
}


@pytest.mark.parametrize("program, shape, dtype", NONE.values(), ids=NONE)
@pytest.mark.parametrize("compile_", [lambda fn: fn, tf.function], ids=["eager", "compiled"])
def test_there_may_be_no_entries(program, shape, dtype, compile_):
    result = compile_(program)(tf.zeros([0, 2]))
    assert result.shape == shape and result.dtype == dtype


@pytest.mark.parametrize("compile_", [lambda fn: fn, tf.function], ids=["eager", "compiled"])
def test_numbers_that_map_fn_collects_have_the_type_of_its_signature(compile_):
    def program(x):
        given = tf.map_fn(lambda entry: (1, 2), x, fn_output_signature=(tf.int64, tf.TensorSpec([], tf.float16)))
        return tf.map_fn(lambda entry: 1, x), *given, tf.scan(lambda a, b: 3, x, initializer=1.0)

    results = compile_(program)(X[1])
    assert [result.dtype for result in results] == [tf.float32, tf.int64, tf.float16, tf.float32]
    assert [result.numpy().tolist() for result in results] == [[1, 1], [1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("compile_", [lambda fn: fn, tf.function], ids=["eager", "compiled"])
def test_bodies_assign_variables(compile_):
    v, n = tf.Variable(1.0), tf.Variable(0)

    def program(p):
        tf.cond(p, lambda: v.assign_add(2.0).value(), lambda: v.assign(0.0).value())
        tf.while_loop(lambda i: i < 3, lambda i: [i + n.assign_add(1) - n], [0], maximum_iterations=3)
        return tf.map_fn(lambda x: n.assign_add(10) + tf.cast(x, tf.int32), X[0])

    assert compile_(program)(tf.constant(True)).numpy().tolist() == [14, 23]
    assert v.numpy() == 3 and n.numpy() == 23


@pytest.mark.parametrize("compile_", [lambda fn: fn, tf.function], ids=["eager", "compiled"])
def test_tapes_go_through_bodies(compile_):
    v = tf.Variable(2.0)

    def program(p, x):
        with tf.GradientTape() as tape:
            y = tf.cond(p, lambda: v * v * x, lambda: v * x)
            y, _ = tf.while_loop(lambda y, i: i < 3, lambda y, i: (y * v, i + 1), (y, 0), maximum_iterations=5)
            y += tf.reduce_sum(tf.map_fn(lambda row: row * v, tf.ones([4])))
        return tape.gradient(y, v)

    assert compile_(program)(tf.constant(True), tf.constant(3.0)) == 5 * 3 * 2**4 + 4
    assert compile_(program)(tf.constant(False), tf.constant(3.0)) == 4 * 3 * 2**3 + 4


def test_replicas_assign_in_bodies():
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step(p):
        strategy.run(lambda p: tf.cond(p, lambda: v.assign_add(2.0).value(), lambda: v.value()), (p,))

    step(tf.constant(False))
    assert v.numpy() == 1
    step(tf.constant(True))
    assert v.numpy() == 5


def test_functions_are_needed():
    with pytest.raises(TypeError, match="needs functions"):
        tf.cond(True, 1, 2)


def test_body_returns_as_many_values_as_there_are_variables():
    with pytest.raises(ValueError, match="must return 2 values"):
        tf.while_loop(lambda i, j: True, lambda i, j: [i], [0, 0])


def test_python_functions_need_values():
    assert tf.numpy_function(lambda a: type(a).__name__, [X], tf.string).numpy() == b"ndarray"
    assert tf.py_function(lambda t: t.numpy().sum(), [X], tf.float32) == 5
    assert tf.py_function(lambda t: None, [X]) is None
    assert [t.dtype.name for t in tf.numpy_function(lambda a: (a, 1), [X], [tf.float32, tf.int64])] == [
        "float32",
        "int64",
    ]
    assert tf.function(lambda x: tf.py_function(lambda t: t, [x], tf.float32))(X).tolist() == np.asarray(X).tolist()
    with pytest.raises(RuntimeError, match="unknown shape"):
        jax.jit(lambda x: tf.py_function(lambda t: t, [x], tf.float32))(X)


def test_names_of_scopes_reach_the_program():
    with tf.name_scope("outer") as outer, tf.name_scope("inner") as inner:
        assert (outer, inner, tf.get_current_name_scope()) == ("outer/", "outer/inner/", "outer/inner")
        assert tf.name_scope("x").name == "x"
    assert tf.get_current_name_scope() == ""
    with pytest.raises(ValueError, match="takes a name"):
        tf.name_scope(None)

    def program(x):
        with tf.name_scope("my_layer"):
            return tf.exp(x)

    assert "my_layer" in jax.jit(program).lower(X).as_text(debug_info=True)


def test_order_of_lines_is_the_order_of_effects():
    called = []
    with tf.control_dependencies([lambda: called.append(1), X]):
        assert called == [1]
    assert tf.group(X) is None and tf.no_op() is None and len(tf.tuple([X, None])) == 2


def test_code_knows_whether_it_is_being_compiled():
    found = []
    tf.function(lambda: found.append((tf.executing_eagerly(), tf.inside_function())))()
    with tf.GradientTape():
        found.append((tf.executing_eagerly(), tf.inside_function()))
    assert found == [(False, True), (True, False)]


def test_branches_of_different_types_are_an_error_of_tensorflows_types():
    with pytest.raises(TypeError, match=r"different types: \['float32'\] and \['int32'\]. Use `tf.cast`"):
        tf.function(lambda x: tf.cond(x > 0, lambda: 1, lambda: 1.0))(tf.constant(1.0))
