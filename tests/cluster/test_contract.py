"""Before a program runs over several processes for the first time, they compare what they are about to run."""

import re
from collections import Counter

import pytest

COUNTING = """
import tfdist_jax._multiprocess._agreed_program as programs
agreed = []
def counting(what, fields, agree=programs.agree):
    agreed.append(what)
    agree(what, fields)
programs.agree = counting
"""
NATIVE = """
import jax, jax.numpy as jnp, numpy as np
import tfdist_jax as td
me = td.initialize().process_id
strategy = td.Mirrored()
width, rows, dtype, extra, steps, whole = 8, 4, "f4", 0.0, 1, False
"""
TRAIN = """
def make_state(key):
    return {"w": jax.random.normal(key, [3, width]), "b": jnp.zeros([width])}
def loss(params, x):
    return ((x @ params["w"] + params["b"] + extra) ** 2).mean(), {}
@strategy.jit
def train_step(state, x):
    (value, _), grads = strategy.value_and_grad(loss)(state, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), value
state = strategy.init(make_state, jax.random.key(0))
for i in range(steps):
    batch = strategy.put(np.ones([rows - 2 * (i % 2), 3], dtype))
    if whole:
        batch = jax.make_array_from_process_local_data(state["b"].sharding, np.ones([rows, 3], dtype))
    state, value = train_step(state, batch)
result("loss", float(value))
"""
# Calls that JAX has no short way for pass through its Python.
LATER = """
import sys
through_python = []
def noting(frame, event, _):
    if event == "call" and frame.f_code.co_filename.endswith("pjit.py"):
        through_python.append(frame.f_code.co_name)
batch = strategy.put(np.ones([rows, 3], dtype))
sys.setprofile(noting)
for i in range(3):
    state, value = train_step(state, batch)
sys.setprofile(None)
result("through Python", through_python)
"""
FACADE = """
import numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id
units, spread, given = 8, 1, {}
x = np.ones((160, 4), "f4")
"""
KERAS = """
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(units), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    scale = tf.Variable(2.0)
@tf.function
def add(rows):
    return strategy.run(lambda rows: tf.reduce_sum(rows * scale) * spread, args=(rows,))
def loop(count):
    data = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(8)))
    for _ in range(count):
        add(next(data))
"""


def errors(workers):
    """What all workers fail with, which they must do at once."""
    codes = [worker.wait() for worker in workers]
    assert all(codes), "".join(worker.log for worker in workers)
    return ["".join(re.findall(r"DisagreementError: .*", worker.log)) or worker.log for worker in workers]


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        ("width += me", r"worker 1 has float32\[9\] as result\['b'\] .*, worker 0 has float32\[8\]"),
        ("rows += 2 * me", r"worker 1 has \(6, 3\) as \[1\] shape .*, worker 0 has \(4, 3\)"),
        ("dtype = 'f2' if me else 'f4'", r"worker 1 has float16 as \[1\] dtype .*, worker 0 has float32"),
        (
            "whole = me",
            r"worker 1 has whole on {'data': 2} as \[1\] sharding .*, worker 0 has P\('data',\) on {'data': 2}",
        ),
        ("extra = float(me)", r"worker 1 has %\S+ = .* dense<1.0\S+ .* as program, worker 0 has %\S+ = .* dense<0.0"),
    ],
)
def test_what_differs_in_a_native_step_is_an_error_everywhere(cluster, difference, said):
    for message in errors(cluster(2).start(NATIVE + difference + TRAIN)):
        assert re.search(said, message), message
        assert re.search(r"worker 1 is before the step `\w+`, at \S*program.py:\d+ \(`state", message), message


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "spread = 1 + me" + KERAS + "loop(1)",
            r"as program.* before the step `add`, at \S*:\d+ \(`add\(next\(data\)\)`",
        ),
        (
            KERAS + "model.compile('sgd' if me else 'adam', 'mse'); model.fit(x, x[:, :1], verbose=0)",
            "The processes wait for each other at different points: .*the same variable with a first value",
        ),
        (
            KERAS + "model.fit(x, x[:, :1], steps_per_epoch=2 + me, verbose=0)",
            r"worker 1 has 3 as steps_per_epoch, worker 0 has 2. worker 1 is before `fit`, at \S*:\d+ \(`model.fit",
        ),
        (
            KERAS + "(model.fit if me else model.evaluate)(x, x[:, :1], verbose=0)",
            "worker 1 has `fit` as what comes next, worker 0 has `evaluate`",
        ),
        (
            KERAS + "if me: model.predict(x, verbose=0)\nelse: tf.function(lambda: strategy.run(lambda: scale + 1))()",
            "worker 1 has `predict` as what comes next, worker 0 has the step `<lambda>`",
        ),
    ],
)
def test_what_differs_in_a_tensorflow_program_is_an_error_everywhere(cluster, program, said):
    for message in errors(cluster(2).start(FACADE + program)):
        assert re.search(said, message), message


def test_a_worker_that_leaves_is_not_waited_for(cluster):
    program = FACADE + KERAS + "if me == int(os.environ['LEAVES']): raise SystemExit\nmodel.fit(x, x[:, :1], verbose=0)"
    for leaves in (0, 1):
        workers = cluster(2).start(program, env={"LEAVES": str(leaves)})
        assert workers[1 - leaves].wait() != 0
        assert f"worker {leaves} has ended its program" in workers[1 - leaves].log
        assert "`fit`" in workers[1 - leaves].log


