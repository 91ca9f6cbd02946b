"""A process that waits for another one says for whom, and in which lines both are."""

import re
import time

import pytest
from environment import NEVER_S

NATIVE = """
import time
import jax, jax.numpy as jnp, numpy as np
import tfdist_jax as td
me = td.initialize().process_id
strategy = td.Mirrored()
@strategy.jit
def step(state, x):
    return state + x.sum(), x.sum()
state = strategy.init(lambda: jnp.zeros([]))
def train(steps):
    global state
    for _ in range(steps):
        state, out = step(state, strategy.put(np.ones([6], "f4")))
        if steps == 1:
            np.asarray(out)
train(3)
jax.block_until_ready(state)
result("ready", True)
"""
FACADE = """
import time
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.ones((8, 1), "f4")
model.fit(x, x, verbose=0)
"""
LIMITED = """
Options = tf.distribute.experimental.CommunicationOptions
for seconds in (60, 2, 30, 0):
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=Options(timeout_seconds=seconds))
"""
SOON = {"TFDIST_WARN_TIMEOUT_S": "2", "TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S}


def warning(log):
    return "".join(re.findall(r"worker \d has waited .*", log))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("program", "line", "what"),
    [
        (
            NATIVE + "while me == late and not released.exists(): time.sleep(0.1)\ntrain(1)",
            r"[^`]*",
            "the result of a step",
        ),
        (
            FACADE + "while me == late and not released.exists(): time.sleep(0.1)\nmodel.fit(x, x, verbose=0)",
            r"model.fit\(x, x, verbose=0\)",
            "`fit`",
        ),
    ],
)
def test_the_lines_of_both_are_said(cluster, program, line, what, late):
    workers = cluster(2)
    workers.start(f"late = {late}\n{program}", env=SOON)
    waiting = workers.workers[1 - late]
    waiting.wait_for_log("has waited")
    workers.workers[late].release()
    workers.succeed()
    wanted = (
        rf"worker {1 - late} has waited \d+ s for worker {late} at \S*program.py:\d+ \(`{line}`\): {what}. "
        rf"worker {late} is at \S*program.py:\d+ \(`while me == late and not released.exists\(\): time.sleep\(0.1\)`\)"
    )
    assert re.search(wanted, waiting.log), waiting.log
    assert "has waited" not in workers.workers[late].log


@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_frozen_worker_is_named_long_before_its_heartbeat(cluster, victim):
    workers = cluster(2).start(NATIVE + "while True:\n    train(1)", env=SOON)
    for worker in workers:
        worker.wait_for_result("ready")
    time.sleep(2)
    workers[victim].freeze()
    other = workers[1 - victim]
    other.wait_for_log("has waited .*")
    assert re.search(
        rf"has waited \d+ s for worker {victim} at \S*program.py:\d+ \(`.*`\): the result of a step. "
        rf"worker {victim} does not answer; it was last seen \d+ s ago at \S*program.py:\d+ \(`",
        warning(other.log),
    ), other.log


@pytest.mark.slow("trains for longer than the limit")
def test_nobody_is_named_while_all_go_on(cluster):
    workers = cluster(2)
    workers.start(
        NATIVE + "for _ in range(60):\n    train(1)\n    time.sleep(0.2)", env={**SOON, "TFDIST_WARN_TIMEOUT_S": "8"}
    )
    workers.succeed()
    assert not any(warning(worker.log) for worker in workers.workers)


def test_a_launcher_passes_on_when_to_warn(launch):
    launcher = launch(
        NATIVE.replace('result("ready", True)', "if me: hold()\ntrain(1)"),
        "--workers",
        "2",
        "--warn-timeout",
        "1",
    )
    launcher.wait_for_log(r"worker 0 has waited \d+ s for worker 1 at .*: the result of a step")
    launcher.release()
    assert launcher.wait() == 0, launcher.log


def ended(workers):
    """Whether all workers have ended to be started again."""
    for worker in workers.workers:
        worker.wait_for_result("ready")
    return workers.wait() == [75] * len(workers.workers)


