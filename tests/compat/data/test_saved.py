"""`Dataset.save`, `load` and `snapshot`: a folder is complete or none, and what TensorFlow has written is read."""

import gc
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.data import _unfinished
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard
from tfdist_jax.compat.tensorflow.io import _messages

Dataset = tf.data.Dataset


def values(dataset):
    return [tf.nest.map_structure(lambda part: np.asarray(part).tolist(), e) for e in dataset.as_numpy_iterator()]


def runs(folder):
    return [path for path in Path(folder).iterdir() if path.is_dir()]


def shard_file(folder, shard=0):
    return runs(folder)[0] / f"{shard:08d}.shard/00000000.snapshot"


@pytest.fixture
def saved(tmp_path):
    Dataset.range(1000).save(tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.parametrize("kind", ["flip", "truncate"])
def test_damage_is_told_with_file_and_place(saved, chaos, kind):
    for _ in range(10):
        file = shard_file(saved)
        with chaos.damage(file, kind), pytest.raises(tf.errors.DataLossError, match=rf"{file.name}.* at \d+|are there"):
            values(Dataset.load(saved))
    assert values(Dataset.load(saved)) == list(range(1000))


@pytest.mark.parametrize("kind", ["flip", "truncate"])
def test_damage_of_what_describes_the_elements_gives_no_wrong_ones(saved, chaos, kind):
    for name in ("snapshot.metadata", "dataset_spec.pb"):
        for _ in range(10):
            with chaos.damage(saved / name, kind):
                try:
                    found = values(Dataset.load(saved))
                except (tf.errors.OpError, NotImplementedError, ValueError) as error:
                    assert str(saved) in str(error)
                else:
                    assert found == list(range(1000))


def test_a_file_that_ends_between_two_elements_is_damaged(saved):
    file = shard_file(saved)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2 // 30 * 30])
    with pytest.raises(tf.errors.DataLossError, match=r"1000 elements were written to it, and \d+ are there"):
        values(Dataset.load(saved))


def test_what_is_gone_is_named(saved):
    shutil.rmtree(shard_file(saved).parent)
    with pytest.raises(tf.errors.DataLossError, match=r"of its shards \['00000000.shard'\] are gone"):
        Dataset.load(saved)
    shutil.rmtree(runs(saved)[0])
    with pytest.raises(tf.errors.DataLossError, match="are gone"):
        Dataset.load(saved)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_full_disk_keeps_what_was_saved_before(saved, chaos, compression):
    large = np.random.default_rng(0).normal(size=(2000, 100))
    for _ in range(3):
        with chaos.full_disk(up_to=large.nbytes // 2), pytest.raises(OSError, match="File too large"):
            Dataset.from_tensor_slices(large).save(saved, compression)
        gc.collect()
        assert values(Dataset.load(saved)) == list(range(1000))
        assert len(runs(saved)) == 1


def test_an_error_in_the_data_keeps_what_was_saved_before(saved):
    bad = Dataset.from_tensor_slices([0.0, np.nan]).map(lambda x: tf.debugging.check_numerics(x, "m"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="m : Tensor had"):
        bad.save(saved)
    assert values(Dataset.load(saved)) == list(range(1000)) and len(runs(saved)) == 1


def test_saving_again_removes_what_was_there_before_unless_it_is_read(saved):
    reading = iter(Dataset.load(saved))
    next(reading)
    Dataset.range(2).save(saved)
    assert len(runs(saved)) == 2
    assert [int(x) for x in reading] == list(range(1, 1000))
    Dataset.range(3).save(saved)
    assert len(runs(saved)) == 1 and values(Dataset.load(saved)) == [0, 1, 2]


def test_what_is_saved_again_is_read_by_the_next_iteration(saved):
    loaded = Dataset.load(saved)
    loaded.map(lambda x: -x).save(saved)
    assert values(loaded) == [-x for x in range(1000)]
    Dataset.from_tensor_slices([1.5]).save(saved)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"holds elements of the type TensorSpec\(shape=\(\), dtype=tf.float32"
    ):
        values(loaded)


def test_load_waits_for_what_is_being_saved(tmp_path):
    threading.Timer(0.2, lambda: Dataset.range(3).save(tmp_path / "s")).start()
    assert values(Dataset.load(tmp_path / "s", wait=True)) == [0, 1, 2]


def test_errors_say_what_to_do(saved, tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"There is no saved dataset at .*nothing"):
        Dataset.load(tmp_path / "nothing")
    with pytest.raises(NotImplementedError, match="Leave `checkpoint_args` out"):
        Dataset.range(3).save(tmp_path / "x", checkpoint_args={"directory": "c"})
    with pytest.raises(tf.errors.InvalidArgumentError, match='There are None and "GZIP"'):
        Dataset.range(3).save(tmp_path / "x", "SNAPPY")
    with pytest.raises(TypeError, match=r"`flat_map` and `batch`"):
        Dataset.range(3).window(2).save(tmp_path / "x")
    with pytest.raises(TypeError, match=r"`reader_func` must return a `Dataset` object. Got int"):
        Dataset.load(saved, reader_func=lambda shards: 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="0 or more, got -1"):
        Dataset.range(3).save(tmp_path / "x", shard_func=lambda x: x - 1)
    assert not (tmp_path / "x").exists() or not runs(tmp_path / "x")


def test_other_versions_of_snapshots_are_refused(saved):
    metadata = _messages.SnapshotMetadataRecord.FromString((saved / "snapshot.metadata").read_bytes())
    metadata.version = 1
    (saved / "snapshot.metadata").write_bytes(metadata.SerializeToString())
    with pytest.raises(NotImplementedError, match="is of version 1 of TensorFlow's snapshots"):
        Dataset.load(saved)
    shutil.rmtree(saved)
    (saved / "streams").mkdir(parents=True)
    with pytest.raises(NotImplementedError, match="distributed_save"):
        Dataset.load(saved)


def test_saved_in_a_bucket(bucket):
    for count in (3, 2):
        Dataset.range(count).save(f"{bucket}/s")
        assert values(Dataset.load(f"{bucket}/s")) == list(range(count))


def counted(count=4, calls=None):
    def note(x):
        calls.append(int(x))
        return x

    return Dataset.range(count).map(lambda x: tf.py_function(note, [x], tf.int64))


def test_a_snapshot_is_of_one_pipeline(tmp_path):
    path = str(tmp_path / "s")
    numbers = np.arange(3)
    factor = 2

    def times(x):
        return x * factor

    pipelines = [
        lambda: Dataset.from_tensor_slices(numbers),
        lambda: Dataset.from_tensor_slices(numbers + 1),
        lambda: Dataset.from_tensor_slices(numbers.astype(np.float32)),
        lambda: Dataset.from_tensor_slices(numbers).map(lambda x: x + 1),
        lambda: Dataset.from_tensor_slices(numbers).map(lambda x: x + 2),
        lambda: Dataset.from_tensor_slices(numbers).map(times),
        lambda: Dataset.from_tensor_slices(numbers).skip(1),
        lambda: Dataset.from_tensor_slices(numbers).batch(2),
        lambda: Dataset.from_tensor_slices({"x": numbers}),
    ]
    for count, make in enumerate(pipelines, 1):
        assert values(make().snapshot(path)) == values(make().snapshot(path)) == values(make())
        assert len(os.listdir(path)) == count
    factor = 3
    assert values(Dataset.from_tensor_slices(numbers).map(times).snapshot(path)) == [0, 3, 6]


class Settings:
    """What a function may refer to."""

    factor = 1

    def times(self, x):
        """Return so many times `x`."""
        return x * self.factor


SETTINGS = Settings()


def test_what_a_programs_objects_hold_tells_snapshots_apart(tmp_path):
    path, settings = str(tmp_path / "s"), Settings()
    listed = {"factor": [1]}
    functions = [
        lambda x: x * settings.factor,
        lambda x: x * SETTINGS.factor,
        lambda x: x * listed["factor"][0],
        settings.times,
    ]
    for factor in (2, 3):
        settings.factor = SETTINGS.factor = listed["factor"][0] = factor
        for function in functions:
            kept = Dataset.range(3).map(function).snapshot(path)
            assert values(kept) == values(kept) == [0, factor, 2 * factor]
    count = len(os.listdir(path))
    assert values(Dataset.range(3).map(settings.times).snapshot(path)) == [0, 3, 6]
    assert len(os.listdir(path)) == count


def test_a_snapshot_that_is_not_whole_is_none(tmp_path):
    calls = []
    kept = counted(6, calls).snapshot(str(tmp_path))
    assert values(kept.take(3)) == [0, 1, 2]
    gc.collect()
    assert [runs(folder) for folder in runs(tmp_path)] == [[]]
    assert values(kept) == values(kept) == list(range(6)) and calls.count(5) == 1


def test_a_snapshot_keeps_the_order_and_a_position_in_it(tmp_path):
    kept = lambda: Dataset.range(9).shuffle(9).snapshot(str(tmp_path / "s")).repeat(2)
    iterator = iter(kept())
    for _ in range(4):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "position")
    wanted = [int(x) for x in iterator]
    assert wanted[-9:-5] + wanted[:5] == wanted[-9:]
    for _ in range(2):
        restored = iter(kept())
        tf.train.Checkpoint(iterator=restored).read(path)
        assert [int(x) for x in restored] == wanted
        shutil.rmtree(tmp_path / "s")


def test_each_part_of_the_data_has_its_snapshot(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.txt").write_text(f"{i}\n")
    names = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    data = tf.data.TextLineDataset(names).snapshot(str(tmp_path / "s"))
    for _ in range(2):
        assert [values(data.shared(DataShard("files", 2, i))) for i in (0, 1)] == [[b"0", b"2"], [b"1", b"3"]]
    assert len(runs(tmp_path / "s")) == 2


def test_explain_says_what_folders_are_for(saved, tmp_path):
    assert f"records of {saved}, element by element" in Dataset.load(saved).explain()
    kept = Dataset.range(3).snapshot(str(tmp_path / "kept"))
    assert "elements of the first whole iteration go to" in kept.explain()
    values(kept)
    assert "nothing above runs" in kept.explain()


def test_folders_that_tensorflow_has_written_are_read(tmp_path):
    shutil.copytree(Path(__file__).with_name("tensorflow_files"), tmp_path / "t")
    assert values(Dataset.load(tmp_path / "t/dictionary", compression="GZIP")) == [
        {"s": b"", "x": [0.5, 1.5]},
        {"s": b"ab", "x": [2.5, 3.5]},
    ]
    ((sparse, ragged, nothing),) = Dataset.load(tmp_path / "t/parts")
    assert tf.sparse.to_dense(sparse).numpy().tolist() == [[b"a", b""], [b"", b"b"]]
    assert ragged.to_list() == [[[1]], [[2, 3], []]] and nothing is None
    assert values(Dataset.load(tmp_path / "t/shards", reader_func=lambda shards: shards.flat_map(lambda x: x))) == [
        0,
        2,
        1,
    ]
    shard_file(tmp_path / "t/parts").write_bytes(b"")
    with pytest.raises(tf.errors.DataLossError, match="1 elements were saved, and 0 are there"):
        list(Dataset.load(tmp_path / "t/parts"))


TENSORFLOW = """
import sys
import tensorflow as tf
assert "tfdist_jax" not in sys.modules
Dataset = tf.data.Dataset
what, folder = sys.argv[1:]


def text(element):
    return str(sorted(element.items()) if isinstance(element, dict) else element)


datasets = {
    "numbers": lambda: Dataset.range(5),
    "dictionary": lambda: Dataset.from_tensor_slices({"s": ["", "ab"], "x": [[0.5, 1.5], [2.5, 3.5]]}),
    "sparse": lambda: Dataset.from_tensors(tf.sparse.from_dense([["a", ""], ["", "b"]])),
    "ragged": lambda: Dataset.from_tensors((tf.ragged.constant([[[1]], [[2, 3], []]]), None)),
    "rows": lambda: Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])),
}
for name, make in datasets.items():
    for compression in (None, "GZIP"):
        path = f"{folder}/{name}-{compression}"
        if what == "save":
            make().save(path, compression)
        else:
            pairs = list(zip(Dataset.load(path, compression=compression), make()))
            assert len(pairs) == len(list(make())), path
            for found, wanted in pairs:
                # TensorFlow has dictionaries in whatever order.
                assert text(found) == text(wanted), (found, wanted)
"""


@pytest.mark.peers
@pytest.mark.exhaustive
def test_folders_are_tensorflows_and_tensorflows_are_read(tmp_path, run_script, run_prepared):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    ours = TENSORFLOW.replace('assert "tfdist_jax" not in sys.modules', "")
    steps = ((run_prepared, ours, "save", "ours"), (run_script, TENSORFLOW, "load", "ours"))
    steps += ((run_script, TENSORFLOW, "save", "theirs"), (run_prepared, ours, "load", "theirs"))
    for run, program, what, folder in steps:
        ran = run(program, what, str(tmp_path / folder))
        assert ran.returncode == 0, ran.stderr


def test_a_run_that_begins_is_not_taken_for_what_a_stopped_process_has_left(tmp_path, monkeypatch):
    path, others = tmp_path / "s", []
    Dataset.range(4).save(path)
    unfinished = _unfinished.Unfinished

    def begin(*args):
        if not others:
            others.append(threading.Thread(target=Dataset.range(2).save, args=[path]))
            others[0].start()
            others[0].join(0.5)
        return unfinished(*args)

    monkeypatch.setattr(_unfinished, "Unfinished", begin)
    Dataset.range(3).save(path)
    others[0].join()
    assert values(Dataset.load(path)) in ([0, 1], [0, 1, 2])
    assert len(runs(path)) == 1
