"""Asynchronous training with parameter servers, here and in TensorFlow, as JSON.

`python benchmarks/bench_parameter_server.py [steps tiny small waiting] [--processes] [--rounds 7] [--out FILE]`

Two workers and two servers, the same program under both. `steps`: training steps of a 784-1024-1024-10 perceptron, 256 rows each, whose
gradients change the weights by `assign_sub`. `tiny`: functions that add 1 to a variable, for which no worker is asked where servers are
processes. `small`: functions that add the sum of an argument's 8 squares, which a worker computes. `waiting`: functions that wait for 20
ms, in place of a computation on a device of their own, and then add 1, for 1 to 8 workers. Contenders run in processes of their own, in
turn; with `--processes` their servers and workers do so, too (`waiting` has none such), and `bytes_of_each` says what a function reads
from servers and sends to them.
"""

# pyright: basic
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import itertools

from _report import describe_machine, emit, parser
from _turns import command_of, find_quartiles, parse_names, serve, take_turns

TASKS = ("steps", "tiny", "small", "waiting")
CONTENDERS = ("tfdist_jax", "tensorflow")
BATCH, SIZES, WAIT_S, WORKERS = 256, (784, 1024, 1024, 10), 0.02, (1, 2, 4, 8)


def import_contender(name):
    """Return a contender's `tf`."""
    if name == "tensorflow":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf
    else:
        import tfdist_jax

        tfdist_jax.use_cpu_devices(1)
        import tfdist_jax.compat.tensorflow as tf
    return tf


def free_port():
    """Return a port that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def make_coordinator(tf, workers, servers=2):
    """Return a coordinator whose cluster is in this process, as TensorFlow's guide makes it."""
    jobs = {"worker": workers, "ps": servers}
    if TASK in os.environ:
        start_tasks({"chief": 1, **jobs}, os.environ[TASK])
        strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        return tf.distribute.coordinator.ClusterCoordinator(strategy)
    spec = tf.train.ClusterSpec({job: [f"localhost:{free_port()}" for _ in range(n)] for job, n in jobs.items()})
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = workers + 2
    for job, count in jobs.items():
        for i in range(count):
            KEPT.append(tf.distribute.Server(spec, job_name=job, task_index=i, config=config, protocol="grpc"))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    return tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))


KEPT = []
TASK = "BENCH_TASKS_OF"
"""The contender whose servers and workers are to be processes."""


def start_tasks(counts, name):
    """Let this process be the chief of a cluster, whose other tasks start."""
    jobs = {job: [f"127.0.0.1:{free_port()}" for _ in range(count)] for job, count in counts.items()}
    os.environ.update(TFDIST_PARAMETER_SERVERS="processes", TFDIST_CLUSTER_SECRET=secrets.token_hex())
    for job in ("ps", "worker"):
        for i in range(counts[job]):
            config = json.dumps({"cluster": jobs, "task": {"type": job, "index": i}})
            subprocess.Popen(
                command_of(__file__, "--worker", name, "--parent", os.getpid()), env={**os.environ, "TF_CONFIG": config}
            )
    os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs, "task": {"type": "chief", "index": 0}})


def be_task(tf, parent):
    """Be a server or a worker as long as the parent lives."""

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os.kill(os.getpid(), 15)

    threading.Thread(target=watch, daemon=True).start()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc")
    server.join()


def make_steps(tf, workers):
    """Return a coordinator, and what trains so many steps."""
    import numpy as np

    coordinator = make_coordinator(tf, workers)
    strategy, random = coordinator.strategy, np.random.RandomState(0)
    with strategy.scope():
        weights = [tf.Variable((random.randn(a, b) * a**-0.5).astype("f4")) for a, b in itertools.pairwise(SIZES)]
        biases = [tf.Variable(np.zeros(b, "f4")) for b in SIZES[1:]]

    def replica(x, y):
        with tf.GradientTape() as tape:
            hidden = x
            for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
                hidden = tf.matmul(hidden, w) + b
                hidden = tf.nn.relu(hidden) if i < len(weights) - 1 else hidden
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden))
        variables = weights + biases
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    @tf.function
    def step(iterator):
        return strategy.run(replica, args=next(iterator))

    x, y = random.rand(BATCH, SIZES[0]).astype("f4"), random.randint(0, SIZES[-1], BATCH)
    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors((x, y)).repeat()))
    return scheduling(coordinator, step, (iterator,))


