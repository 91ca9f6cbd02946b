"""`Dataset.cache(filename)`: a file is there when it is whole, whoever writes it, and holds what the dataset gives."""

import contextlib
import gc
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from environment import LIMIT_S
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.data import _unfinished
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard

Dataset = tf.data.Dataset


def values(dataset):
    return [tf.nest.map_structure(lambda part: np.asarray(part).tolist(), e) for e in dataset.as_numpy_iterator()]


def stream(*rows, dtype=tf.int64, shape=()):
    """A dataset that is no rows: its elements come one after the other."""
    return Dataset.from_generator(lambda: iter(rows), output_signature=tf.TensorSpec(shape, dtype))


def names(folder):
    return sorted(os.listdir(folder))


KINDS = {
    "rows": lambda: Dataset.range(7).map(lambda x: x * 3),
    "random rows": lambda: Dataset.range(7).map(lambda x: x + tf.random.uniform([], 0, 99, tf.int64)),
    "shuffled rows": lambda: Dataset.range(7).shuffle(7),
    "repeated rows": lambda: Dataset.range(3).repeat(2),
    "stream": lambda: stream(*range(7)),
    "batches": lambda: stream(*range(7)).batch(3),
    "open shapes": lambda: stream([1], [2, 3], [], dtype=tf.int32, shape=[None]),
    "open ranks": lambda: stream([1], [[2]], [3], dtype=tf.int32, shape=None),
    "strings": lambda: Dataset.from_tensor_slices({"b": ["x", ""], "a": [[1.5], [2.5]]}),
    "nothing": lambda: Dataset.range(0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_iterations_and_datasets_give_what_the_first_one_gives(kind, tmp_path):
    data = KINDS[kind]().cache(str(tmp_path / "c"))
    first = values(data)
    assert names(tmp_path) == ["c.cache"]
    other = KINDS[kind]().cache(str(tmp_path / "c"))
    assert values(data) == values(other) == values(other.prefetch(2)) == first
    if kind not in ("open shapes", "open ranks", "batches"):
        assert values(other.batch(2)) == values(
            Dataset.from_generator(lambda: iter(other), output_signature=other.element_spec).batch(2)
        )


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_an_iteration_that_does_not_come_to_its_end_leaves_nothing(kind, tmp_path):
    data = KINDS[kind]().cache(str(tmp_path / "c"))
    iterator = iter(data)
    next(iterator)
    assert len(names(tmp_path)) == 1, "it is written under another name"
    del iterator
    gc.collect()
    assert values(data.take(3)) == values(data)[:3]
    gc.collect()
    assert names(tmp_path) == ["c.cache"]


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_iterations_at_once_do_not_disturb_each_other(kind, tmp_path):
    iterators = [iter(KINDS[kind]().cache(str(tmp_path / "c"))) for _ in range(3)]
    found = [[] for _ in iterators]
    for _ in range(7):
        for iterator, elements in zip(iterators, found, strict=True):
            elements.append(int(next(iterator)))
    assert all(next(iterator, None) is None for iterator in iterators)
    wanted = values(KINDS[kind]())
    assert found == [wanted] * 3
    del iterators
    gc.collect()
    assert names(tmp_path) == ["c.cache"]
    assert values(KINDS[kind]().cache(str(tmp_path / "c"))) == wanted


@pytest.mark.parametrize("kind", ["rows", "stream"])
def test_two_iterations_of_one_dataset_at_once(kind, tmp_path):
    data = KINDS[kind]().cache(str(tmp_path / "c"))
    first, second = iter(data), iter(data)
    together = [(int(one), int(other)) for one, other in zip(first, second, strict=True)]
    wanted = values(KINDS[kind]())
    assert together == [(value, value) for value in wanted]
    assert values(data) == values(data) == wanted


def test_a_shuffle_behind_the_cache_fills_it_once(tmp_path):
    calls = []

    def note(x):
        calls.append(int(x))
        return x

    data = Dataset.range(20).map(lambda x: tf.py_function(note, [x], tf.int64)).cache(str(tmp_path / "c"))
    examples = len(calls)
    orders = [values(data.shuffle(20)) for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(20)) and orders[0] != orders[1]
    assert calls.count(19) == 1 and len(calls) <= 20 + 2 * (examples + 2)


def test_a_shuffle_of_rows_behind_the_cache_writes_each_row(tmp_path):
    data = Dataset.range(10_000).map(lambda x: x * 2).cache(str(tmp_path / "c"))
    wanted = list(range(0, 20_000, 2))
    assert sorted(values(data.shuffle(100))) == wanted and names(tmp_path) == ["c.cache"]
    assert values(data) == wanted
    assert values(data.shuffle(5000).batch(10_000)) != [wanted]


def test_a_cache_of_another_dataset_is_refused(tmp_path):
    values(Dataset.range(3).cache(str(tmp_path / "c")))
    for other in (Dataset.from_tensor_slices([1.0]), Dataset.range(3).map(lambda x: (x, x)), Dataset.range(4).batch(2)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"c\.cache is the cache of another dataset: its elements are Tensor"
        ):
            list(other.cache(str(tmp_path / "c")))


def test_another_number_of_elements_is_told(tmp_path, caplog):
    values(Dataset.range(3).cache(str(tmp_path / "c")))
    assert values(Dataset.range(5).cache(str(tmp_path / "c"))) == [0, 1, 2]
    assert "holds 3 elements, and the dataset that is cached has 5" in caplog.text


def test_files_of_rows_and_of_streams_serve_both(tmp_path):
    values(Dataset.range(5).cache(str(tmp_path / "rows")))
    values(stream(*range(5)).cache(str(tmp_path / "stream")))
    for name in ("rows", "stream"):
        for data in (Dataset.range(5), stream(*range(5))):
            cached = data.cache(str(tmp_path / name))
            assert values(cached) == [0, 1, 2, 3, 4] and values(cached.batch(3)) == [[0, 1, 2], [3, 4]]
            assert sorted(values(cached.shuffle(5))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["rows", "strings"])
def test_elements_are_had_by_number(kind, tmp_path):
    data = KINDS[kind]().cache(str(tmp_path / "c"))
    for _ in range(2):
        one = tf.nest.map_structure(lambda part: np.asarray(part).tolist(), tf.data.experimental.at(data, 1))
        assert one == values(KINDS[kind]())[1]
        values(data)


def test_each_part_of_the_data_has_its_file(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.txt").write_text(f"{i}a\n{i}b\n")
    data = tf.data.TextLineDataset(Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)).cache(
        str(tmp_path / "c")
    )
    parts = [data.shared(DataShard("files", 2, index)) for index in (0, 1)]
    for _ in range(2):
        assert values(parts[0]) == [b"0a", b"0b", b"2a", b"2b"]
        assert values(parts[1]) == [b"1a", b"1b", b"3a", b"3b"]
    assert values(data) == [f"{i}{j}".encode() for i in range(4) for j in "ab"]
    assert [name for name in names(tmp_path) if name.startswith("c")] == [
        "c.cache",
        "c.files-0-of-2.cache",
        "c.files-1-of-2.cache",
    ]


@pytest.mark.parametrize("make", [lambda: Dataset.range(8), lambda: stream(*range(8))])
@pytest.mark.parametrize("taken", [3, 8, 11])
def test_a_position_leads_to_the_same_elements_with_and_without_the_file(make, taken, tmp_path):
    def dataset(name):
        return make().shuffle(8).cache(str(tmp_path / name)).shuffle(3).repeat(2)

    iterator = iter(dataset("c"))
    for _ in range(taken):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "position")
    wanted = [int(x) for x in iterator]
    # The file is there by now; without it the elements are made again; the file of an iteration in another order is none of its.
    values(dataset("other"))
    for name in ("c", "new", "other"):
        restored = iter(dataset(name))
        tf.train.Checkpoint(iterator=restored).read(path)
        assert [int(x) for x in restored] == wanted


def test_errors_are_left_out(tmp_path):
    numbers = Dataset.from_tensor_slices([0.0, np.nan, 2.0])
    for name, data in (("rows", numbers), ("stream", numbers.filter(lambda x: True))):
        checked = data.map(lambda x: tf.debugging.check_numerics(x, "m")).cache(str(tmp_path / name))
        assert values(checked.ignore_errors()) == [0.0, 2.0] == values(checked)


def test_explain_says_what_the_file_is_for(tmp_path):
    data = Dataset.range(3).cache(str(tmp_path / "c"))
    assert "elements of the first whole iteration go to" in data.explain() and not names(tmp_path)
    values(data)
    assert f"read from {tmp_path / 'c'}.cache: nothing above runs" in data.explain()


def test_fit_reads_what_its_first_epoch_has_written(tmp_path):
    calls = []

    def note(x):
        calls.append(1)
        return np.float32(x)

    def noted(x):
        y = tf.ensure_shape(tf.py_function(note, [x], tf.float32), [])
        return tf.reshape(y, [1]), tf.reshape(y, [1])

    with tf.distribute.MirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = Dataset.range(16).map(noted).cache(str(tmp_path / "c")).batch(8)
    model.fit(data, epochs=3, verbose=0)
    assert len(calls) < 2 * 16 and names(tmp_path) == ["c.cache"]


@pytest.mark.parametrize("kind", ["flip", "truncate"])
@pytest.mark.parametrize("make", [lambda: Dataset.range(9000), lambda: stream(*range(9000))])
def test_damage_is_told_with_file_and_place(make, kind, tmp_path, chaos):
    data = make().cache(str(tmp_path / "c"))
    wanted = values(data)
    for _ in range(10):
        with chaos.damage(tmp_path / "c.cache", kind):
            try:
                found = values(make().cache(str(tmp_path / "c")))
            except tf.errors.DataLossError as error:
                assert "c.cache" in str(error) and "at byte" in str(error) and "Delete it" in str(error)
            else:
                assert found == wanted, "a byte between two arrays"
    assert values(make().cache(str(tmp_path / "c"))) == wanted


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "c.cache").write_bytes(b"something else" * 100)
    with pytest.raises(tf.errors.DataLossError, match="does not begin as one"):
        values(Dataset.range(3).cache(str(tmp_path / "c")))
    (tmp_path / "c.cache").write_bytes(b"")
    with pytest.raises(tf.errors.DataLossError, match="does not begin as one"):
        values(Dataset.range(3).cache(str(tmp_path / "c")))


