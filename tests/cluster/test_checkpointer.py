"""Checkpoints of several processes: each writes its parts, and one or several read them."""

import random
import time

import damages
import jax
import numpy as np
import pytest
from etils import epath

import tfdist_jax as td
from tfdist_jax.testing import files_in

STATE = """
import resource, sys
import jax, jax.numpy as jnp, numpy as np
import tfdist_jax as td
td.initialize()
me, folder = jax.process_index(), sys.argv[1]

def make_state():
    sharded = jnp.arange(16 * 128, dtype=jnp.float32).reshape(16, 128)
    return {"sharded": sharded, "whole": jnp.arange(3.0), "key": jax.random.key(7)}
"""

SAVE = """
state = td.FSDP().init(make_state)
state |= {"count": 5, "host": np.arange(4), "local": jnp.full(2, 1.5), "empty": np.zeros((0, 2), np.int8)}
with td.Checkpointer(folder, max_to_keep=2) as checkpointer:
    for step in range(3):
        checkpointer.save(step, state, position={"row": 10 * step + me})
result("steps", checkpointer.steps())
like = td.Mirrored().init(make_state) | {"host": np.zeros(4, int)}
restored = checkpointer.restore(like)
result("read", [restored.step, restored.position, restored.state["host"].tolist()])
result("parts", [[part.data.shape for part in restored.state[name].addressable_shards] for name in ("sharded", "whole")])
result("equal", bool((restored.state["sharded"].addressable_data(0) == make_state()["sharded"]).all()))
"""

READ = """
restored = td.Checkpointer(folder).restore(jax.eval_shape(make_state), strategy=td.FSDP())
own = restored.state["sharded"].addressable_shards[0]
result("read", [restored.step, restored.position, bool((own.data == make_state()["sharded"][own.index]).all()), own.data.size])
"""


def make_state():
    return {
        "sharded": jax.numpy.arange(16 * 128, dtype=np.float32).reshape(16, 128),
        "whole": jax.numpy.arange(3.0),
        "key": jax.random.key(7),
    }


def values(state):
    return [np.asarray(state["sharded"]), np.asarray(state["whole"]), np.asarray(jax.random.key_data(state["key"]))]


@pytest.mark.one_in(2)
def test_parts_of_two_processes_are_one_checkpoint_for_any_number_of_them(cluster, place):
    for me, worker in enumerate(cluster(2, devices_per_worker=2).start(STATE + SAVE, place)):
        assert worker.wait() == 0, worker.log
        assert worker.result("steps") == [1, 2]
        assert worker.result("read") == [2, {"row": 20 + me}, [0, 1, 2, 3]]
        assert worker.result("parts") == [[[16, 128]] * 2, [[3]] * 2] and worker.result("equal")
    assert sorted(path.name.replace("_", "-") for path in epath.Path(place).iterdir()) == ["step-1", "step-2"]

    checkpointer = td.Checkpointer(place)
    one = checkpointer.restore(jax.eval_shape(make_state), strategy=td.FSDP(tuple(jax.devices()[:2])))
    jax.tree.map(np.testing.assert_array_equal, values(one.state), values(make_state()))
    assert len(one.state["sharded"].sharding.device_set) == 2 and one.positions == ({"row": 20}, {"row": 21})
    others = checkpointer.restore({"count": 0, "local": np.zeros(2, "f4"), "empty": np.zeros((0, 2), np.int8)}).state
    assert others["count"] == 5 and others["local"].tolist() == [1.5, 1.5] and others["empty"].shape == (0, 2)

    back = f"{place}/back"
    with td.Checkpointer(back) as checkpointer:
        checkpointer.save(9, td.Mirrored(tuple(jax.devices()[:3])).init(make_state), position={"row": 1})
    for worker in cluster(2).start(STATE + READ, back):
        assert worker.wait() == 0, worker.log
        assert worker.result("read") == [9, {"row": 1}, True, 16 * 64]


SAVE_NOISE = """
make = lambda: {str(i): jax.random.normal(jax.random.key(i), (256, 128)) for i in range(4)}
state = td.FSDP(min_size=1).init(make)
with td.Checkpointer(folder) as checkpointer:
    for step in range(2):
        checkpointer.save(step, state)
"""

RESTORE = """
restored = td.Checkpointer(folder).restore()
result("read", [restored.step, sorted(restored.state)])
"""


