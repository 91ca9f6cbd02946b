"""Functions of strings before `batch`: what is computed for a whole batch is what each element gives."""

import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

S = tf.strings
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "bb"], [1, 2]), -1)
VOCABULARY = tf.lookup.StaticVocabularyTable(None, 5)
FUNCTIONS = {
    "upper": S.upper,
    "strip": S.strip,
    "length": S.length,
    "length in characters": lambda text: S.length(text, unit="UTF8_CHAR"),
    "substr": lambda text: S.substr(text + "xyz", 1, 2),
    "substr by numbers": lambda text: S.substr(text + "xyz", S.length(text), S.length(text)),
    "two parts": lambda text: S.substr(text + "xyz", [0, 1], [1, 2]),
    "joined": lambda text: S.join([text, "-", S.lower(text)]),
    "compared": lambda text: (text == "a", tf.not_equal(text, ["a", "bb"])),
    "replaced": lambda text: S.regex_replace(text, "[ab]", "<\\0>"),
    "matched": lambda text: S.regex_full_match(text, "a*"),
    "hashed": lambda text: (S.to_hash_bucket_fast(text, 9), S.to_hash_bucket_strong(text, 9, [1, 2])),
    "found": lambda text: (TABLE.lookup(text), VOCABULARY.lookup(text)),
    "numbers": lambda text: S.to_number(S.as_string(S.length(text))) * 2 + 1,
    "raw": lambda text: tf.io.decode_raw(S.join([text, "123456"]), tf.uint8, fixed_length=4),
    "columns": lambda text: tf.io.decode_csv(S.join([S.as_string(S.length(text)), ",x"]), [0, ""]),
    "split": lambda text: S.split(S.join([text, " b"])),
    "python": lambda text: tf.py_function(lambda t: len(t.numpy()), [text], tf.int32),
    "structure": lambda text: {"as it is": text, "number": 3, "more": [text, S.upper(text)]},
    "random": lambda text: (text, tf.random.uniform([2]) + tf.cast(S.length(text), tf.float32)),
}


def plain(leaf):
    return leaf if isinstance(leaf, bytes) else np.asarray(leaf).tolist()


def flat(element):
    return [plain(leaf) for leaf in tf.nest.flatten(element)]


def stack(leaves):
    if len({np.shape(leaf) for leaf in leaves}) > 1:
        raise ValueError("other shapes")
    return list(map(plain, leaves))


def one_by_one(texts, function, size, drop_remainder):
    """The batches of elements that have been computed one after the other."""
    elements = list(tf.data.Dataset.from_tensor_slices(texts).map(function).as_numpy_iterator())
    groups = [elements[i : i + size] for i in range(0, len(elements), size)]
    whole = [group for group in groups if len(group) == size or not drop_remainder]
    return [[stack(leaves) for leaves in zip(*map(tf.nest.flatten, group), strict=True)] for group in whole]


@settings(deadline=None, max_examples=10)
@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    texts=st.lists(st.sampled_from([b"a", b"bb", b"", b" a ", b"\xc3\xa9", b"z\0"]), min_size=1, max_size=15),
    size=st.integers(1, 4),
    drop_remainder=st.booleans(),
)
def test_a_batch_has_what_each_element_gives(name, texts, size, drop_remainder):
    def batches(calls, *, is_between):
        dataset = tf.data.Dataset.from_tensor_slices(texts).map(FUNCTIONS[name], calls)
        dataset = dataset.prefetch(1) if is_between else dataset
        return list(map(flat, dataset.batch(size, drop_remainder=drop_remainder).as_numpy_iterator()))

    found = []
    for make in (
        lambda: one_by_one(texts, FUNCTIONS[name], size, drop_remainder),
        lambda: batches(None, is_between=False),
        lambda: batches(2, is_between=False),
        lambda: batches(tf.data.AUTOTUNE, is_between=True),
    ):
        tf.random.set_seed(7)
        found.append(_or_error(make))
    assert found == [found[0]] * 4


