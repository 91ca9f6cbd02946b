"""Record files: whatever is written comes back, and damage is never taken for data."""

import gzip
import os
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.data import _file_plans
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard
from tfdist_jax.compat.tensorflow.io._records import read_records

RECORDS = st.lists(st.binary(max_size=300), max_size=12)


def write(path, records, options=None):
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def values(dataset):
    return list(dataset.as_numpy_iterator())


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, compression=st.sampled_from(["", "GZIP", "ZLIB"]), buffer_size=st.sampled_from([None, 1, 7]))
def test_records_come_back(tmp_path_factory, records, compression, buffer_size):
    path = write(tmp_path_factory.mktemp("records") / "some", records, compression)
    assert values(tf.data.TFRecordDataset(path, compression, buffer_size)) == records


@settings(max_examples=60, deadline=None)
@given(records=RECORDS.filter(any), data=st.data())
def test_a_changed_bit_is_found(tmp_path_factory, records, data):
    path = write(tmp_path_factory.mktemp("records") / "some", records)
    content = bytearray(Path(path).read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    Path(path).write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match=f"{path}: .* record at"):
        values(tf.data.TFRecordDataset(path))


def runs(lengths):
    """Return three records of each length, one behind the other."""
    return [os.urandom(length) for length in lengths for _ in range(3)]


def read_to_error(*how):
    """Return the records before the error, and what it says."""
    found, records = [], read_records(*how)
    with pytest.raises(tf.errors.DataLossError) as error:
        found.extend(records)
    assert next(records, None) is None
    return found, error.value.message


BUFFER_BYTES = [None, 1, 40, 100]


@pytest.mark.parametrize("buffer_bytes", BUFFER_BYTES)
@pytest.mark.parametrize("lengths", [(5,), (5, 5, 6, 0), (0, 1000, 4)])
def test_runs_of_records_of_one_length_come_back(tmp_path, lengths, buffer_bytes):
    records = runs(lengths)
    path = write(tmp_path / "some", records)
    assert list(read_records(path, "", buffer_bytes)) == records
    assert list(read_records(write(tmp_path / "zipped", records, "GZIP"), "GZIP", buffer_bytes)) == records


@pytest.mark.parametrize("buffer_bytes", BUFFER_BYTES)
@pytest.mark.parametrize("damaged", range(12))
def test_all_records_before_a_damaged_one_come(tmp_path, damaged, buffer_bytes):
    records = runs((5, 5, 6, 0))
    path = Path(write(tmp_path / "some", records))
    start, whole = sum(16 + len(record) for record in records[:damaged]), path.read_bytes()
    message = f"{path}: corrupted record at "
    for place in range(start, start + 16 + len(records[damaged])):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        said = f"{start} (Is this even a TFRecord file?)" if place < start + 12 else f"{start + 12}"
        assert read_to_error(str(path), "", buffer_bytes) == (records[:damaged], message + said)


@pytest.mark.parametrize("buffer_bytes", BUFFER_BYTES)
def test_all_records_before_the_end_of_a_cut_file_come(tmp_path, buffer_bytes):
    records = runs((5, 6))
    path = Path(write(tmp_path / "some", records))
    starts, whole = [0, 21, 42, 63, 85, 107, 129], path.read_bytes()
    for length in set(range(len(whole))) - set(starts):
        path.write_bytes(whole[:length])
        count = sum(start < length for start in starts) - 1
        message = f"{path}: truncated record at {starts[count]}: the file ends within it."
        assert read_to_error(str(path), "", buffer_bytes) == (records[:count], message)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_a_file_that_is_cut_anywhere_gives_its_first_records_and_an_error(tmp_path, compression):
    records = [b"a" * 20, b"", os.urandom(50)]
    path = tmp_path / "some"
    write(path, records, compression)
    whole = path.read_bytes()
    ends = {0, 36, 52, 118} if not compression else {0}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        iterator, found = tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator(), []
        if length in ends:
            found = list(iterator)
        else:
            with pytest.raises(tf.errors.DataLossError):
                found.extend(iterator)
        assert found == records[: len(found)]


