"""Loaded functions: sizes, types, structures, gradients, random numbers, and other programs around them."""

import collections

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

Pair = collections.namedtuple("Pair", "first second")


def reload(module, folder, **options):
    tf.saved_model.save(module, folder, **options)
    return tf.saved_model.load(folder)


def make_module(function, *specs):
    module = tf.Module()
    module.f = tf.function(function, input_signature=specs)
    return module


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float64", "int8", "int32", "int64", "uint8", "uint32", "bool", "complex64"]
)
def test_types_stay(tmp_path, dtype):
    kind = tf.as_dtype(dtype)
    module = make_module(lambda x: (tf.reverse(x, [0]), tf.identity(module.v)), tf.TensorSpec([None], kind))
    module.v = tf.Variable(tf.cast([0, 1, 2], kind), trainable=False)
    loaded = reload(module, tmp_path)
    for rows in (1, 3):
        x = tf.cast(np.arange(rows), kind)
        for found, wanted in zip(loaded.f(x), module.f(x), strict=True):
            assert found.dtype == wanted.dtype == kind
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert loaded.v.dtype == kind


def test_structures_of_arguments_and_results_stay(tmp_path):
    @tf.function
    def f(d, pair, *, scale, name="x"):
        return {"sum": d["b"] + d["a"][0], "pair": Pair(pair.second, pair.first)}, [scale, (None, name == "x")], ()

    module = tf.Module()
    module.f = f
    one, two, three = map(tf.constant, (1.0, 2.0, 3.0))
    arguments = {"b": one, "a": [two]}, Pair(one, three)
    wanted = f(*arguments, scale=two)
    found = reload(module, tmp_path).f(*arguments, scale=two)
    assert list(found[0]) == ["sum", "pair"] and found[0]["sum"] == 3.0
    assert type(found[0]["pair"]).__name__ == "Pair" and found[0]["pair"].first == 3.0
    assert found[1][0] == 2.0 and found[1][1] == wanted[1][1] and found[2] == ()


def test_sizes_that_two_arguments_share_may_be_any(tmp_path):
    rows = tf.TensorSpec([None, 3], tf.float32)
    loaded = reload(make_module(lambda x, y: x + y, rows, rows), tmp_path)
    for size in (1, 2, 5):
        np.testing.assert_allclose(loaded.f(tf.ones([size, 3]), tf.ones([size, 3])), np.full([size, 3], 2.0))
    for others in (4, 0):
        with pytest.raises(ValueError, match=r"does not take tensors of these sizes: \[\(2, 3\), "):
            loaded.f(tf.ones([2, 3]), tf.ones([others, 3]))


def test_empty_batches_are_refused(tmp_path):
    loaded = reload(make_module(lambda x: x * 2.0, tf.TensorSpec([None], tf.float32)), tmp_path)
    with pytest.raises(ValueError, match="leave empty batches out"):
        loaded.f(tf.ones([0]))


def test_sizes_of_each_argument_are_its_own_where_that_is_possible(tmp_path):
    rows = tf.TensorSpec([None], tf.float32)
    loaded = reload(make_module(lambda x, y: tf.concat([x, y], 0), rows, rows), tmp_path)
    assert loaded.f(tf.ones([2]), tf.zeros([3])).shape == (5,)
    assert loaded.signatures["serving_default"].structured_outputs["output_0"].shape.as_list() == [None]


def test_unknown_sizes_of_other_axes(tmp_path):
    def f(x):
        return tf.nn.max_pool2d(tf.nn.conv2d(x, tf.ones([3, 3, 2, 4]), 1, "SAME"), 2, 2, "VALID")

    module = make_module(f, tf.TensorSpec([None, None, None, 2], tf.float32))
    loaded = reload(module, tmp_path)
    for shape in ([1, 8, 8, 2], [2, 9, 5, 2]):
        x = np.random.default_rng(0).normal(size=shape).astype("f4")
        np.testing.assert_allclose(loaded.f(x), module.f(x), rtol=1e-5, atol=1e-5)


def test_one_program_is_written_for_a_function_and_its_signatures(tmp_path):
    module = make_module(lambda x: x * 2.0, tf.TensorSpec([None], tf.float32))
    tf.saved_model.save(module, tmp_path, signatures={"one": module.f, "other": module.f})
    names = [name for name, _ in tf.train.list_variables(tmp_path / "saved_model")]
    assert names == ["programs/0"]


def test_methods_attributes_and_names_of_a_collection_do_not_meet(tmp_path):
    module = make_module(lambda: module.children[0] + module.roots, *())
    module.children, module.roots = [tf.Variable(1.0)], tf.Variable(2.0)
    loaded = reload(module, tmp_path)
    assert loaded.f() == 3.0 and loaded.roots == 2.0 and loaded.children[0] == 1.0
    path = tf.train.Checkpoint(loaded=loaded).save(tmp_path / "ckpt")
    loaded.roots.assign(5.0)
    tf.train.Checkpoint(loaded=loaded).restore(path).assert_consumed()
    assert loaded.f() == 3.0


def test_objects_that_lead_to_one_another_are_each_made_once(tmp_path):
    module, other = tf.Module(), tf.Module()
    module.other, other.back, module.same = other, module, [other, {1: other}]
    loaded = reload(module, tmp_path)
    assert loaded.other.back is loaded and loaded.same[0] is loaded.other is loaded.same[1][1]