def _or_error(make):
    try:
        return make()
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        return "other shapes" if "shape" in str(error) else str(error)


@pytest.mark.parametrize("wrong", [{0}, {1}, {4}, {5}, {7}, {3, 4}, {2, 8}])
def test_an_error_comes_where_its_element_is(wrong):
    texts = ["x" if i in wrong else str(i) for i in range(12)]
    dataset = tf.data.Dataset.from_tensor_slices(texts)
    one_by_one = dataset.map(lambda text: S.to_number(text) + 0).prefetch(1)
    assert _told(dataset.map(S.to_number, 2)) == _told(one_by_one)
    batches = _told(one_by_one.batch(3))
    assert any("could not correctly convert string: x" in str(part) for part in batches)
    assert _told(dataset.map(S.to_number).batch(3)) == _told(dataset.map(S.to_number, 2).batch(3)) == batches


@pytest.mark.parametrize("wrong", [0, 1, 4, 5, 11])
def test_elements_before_and_behind_an_error_come(wrong):
    texts = ["x" if i == wrong else str(i) for i in range(12)]
    numbers = tf.data.Dataset.from_tensor_slices(texts).map(lambda text: S.as_string(S.to_number(text) + 0)).prefetch(1)
    one_by_one, together = numbers.map(S.length), numbers.map(S.length, 2)
    assert len(_told(one_by_one)) == 12
    assert _told(one_by_one) == _told(together)
    assert _told(one_by_one.prefetch(1).batch(3)) == _told(one_by_one.batch(3)) == _told(together.batch(3))


def _told(dataset):
    """The elements, with errors where they come."""
    told, iterator = [], iter(dataset)
    while True:
        try:
            told.append(next(iterator).numpy().tolist())
        except StopIteration:
            return told
        except tf.errors.InvalidArgumentError as error:
            told.append(str(error))


def test_parallel_calls_give_what_is_no_tensor():
    lines = tf.data.Dataset.from_tensor_slices([["a b", "c"], ["d", "e f g"]] * 4)
    ragged = lines.map(S.split, 2)
    assert [row.to_list() for row in ragged][:2] == [[[b"a", b"b"], [b"c"]], [[b"d"], [b"e", b"f", b"g"]]]
    assert [rows.shape[0] for rows in ragged.ragged_batch(3)] == [3, 3, 2]
    sparse = lines.map(lambda text: S.split(text).to_sparse(), 2)
    assert [tf.sparse.to_dense(part).shape.as_list() for part in sparse][:2] == [[2, 2], [2, 3]]
    assert [nothing for _, nothing in lines.map(lambda text: (text, None), 2)] == [None] * 8
    inner = lines.map(lambda text: tf.data.Dataset.from_tensor_slices(text), 2)
    assert [list(part.as_numpy_iterator()) for part in inner][1] == [b"d", b"e f g"]
    none = tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string)).map(S.length, 2)
    assert list(none) == list(none.batch(2)) == []


def test_numbers_made_of_strings_are_the_same_however_many_are_taken():
    weights = tf.random.stateless_normal([32, 32], [1, 2])
    function = lambda text: tf.linalg.matvec(weights, tf.ones([32]) * S.to_number(text) / 7.0)
    source = tf.data.Dataset.from_tensor_slices([str(i) for i in range(70)])
    for change in (lambda dataset: dataset, lambda dataset: dataset.batch(4)):
        one_by_one, together = (list(change(source.map(function, calls)).as_numpy_iterator()) for calls in (None, 2))
        assert all(np.array_equal(*pair) for pair in zip(one_by_one, together, strict=True))


def test_elements_are_taken_ahead_only_where_calls_are_parallel():
    taken = []

    def texts():
        for i in range(40):
            taken.append(i)
            yield str(i)

    source = tf.data.Dataset.from_generator(texts, output_signature=tf.TensorSpec([], tf.string))
    for calls in (None, 2):
        iterator = iter(source.map(S.length, calls))
        assert [next(iterator).numpy() for _ in range(4)] == [1] * 4
        assert (len(taken) > 4) == (calls is not None)
        assert len(taken) <= 8
        taken.clear()


