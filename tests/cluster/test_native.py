"""The native strategies over real processes: what two of them compute is what one computes."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax as td

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "flax_digits.py"


def load(name):
    spec = importlib.util.spec_from_file_location(name, TESTS / "programs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native_training, token_training = load("native_training"), load("token_training")

PROGRAM = f"""
import sys
sys.path.insert(0, {str(TESTS / "programs")!r})
import tfdist_jax as td
me = td.initialize().process_id
import jax, numpy as np
from native_training import *
from tfdist_jax._stateful._eager_replicas import EagerReplicas
STRATEGIES = {{"mirrored": td.Mirrored(), "fsdp": td.FSDP(min_size=8)}}
"""


def on_one(**options):
    devices = tuple(jax.devices()[:4])
    return {"mirrored": td.Mirrored(devices), "fsdp": td.FSDP(devices, min_size=8)}


def assert_same(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.slow("three strategies, alone and in two processes")
def test_strategies_over_two_processes_equal_one(cluster):
    program = (
        PROGRAM
        + """
for name, strategy in STRATEGIES.items():
    whole, state = train(strategy, batches(GLOBAL_SIZES, seed=0))
    result(f"training {name}", numbers(whole))
    result(f"shards {name}", [list(shard.data.shape) for shard in state[0]["w"].addressable_shards])
    result(f"together {name}", together(strategy))
    own = strategy.run(lambda x: x, strategy.split(np.arange(8)))
    result(f"own {name}", [values.tolist() for values in strategy.local_results(own)])
"""
    )
    workers = cluster(2, devices_per_worker=2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    for name, strategy in on_one().items():
        expected = native_training.numbers(
            native_training.train(strategy, native_training.batches(native_training.GLOBAL_SIZES, seed=0))[0]
        )
        for worker in workers:
            assert_same(worker.result(f"training {name}"), expected)
            assert worker.result(f"together {name}") == native_training.together(strategy)
            assert worker.result(f"shards {name}") == [[4 if name == "fsdp" else 16, 8]] * 2
        assert [worker.result(f"own {name}") for worker in workers] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.exhaustive
@pytest.mark.slow("five strategies, alone and in two processes")
def test_strategies_over_several_axes_in_two_processes_equal_one_device(cluster, tmp_path):
    """Also with uneven rows, batches of each process's own, and a checkpoint that another strategy goes on with."""
    program = (
        PROGRAM
        + f"""
shapes = jax.eval_shape(make_state)
for name, strategy in over_several_axes().items():
    whole, state = train(strategy, batches(GLOBAL_SIZES, seed=0))
    result(f"training {{name}}", numbers(whole))
    result(f"own {{name}}", numbers(train(strategy, batches(OWN_SIZES[me], seed=me), own=True)[0]))
    result(f"together {{name}}", together(strategy))
    with td.Checkpointer({str(tmp_path)!r} + "/" + name) as checkpointer:
        checkpointer.save(1, state)
        moved = checkpointer.restore(like=shapes, strategy=td.FSDP(min_size=8)).state
    result(f"moved {{name}}", numbers(td.FSDP().fetch(moved)) == numbers(strategy.fetch(state)))
"""
    )
    workers = cluster(2, devices_per_worker=4).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    train = lambda data: native_training.numbers(native_training.train(td.SingleDevice(), data)[0])
    expected = train(native_training.batches(native_training.GLOBAL_SIZES, seed=0))
    expected_own = train(native_training.joined_own())
    for name, strategy in native_training.over_several_axes().items():
        for worker in workers:
            assert_same(worker.result(f"training {name}"), expected)
            assert_same(worker.result(f"own {name}"), expected_own)
            assert worker.result(f"together {name}") == native_training.together(strategy)
            assert worker.result(f"moved {name}")