def test_equal_steps_are_agreed_on_once_whatever_their_hashes(cluster):
    """Twenty steps with batches of two sizes: making the state, and two programs."""
    seeds = lambda index: {"PYTHONHASHSEED": str(index + 1)}
    cluster_ = cluster(2)
    cluster_.start(NATIVE + COUNTING + "steps = 20" + TRAIN + LATER + "result('agreed', agreed)", env=seeds)
    cluster_.succeed()
    assert cluster_.results("through Python") == [[], []]
    assert cluster_.results("agreed") == [["the step `make_state`", *["the step `train_step`"] * 2]] * 2


def test_tensorflow_programs_are_agreed_on_once_whatever_their_hashes(cluster):
    program = """
    model.fit(x, x[:, :1], batch_size=8, epochs=2, validation_data=(x, x[:, :1]), validation_batch_size=20, verbose=0)
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    model.predict(x, batch_size=8, verbose=0)
    loop(20)
    result("agreed", agreed)
    """.replace("\n    ", "\n")
    cluster_ = cluster(2)
    cluster_.start(FACADE + COUNTING + KERAS + program, env=lambda index: {"PYTHONHASHSEED": str(index + 1)})
    cluster_.succeed()
    assert (
        cluster_.results("agreed")
        == [[f"the step `{n}_step`" for n in ("train", "test", "predict")] + ["the step `add`"]] * 2
    )


def test_programs_are_traced_once_for_each_shape(cluster):
    """Also those whose running shows, and those that the functions of a Keras model are part of."""
    program = """
    import jax, jax.numpy as jnp, tfdist_jax as td
    native = td.Mirrored()
    def loss(params, x):
        print("traced native", x.shape[0])
        jax.debug.print("ran native {}", x.shape[0])
        return ((x @ params) ** 2).mean(), {}
    @native.jit
    def step(params, x):
        value, gradient = native.value_and_grad(loss)(params, x)
        return params - 0.1 * gradient, value
    params = native.init(lambda: jnp.ones([3]))
    for rows in (4, 8, 4, 8):
        params, _ = step(params, native.put(np.ones([rows, 3], "f4")))

    def one(rows):
        print("traced loop", rows.shape[0])
        tf.print("ran loop", rows.shape[0])
        return tf.reduce_sum(rows)
    add = tf.function(lambda rows: strategy.run(one, args=(rows,)))
    for size in (8, 16):
        rows = tf.data.Dataset.from_tensor_slices(x[:32]).batch(size)
        for batch in strategy.experimental_distribute_dataset(rows):
            add(batch)

    class Model(tf.keras.Sequential):
        def train_step(self, *args):
            print("traced fit")
            return super().train_step(*args)
    with strategy.scope():
        model = Model([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    """.replace("\n    ", "\n")
    # Native losses are traced with the rows of all replicas, too.
    native = {"traced native 2": 1, "traced native 4": 2, "traced native 8": 1}
    once = ["traced loop 4", "traced loop 8", "traced fit"]
    for worker in cluster(2).start(FACADE + program):
        assert worker.wait() == 0, worker.log
        shown = Counter(re.findall(r"^(?:traced|ran) .*", worker.log, re.MULTILINE))
        ran = {"ran native 2": 2, "ran native 4": 2, "ran loop 4": 4, "ran loop 8": 2}
        assert shown == dict.fromkeys(once, 1) | native | ran


def test_a_function_whose_tracing_has_failed_is_agreed_on_when_it_succeeds(cluster):
    program = """
    fails = True
    def loss(params, x):
        if fails:
            raise ValueError("not yet")
        return ((x @ params["w"] + params["b"]) ** 2).mean(), {}
    for _ in range(2):
        try:
            train_step(state, batch)
        except ValueError as error:
            assert str(error) == "not yet"
    fails = False
    state, value = train_step(state, batch)
    """.replace("\n    ", "\n")
    steps = TRAIN.replace("range(steps)", "range(0)").replace('result("loss", float(value))', "")
    batch = 'batch = strategy.put(np.ones([rows, 3], "f4"))\n'
    cluster_ = cluster(2)
    cluster_.start(NATIVE + COUNTING + steps + batch + program + LATER + "result('agreed', agreed)")
    cluster_.succeed()
    assert cluster_.results("through Python") == [[], []]
    assert cluster_.results("agreed") == [["the step `make_state`", "the step `train_step`"]] * 2


def test_what_one_process_traces_again_is_agreed_on_already(cluster):
    """JAX's caches may drop a program in one process only, which the others do not know."""
    again = """
    from tfdist_jax._cluster import DisagreementError
    if me:
        jax.clear_caches()
    state, value = train_step(state, batch)
    width += me
    try:
        strategy.init(make_state, jax.random.key(0))
    except DisagreementError:
        result("agreed", agreed)
    """.replace("\n    ", "\n")
    cluster_ = cluster(2)
    cluster_.start(NATIVE + COUNTING + TRAIN + again)
    cluster_.succeed()
    names = ["make_state", "train_step", "make_state"]
    assert cluster_.results("agreed") == [[f"the step `{name}`" for name in names]] * 2


def test_a_call_on_which_the_processes_disagree_fails_however_often(cluster):
    twice = """
    from tfdist_jax._cluster import DisagreementError
    for _ in range(2):
        try:
            train_step(state, batch)
        except DisagreementError as error:
            assert "dense<1.0" in str(error)
            failed += 1
    result("failed", failed)
    """.replace("\n    ", "\n")
    steps = TRAIN.replace("range(steps)", "range(0)").replace('result("loss", float(value))', "")
    batch = 'failed, extra = 0, float(me)\nbatch = strategy.put(np.ones([rows, 3], "f4"))\n'
    cluster_ = cluster(2)
    cluster_.start(NATIVE + steps + batch + twice)
    cluster_.succeed()
    assert cluster_.results("failed") == [2, 2]