def test_elements_that_take_long_are_not_taken_ahead():
    taken = []

    def texts():
        for i in range(20):
            taken.append(i)
            time.sleep(0.06)
            yield str(i)

    source = tf.data.Dataset.from_generator(texts, output_signature=tf.TensorSpec([], tf.string))
    iterator = iter(source.map(S.length, 2))
    for _ in range(5):
        next(iterator)
    assert len(taken) <= 6


def test_batches_are_parsed_together(tmp_path):
    path = str(tmp_path / "some.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(101):
            feature = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[1000 * i - 3])),
                "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    features = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
        "more": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
    }

    def parse(records):
        parsed = tf.io.parse_example(records, features)
        return parsed["x"] * 2, parsed["y"], S.upper(parsed["name"]), parsed["more"]

    records = tf.data.TFRecordDataset(path).batch(4)
    for found, expected in zip(records.map(parse, 2).repeat(2), records.map(parse).repeat(2), strict=True):
        for part, other in zip(found, expected, strict=True):
            assert part.shape == other.shape
            assert np.asarray(part).tolist() == np.asarray(other).tolist()


def test_what_has_effects_has_them_element_by_element():
    table, seen = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0), []

    def count(text):
        table.insert(text, table.lookup(text) + 1)
        tf.py_function(lambda t: seen.append(t.numpy()), [text], [])
        tf.py_function(lambda t: seen.append(t.numpy()), [tf.strings.upper(text)], [])
        return table.lookup(text)

    batches = tf.data.Dataset.from_tensor_slices(["a", "b", "a", "a"]).map(count).batch(2)
    assert [batch.tolist() for batch in batches.as_numpy_iterator()] == [[1, 1], [2, 3]]
    assert seen == [b"a", b"A", b"b", b"B", b"a", b"A", b"a", b"A"]


def test_elements_whose_sizes_change_are_computed_one_by_one():
    texts = ["ab", "cd", "ef", "ghi", "jkl", "mno"]
    dataset = tf.data.Dataset.from_tensor_slices(texts).map(lambda text: tf.io.decode_raw(text, tf.uint8)).batch(3)
    assert [batch.shape for batch in dataset.as_numpy_iterator()] == [(3, 2), (3, 3)]


def test_examples_of_files_are_parsed_for_a_batch_at_once(tmp_path):
    path = str(tmp_path / "some.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(10):
            feature = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 3])),
                "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i])),
                "some": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i % 3))),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    features = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
    }

    def parse(record):
        parsed = tf.io.parse_single_example(record, features)
        return parsed["x"] * 2, tf.one_hot(parsed["y"], 3), S.upper(parsed["name"])

    batches = list(tf.data.TFRecordDataset(path).map(parse).batch(4).as_numpy_iterator())
    assert [len(names) for _, _, names in batches] == [4, 4, 2]
    assert np.concatenate([x for x, _, _ in batches]).tolist() == [[2 * i, 2 * i + 1] for i in range(10)]
    assert [name for _, _, names in batches for name in names] == [b"N%d" % i for i in range(10)]

    def parse_some(record):
        return tf.sparse.to_dense(tf.io.parse_single_example(record, {"some": tf.io.VarLenFeature(tf.int64)})["some"])

    padded = tf.data.TFRecordDataset(path).map(parse_some).padded_batch(5)
    assert [row.tolist() for row in next(iter(padded)).numpy()] == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]]


def test_a_function_may_count_in_a_name_of_its_own():
    count = 0

    def function(text):
        nonlocal count
        count += 1
        return tf.range(S.length(text))  # It runs in Python.

    dataset = tf.data.Dataset.from_tensor_slices(["a", "bb"]).map(function)
    assert [row.tolist() for row in dataset.as_numpy_iterator()] == [[0], [0, 1]]
    assert count >= 2
