"""Tables of `tf.lookup` beside Python's dictionaries; what checkpoints and compiled functions have of them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

L = tf.lookup
KEYS = {
    "string": (tf.string, st.binary(max_size=3)),
    "int64": (tf.int64, st.integers(-4, 4)),
}


def as_tensor(keys, dtype):
    return tf.constant(keys, dtype, shape=[len(keys)])


@pytest.mark.parametrize("kind", KEYS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_table_that_changes_is_a_dictionary(kind, data):
    dtype, keys = KEYS[kind]
    table, known = L.experimental.MutableHashTable(dtype, tf.float32, -1.0), {}
    for _ in range(data.draw(st.integers(1, 6))):
        some = data.draw(st.lists(keys, max_size=4))
        if data.draw(st.booleans()):
            values = data.draw(st.lists(st.integers(0, 9), min_size=len(some), max_size=len(some)))
            table.insert(as_tensor(some, dtype), as_tensor([float(v) for v in values], tf.float32))
            known.update(zip(some, map(float, values), strict=True))
        else:
            table.remove(as_tensor(some, dtype))
            for key in some:
                known.pop(key, None)
        asked = data.draw(st.lists(keys, max_size=4))
        assert table.lookup(as_tensor(asked, dtype)).numpy().tolist() == [known.get(key, -1.0) for key in asked]
        assert table.size().numpy() == len(known)
    exported = [column.numpy().tolist() for column in table.export()]
    assert dict(zip(*exported, strict=True)) == known


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9)), max_size=8, unique_by=lambda pair: pair[0]))
def test_a_program_looks_up_what_it_computes(pairs):
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    initializer = L.KeyValueTensorInitializer(as_tensor(keys, tf.int64), as_tensor(values, tf.int64))
    table = L.StaticHashTable(initializer, -1)
    asked = tf.range(-7, 8, dtype=tf.int64)
    computed = tf.function(lambda x: table.lookup(x - 1))(asked + 1)
    expected = [dict(pairs).get(key, -1) for key in range(-7, 8)]
    assert computed.numpy().tolist() == table.lookup(asked).numpy().tolist() == expected


@pytest.mark.parametrize("layout", ["orbax", "tensorflow"])
def test_checkpoints_hold_tables(tmp_path, monkeypatch, layout):
    monkeypatch.setenv("TFDIST_CHECKPOINT_FORMAT", layout)

    def make():
        texts = L.experimental.MutableHashTable(tf.string, tf.int64, -1)
        rows = L.experimental.MutableHashTable(tf.int64, tf.string, ["", "-"])
        dense = L.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, empty_key=0, deleted_key=-1)
        unsaved = L.experimental.MutableHashTable(tf.string, tf.int64, -1, checkpoint=False)
        static = L.StaticHashTable(L.KeyValueTensorInitializer(["a"], [1]), 0)
        tables = {"texts": texts, "rows": rows, "dense": dense, "unsaved": unsaved, "static": static}
        return tables, tf.train.Checkpoint(tables=tables, step=tf.Variable(3))

    tables, checkpoint = make()
    tables["texts"].insert(tf.constant([b"a", b"b\0", b"\xff"]), tf.constant([1, 2, 3], tf.int64))
    tables["rows"].insert(tf.constant([7], tf.int64), tf.constant([["x", "é"]]))
    tables["dense"].insert(tf.constant([5, 6], tf.int64), tf.constant([0.5, 0.25]))
    tables["unsaved"].insert(tf.constant(["u"]), tf.constant([1], tf.int64))
    path = checkpoint.save(str(tmp_path / "ckpt"))
    tables, checkpoint = make()
    tables["texts"].insert(tf.constant(["old"]), tf.constant([9], tf.int64))
    checkpoint.restore(path).assert_consumed()
    assert tables["texts"].lookup(tf.constant([b"a", b"b\0", b"\xff", b"old"])).numpy().tolist() == [1, 2, 3, -1]
    assert tables["rows"].lookup(tf.constant([7, 8], tf.int64)).numpy().tolist() == [
        [b"x", "é".encode()],
        [b"", b"-"],
    ]
    assert tables["dense"].lookup(tf.constant([5, 6, 7], tf.int64)).numpy().tolist() == [0.5, 0.25, 0.0]
    assert [tables[name].size().numpy() for name in ("dense", "unsaved", "static")] == [2, 0, 1]


def test_an_empty_table_is_restored_empty(tmp_path):
    table = L.experimental.MutableHashTable(tf.string, tf.int64, -1)
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "ckpt"))
    table.insert(tf.constant(["a"]), tf.constant([1], tf.int64))
    tf.train.Checkpoint(table=table).read(path).assert_consumed()
    assert table.size().numpy() == 0


def test_tables_are_parts_of_modules(tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            self.seen = L.experimental.MutableHashTable(tf.string, tf.int64, 0)

        @tf.function
        def count(self, text):
            self.seen.insert(text, self.seen.lookup(text) + 1)

    counter = Counter()
    for text in ("a", "b", "a"):
        counter.count(tf.constant([text]))
    path = tf.train.Checkpoint(counter).write(str(tmp_path / "ckpt"))
    other = Counter()
    tf.train.Checkpoint(other).read(path).assert_consumed()
    assert other.seen.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [2, 1, 0]


def test_lines_of_a_file_are_read_once(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"eins\r\nzwei\n\ndrei")
    initializer = L.TextFileInitializer(
        str(path), tf.string, L.TextFileIndex.WHOLE_LINE, tf.int64, L.TextFileIndex.LINE_NUMBER
    )
    table = L.StaticHashTable(initializer, -1)
    path.unlink()
    assert table.lookup(tf.constant(["eins", "", "drei", "vier"])).numpy().tolist() == [0, 2, 3, -1]


def test_a_column_that_is_no_number_is_named(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("a\t1\nb\tzwei\n")
    initializer = L.TextFileInitializer(str(path), tf.string, 0, tf.int64, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"zwei in line 1 of .*pairs\.txt is not a valid int64"):
        L.StaticHashTable(initializer, -1)


def test_buckets_are_the_same_in_every_process():
    table = L.StaticVocabularyTable(None, 1000)
    known = tf.strings.to_hash_bucket_fast(["a", "b", ""], 1000)
    np.testing.assert_array_equal(table.lookup(tf.constant(["a", "b", ""])), known)
