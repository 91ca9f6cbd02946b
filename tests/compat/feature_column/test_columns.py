"""Columns of `tf.feature_column`: what they read of texts, how they are written down, and where their first values are from."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.feature_column._base import FeatureTransformationCache, padded_ids
from tfdist_jax.compat.tensorflow.feature_column._serialization import (
    deserialize_feature_columns,
    serialize_feature_columns,
)

fc = tf.feature_column
WORDS = ["a", "b", "c"]
words = fc.categorical_column_with_vocabulary_list("words", WORDS)


def dense(column, features):
    return np.asarray(column.get_dense_tensor(FeatureTransformationCache(features), None))


def sparse_of(rows, dtype):
    """Return rows that differ in length as a sparse tensor."""
    places = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    values = [value for row in rows for value in row]
    width = max(map(len, rows), default=0)
    return tf.SparseTensor(np.reshape(places, (-1, 2)), tf.constant(values, dtype), [len(rows), width])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.sampled_from([*WORDS, "other"]), max_size=4), min_size=1, max_size=5))
def test_an_indicator_counts_words_of_sparse_and_of_padded_features_alike(rows):
    width = max(map(len, rows)) or 1
    counts = [[row.count(word) for word in WORDS] for row in rows]
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    column = fc.indicator_column(words)
    assert dense(column, {"words": padded}).tolist() == counts
    assert dense(column, {"words": sparse_of(rows, tf.string)}).tolist() == counts


@pytest.mark.parametrize(
    "feature",
    [["a", "c"], np.array(["a", "c"]), np.array([b"a", b"c"], object), np.array([b"a", b"c"]), tf.constant(["a", "c"])],
)
def test_words_may_be_anything_that_becomes_a_tensor(feature):
    assert dense(fc.indicator_column(words), {"words": feature}).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_ids_of_sparse_features_have_few_sizes():
    sizes = {padded_ids(sparse_of([list(range(n))], tf.int64), None)[0].shape[1] for n in range(1, 33)}
    assert sizes == {1, 2, 4, 8, 16, 32}


def test_a_feature_that_is_not_there_is_named_beside_those_that_are():
    with pytest.raises(ValueError, match=r"Feature words is not in features dictionary. It holds: \['age'\]"):
        dense(fc.indicator_column(words), {"age": [1]})
    with pytest.raises(ValueError, match="cannot have rank 0"):
        dense(fc.numeric_column("age"), {"age": 1.0})
    with pytest.raises(TypeError, match="must be a str or a FeatureColumn"):
        FeatureTransformationCache({}).get(3, None)


def test_a_feature_is_transformed_once_for_all_columns():
    calls = []
    age = fc.numeric_column("age", normalizer_fn=lambda x: calls.append(1) or x / 2)
    cache = FeatureTransformationCache({"age": [2.0, 4.0]})
    for column in (age, fc.bucketized_column(age, [1.5]), fc.bucketized_column(age, [3.0])):
        column.get_dense_tensor(cache, None)
    assert len(calls) == 1


def test_columns_are_keys_that_are_equal_if_their_fields_are():
    again = fc.categorical_column_with_vocabulary_list("words", ("a", "b", "c"))
    assert again == words and hash(again) == hash(words) and again in {words: 1}
    assert again != fc.categorical_column_with_vocabulary_list("words", ["a", "b"])
    assert words._replace(key="others").name == "others"


def halve(x):
    return x / 2


def test_columns_go_through_json():
    age = fc.numeric_column("age", normalizer_fn=halve)
    columns = [
        age,
        fc.bucketized_column(age, [1.0, 2.0]),
        fc.embedding_column(words, 4, max_norm=2.0),
        fc.indicator_column(fc.crossed_column([words, "other"], 10, hash_key=3)),
        fc.indicator_column(fc.weighted_categorical_column(fc.categorical_column_with_identity("n", 4), "w")),
        fc.embedding_column(fc.sequence_categorical_column_with_hash_bucket("s", 5), 2),
        fc.sequence_numeric_column("track", shape=(2,)),
    ]
    text = json.dumps(serialize_feature_columns(columns[:-1]))
    again = deserialize_feature_columns(json.loads(text), {"halve": halve})
    plain = lambda column: column._replace(initializer=None) if hasattr(column, "initializer") else column
    assert list(map(plain, again)) == list(map(plain, columns[:-1]))
    assert again[0] is again[1].source_column
    assert again[2].initializer.get_config() == columns[2].initializer.get_config()
    with pytest.raises(ValueError, match="Unknown normalizer_fn: 'halve'"):
        deserialize_feature_columns(json.loads(text))
    with pytest.raises(ValueError, match="Unknown feature column: 'Nothing'"):
        deserialize_feature_columns([{"class_name": "Nothing", "config": {}}])
    with pytest.raises(ValueError, match="Invalid config"):
        type(words).from_config({"key": "words"})


def test_weights_belong_to_the_categories():
    column = fc.indicator_column(fc.weighted_categorical_column(words, "weights"))
    assert dense(column, {"words": [["a", "b"]], "weights": [[0.5, 2.0]]}).tolist() == [[0.5, 2.0, 0.0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Weights are at other places"):
        dense(column, {"words": [["a", "b"]], "weights": [[0.5, 0.0]]})


@pytest.mark.parametrize("name", ["input_layer", "linear_model", "shared_embedding_columns"])
def test_functions_of_graphs_name_the_layer(name):
    with pytest.raises(AttributeError, match="DenseFeatures"):
        getattr(tf.compat.v1.feature_column, name)


def test_columns_have_their_former_names():
    from tfdist_jax.compat.tensorflow._former._python import view_python

    private = view_python().feature_column.feature_column_v2
    assert isinstance(words, private.VocabularyListCategoricalColumn) and isinstance(words, private.CategoricalColumn)
    assert private.numeric_column is fc.numeric_column
    assert tf.compat.v1.feature_column.numeric_column is fc.numeric_column