def test_a_concrete_function_is_an_attribute(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([2], tf.float32))
    loaded = reload(module, tmp_path)
    np.testing.assert_allclose(loaded.f(tf.ones([2])), [2.0, 2.0])
    assert list(loaded.signatures) == ["serving_default"]


def test_arguments_by_name_come_where_they_belong(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x, *, b, a: x + 10.0 * b + 100.0 * a)
    concrete = module.f.get_concrete_function(
        tf.TensorSpec([], tf.float32), b=tf.TensorSpec([], tf.float32), a=tf.TensorSpec([], tf.float32)
    )
    one, two, three = map(tf.constant, (1.0, 2.0, 3.0))
    assert concrete(x=one, b=two, a=three) == 321.0
    loaded = reload(module, tmp_path, signatures=concrete)
    assert loaded.f(one, a=three, b=two) == 321.0
    assert loaded.signatures["serving_default"](a=three, x=one, b=two)["output_0"] == 321.0


def test_random_numbers_go_on_where_they_stood(tmp_path):
    tf.random.set_seed(1)
    module = make_module(lambda: tf.random.normal([3]))
    module.g = tf.random.Generator.from_seed(3)
    module.drawn = tf.function(lambda: module.g.normal([2]), input_signature=[])
    first = module.f()
    loaded = reload(module, tmp_path, signatures=module.drawn)
    np.testing.assert_array_equal(loaded.f(), module.f())
    assert not np.array_equal(loaded.f(), first)
    np.testing.assert_array_equal(loaded.drawn(), module.drawn())
    np.testing.assert_array_equal(loaded.g._state_var, module.g.state)


def test_a_function_without_gradient_says_so_only_where_one_is_asked_for(tmp_path):
    def f(x):
        while tf.reduce_sum(x) < 100.0:
            x = x * 2.0
        return x

    loaded = reload(make_module(f, tf.TensorSpec([None], tf.float32)), tmp_path)
    x = tf.ones([2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.f(x)
    np.testing.assert_allclose(y, [64.0, 64.0])
    with pytest.raises(
        NotImplementedError, match=r"f.* of a SavedModel has no gradient, since it had none when it was saved"
    ):
        tape.gradient(y, x)


def test_loaded_functions_are_part_of_others(tmp_path):
    loaded = reload(make_module(lambda x: x * 3.0, tf.TensorSpec([None], tf.float32)), tmp_path)
    assert tf.function(lambda x: loaded.f(x) + 1.0)(tf.ones([1])) == 4.0
    mapped = tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32)).batch(2).map(loaded.f)
    assert [batch.tolist() for batch in mapped.as_numpy_iterator()] == [[0.0, 3.0], [6.0, 9.0]]


def test_many_batch_sizes_warn_of_nothing(tmp_path, caplog):
    loaded = reload(make_module(lambda x: x * 3.0, tf.TensorSpec([None], tf.float32)), tmp_path)
    for rows in range(1, 12):
        assert loaded.f(tf.ones([rows])).shape == (rows,)
    assert "retracing" not in caplog.text


def test_a_tensor_of_unknown_rank_may_have_any(tmp_path):
    any_rank = tf.TensorSpec(None, tf.float32)
    module = tf.Module()
    module.v = tf.Variable(2.0)
    module.f = tf.function(
        lambda x, y: (x * module.v, tf.reduce_sum(x) + y), input_signature=[any_rank, tf.TensorSpec([])]
    )
    module.g = tf.function(lambda x: tf.linalg.matmul(x, x, transpose_b=True), input_signature=[any_rank])
    tf.saved_model.save(module, tmp_path, signatures={"f": module.f})
    loaded = tf.saved_model.load(tmp_path)
    for shape in ((), (3,), (2, 1), (2, 3, 4)):
        scaled, total = loaded.f(tf.ones(shape), 1.0)
        np.testing.assert_array_equal(scaled, np.full(shape, 2.0))
        assert float(total) == np.prod(shape) + 1
    served = loaded.signatures["f"]
    assert [spec.shape.rank for spec in served.structured_outputs.values()] == [None, 0]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded.f(tf.ones([3]), 0.0)[0])
    assert float(tape.gradient(loss, loaded.v)) == 3.0
    np.testing.assert_array_equal(loaded.g(tf.ones([2, 2])), np.full([2, 2], 2.0))
    with pytest.raises(ValueError, match=r"takes those of one rank in \[2, 3, 4, 5\], got \[1\]"):
        loaded.g(tf.ones([2]))


def test_what_returns_no_tensors_is_not_served_unasked(tmp_path):
    variable = tf.Variable(0.0)

    def store(x):
        variable.assign(x)

    module = make_module(store, tf.TensorSpec([]))
    module.v = variable
    loaded = reload(module, tmp_path / "one")
    assert not loaded.signatures
    loaded.f(3.0)
    assert float(loaded.v) == 3.0
    module.h = tf.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([])])
    assert list(reload(module, tmp_path / "two").signatures) == ["serving_default"]


def test_a_model_that_is_not_built_is_saved_without_its_calls(tmp_path):
    class Model(tf.keras.Model):
        """A model with a function of its own."""

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def double(self, x):
            return 2 * x

    loaded = reload(Model(), tmp_path)
    assert loaded.double(tf.constant([1.0])).numpy().tolist() == [2.0]
