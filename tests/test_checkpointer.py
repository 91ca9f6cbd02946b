import contextlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import buckets
import damages
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath

import tfdist_jax as td
from tfdist_jax._checkpoint import _checkpoint
from tfdist_jax._checkpoint._bucket_store import PYTHON_CRASHES
from tfdist_jax._checkpoint._checkpointer import Restored
from tfdist_jax.testing import files_in, full_disk

FOUR, TWO = tuple(jax.devices()[:4]), tuple(jax.devices()[4:6])
OPTIMIZER = optax.adam(1e-2)


def make_state():
    keys = jax.random.split(jax.random.key(0))
    params = {"w": jax.random.normal(keys[0], (32, 64)), "b": jnp.zeros(3, jnp.bfloat16)}
    return {"params": params, "optimizer": OPTIMIZER.init(params), "keys": keys, "raw": jax.random.PRNGKey(1)}


def values(state):
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return [np.asarray(plain(leaf)) for leaf in jax.tree.leaves(state)]


def assert_equal(state, other):
    for a, b in zip(values(state), values(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("before", [td.Mirrored(FOUR), td.FSDP(FOUR, min_size=8), td.SingleDevice()], ids=str)
@pytest.mark.parametrize("after", [td.FSDP(TWO, min_size=8), td.Mirrored(TWO)], ids=str)
def test_a_state_moves_to_another_strategy_and_number_of_devices(place, before, after):
    state = before.init(make_state)
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(3, state)
    by_strategy = checkpointer.restore(jax.eval_shape(make_state), strategy=after).state
    template = after.init(make_state)
    by_template = checkpointer.restore(template).state
    by_sharding = checkpointer.restore(jax.tree.map(lambda leaf: leaf.sharding, template)).state
    for restored in (by_strategy, by_template, by_sharding):
        assert_equal(restored, state)
        assert jax.tree.map(lambda a, b: a.sharding == b.sharding, restored, template)
        jax.tree.map(
            lambda a, b: a.sharding.is_equivalent_to(b.sharding, a.ndim) or pytest.fail(str(a)), restored, template
        )


class Iterator:
    """Counts, as an iterator over data would."""

    def __init__(self):
        self.row = 0

    def get_state(self):
        return {"row": self.row, "buffer": np.array([self.row, 7], np.uint16), "raw": b"\x00\xff"}

    def set_state(self, state):
        assert state["buffer"].dtype == np.uint16 and state["raw"] == b"\x00\xff"
        self.row = int(state["buffer"][0])


def test_data_and_random_numbers_go_on_where_they_were(place):
    data, rng, key = Iterator(), np.random.default_rng(3), jax.random.key(4)
    data.row = 40
    rng.normal(size=5)
    with td.Checkpointer(place) as checkpointer:
        state, position = {"key": key}, {"iterators": [data], "rng": rng.bit_generator.state, "scale": np.float32(0.5)}
        checkpointer.save(1, state, position=position)
        data.row = 50
    wanted = rng.normal(size=3), jax.random.normal(key, (2,))
    other, again = Iterator(), np.random.default_rng(0)
    restored = checkpointer.restore(jax.eval_shape(lambda: state), position={"iterators": [other]})
    again.bit_generator.state = restored.position["rng"]
    assert other.row == 40 and restored.position["scale"] == np.float32(0.5)
    np.testing.assert_array_equal(again.normal(size=3), wanted[0])
    np.testing.assert_array_equal(jax.random.normal(restored.state["key"], (2,)), wanted[1])
    with pytest.raises(ValueError, match=r"position\['others'\]` was not saved"):
        checkpointer.restore(position={"others": other})
    with pytest.raises(TypeError, match="Random keys belong to the state"):
        checkpointer.save(2, state, position={"key": key})
    with pytest.raises(TypeError, match="got one of type object"):
        checkpointer.save(2, state, position={"files": np.array(["a", None])})


def test_what_all_processes_have_saved_alike_is_the_position_of_any_number_of_them():
    counts = [{"rng": np.array([1, 2])}, {"rng": np.array([1, 2])}]
    assert Restored(1, None, tuple(counts)).position is counts[0]
    counts[1]["rng"][0] = 5
    with pytest.raises(ValueError, match="saved by 2 process"):
        _ = Restored(1, None, tuple(counts)).position


def test_numbers_and_arrays_of_the_host_come_back_as_what_they_were(place):
    state = {
        "n": 3,
        "x": 0.5,
        "on": True,
        "host": np.arange(3),
        "none": np.zeros((0, 2), np.int8),
        "loose": jnp.ones(2),
    }
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(1, state)
    read = checkpointer.restore(state).state
    assert [read[name] for name in ("n", "x", "on")] == [3, 0.5, True] and isinstance(read["on"], bool)
    assert isinstance(read["host"], np.ndarray) and read["none"].shape == (0, 2) and read["none"].dtype == np.int8
    assert isinstance(read["loose"], jax.Array) and not read["loose"].committed
    everything = checkpointer.restore().state
    assert everything.keys() == {f"['{name}']" for name in state} and everything["['host']"].tolist() == [0, 1, 2]
    assert checkpointer.restore({"n": 0}).state == {"n": 3}


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_64_bits_stay_so_whatever_the_configuration_says(place, dtype):
    sharding = jax.sharding.NamedSharding(td.Mirrored(FOUR).mesh, jax.sharding.PartitionSpec(td.DATA))
    numbers = np.arange(8).astype(dtype) + 2**40
    with jax.enable_x64(True):
        state = {"sharded": jax.device_put(numbers, sharding), "loose": jnp.asarray(numbers)}
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(1, state)
    for array in checkpointer.restore(state).state.values():
        assert np.asarray(array).dtype == dtype
        np.testing.assert_array_equal(np.asarray(array), numbers)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"w": jax.ShapeDtypeStruct((3,), jnp.float32)}, r"float32\[3\] at \['w'\], but float32\[2\]"),
        ({"w": np.zeros(2, int)}, r"int64\[2\] at \['w'\], but float32\[2\]"),
        ({"v": 0}, r"not saved in .*step[-_]1: \['v'\].*not in `like`: \['k'\], \['w'\]"),
        ({"k": jnp.zeros(2)}, "but a random key"),
    ],
)
def test_what_was_not_saved_is_not_restored(place, like, message):
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(1, {"w": np.zeros(2, "f4"), "k": jax.random.key(0)})
    with pytest.raises(ValueError, match=message):
        checkpointer.restore(like)