def test_damage_of_what_either_process_has_written_is_found_by_both(chaos, cluster, tmp_path):
    folder = tmp_path / "saved"
    for worker in cluster(2).start(STATE + SAVE_NOISE, str(folder)):
        assert worker.wait() == 0, worker.log
    newest, checkpointer = folder / "step-1", td.Checkpointer(folder)
    for file in files_in(newest):
        with chaos.damage(file, "flip"), pytest.raises(td.DataLossError, match=file.name):
            checkpointer.restore(step=1)
    own = [newest / "arrays" / f"ocdbt.process_{i}" for i in range(2)]
    # Each has half of the arrays, in one file or in several: it depends on when what is ready is written.
    assert all(sum(file.stat().st_size for file in files_in(part)) > 2 * 256 * 128 for part in own)
    largest = damages.largest_of(own[1])
    with chaos.damage(largest, "flip"):
        for worker in cluster(2).start(STATE + RESTORE, str(folder)):
            assert worker.wait() == 0, worker.log
            assert worker.result("read") == [0, [f"['{i}']" for i in range(4)]]
            assert worker.log.count("step-1 is damaged") == 1 and largest.name in worker.log


def test_what_one_process_cannot_write_fails_in_all_and_is_no_checkpoint(cluster, tmp_path):
    program = (
        STATE
        + """
def limit(size):
    if me == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

state = td.FSDP().init(make_state)
checkpointer = td.Checkpointer(folder)
checkpointer.save(1, state)
checkpointer.wait()
limit(100)
checkpointer.save(2, state)
try:
    checkpointer.wait()
except RuntimeError as error:
    message = str(error)
limit(resource.RLIM_INFINITY)
result("failed", [message, checkpointer.steps()])
checkpointer.save(3, state)
checkpointer.close()
result("steps", checkpointer.steps())
"""
    )
    for me, worker in enumerate(cluster(2).start(program, str(tmp_path / "saved"))):
        assert worker.wait() == 0, worker.log
        message, steps = worker.result("failed")
        assert f"Saving step 2 in {tmp_path / 'saved'} has failed" in message and steps == [1]
        assert "File too large" in message and ("process 1:" in message) == (me == 0)
        assert worker.result("steps") == [1, 3]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["step-1", "step-3"]


def test_processes_that_see_different_folders_are_told_so(cluster, tmp_path):
    program = STATE + 'td.Checkpointer(f"{folder}/{me}").save(1, make_state())'
    workers = cluster(2).start(program, str(tmp_path))
    assert all(worker.wait() for worker in workers)
    assert "is not the folder that process 0 has" in workers[1].log


TRAINING = (
    STATE
    + """
checkpointer = td.Checkpointer(folder, max_to_keep=2)
strategy = td.FSDP(min_size=1)
make = lambda: {str(i): jnp.zeros((64, 128)) for i in range(30)}
step = checkpointer.latest_step() or 0
state = checkpointer.restore(jax.eval_shape(make), strategy=strategy).state if step else strategy.init(make)
result("began", step)
add = strategy.jit(lambda state: (jax.tree.map(lambda x: x + 1, state), None))
while True:
    state, _ = add(state)
    step += 1
    checkpointer.save(step, state)
    result("before", step - 1)
"""
)


def test_a_process_that_is_killed_while_saving_leaves_only_whole_checkpoints(cluster, tmp_path):
    moments = random.Random(0)
    known, make = 0, lambda: {str(i): jax.numpy.zeros((64, 128)) for i in range(30)}
    for victim in (1, 0):
        workers = cluster(2).start(TRAINING, str(tmp_path / "saved"))
        began = [worker.wait_for_result("began") for worker in workers]
        assert began[0] == began[1] >= known, "what was saved is lost"
        while workers[victim].wait_for_result("before") < began[0] + 2:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        workers[victim].kill()
        assert workers[1 - victim].wait() != 0
        # `save` has returned for the step after it, and may have begun with the next one.
        known = max(worker.result("before") for worker in workers)
        restored = td.Checkpointer(tmp_path / "saved").restore(jax.eval_shape(make), strategy=td.Mirrored())
        assert known <= restored.step <= known + 2
        assert all((np.asarray(array) == restored.step).all() for array in restored.state.values())