def test_the_end_of_a_damaged_file_is_the_beginning_of_the_next(tmp_path):
    good = write(tmp_path / "good", [b"1", b"2"])
    bad = tmp_path / "bad"
    bad.write_bytes(b"these are no records")
    iterator = tf.data.TFRecordDataset([str(bad), good, str(tmp_path / "none"), good]).as_numpy_iterator()
    found = []
    for _ in range(6):
        try:
            found.append(next(iterator))
        except tf.errors.OpError as error:
            found.append(type(error).__name__)
    assert found == ["DataLossError", b"1", b"2", "NotFoundError", b"1", b"2"]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_text_that_is_damaged_is_no_text(tmp_path, compress):
    path = tmp_path / "some"
    data = compress(b"first\n" + os.urandom(1000).replace(b"\n", b"") + b"\nlast")
    path.write_bytes(data[:-30])
    kind = "GZIP" if compress is gzip.compress else "ZLIB"
    with pytest.raises(tf.errors.DataLossError, match="some is truncated"):
        values(tf.data.TextLineDataset(str(path), kind))
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(tf.errors.DataLossError, match="some: inflate"):
        values(tf.data.TextLineDataset(str(path), kind))


def test_files_are_read_at_once_only_as_far_as_they_are_wanted(tmp_path):
    paths = [write(tmp_path / str(i), [b"%d %d" % (i, j) for j in range(1000)]) for i in range(3)]
    dataset = tf.data.TFRecordDataset(paths, num_parallel_reads=2)
    assert values(dataset.take(3)) == [b"0 0", b"1 0", b"0 1"]
    assert len(values(dataset)) == 3000
    assert sorted(values(dataset)) == sorted(values(tf.data.TFRecordDataset(paths)))


def test_interleaved_files_are_read_by_threads_if_calls_are_parallel(tmp_path, monkeypatch):
    paths = [write(tmp_path / str(i), [b"%d %d" % (i, j) for j in range(400)]) for i in range(3)]
    readers = []

    def read(path, *how):
        readers.append(threading.current_thread().name)
        yield from read_records(path, *how)

    monkeypatch.setattr(_file_plans, "read_records", read)
    found = []
    for calls in (None, 2):
        readers.clear()
        of_file = lambda path: tf.data.TFRecordDataset(path).map(tf.strings.length).shuffle(1).batch(3)
        dataset = tf.data.Dataset.from_tensor_slices(paths).interleave(of_file, 2, 5, num_parallel_calls=calls)
        readers.clear()
        found.append([row.tolist() for row in values(dataset)])
        assert ("prefetch" in readers) == (calls is not None)
    assert found[0] == found[1] and len(found[0]) == 3 * 134


def test_the_files_of_a_dataset_are_shared_out(tmp_path):
    paths = [write(tmp_path / str(i), [b"%d %d" % (i, j) for j in range(3)]) for i in range(4)]
    dataset = tf.data.TFRecordDataset(paths)
    parts = [values(dataset.shared(DataShard("files", 2, index))) for index in range(2)]
    assert [row[:1] for row in parts[0]] == [b"0"] * 3 + [b"2"] * 3
    assert sorted(parts[0] + parts[1]) == sorted(values(dataset))
    assert dataset.files is not None
    assert dataset.files.are_read


def test_a_plan_prints_as_the_calls_that_made_it(tmp_path):
    path = write(tmp_path / "some", [b"1"])
    text = repr(tf.data.TFRecordDataset(path, "GZIP", num_parallel_reads=2).batch(2)._plan)
    assert ".TFRecordDataset(compression_type='GZIP', num_parallel_reads=2)" in text


def test_an_iteration_goes_on_where_it_was_saved(tmp_path):
    paths = [write(tmp_path / str(i), [b"%d %d" % (i, j) for j in range(5)]) for i in range(2)]
    dataset = tf.data.TFRecordDataset(paths).shuffle(4).batch(3)
    iterator = iter(dataset)
    next(iterator)
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    saved = checkpoint.save(str(tmp_path / "state"))
    rest = [batch.numpy().tolist() for batch in iterator]
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [batch.numpy().tolist() for batch in again] == rest