def test_a_leaf_that_is_no_array_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"leaf \['name'\] of the state is a str"):
        td.Checkpointer(tmp_path).save(1, {"name": "resnet"})


def test_an_empty_folder_has_no_checkpoint(place):
    checkpointer = td.Checkpointer(place)
    assert checkpointer.latest_step() is None and checkpointer.steps() == []
    with pytest.raises(FileNotFoundError, match="no complete checkpoint at all"):
        checkpointer.restore()
    assert not epath.Path(place).exists()


def test_saving_goes_on_while_the_program_does_and_is_seen_when_it_is_complete(tmp_path, held):
    checkpointer = td.Checkpointer(tmp_path)
    checkpointer.save(1, {"w": np.ones(4)})
    checkpointer.check()
    assert checkpointer.latest_step() is None
    assert td.Checkpointer(tmp_path).latest_step() is None
    held.set()
    checkpointer.wait()
    assert checkpointer.latest_step() == 1


def test_a_synchronous_save_returns_when_all_is_written(place):
    checkpointer = td.Checkpointer(place, asynchronous=False)
    checkpointer.save(1, {"w": np.ones(4)})
    assert td.Checkpointer(place).latest_step() == 1


def test_steps_that_reuse_the_memory_do_not_reach_what_is_being_saved(tmp_path, held):
    strategy = td.FSDP(FOUR, min_size=8)
    step = strategy.jit(lambda state: (jax.tree.map(lambda x: x + 1, state), None))
    host = np.zeros(1000)
    state = strategy.init(lambda: {str(i): jnp.zeros((256, 256)) for i in range(8)} | {"bias": jnp.zeros(3)})
    state, _ = step(state)
    checkpointer = td.Checkpointer(tmp_path)
    checkpointer.save(1, (state, host))
    for _ in range(3):
        state, _ = step(state)
    host += 1
    jax.block_until_ready(state)
    held.set()
    (saved, other) = (
        jax.tree.leaves(checkpointer.restore((state, host)).state)[:-1],
        checkpointer.restore().state["[1]"],
    )
    assert all((array == 1).all() for array in saved) and (other == 0).all()


def test_what_changes_after_a_save_was_saved_as_it_was(place):
    host = np.zeros(1000)
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(1, {"host": host})
        host += 1
    assert (checkpointer.restore({"host": host}).state["host"] == 0).all()


def test_arrays_without_elements_are_laid_out_beside_others(place):
    make = lambda: {"w": jnp.ones((4, 256)), "none": jnp.zeros((0, 4))}
    with td.Checkpointer(place) as checkpointer:
        checkpointer.save(1, make())
    read = checkpointer.restore(jax.eval_shape(make), strategy=td.Mirrored(FOUR)).state
    assert read["none"].shape == (0, 4) and len(read["none"].sharding.device_set) == 4