@pytest.mark.parametrize(
    "make", [lambda x: Dataset.from_tensor_slices(x), lambda x: stream(*x, dtype=tf.float64, shape=[100])]
)
def test_a_full_disk_is_told_and_leaves_nothing(make, tmp_path, chaos):
    numbers = np.random.default_rng(0).normal(size=(5000, 100))
    data = make(numbers).cache(str(tmp_path / "c"))
    for _ in range(3):
        with chaos.full_disk(up_to=numbers.nbytes - 1), pytest.raises(OSError, match="File too large"):
            list(data.as_numpy_iterator())
        gc.collect()
        assert not names(tmp_path)
    assert all(np.array_equal(*pair) for _ in range(2) for pair in zip(data.as_numpy_iterator(), numbers, strict=True))


def test_what_stopped_processes_have_left_goes_and_what_others_write_stays(tmp_path):
    left = tmp_path / "c.cache.0123456789ab.part"
    left.write_bytes(b"half")
    written = tmp_path / "c.cache.ba9876543210.part"
    written.write_bytes(b"half")
    other = tmp_path / "c2.cache.0123456789ab.part"
    other.write_bytes(b"of another cache")
    held = _unfinished.Unfinished(written, lambda: None)
    values(Dataset.range(3).cache(str(tmp_path / "c")))
    assert names(tmp_path) == sorted(["c.cache", written.name, other.name])
    held.discard()
    assert names(tmp_path) == ["c.cache", other.name]


