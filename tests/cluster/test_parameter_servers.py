"""Parameter servers and workers as processes, under `tfdist-jax launch`: they train, go, freeze and come back."""

import pytest
from environment import LIMIT_S

pytestmark = pytest.mark.slow("starts of Ray, and of an interpreter for each server and worker")

SERVE = """
import signal, sys, threading
import numpy as np
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
task = f"{resolver.task_type}{resolver.task_id}"
attempt = int(os.environ["TFDIST_JAX_RESTART"])
result(f"pid_{task}_{attempt}", os.getpid())
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc", start=True
    )
    server.join()
"""

STRATEGY = """
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def pid(actor):
    import ray
    return ray.get(actor.ping.remote())["pid"]

def pid_of_worker(index):
    return pid(strategy.workers[index]._peer.actor)

def pid_of_task(task):
    return max(json.loads(path.read_text()) for path in released.parent.glob(f"pid_{task}_*"))
"""

LOOP = """
with strategy.scope():
    total, count = tf.Variable(0.0), tf.Variable(0)
    large = tf.Variable(tf.zeros([50_000]))  # It goes through shared memory, in both directions.

def add(x):
    count.assign_add(1)
    total.assign_add(tf.reduce_sum(tf.square(x)))
    large.assign_add(tf.ones([50_000]) + 0.0 * (x[0] + large))
    return x

@tf.function
def step(iterator):
    return strategy.run(add, args=(next(iterator),))

def dataset_fn(context=None):
    return tf.data.Dataset.from_tensors(tf.ones([4])).repeat()

iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))

def train(steps):
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]
    coordinator.join()
    return [float(np.sum(result.fetch())) for result in results]
"""


def test_custom_loops_and_fits_go_on_while_workers_die_and_freeze(launch):
    program = (
        SERVE
        + STRATEGY
        + LOOP
        + """
import keras
assert train(4) == [4.0] * 4
# A number that is made of a Python value is one of the process that makes the dataset's elements.
of_processes = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(100).map(lambda x: os.getpid())))
find = tf.function(lambda iterator: next(iterator))
found = [coordinator.schedule(find, args=(of_processes,)) for _ in range(20)]
result("made", [sorted({int(pid.fetch()) for pid in found}), sorted(map(pid_of_worker, range(2)))])
done = [float(total)]
rng = np.random.default_rng(0)

def strike(kind, index):
    process = pid_of_task(f"worker{index}") if kind == "task" else pid_of_worker(index)
    os.kill(process, signal.SIGSTOP if kind == "freeze" else signal.SIGKILL)

def strike_some(kinds):
    for index, kind in zip(rng.permutation(2), kinds):
        strike(kind, index)

for kinds in (["actor"], ["task"], ["freeze"], ["actor", "freeze"]):
    timer = threading.Timer(rng.uniform(0, 0.2), strike_some, (kinds,))
    timer.start()
    train(100)
    timer.join()
    train(10)
    done.append(float(total))
assert set(large.numpy()) == {float(count)}
result("loop", [done, int(count), coordinator.statistics.closures])

from sklearn.datasets import load_digits
x, y = load_digits(return_X_y=True)
order = np.random.RandomState(0).permutation(len(x))
x, y = (x[order] / 16).astype("f4"), y[order]
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
timer = threading.Timer(rng.uniform(0, 2), strike, ("actor", int(rng.integers(2))))
timer.start()
data = tf.data.Dataset.from_tensor_slices((x[:1500], y[:1500])).shuffle(1500).batch(50)
model.fit(data, epochs=10, verbose=0)
timer.join()
found = model.evaluate(tf.data.Dataset.from_tensor_slices((x[1500:], y[1500:])).batch(99), verbose=0, return_dict=True)
result("fit", [found["accuracy"], int(model.optimizer.iterations)])
"""
    )
    options = ("--workers", "2", "--parameter-servers", "2", "--max-restarts", "3", "--heartbeat-timeout", "5")
    launcher = launch(program, *options)
    assert launcher.wait(2 * LIMIT_S) == 0, launcher.log
    made, workers = launcher.result("made")
    assert made and set(made) <= set(workers)
    done, count, closures = launcher.result("loop")
    assert done == [16.0, 456.0, 896.0, 1336.0, 1776.0] and count == 444 and closures == 464
    accuracy, iterations = launcher.result("fit")
    assert accuracy > 0.9 and iterations == 300