def test_the_newest_are_kept(place):
    with td.Checkpointer(place, max_to_keep=2) as checkpointer:
        for step in (1, 5, 10, 20):
            checkpointer.save(step, {"w": np.full(2, step)})
    assert checkpointer.steps() == [10, 20]
    assert checkpointer.restore(step=10).state["['w']"].tolist() == [10, 10]
    with pytest.raises(ValueError, match="Step 11 comes before step 20"):
        td.Checkpointer(place).save(11, {"w": np.zeros(2)})
    checkpointer.delete_after(10)
    assert checkpointer.steps() == [10]
    checkpointer.save(10, {"w": np.full(2, 3)})
    assert checkpointer.restore().state["['w']"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="must be positive"):
        td.Checkpointer(place, max_to_keep=0)


def test_what_earlier_runs_have_left_is_removed_and_other_files_are_not(tmp_path):
    (tmp_path / "step-1.new.abc" / "arrays").mkdir(parents=True)
    (tmp_path / ".run-abc").touch()
    (tmp_path / "notes.old").touch()
    with td.Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == []
        checkpointer.save(2, {"w": np.zeros(2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.old", "step-2"]


def _too_large(folder):
    disk = contextlib.ExitStack()
    disk.enter_context(full_disk(1 << 20))
    return disk.close


def _removed(folder):
    folder.rename(folder.with_name("moved"))
    folder.touch()
    return folder.unlink


@pytest.mark.parametrize(("spoil", "message"), [(_too_large, "File too large"), (_removed, "Not a directory")])
def test_what_fails_in_the_background_is_raised_by_the_next_call(tmp_path, spoil, message):
    # Random numbers, which cannot be made smaller.
    folder, state = tmp_path / "saved", {"w": jax.random.normal(jax.random.key(0), (1 << 20,))}
    checkpointer = td.Checkpointer(folder)
    checkpointer.save(1, state)
    checkpointer.wait()
    mend = spoil(folder)
    try:
        checkpointer.save(2, state)
        with pytest.raises(RuntimeError, match=f"Saving step 2 in {folder} has failed: .*{message}"):
            while True:
                checkpointer.check()
                time.sleep(0.01)
        checkpointer.save(2, state)
        with pytest.raises(RuntimeError, match="Saving step 2"):
            checkpointer.save(3, state)
    finally:
        mend()
    assert 2 not in checkpointer.steps()
    checkpointer.save(3, state)
    checkpointer.close()
    assert checkpointer.latest_step() == 3
    assert not [path.name for path in folder.iterdir() if ".new" in path.name]


@pytest.mark.parametrize("url", ["s3://bucket/run", Path("s3://bucket/run")])
def test_a_url_is_no_folder(url):
    with pytest.raises(NotImplementedError, match="mount the bucket"):
        td.Checkpointer(url)


@pytest.mark.skipif(not PYTHON_CRASHES, reason="only Python 3.12.0 and 3.12.1 crash")
def test_a_python_that_crashes_is_refused():
    with pytest.raises(NotImplementedError, match="Use another Python, or mount the bucket"):
        td.Checkpointer("gs://bucket/run")


@pytest.mark.skipif(PYTHON_CRASHES, reason="this Python is refused")
@pytest.mark.parametrize("library", ["gcsfs", "google.cloud.storage"])
def test_what_reaches_a_bucket_is_to_be_installed(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"need {library}.*: `pip install 'tfdist-jax\[gcs\]'`"):
        td.Checkpointer("gs://bucket/run")


def test_a_bucket_given_as_a_path_is_a_bucket(bucket):
    td.Checkpointer(Path(bucket), asynchronous=False).save(1, {"w": np.ones(2)})
    assert td.Checkpointer(epath.Path(bucket)).steps() == [1]


def test_a_bucket_that_is_not_there_is_told_at_once(bucket):
    checkpointer = td.Checkpointer("gs://nowhere/run")
    assert checkpointer.steps() == []
    with pytest.raises(FileNotFoundError, match="no bucket gs://nowhere"):
        checkpointer.save(1, {"w": np.ones(2)})
    with pytest.raises(ValueError, match="gs://bucket/path, got gs:///"):
        td.Checkpointer("gs:///")


def test_a_bucket_that_goes_away_is_told_and_saving_goes_on_when_it_is_back(bucket, bucket_server):
    checkpointer = td.Checkpointer(bucket)
    checkpointer.save(1, {"w": jnp.ones(2)})
    checkpointer.wait()
    buckets.remove(bucket_server)
    try:
        with pytest.raises(RuntimeError, match=f"Saving step 2 in {bucket} has failed"):
            checkpointer.save(2, {"w": jnp.ones(2)})
            checkpointer.wait()
    finally:
        buckets.make(bucket_server)
    checkpointer.save(3, {"w": jnp.full(2, 3)})
    checkpointer.close()
    assert checkpointer.restore().state["['w']"].tolist() == [3, 3] and checkpointer.steps() == [3]


def test_nothing_writes_any_more_when_saving_has_failed(bucket, monkeypatch):
    """Metadata fail while the thread that has written the arrays is about to complete the step."""
    from orbax.checkpoint import CheckpointManager
    from orbax.checkpoint._src.checkpointers import async_checkpointer
    from orbax.checkpoint._src.metadata import checkpoint

    about_to_complete, ended = threading.Event(), threading.Event()
    finalize = CheckpointManager._finalize

    def complete_late(*_):
        about_to_complete.set()
        time.sleep(1)
        ended.set()

    def finalize_late(*args):
        assert about_to_complete.wait(60)
        finalize(*args)

    def fail(*_):
        raise OSError("no such bucket")

    checkpointer = td.Checkpointer(bucket)
    with monkeypatch.context() as patch:
        patch.setattr(async_checkpointer, "_on_commit_callback", complete_late)
        patch.setattr(CheckpointManager, "_finalize", finalize_late)
        patch.setattr(checkpoint._MetadataStoreImpl, "write", fail)
        with pytest.raises(RuntimeError, match="no such bucket"):
            checkpointer.save(1, {"w": jnp.ones(2)})
            checkpointer.wait()
        assert ended.is_set()
    checkpointer.save(2, {"w": jnp.ones(2)})
    checkpointer.close()
    assert checkpointer.steps() == [2]


def test_a_url_of_a_file_is_its_path(tmp_path):
    td.Checkpointer(f"file://{tmp_path}/run", asynchronous=False).save(1, {"w": np.ones(2)})
    assert td.Checkpointer(tmp_path / "run").steps() == [1]


def test_a_folder_that_cannot_be_made_fails_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        td.Checkpointer(tmp_path / "file" / "saved").save(1, {"w": np.zeros(2)})


@pytest.mark.one_in(4)
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise KeyError('of the program')"])
def test_a_program_ends_when_all_is_saved(place, run_script, end):
    reader = td.Checkpointer(place)
    assert reader.steps() == []
    program = f"""
    import sys, numpy as np, tfdist_jax as td
    td.Checkpointer(sys.argv[1]).save(1, {{str(i): np.full((500, 500), i) for i in range(30)}})
    {end}
    """
    ran = run_script(program, str(place))
    assert (ran.returncode != 0) == bool(end) and "shutdown" not in ran.stderr, ran.stderr
    restored = reader.restore()
    assert restored.step == 1 and all((a == int(name[2:-2])).all() for name, a in restored.state.items())


def test_what_another_process_saves_later_is_seen(place, run_script):
    td.Checkpointer(place, asynchronous=False).save(1, {"w": np.ones(2)})
    reader = td.Checkpointer(place)
    assert reader.steps() == [1] and reader.restore().step == 1
    program = "import sys, numpy as np, tfdist_jax as td; td.Checkpointer(sys.argv[1]).save(2, {'w': np.zeros(2)})"
    assert run_script(program, place).returncode == 0
    assert reader.steps() == [1, 2] and reader.restore().step == 2


def test_saving_in_a_program_with_an_event_loop(place):
    import asyncio

    async def cell():
        with td.Checkpointer(place) as checkpointer:
            checkpointer.save(1, {"w": jnp.ones(3)})
        return checkpointer.restore().state["['w']"]

    assert asyncio.run(cell()).tolist() == [1, 1, 1]


def test_a_folder_that_goes_while_it_is_looked_at_has_no_steps(place, monkeypatch):
    checkpointer = td.Checkpointer(place)
    for look in ("exists", "is_dir"):
        monkeypatch.setattr(type(epath.Path(place)), look, lambda self: True)
    assert checkpointer.steps() == [] and checkpointer.latest_step() is None


TRAINING = """
import sys
import jax, jax.numpy as jnp
import tfdist_jax as td

td.use_cpu_devices(2)
strategy, make = td.FSDP(min_size=1), lambda: {str(i): jnp.zeros((32, 64)) for i in range(20)}
checkpointer = td.Checkpointer(sys.argv[1], max_to_keep=2)
step = checkpointer.latest_step() or 0
state = checkpointer.restore(jax.eval_shape(make), strategy=strategy).state if step else strategy.init(make)
assert all((array == step).all() for array in state.values())
print(step, flush=True)
add = strategy.jit(lambda state: (jax.tree.map(lambda x: x + 1, state), None))
while True:
    state, _ = add(state)
    step += 1
    checkpointer.save(step, state)
    print(step - 1, flush=True)
"""


@pytest.mark.one_in(2)
@pytest.mark.slow("kills ten processes")
def test_nothing_saved_is_lost_and_nothing_half_saved_is_found_when_the_process_is_killed(place):
    moments = random.Random(1)
    saved = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", TRAINING, str(place)], stdout=subprocess.PIPE, text=True)
        began = int(process.stdout.readline() or -1)
        assert began >= saved, "what was saved is lost"
        seen = [process.stdout.readline() for _ in range(moments.randint(0, 3))]
        time.sleep(moments.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        saved = max([began, *map(int, seen), *map(int, process.communicate()[0].split())])
    assert saved >= 2
    checkpointer = td.Checkpointer(place, max_to_keep=2)
    restored = checkpointer.restore()
    assert saved <= restored.step <= saved + 2, (
        "the one after may be in work, and another one begun before that was told"
    )
    assert all((array == restored.step).all() for array in restored.state.values())
    checkpointer.save(restored.step + 1, {"w": np.zeros(2)})
    checkpointer.close()
    left = {path.name.replace("_", "-") for path in epath.Path(place).iterdir()}
    assert left == {f"step-{restored.step}", f"step-{restored.step + 1}"}


def test_the_core_needs_no_orbax_to_tell_what_is_there(tmp_path, run_script):
    ran = run_script("import sys, tfdist_jax as td; td.Checkpointer('x').latest_step(); print('orbax' in sys.modules)")
    assert ran.stdout.split() == ["False"], ran.stderr


def test_arrays_without_elements_are_loaded_as_they_were_saved(tmp_path):
    _checkpoint.begin_saving(tmp_path / "a", {"none": jnp.zeros((2, 0), jnp.bfloat16)}, {})()
    found = _checkpoint.load_arrays(tmp_path / "a", sharding_of=lambda name: jax.sharding.SingleDeviceSharding(FOUR[1]))
    host = np.asarray(found["none"])
    assert host.shape == (2, 0) and host.dtype == jnp.bfloat16 and found["none"].devices() == {FOUR[1]}


@pytest.fixture
def three_steps(tmp_path):
    """A checkpointer of three steps, whose states hold noise plus the step."""
    noise = np.random.default_rng(0).random((300, 300), "f4")
    with td.Checkpointer(tmp_path / "saved") as checkpointer:
        for step in range(3):
            checkpointer.save(step, {"w": noise + step})
    return checkpointer, noise


@pytest.mark.parametrize("kind", damages.KINDS)
def test_the_newest_step_that_is_not_damaged_is_restored(chaos, three_steps, tmp_path, caplog, kind):
    checkpointer, noise = three_steps
    for file in files_in(tmp_path / "saved" / "step-2"):
        caplog.clear()
        with chaos.damage(file, kind):
            restored = checkpointer.restore()
            assert "step-2 is damaged" in caplog.text and "Going back to step 1." in caplog.text
            for arguments in ({"step": 2}, {"skip_damaged": False}):
                with pytest.raises(td.DataLossError, match=r"step-2 is damaged.*`restore\(\)` without a step"):
                    checkpointer.restore(**arguments)
        assert restored.step == 1
        np.testing.assert_array_equal(restored.state["['w']"], noise + 1)
    assert checkpointer.restore().step == 2


@pytest.mark.parametrize("gone", ["arrays", "about"])
def test_a_step_without_one_of_its_folders_is_damaged(three_steps, tmp_path, caplog, gone):
    shutil.rmtree(tmp_path / "saved" / "step-2" / gone)
    assert three_steps[0].restore().step == 1
    assert f"step-2 is damaged: {gone}/" in caplog.text and "Going back to step 1." in caplog.text


def test_a_training_does_not_begin_anew_because_all_steps_are_damaged(chaos, three_steps, tmp_path):
    for step in range(3):
        chaos.damage(damages.largest_of(tmp_path / "saved" / f"step-{step}"), "flip")
    with pytest.raises(td.DataLossError, match=r"step-2 is damaged.*\['w'\].*No other step in .* is whole"):
        three_steps[0].restore()
