"""`TensorShape` and `TensorSpec`."""

import copy

import jax
import jax.numpy as jnp
import pytest

import tfdist_jax.compat.tensorflow as tf

KNOWN, OPEN, UNKNOWN = tf.TensorShape([2, 3]), tf.TensorShape([2, None]), tf.TensorShape(None)


def test_shape_is_a_tuple_and_equals_lists():
    assert isinstance(KNOWN, tuple) and KNOWN == (2, 3) == KNOWN and KNOWN == [2, 3] and KNOWN != [3, 2]
    assert hash(KNOWN) == hash((2, 3))
    assert jnp.zeros(KNOWN).shape == KNOWN


def test_shape_answers_questions():
    assert (KNOWN.rank, KNOWN.ndims, KNOWN.as_list(), KNOWN.num_elements()) == (2, 2, [2, 3], 6)
    assert KNOWN.is_fully_defined() and not OPEN.is_fully_defined() and OPEN.num_elements() is None
    assert isinstance(KNOWN[1:], tf.TensorShape) and KNOWN[0] == 2
    assert OPEN.dims == [2, None] and UNKNOWN.dims is None


def test_scalar_shape_is_true_and_unknown_is_false():
    assert tf.TensorShape([]) and not UNKNOWN


def test_unknown_rank_has_neither_length_nor_list():
    for use in (len, list, tf.TensorShape.as_list):
        with pytest.raises(ValueError, match="unknown"):
            use(UNKNOWN)
    assert UNKNOWN.rank is None and tf.TensorShape(None) == UNKNOWN and tf.TensorShape([]) != UNKNOWN
    assert UNKNOWN[0] is None and UNKNOWN[1:] == UNKNOWN


def test_shapes_are_put_together():
    assert KNOWN + OPEN == [2, 3, 2, None] and KNOWN.__radd__([4]) == [4, 2, 3]
    assert OPEN.merge_with([2, 5]) == [2, 5] and UNKNOWN.merge_with(OPEN) == OPEN
    assert KNOWN.most_specific_compatible_shape([2, 4]) == OPEN
    assert KNOWN.most_specific_compatible_shape([2]) == UNKNOWN
    assert UNKNOWN.concatenate([1]) == UNKNOWN
    with pytest.raises(ValueError, match="not compatible"):
        KNOWN.merge_with([2, 4])


def test_shapes_are_compared():
    assert OPEN.is_compatible_with([2, 7]) and not OPEN.is_compatible_with([3, 7]) and UNKNOWN.is_compatible_with([1])
    assert KNOWN.is_subtype_of(OPEN) and not OPEN.is_subtype_of(KNOWN) and KNOWN.is_subtype_of(UNKNOWN)


@pytest.mark.parametrize(
    "check",
    [
        lambda: KNOWN.assert_has_rank(3),
        lambda: KNOWN.with_rank(3),
        lambda: KNOWN.with_rank_at_least(3),
        lambda: KNOWN.assert_same_rank([1]),
        lambda: KNOWN.assert_is_compatible_with([2]),
        lambda: OPEN.assert_is_fully_defined(),
        lambda: tf.TensorShape([-1]),
    ],
)
def test_shape_that_does_not_fit_is_an_error(check):
    with pytest.raises(ValueError, match=r"must|incompatible|not fully defined"):
        check()


def test_shape_that_fits_passes():
    KNOWN.assert_has_rank(2)
    KNOWN.assert_same_rank([1, 1])
    OPEN.assert_is_compatible_with([2, 9])
    KNOWN.assert_is_fully_defined()
    assert UNKNOWN.with_rank(2) == [None, None] and KNOWN.with_rank_at_least(1) is KNOWN


def test_what_is_no_dimension_is_named():
    with pytest.raises(TypeError, match="'a' is no dimension"):
        tf.TensorShape(["a"])


def test_shape_is_a_node_of_a_pytree():
    assert jax.tree.leaves({"shape": KNOWN}) == [2, 3]
    assert isinstance(jax.tree.map(lambda size: size + 1, KNOWN), tf.TensorShape)
    assert jax.jit(lambda shape: shape[0] * shape[1])(KNOWN) == 6


def test_shape_survives_copies():
    assert copy.deepcopy(KNOWN) == KNOWN and copy.copy(UNKNOWN) == UNKNOWN


def test_spec_describes_tensors():
    spec = tf.TensorSpec([None, 3], "int32", "ids")
    assert repr(spec) == "TensorSpec(shape=(None, 3), dtype=tf.int32, name='ids')"
    assert spec.is_compatible_with(tf.zeros([5, 3], tf.int32)) and not spec.is_compatible_with(tf.zeros([5, 3]))
    assert tf.TensorSpec.from_tensor(tf.zeros([1]), "z") == tf.TensorSpec([1], name="z")
    assert tf.TensorSpec.from_spec(spec).name == "ids" and tf.TensorSpec.from_spec(spec, "other").name == "other"
    assert tf.TensorSpec([2, 3], tf.int32).is_subtype_of(spec) and hash(spec) == hash(copy.copy(spec))


@pytest.mark.parametrize("compile_", [lambda f: f, tf.function], ids=["eagerly", "compiled"])
@pytest.mark.parametrize(
    ("paddings", "message"), [([[1, 1]], "a row for each"), ([1, 1], "2 columns"), ([[0, 1], [-1, 0]], "non-negative")]
)
def test_paddings_that_do_not_fit_are_refused(compile_, paddings, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        compile_(lambda: tf.pad(tf.ones([2, 3]), paddings))()