@pytest.mark.slow("three pipelines in two processes")
def test_pipelines_in_two_processes_equal_one_device(cluster, tmp_path):
    """Also where stages lie in both, with rows that do not divide, and a checkpoint that another strategy goes on with."""
    program = (
        PROGRAM
        + f"""
for name, strategy in pipelines().items():
    whole, state = train(strategy, batches(GLOBAL_SIZES, seed=0), loss_fn=STAGED, make_state=make_staged_state)
    result(name, numbers(whole))
    with td.Checkpointer({str(tmp_path)!r} + "/" + name) as checkpointer:
        checkpointer.save(1, state)
        moved = checkpointer.restore(like=jax.eval_shape(make_staged_state), strategy=td.FSDP(min_size=8)).state
    result(f"moved {{name}}", numbers(td.FSDP().fetch(moved)) == numbers(strategy.fetch(state)))
try:
    list(pipelines()["stages over processes"].prefetch(batches((8,), seed=0), own=True))
except NotImplementedError as error:
    result("own", str(error))
"""
    )
    workers = cluster(2, devices_per_worker=4).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    data = native_training.batches(native_training.GLOBAL_SIZES, seed=0)
    options = {"loss_fn": native_training.STAGED, "make_state": native_training.make_staged_state}
    expected = native_training.numbers(native_training.train(td.SingleDevice(), data, **options)[0])
    for worker in workers:
        for name in native_training.pipelines():
            assert_same(worker.result(name), expected)
            assert worker.result(f"moved {name}")
        assert "Give all processes the same batches" in worker.result("own")


@pytest.mark.slow("three strategies in two processes")
def test_parts_of_rows_and_rounded_gradients_in_two_processes(cluster):
    """In parts, gradients are those of one device; rounded ones are near to them, and the same in both processes."""
    program = (
        PROGRAM
        + """
for name, strategy, accumulate in [
    ("parts", td.HSDP(shards=4, min_size=8), 2),
    ("rounded", td.Compressed(td.Mirrored(), min_size=8), 1),
    ("rounded parts", td.Compressed(td.HSDP(shards=4, min_size=8), min_size=8), 2),
]:
    result(name, numbers(train(strategy, batches(GLOBAL_SIZES, seed=0), accumulate=accumulate)[0]))
"""
    )
    workers = cluster(2, devices_per_worker=4).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    data = native_training.batches(native_training.GLOBAL_SIZES, seed=0)
    expected = native_training.numbers(native_training.train(td.SingleDevice(), data)[0])
    for name in ("parts", "rounded", "rounded parts"):
        one, other = (worker.result(name) for worker in workers)
        assert one == other
        if name == "parts":
            assert_same(one, expected)
        else:
            for leaf, exact in zip(one, expected, strict=True):
                np.testing.assert_allclose(leaf, exact, atol=0.01)
        assert (name == "parts") or one != expected