@pytest.mark.parametrize(
    "strikes",
    [
        pytest.param(["kill"], id="killed"),
        pytest.param(["kill", "coordinator"], id="killed, and the coordinator", marks=pytest.mark.exhaustive),
        pytest.param(["freeze"], id="frozen", marks=pytest.mark.exhaustive),
    ],
)
def test_servers_and_coordinators_that_go_end_the_group_which_goes_on_from_its_checkpoint(launch, strikes):
    program = (
        SERVE
        + STRATEGY
        + LOOP
        + f"strikes = {strikes}\n"
        + """
checkpoint = tf.train.Checkpoint(total=total, count=count, large=large)
manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
result(f"restored{attempt}", int(count))

def strike(server, signal_number):
    os.kill(pid(strategy._servers[1].servers.peers[server].actor), signal_number)

train(10)
manager.save()
if attempt < len(strikes):
    if strikes[attempt] == "coordinator":
        os.kill(os.getpid(), signal.SIGKILL)
    which = (1, signal.SIGKILL) if strikes[attempt] == "kill" else (0, signal.SIGSTOP)
    threading.Timer(np.random.default_rng(0).uniform(0, 0.2), strike, which).start()
    try:
        while True:
            train(10)
    except tf.errors.UnavailableError as error:
        result("error", str(error))
        raise
assert set(large.numpy()) == {float(count)}
result("end", [float(total), int(count)])
"""
    )
    options = ("--workers", "1", "--parameter-servers", "2", "--max-restarts", "2", "--heartbeat-timeout", "5")
    launcher = launch(program, *options)
    assert launcher.wait(2 * LIMIT_S) == 0, launcher.log
    assert "A server has gone, and the variables that it held with it" in launcher.result("error")
    counts = [10 * i for i in range(len(strikes) + 2)]
    assert [launcher.result(f"restored{i}") for i in range(len(strikes) + 1)] == counts[:-1]
    assert launcher.result("end") == [4.0 * counts[-1], counts[-1]]


@pytest.mark.exhaustive
def test_who_does_not_know_the_secret_takes_no_part(launch):
    program = (
        SERVE
        + STRATEGY
        + """
import subprocess
code = "import ray; ray.init(address=os.environ['RAY_AT'], logging_level=50)"
env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k != "TFDIST_CLUSTER_SECRET"}
env |= {"RAY_AT": strategy.workers[0]._cluster.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong"}
try:
    ended = subprocess.run([sys.executable, "-c", "import os; " + code], env=env, capture_output=True, text=True, timeout=20)
    told = [ended.returncode, ended.stderr]
except subprocess.TimeoutExpired as error:
    told = [1, (error.stderr or b"").decode()]
result("stranger", told)
"""
    )
    launcher = launch(program, "--workers", "1", "--parameter-servers", "1")
    assert launcher.wait(2 * LIMIT_S) == 0, launcher.log
    code, told = launcher.result("stranger")
    assert code != 0 and "InvalidAuthToken" in told


NATIVE = """
import signal
import jax.numpy as jnp, numpy as np, optax, tfdist_jax as td
attempt, task = os.environ["TFDIST_JAX_RESTART"], json.loads(os.environ["TFDIST_JAX_CLUSTER"])["task"]
result(f"pid_{task['type']}{task['index']}_{attempt}", os.getpid())
td.ParameterServer.serve()

def loss_fn(params, batch):
    errors = batch["x"] @ params["w"] - batch["y"]
    return (errors**2).mean(), {}

def batches(seed, count):
    random = np.random.default_rng(seed)
    for _ in range(count):
        x = random.normal(size=(16, 8)).astype(np.float32)
        yield {"x": x, "y": x @ np.arange(8, dtype=np.float32)}
"""


@pytest.mark.exhaustive
def test_native_trainings_take_the_servers_and_workers_of_their_cluster(launch):
    program = (
        NATIVE
        + """
try:
    td.ParameterServer(loss_fn, optax.sgd(0.1), workers=3)
except ValueError as error:
    result("wrong", str(error))
for mode in (td.Asynchronous(), td.Asynchronous(max_staleness=0), td.Synchronous(), td.LocalSGD(sync_every=5)):
    with td.ParameterServer(loss_fn, optax.sgd(0.1), mode=mode) as server:
        server.init({"w": jnp.zeros(8)})
        for number, batch in enumerate(batches(0, 80)):
            if number == 20 and mode == td.Asynchronous():
                os.kill(json.loads((released.parent / "pid_worker0_0").read_text()), signal.SIGKILL)
            server.schedule(batch)
        server.join()
        told = server.statistics
        result(repr(mode).partition("(")[0] + str(told.rounds) + str(getattr(mode, "max_staleness", "")),
               [np.asarray(server.params["w"]).tolist(), told.closures, told.pulled_bytes])
"""
    )
    launcher = launch(program, "--workers", "2", "--parameter-servers", "1", "--max-restarts", "1")
    assert launcher.wait(2 * LIMIT_S) == 0, launcher.log
    assert "has 2. Leave it out" in launcher.result("wrong")
    for name, pulls in (("Asynchronous0None", 80), ("Asynchronous00", 80), ("Synchronous40", 80), ("LocalSGD8", 16)):
        weights, closures, pulled = launcher.result(name)
        assert weights == pytest.approx(range(8), abs=0.1) and closures == 80 and pulled >= pulls * 32