def test_a_cache_in_a_bucket(bucket, tmp_path):
    data = Dataset.range(5).cache(f"{bucket}/c")
    assert values(data.take(2)) == [0, 1] and not tf.io.gfile.exists(f"{bucket}/c.cache")
    assert values(data) == values(data) == values(Dataset.range(5).cache(f"{bucket}/c")) == [0, 1, 2, 3, 4]
    assert tf.io.gfile.exists(f"{bucket}/c.cache")


SHAPES = st.lists(st.integers(0, 3), max_size=2).map(tuple)
ARRAYS = st.lists(
    st.tuples(SHAPES, st.sampled_from(["int8", "float32", "bool", "complex64", "string"])), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=30)
@given(ARRAYS, st.integers(0, 2**32 - 1))
def test_whatever_elements_are_comes_back(kinds, seed):
    rng = np.random.default_rng(seed)

    def array(shape, dtype):
        numbers = rng.integers(0, 2, shape)
        if dtype != "string":
            return numbers.astype(dtype)
        return (
            np.vectorize(lambda n: b"\0\xff" * n, otypes=[object])(numbers) if numbers.size else numbers.astype(object)
        )

    for shape, dtype in kinds:
        elements = [array(shape, dtype) for _ in range(3)] + [array((*shape, 2), dtype)]
        spec = tf.TensorSpec(None, dtype)
        data = Dataset.from_generator(lambda elements=elements: iter(elements), output_signature=spec)
        with tempfile.TemporaryDirectory() as folder:
            cached = data.cache(f"{folder}/c")
            wanted = [np.asarray(element).tolist() for element in elements]
            assert values(cached) == values(cached) == wanted
            data.save(f"{folder}/s")
            assert values(Dataset.load(f"{folder}/s")) == wanted


PROGRAM = """
import json
import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset


def make(kind, step):
    numbers = np.full([3000, 100], step, np.int64)
    if kind == "stream":
        return Dataset.from_generator(lambda: iter(numbers), output_signature=tf.TensorSpec([100], tf.int64))
    return Dataset.from_tensor_slices(numbers)


def train(folder, said):
    step = 0
    while True:
        step += 1
        for kind in ("rows", "stream"):
            name = f"{folder}/{kind}"
            found = {int(x) for element in make(kind, step).cache(name).as_numpy_iterator() for x in element}
            assert len(found) == 1, found
            make(kind, step).save(f"{folder}/saved {kind}")
            kept = make(kind, 1).snapshot(f"{folder}/kept")
            assert {int(x) for element in kept.as_numpy_iterator() for x in element} == {1}
        with open(said, "a") as file:
            file.write(json.dumps(step) + "\\n")
        # The next step writes all of them anew.
        for name in tf.io.gfile.glob([f"{folder}/*.cache", f"{folder}/kept/*/snapshot.metadata"]):
            tf.io.gfile.remove(name)
        tf.io.gfile.rmtree(f"{folder}/kept")
"""