def make_tiny(tf, workers):
    """Return a coordinator, and what runs so many functions that add 1."""
    coordinator = make_coordinator(tf, workers)
    with coordinator.strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add():
        total.assign_add(1.0)

    return scheduling(coordinator, add, ())


def make_small(tf, workers):
    """Return a coordinator, and what runs so many functions that add what a worker computes."""
    coordinator = make_coordinator(tf, workers)
    with coordinator.strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add(x):
        total.assign_add(tf.reduce_sum(x * x))

    return scheduling(coordinator, add, (tf.ones(8),))


def make_waiting(tf, workers):
    """Return a coordinator, and what runs so many functions that wait before they add 1."""
    # They take TensorFlow's threads for operations, of which there are as many as processors.
    tf.config.threading.set_inter_op_parallelism_threads(workers + 2)
    coordinator = make_coordinator(tf, workers)
    with coordinator.strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def wait_and_add():
        tf.numpy_function(lambda: time.sleep(WAIT_S), [], [])
        total.assign_add(1.0)

    return scheduling(coordinator, wait_and_add, ())


def scheduling(coordinator, fn, args):
    """Return the coordinator, and what schedules so many functions and waits for them."""

    def run(count):
        for _ in range(count):
            coordinator.schedule(fn, args=args)
        coordinator.join()

    return coordinator, run


MAKE = {"steps": make_steps, "tiny": make_tiny, "small": make_small, "waiting": make_waiting}


def measure(task, workers, args):
    """Return how many of a task are done in a second, and how many times those of TensorFlow."""
    commands = {name: command_of(__file__, task, "--worker", name, "--count", workers) for name in CONTENDERS}
    told = {}
    if args.processes:
        commands = {name: ["env", f"{TASK}={name}", *command] for name, command in commands.items()}
        ran = subprocess.run([*commands["tfdist_jax"], "--bytes"], check=True, stdout=subprocess.PIPE, text=True)
        told = {"bytes_of_each": json.loads(ran.stdout)}
    times = take_turns(commands, args.rounds, args.seconds)
    rates = {name: find_quartiles([1 / seconds for seconds in found]) for name, found in times.items()}
    ours, theirs = (rates[name]["median"] for name in CONTENDERS)
    return {"workers": workers, "per_second": rates, "times_tensorflow": ours / theirs, **told}


def print_bytes(coordinator, run):
    """Print how many bytes a function reads from servers, and sends to them."""
    run(20)
    told = coordinator.statistics
    print(json.dumps({"pulled": told.pulled_bytes / told.closures, "pushed": told.pushed_bytes / told.closures}))


def main():
    """Measure the tasks."""
    options = parser(__doc__, rounds=7)
    options.add_argument("--seconds", type=float, default=3.0, help="of each round")
    options.add_argument("--count", type=int, default=2, help="workers, of a contender")
    options.add_argument("--processes", action="store_true", help="servers and workers are processes")
    options.add_argument("--bytes", action="store_true", help="print what each function of a contender reads and sends")
    options.add_argument("--parent", type=int, help="whose server or worker this process is")
    args = parse_names(options, TASKS, CONTENDERS)
    if args.parent:
        be_task(import_contender(args.worker), args.parent)
    if args.worker:
        make = lambda: MAKE[args.names[0]](import_contender(args.worker), args.count)
        if args.bytes:
            print_bytes(*make())
        else:
            serve(lambda: make()[1])
        return
    results = {}
    for task in args.names or ([each for each in TASKS if each != "waiting"] if args.processes else TASKS):
        counts = WORKERS if task == "waiting" else (2,)
        results[task] = [measure(task, count, args) for count in counts]
    turns = {"rounds": args.rounds, "seconds_of_each": args.seconds}
    emit({"machine": describe_machine("jax", "tensorflow"), **turns, "results": results}, args.out)


if __name__ == "__main__":
    main()
