"""Serialized examples: read side by side they give what they give one by one, whoever wrote them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.io import _example_columns, _varints

FLOATS = st.floats(width=32, allow_nan=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200)
BYTES = st.binary(max_size=200)
LISTS = {
    1: ("bytes_list", "BytesList", BYTES),
    2: ("float_list", "FloatList", FLOATS),
    3: ("int64_list", "Int64List", INTEGERS),
}


@st.composite
def feature(draw, kind, length):
    name, message, value = LISTS[kind]
    values = draw(st.lists(value, min_size=length, max_size=length))
    return tf.train.Feature(**{name: getattr(tf.train, message)(value=values)})


@st.composite
def examples(draw):
    """Examples of the same features, of which some are laid out in another way."""
    kinds = {f"k{i}": draw(st.integers(1, 3)) for i in range(draw(st.integers(1, 4)))}
    lengths = {key: draw(st.integers(0, 3)) for key in kinds}
    records = []
    for _ in range(draw(st.integers(1, 25))):
        is_odd = draw(st.integers(0, 5)) == 0
        made = {}
        for key, kind in kinds.items():
            if is_odd and draw(st.booleans()):
                kind = draw(st.integers(0, 3))
            length = draw(st.integers(0, 4)) if is_odd else lengths[key]
            if not is_odd or draw(st.booleans()):
                made[key] = draw(feature(kind, length)) if kind else tf.train.Feature()
        records.append(tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString())
    return kinds, records


@settings(max_examples=60, deadline=None)
@given(examples())
def test_columns_are_those_of_the_examples_one_by_one(given_examples):
    kinds, records = given_examples
    together = _example_columns.read_columns(records, kinds)
    alone = [_example_columns.read_columns([record], kinds) for record in records]
    for key in kinds:
        assert together[key].kinds.tolist() == [each[key].kinds[0] for each in alone]
        assert together[key].lengths.tolist() == [each[key].lengths[0] for each in alone]
        assert together[key].values.tolist() == np.concatenate([each[key].values for each in alone]).tolist()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_examples_are_refused_or_read_as_one_by_one(data):
    values = data.draw(st.lists(st.tuples(FLOATS, INTEGERS), min_size=12, max_size=12))
    records = [_example(x=x, y=y) for x, y in values]
    place = data.draw(st.integers(0, len(records[3]) - 1))
    records[3] = records[3][:place] + bytes([data.draw(st.integers(0, 255))]) + records[3][place + 1 :]
    kinds = {"x": 2, "y": 3}
    try:
        expected = _example_columns.read_columns(records[3:4], kinds)
    except tf.errors.InvalidArgumentError:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example input"):
            _example_columns.read_columns(records, kinds)
        return
    found = _example_columns.read_columns(records, kinds)
    for key in kinds:
        start, length = found[key].lengths[:3].sum(), found[key].lengths[3]
        assert found[key].kinds[3] == expected[key].kinds[0]
        if found[key].kinds[3] == kinds[key]:
            assert found[key].values[start : start + length].tobytes() == expected[key].values.tobytes()


@pytest.mark.parametrize("length", [5, 118, 119, 127, 200])
def test_a_byte_that_another_one_follows_is_not_taken_for_a_size(length):
    def entry(key, length, write):
        content = b"v" * length
        for tag in (b"\n", b"\n", b"\n\x01" + key + b"\x12", b"\n"):
            content = tag + write(len(content)) + content
        return content

    def example(length):
        # Written in one byte, a size from 128 on says that more bytes follow.
        entries = entry(b"k", 150, _varints.encode) + entry(b"x", length, lambda size: bytes([size]))
        return b"\n" + _varints.encode(len(entries)) + entries

    records = [example(5)] * 12 + [example(length)]
    if length <= 118:
        assert _example_columns.read_columns(records, {"x": 1})["x"].values.tolist() == [b"v" * 5] * 12 + [
            b"v" * length
        ]
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example input"):
        _example_columns.read_columns(records, {"x": 1})


def _example(x, y):
    features = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[x])),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[y])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def test_lists_that_are_not_packed_are_read():
    """As proto2's writers leave them: each value with its own tag."""
    value = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(-2).tobytes()
    feature = b"\x12" + bytes([len(value)]) + value
    entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    record = b"\x0a" + bytes([len(features)]) + features
    parsed = tf.io.parse_example([record] * 20, {"x": tf.io.FixedLenFeature([2], tf.float32)})
    np.testing.assert_array_equal(parsed["x"], [[1.5, -2.0]] * 20)


def test_examples_of_other_numbers_of_rows_have_open_sizes():
    records = [_example(float(i), i) for i in range(7)]
    dataset = tf.data.Dataset.from_tensor_slices(records).batch(2)
    parsed = dataset.map(lambda batch: tf.io.parse_example(batch, {"x": tf.io.FixedLenFeature([], tf.float32)}))
    assert parsed.element_spec["x"].shape.as_list() == [None]
    assert [len(batch["x"]) for batch in parsed] == [2, 2, 2, 1]


def test_a_function_that_takes_whole_batches_only_is_asked_for_no_others():
    texts = tf.data.Dataset.from_tensor_slices(["1", "2", "3", "4"]).batch(2)
    pairs = texts.map(lambda batch: tf.reshape(tf.io.decode_csv(batch, [[0]])[0], [1, 2]))
    assert pairs.element_spec.shape.as_list() == [1, 2]
    assert [pair.numpy().tolist() for pair in pairs] == [[[1, 2]], [[3, 4]]]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras does not know how much there is.
def test_a_model_trains_on_records(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(96, 4)).astype("f4")
    y = (x.sum(1) > 0).astype("i8")
    with tf.io.TFRecordWriter(str(tmp_path / "rows")) as writer:
        for row, label in zip(x, y, strict=True):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    spec = {"x": tf.io.FixedLenFeature([4], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record):
        parsed = tf.io.parse_single_example(record, spec)
        return parsed["x"], parsed["y"]

    records = tf.data.TFRecordDataset(str(tmp_path / "rows")).map(parse).batch(32)
    histories = []
    for data in (records, tf.data.Dataset.from_tensor_slices((x, y)).batch(32)):
        tf.keras.utils.set_random_seed(0)
        with tf.distribute.MirroredStrategy().scope():
            model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
            model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        histories.append(model.fit(data, epochs=2, verbose=0).history["loss"])
    assert histories[0] == histories[1]