def test_what_gradients_lose_in_two_processes_is_kept(cluster):
    program = """
        import jax.numpy as jnp, numpy as np
        import tfdist_jax as td
        td.initialize()
        exact = td.Mirrored()
        strategy = td.Compressed(exact, min_size=8, method=td.TopK(0.1))
        params = strategy.init(lambda: jnp.ones((16, 8)))
        loss = lambda params, x: ((x @ params) ** 2).mean()
        batch = strategy.put(np.random.default_rng(0).normal(size=(12, 16)).astype(np.float32))
        compute = strategy.value_and_grad(loss, has_aux=False)
        memory, given = strategy.init_compression(params), 0
        for _ in range(2):
            _, grads, memory = compute(params, batch, compression=memory)
            given = given + strategy.fetch(grads)
        whole = strategy.fetch(exact.value_and_grad(loss, has_aux=False)(params, batch)[1])
        kept = strategy.fetch(memory)["params"]["residual"]
        result("kept", kept.tolist())
        result("missing", float(np.abs(2 * whole - given - kept.sum(0)).max()))
        """
    workers = cluster(2, devices_per_worker=2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    one, other = (worker.result("kept") for worker in workers)
    assert one == other and len(one) == 4 and all(np.any(each) for each in one)
    for worker in workers:
        assert worker.result("missing") < 1e-5


@pytest.mark.slow("two strategies in two processes, and their programs on one device")
def test_experts_and_sequences_in_two_processes_equal_one_device(cluster):
    """Also with rows that do not divide evenly."""
    program = (
        PROGRAM
        + """
import token_training
for name, strategy in token_training.over_tokens().items():
    result(name, token_training.train(strategy))
"""
    )
    workers = cluster(2, devices_per_worker=4).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    expected = token_training.train(td.SingleDevice())
    for name in token_training.over_tokens():
        for worker in workers:
            assert_same(worker.result(name), expected)


@pytest.mark.slow("three strategies, alone and in two processes")
def test_each_process_may_train_on_rows_of_its_own(cluster):
    """Also where the replicas of one process do not lie next to each other, as on TPU slices."""
    program = (
        PROGRAM
        + """
mixed = tuple(jax.devices()[i] for i in (2, 0, 1, 3))
for name, strategy in {**STRATEGIES, "mixed": td.Mirrored(mixed)}.items():
    result(f"own {name}", numbers(train(strategy, batches(OWN_SIZES[me], seed=me), own=True)[0]))
strategy = td.Mirrored(mixed)
result("same mixed", numbers(train(strategy, batches(GLOBAL_SIZES, seed=0))[0]))
result("together mixed", together(strategy))
mine = EagerReplicas(strategy.mesh)
result("of all mixed", numbers(mine.of_all("tells", [np.int32(number) for number in mine.numbers])))
try:
    next(strategy.prefetch([], own=True))
except ValueError as error:
    result("none", str(error))
"""
    )
    workers = cluster(2, devices_per_worker=2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    data = native_training.joined_own()
    assert sum(len(batch["x"]) for batch in data) == sum(map(sum, native_training.OWN_SIZES))
    alone = td.SingleDevice()
    expected = native_training.numbers(native_training.train(alone, data)[0])
    same = native_training.numbers(
        native_training.train(alone, native_training.batches(native_training.GLOBAL_SIZES, seed=0))[0]
    )
    for worker in workers:
        for name in ("mirrored", "fsdp", "mixed"):
            assert_same(worker.result(f"own {name}"), expected)
        assert_same(worker.result("same mixed"), same)
        assert worker.result("together mixed") == native_training.together(on_one()["mirrored"])
        assert worker.result("of all mixed") == [0, 1, 2, 3]
        assert "no batches of its own" in worker.result("none")


def test_positions_of_a_processs_own_batches_are_those_of_the_last_used(cluster):
    """Also where a process has batches without rows, or fewer than the others."""
    program = """
        import tfdist_jax as td
        me = td.initialize().process_id
        import numpy as np

        SIZES = [[2, 0, 3, 1, 0, 4, 2], [1, 2, 0]][me]

        class Source:
            def __init__(self):
                self.at = 0
            def __iter__(self):
                return self
            def __next__(self):
                if self.at == len(SIZES):
                    raise StopIteration
                self.at += 1
                return np.full(SIZES[self.at - 1], 100.0 * me + self.at)
            def get_state(self):
                return self.at
            def set_state(self, at):
                self.at = at

        strategy = td.Mirrored()
        rows = lambda batch: strategy.fetch(strategy.evaluate(lambda scale, x: x * scale)(1.0, batch)).tolist()
        result("whole", [rows(batch) for batch in strategy.prefetch(Source(), own=True)])
        for used in range(6):
            batches = strategy.prefetch(Source(), own=True)
            first = [rows(next(batches)) for _ in range(used)]
            again = strategy.prefetch(Source(), own=True)
            again.set_state(batches.get_state())
            batches.close()
            result(str(used), first + ([rows(batch) for batch in again] if used < 5 else []))
    """
    workers = cluster(2, devices_per_worker=2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    expected = [[1, 1, 101], [3, 3, 3, 102, 102], [4], [6, 6, 6, 6], [7, 7]]
    for worker in workers:
        assert worker.result("whole") == expected
        assert [worker.result(str(used)) for used in range(6)] == [expected] * 6


def test_results_of_the_whole_batch_are_the_same_in_all_processes(cluster):
    program = """
        import tfdist_jax as td
        td.initialize()
        import jax, jax.numpy as jnp, numpy as np

        strategy = td.Mirrored()

        def loss_fn(w, x):
            return ((w * x).sum(), x.sum()), {"n": len(x), "hits": (x > 2).sum(), "rows": x * 2, "mean": x.mean()}

        for rows in (8, 7, 1):
            batch = np.arange(1.0, rows + 1, dtype=np.float32)
            (loss, aux), grad = strategy.value_and_grad(loss_fn)(jnp.float32(3), strategy.put(batch))
            numbers = strategy.fetch({"loss": loss, "grad": grad, **aux})
            result(str(rows), jax.tree.map(lambda leaf: leaf.tolist(), numbers))
        try:
            strategy.value_and_grad(lambda w, x: (w * x.mean(), x.max()))(jnp.float32(3), strategy.put(batch))
        except ValueError as error:
            result("refused", str(error))
    """
    workers = cluster(2, devices_per_worker=2).start(program)
    assert [worker.wait() for worker in workers] == [0, 0], workers[0].log + workers[1].log
    for rows in (8, 7, 1):
        x = np.arange(1.0, rows + 1)
        expected = {
            "loss": 3,
            "grad": 1,
            "n": rows,
            "hits": int((x > 2).sum()),
            "rows": (x * 2).tolist(),
            "mean": x.mean(),
        }
        for worker in workers:
            assert worker.result(str(rows)) == expected
    assert all("neither a sum nor a mean" in worker.result("refused") for worker in workers)


def test_batches_that_should_be_the_same_are_compared(cluster):
    program = (
        PROGRAM
        + """
list(td.Mirrored().prefetch([np.ones((8 + 2 * me, 3))]))
"""
    )
    workers = cluster(2).start(program)
    assert all(worker.wait() for worker in workers)
    assert any("differ in their sizes" in worker.log for worker in workers), workers[0].log + workers[1].log


@pytest.mark.exhaustive
@pytest.mark.slow("the example under two workers and alone, started afresh")
@pytest.mark.parametrize("strategy", ["mirrored", "fsdp"])
def test_the_example_has_the_same_losses_over_two_processes(strategy, tmp_path):
    options = ("--strategy", strategy, "--epochs", "1")
    launch = ("-m", "tfdist_jax", "launch", "--workers", "2", str(EXAMPLE), *options, "--devices", "2")
    texts = []
    for command in ((str(EXAMPLE), *options, "--devices", "4"), launch):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert ran.returncode == 0, ran.stderr
        texts.append(re.findall(r"^(?:epoch \d+ loss|.* test accuracy).*$", ran.stdout, re.MULTILINE))
    assert texts[0] == texts[1]
    assert f"{strategy} on 4 device(s)" in texts[0][-1]


def test_a_step_that_is_too_large_is_refused_in_all_processes(cluster):
    program = """
        import tfdist_jax as td
        td.initialize()
        import jax, jax.numpy as jnp

        strategy, count = td.Mirrored(), 8

        @strategy.jit
        def step(state, x):
            numbers = jax.lax.broadcasted_iota(jnp.float32, (1, count), 1)
            return state + 1, jnp.sort(jnp.sin(x[:, None] * numbers))[:, 3].sum()

        state = strategy.init(lambda: jnp.ones(3))
        state, _ = step(state, jnp.ones(8))
        for count, rows in ((1 << 36, 16), (1 << 36, 16), (8, 8)):
            try:
                state, _ = step(state, jnp.ones(rows))
            except RuntimeError as error:
                print(error)
        result("state", strategy.fetch(state).tolist())
    """
    for worker in cluster(2).start(program):
        assert worker.wait() == 0, worker.log
        assert worker.log.count("Out of memory: `step` needs") == 2
        assert worker.result("state") == [3, 3, 3]