@pytest.mark.parametrize(
    ("late", "program", "line", "limit"),
    [
        (
            2,
            NATIVE + "if me == late: time.sleep(600)\ntrain(1)",
            "state, out = step.*",
            "3 s: `wait_s`, or TFDIST_WAIT_TIMEOUT_S",
        ),
        (
            0,
            FACADE + LIMITED + "result('ready', True)\nif me == late: time.sleep(600)\nmodel.fit(x, x, verbose=0)",
            r"model.fit\(x, x, verbose=0\)",
            "2 s: `timeout_seconds` of the strategy's `CommunicationOptions`",
        ),
    ],
)
def test_a_wait_beyond_the_limit_ends_all(cluster, late, program, line, limit):
    # Two workers wait for the third one and for each other, but it is the third one that keeps them.
    workers = cluster(3)
    workers.start(
        f"late = {late}\n{program}", env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S, "TFDIST_WAIT_TIMEOUT_S": "3"}
    )
    assert ended(workers), [worker.log for worker in workers.workers]
    wanted = (
        rf"worker \d has waited \d+ s for worker {late} at \S*program.py:\d+ \(`{line}`\): .*\. "
        rf"worker {late} is at \S*program.py:\d+ \(`if me == late: time.sleep\(600\)`\), for \d+ s\. "
        rf"That is longer than the limit of {limit}\. All processes end now\."
    )
    for worker in workers.workers:
        assert re.search(wanted, worker.log), worker.log


def test_a_frozen_first_worker_is_waited_for_no_longer_than_the_limit(cluster):
    # It cannot be asked who keeps the others waiting.
    env = {"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S, "TFDIST_WAIT_TIMEOUT_S": "3"}
    first, other = cluster(2).start(NATIVE + "while True:\n    train(1)", env=env)
    other.wait_for_result("ready")
    first.freeze()
    assert other.wait() == 75
    assert re.search(r"worker 1 has waited \d+ s for worker 0 .*worker 0 does not answer; it was last seen", other.log)


def test_workers_that_wait_for_each_other_are_ended(cluster):
    # One is inside a collective, which nothing can interrupt; the other one waits on the host.
    program = NATIVE + "if me: next(strategy.prefetch([np.ones([4])], own=True))\ntrain(1)"
    workers = cluster(2).start(program, env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S, "TFDIST_WAIT_TIMEOUT_S": "3"})
    assert [worker.wait() for worker in workers] == [75, 75]
    for worker in workers:
        assert re.search(r"worker 0 has waited \d+ s (for|at) .*: the result of a step", worker.log), worker.log
        assert re.search(r"worker 1 has waited \d+ s (for|at) .*: the next batch", worker.log), worker.log


@pytest.mark.slow("waits and compiles for longer than the limit")
def test_what_is_no_wait_for_others_ends_nothing(cluster):
    # Slow in turns, for longer than the limit in all; both wait for data of their own; one of them compiles.
    program = """
for i in range(4):
    if i % 2 == me: time.sleep(2.5)
    train(1)
def slow():
    yield np.ones([4], "f4")
    time.sleep(10)
for batch in strategy.prefetch(slow(), own=True):
    state, out = step(state, batch)
train(1)
def compile_s(count):
    def sorts(x):
        for i in range(count):
            x = jnp.sort(x * 1.5 + i)[::-1]
        return x
    lowered = jax.jit(sorts).lower(np.ones([7], "f4"))
    started = time.monotonic()
    lowered.compile()
    return time.monotonic() - started
if me:
    # For more than the limit on any machine.
    result("compile_s", compile_s(int(12 / compile_s(200) * 200)))
train(1)
"""
    workers = cluster(2)
    compiles = {"TFDIST_COMPILATION_CACHE": "off", "XLA_FLAGS": ""}
    workers.start(
        NATIVE + program, env={"TFDIST_HEARTBEAT_TIMEOUT_S": NEVER_S, "TFDIST_WAIT_TIMEOUT_S": "8", **compiles}
    )
    workers.succeed()


def test_a_launcher_starts_those_again_that_have_waited_too_long(launch):
    program = NATIVE.replace(
        'result("ready", True)', "if me and os.environ['TFDIST_JAX_RESTART'] == '0': time.sleep(600)\ntrain(1)"
    )
    launcher = launch(program, "--workers", "2", "--wait-timeout", "3", "--max-restarts", "1")
    assert launcher.wait() == 0, launcher.log
    assert "That is longer than the limit of 3 s" in launcher.log
    assert "restart 1 of 1" in launcher.log


def test_options_of_one_call_have_no_limit_of_their_own(cluster):
    program = """
import time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id
options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=1)
@tf.function
def step():
    context = tf.distribute.get_replica_context()
    return context.all_reduce("sum", context.all_gather(tf.ones([2]), 0, options), options)
for late in (0, 4):
    if me: time.sleep(late)
    sums = strategy.experimental_local_results(strategy.run(step))
result("sums", [each.numpy().tolist() for each in sums])
"""
    workers = cluster(2)
    workers.start(program)
    workers.succeed()
    assert workers.results("sums") == [[[2.0] * 4]] * 2
    for worker in workers.workers:
        assert worker.log.count("`timeout_seconds` in the options of one call has no effect") == 1, worker.log