def _kill(train, folder, said, kills, moments):
    folder.mkdir()
    for _ in range(kills):
        before = len(_lines(said))

        def kill(pid, before=before):
            deadline = time.monotonic() + LIMIT_S
            while len(_lines(said)) <= before and time.monotonic() < deadline and _is_there(pid):
                time.sleep(0.01)
            time.sleep(moments.uniform(0.0, 0.5))
            with contextlib.suppress(ProcessLookupError):  # It has failed, of which `train` tells.
                os.kill(pid, signal.SIGKILL)

        train(folder, said, meanwhile=kill)
        _must_be_whole(folder)
        for left in folder.glob("*.cache"):
            left.unlink()


def _must_be_whole(folder):
    for name, wanted in (("rows", Dataset.from_tensor_slices), ("stream", lambda x: stream(*x, shape=[100]))):
        if (folder / f"{name}.cache").exists():
            _must_be_of_one_step(wanted(np.full([3000, 100], -1)).cache(str(folder / name)))
        if (folder / f"saved {name}").exists() and (folder / f"saved {name}/snapshot.metadata").exists():
            _must_be_of_one_step(Dataset.load(folder / f"saved {name}"))
    for kept in folder.glob("kept/*/snapshot.metadata"):
        _must_be_of_one_step(Dataset.load(kept.parent))


def _must_be_of_one_step(dataset):
    found = list(dataset.as_numpy_iterator())
    assert len(found) == 3000 and len({int(x) for element in found for x in element}) == 1
    assert int(found[0][0]) > 0


def _is_there(pid):
    try:
        return os.kill(pid, 0) is None
    except ProcessLookupError:
        return False


def _lines(said: Path):
    return said.read_text().splitlines() if said.exists() else []


def _has_no_rests(folder):
    # Those of a snapshot go when it is written again.
    rests = [path.name for path in folder.rglob("*.part") if "kept" not in path.parts]
    runs = [[run.name for run in path.iterdir() if run.is_dir()] for path in folder.glob("saved *")]
    return not rests and all(len(each) == 1 for each in runs)


def _check(forking, tmp_path, kills, seed):
    folder, said = tmp_path / "data", tmp_path / "said"
    train = forking(PROGRAM)
    _kill(train, folder, said, kills, random.Random(seed))
    assert json.loads(_lines(said)[-1]) >= 1
    # What the last one has left goes when the same is written again.
    for name in ("rows", "stream"):
        values(Dataset.from_tensor_slices(np.ones([3000, 100], np.int64)).cache(str(folder / name)))
        Dataset.range(2).save(folder / f"saved {name}")
    assert _has_no_rests(folder)


TWO = """
import tensorflow as tf

Dataset = tf.data.Dataset


def train(folder, number):
    for name in (f"{folder}/{number}" for number in range(8)):
        numbers = Dataset.range(500)
        stream = Dataset.from_generator(lambda: iter(range(500)), output_signature=tf.TensorSpec([], tf.int64))
        for data in (numbers.cache(f"{name}-rows"), stream.cache(f"{name}-stream"), numbers.snapshot(f"{name}-snapshot")):
            for _ in range(2):
                assert [int(x) for x in data.as_numpy_iterator()] == list(range(500))
        numbers.save(f"{name}-saved")
        assert [int(x) for x in Dataset.load(f"{name}-saved").as_numpy_iterator()] == list(range(500))
"""


def test_two_processes_at_once_write_whole_files(tmp_path, forking):
    train = forking(TWO)
    codes = []
    first = train(tmp_path, 1, meanwhile=lambda pid: codes.append(train(tmp_path, 2)))
    assert [first, *codes] == [0, 0]
    for number in range(8):
        assert values(Dataset.range(500).cache(str(tmp_path / f"{number}-rows"))) == list(range(500))
        assert values(stream(*range(500)).cache(str(tmp_path / f"{number}-stream"))) == list(range(500))
        assert values(Dataset.load(tmp_path / f"{number}-saved")) == list(range(500))
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow("kills three processes")
def test_a_killed_process_leaves_whole_files_or_none(tmp_path, forking):
    _check(forking, tmp_path, 3, 0)


@pytest.mark.exhaustive
def test_thirty_killed_processes_leave_whole_files_or_none(tmp_path, forking):
    _check(forking, tmp_path, 30, 1)
