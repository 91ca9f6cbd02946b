"""TensorFlow's checkpoint files: whatever is written comes back, and damage is never taken for data."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import DataLossError
from tfdist_jax.compat.tensorflow.io import _varints
from tfdist_jax.compat.tensorflow.train._bundle import _table, _writer
from tfdist_jax.compat.tensorflow.train._bundle._reader import BundleReader
from tfdist_jax.compat.tensorflow.train._bundle._slice_keys import slice_key
from tfdist_jax.compat.tensorflow.train._bundle._table import make_table, read_table
from tfdist_jax.compat.tensorflow.train._bundle._writer import clear_leftovers, delete_bundle, write_bundle

KEYS = st.dictionaries(st.binary(max_size=40), st.binary(max_size=200), max_size=60)
SHARED = st.dictionaries(
    st.integers(0, 400).map(lambda n: b"layer/%05d/value" % n), st.binary(max_size=9), max_size=120
)
TENSORS = {"a": np.arange(1000, dtype="f4"), "b/c": np.array([b"x", b"yy"], object), "d": np.array(3)}


def files_of(folder):
    return sorted(file.name for file in folder.iterdir())


@settings(max_examples=60, deadline=None)
@given(values=st.one_of(KEYS, SHARED), block_bytes=st.sampled_from([1, 64, 1000, 1 << 18]))
def test_keys_and_values_come_back(tmp_path_factory, values, block_bytes):
    file = tmp_path_factory.mktemp("table") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table, "_BLOCK_BYTES", block_bytes)
        file.write_bytes(make_table(sorted(values.items())))
    assert read_table(file) == values


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, (1 << 64) - 1), before=st.binary(max_size=3))
def test_numbers_come_back(number, before):
    encoded = _varints.encode(number)
    assert _varints.decode(before + encoded, len(before)) == (number, len(before) + len(encoded))


@settings(max_examples=80, deadline=None)
@given(
    extents=st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(-1, 1 << 62)), min_size=2, max_size=2, unique=True)
)
def test_keys_of_parts_are_sorted_as_the_places_are(extents):
    keys = [slice_key("name", [extent]) for extent in sorted(extents)]
    assert keys == sorted(keys) and keys[0] != keys[1]


@pytest.mark.parametrize(
    ("name", "extents", "key"),
    [
        ("s", [(67, 67), (0, 70)], b"\0s\0\1\1\2\xc0C\xc0C\x80\xc0F"),
        ("v", [(225000, 75000)], b"\0v\0\1\1\1\xe3n\xe8\xe1$\xf8"),
        ("w", [(0, 3), (13334, 6666)], b"\0w\0\1\1\2\x80\x83\xe04\x16\xda\n"),
    ],
)
def test_keys_of_parts_are_those_that_tensorflow_has_written(name, extents, key):
    assert slice_key(name, extents) == key


def test_names_in_keys_of_parts_may_hold_anything():
    assert slice_key("a\0b", []) == b"\x00a\x00\xffb\x00\x01\x00"


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_changed_bit_changes_no_value(tmp_path_factory, data):
    prefix = tmp_path_factory.mktemp("bundle") / "ckpt"
    write_bundle(prefix, TENSORS)
    file = data.draw(st.sampled_from(sorted(prefix.parent.iterdir())))
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    file.write_bytes(content)
    try:
        reader = BundleReader(prefix)
        reader.check()
        found = {name: reader.read(name) for name in reader.types}
    except (DataLossError, NotImplementedError) as error:
        assert str(prefix) in str(error)
        return
    # Bits that nothing is read from: the room behind the places of blocks in the footer, and what is not used of the format.
    assert found.keys() == TENSORS.keys() and all((found[name] == TENSORS[name]).all() for name in found)


@pytest.mark.parametrize("file", ["ckpt.index", "ckpt.data-00000-of-00001"])
def test_a_file_that_is_cut_anywhere_is_damaged(tmp_path, file):
    write_bundle(tmp_path / "ckpt", TENSORS)
    whole = (tmp_path / file).read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        (tmp_path / file).write_bytes(whole[:length])
        with pytest.raises(DataLossError, match=rf"{file} is damaged.*expected"):
            BundleReader(tmp_path / "ckpt").check()


def test_a_compressed_index_is_refused(tmp_path):
    table = bytearray(make_table([(b"", b"")]))
    kind = len(_table._encode_block([(b"", b"")], 1))
    table[kind] = 1
    table[kind + 1 : kind + 5] = _table.checksum(bytes(table[: kind + 1]))
    (tmp_path / "ckpt.index").write_bytes(table)
    with pytest.raises(NotImplementedError, match=r"Snappy.*Save it anew with TensorFlow"):
        BundleReader(tmp_path / "ckpt")


def test_what_is_not_a_table_says_so(tmp_path):
    (tmp_path / "ckpt.index").write_bytes(b"no table, but longer than the footer of one would have to be")
    with pytest.raises(DataLossError, match=r"ckpt\.index is damaged at byte 52: expected the end of a table"):
        BundleReader(tmp_path / "ckpt")


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u8", "f2", "c16", ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2]
)
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 2)])
def test_arrays_come_back(tmp_path, dtype, shape):
    array = (np.arange(6)[: int(np.prod(shape))].reshape(shape) % 2).astype(dtype)
    write_bundle(tmp_path / "ckpt", {"x": array, "turned": array.T})
    found = BundleReader(tmp_path / "ckpt").read("x")
    assert found.dtype == array.dtype and found.shape == shape
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(BundleReader(tmp_path / "ckpt").read("turned"), array.T)


def test_a_type_that_tensorflow_lacks_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(NotImplementedError, match=r"no type for float128.*tf\.cast"):
        write_bundle(tmp_path / "ckpt", {"x": np.zeros(2, np.longdouble)})
    assert files_of(tmp_path) == []


def test_a_reader_goes_on_with_what_it_has_opened(tmp_path):
    write_bundle(tmp_path / "ckpt", {"x": np.zeros(3)})
    reader = BundleReader(tmp_path / "ckpt")
    write_bundle(tmp_path / "ckpt", {"x": np.ones(3)})
    assert reader.read("x").tolist() == [0] * 3
    delete_bundle(tmp_path / "ckpt")
    assert reader.read("x").tolist() == [0] * 3 and files_of(tmp_path) == []


@pytest.mark.parametrize("stop_at", range(8))
def test_replacing_a_checkpoint_leaves_the_old_or_the_new_one_wherever_it_is_stopped(tmp_path, stop_at):
    for start in (1.0, 2.0):  # With one data file, and with two.
        write_bundle(tmp_path / "ckpt", {"x": np.full(3, start)})
    with pytest.MonkeyPatch.context() as patch:
        _stop(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            write_bundle(tmp_path / "ckpt", {"x": np.full(3, 3.0)})
    reader = BundleReader(tmp_path / "ckpt")
    reader.check()
    assert reader.read("x").tolist() in ([2.0] * 3, [3.0] * 3)
    write_bundle(tmp_path / "ckpt", {"x": np.full(3, 4.0)})
    assert BundleReader(tmp_path / "ckpt").read("x").tolist() == [4.0] * 3
    clear_leftovers(tmp_path, "ckpt")
    assert len(files_of(tmp_path)) in (2, 3)


def _stop(patch, stop_at):
    """Let the process end before its `stop_at`-th renaming, removal or writing to disk, and do nothing more."""
    count, stopped = iter(range(100)), []

    def stopping(original):
        def change(*args, **kwargs):
            if stopped or next(count) == stop_at:
                stopped.append(True)
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return change

    patch.setattr(Path, "rename", stopping(Path.rename))
    patch.setattr(Path, "unlink", stopping(Path.unlink))
    patch.setattr(_writer, "put_on_disk", stopping(_writer.put_on_disk))


def test_everything_is_on_disk_before_a_checkpoint_has_its_name(tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append(os.fstat(handle).st_ino), fsync(handle)))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (events.append((path.stat().st_ino, to.name)), rename(path, to))[1]
    )
    write_bundle(tmp_path / "ckpt", TENSORS)
    folder = tmp_path.stat().st_ino
    data, index = (tmp_path / name for name in files_of(tmp_path))
    data_number, index_number = data.stat().st_ino, index.stat().st_ino
    assert events == [data_number, index_number, (data_number, data.name), folder, (index_number, index.name), folder]


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path, chaos):
    large = np.random.default_rng(0).random(100_000)
    write_bundle(tmp_path / "ckpt", {"x": large})
    before = files_of(tmp_path)
    for _ in range(20):
        with chaos.full_disk(up_to=large.nbytes - 1), pytest.raises(OSError, match="File too large"):
            write_bundle(tmp_path / "ckpt", {"x": large + 1})
        assert files_of(tmp_path) == before
        np.testing.assert_array_equal(BundleReader(tmp_path / "ckpt").read("x"), large)


def test_leftovers_of_others_stay(tmp_path):
    write_bundle(tmp_path / "ckpt-1", TENSORS)
    whole = files_of(tmp_path)
    for name in ("ckpt-2.data-00000-of-00001", "ckpt-2.index.new", "ckpt-3.data-00000-of-00001.new"):
        (tmp_path / name).write_bytes(b"")
    for name in ("other-1.index.new", "ckpt-4.data", "ckpt-5.keras.new"):
        (tmp_path / name).write_bytes(b"")
    clear_leftovers(tmp_path, "ckpt-")
    assert files_of(tmp_path) == sorted([*whole, "ckpt-4.data", "ckpt-5.keras.new", "other-1.index.new"])


def test_reading_takes_no_pickled_objects(tmp_path):
    write_bundle(tmp_path / "ckpt", {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"cos\nsystem\n(S'true'\ntR.", object)})
    with pytest.raises(tf.errors.DataLossError, match="is no graph of objects"):
        tf.train.Checkpoint(v=tf.Variable(1.0)).restore(tmp_path / "ckpt")
