"""A training with parameter servers, to whose servers and workers faults happen at random: each closure has to count once in the end.

    python tests/cluster/soak_servers.py --faults 30 --seed 0

Each round schedules closures, each of which takes an element of its worker's data and adds one to a variable on each of two servers, and
a fault strikes meanwhile. After a round both variables are compared with what they are to hold, and saved; what strikes a server, the
program is started again after, from there.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

_KINDS = ("worker killed", "worker's task killed", "worker frozen", "server killed", "server frozen")
_WEIGHTS = (8, 6, 6, 5, 5)
_HEARTBEAT_S = 3
_LIMIT_S = 120

_PROGRAM = """
import json, os, pathlib, random, signal, threading, time
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
folder = pathlib.Path(os.environ["SOAK"])
(folder / f"{resolver.task_type}{resolver.task_id}").write_text(str(os.getpid()))
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc").join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
import ray
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    first, second = tf.Variable(0), tf.Variable(0.0)
    # Of a size that goes through shared memory, in both directions.
    large = [tf.Variable(tf.zeros([100_000])) for _ in range(2)]
checkpoint = tf.train.Checkpoint(first=first, second=second, large=large)
manager = tf.train.CheckpointManager(checkpoint, str(folder / "checkpoints"), max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)
CLOSURES = 60

def numbers():
    return tf.data.Dataset.range(10_000).map(lambda x: tf.cast(x, tf.float32)).repeat()

iterator = iter(coordinator.create_per_worker_dataset(numbers))

@tf.function
def step(iterator):
    x = next(iterator)
    second.assign_add(tf.sin(x) ** 2 + tf.cos(x) ** 2)
    first.assign_add(1)
    for variable in large:
        variable.assign_add(tf.ones([100_000]) + 0.0 * (x + variable))
    return x

def strike(kind, target, after_s):
    time.sleep(after_s)
    if kind == "worker's task killed":
        pid = int((folder / f"worker{target}").read_text())
    else:
        actor = strategy.workers[target]._peer.actor if "worker" in kind else strategy._servers[0].servers.peers[target].actor
        pid = ray.get(actor.ping.remote())["pid"]
    os.kill(pid, signal.SIGSTOP if "frozen" in kind else signal.SIGKILL)

plan = json.loads((folder / "plan").read_text())
while (number := int(first) // CLOSURES) < len(plan):
    fault, struck = plan[number], folder / f"struck{number}"
    if not struck.exists():
        struck.write_text(str(time.time()))
        threading.Thread(target=strike, args=(fault["kind"], fault["target"], fault["after_s"])).start()
    begin, retries = time.monotonic(), coordinator.statistics.retries
    for _ in range(CLOSURES):
        coordinator.schedule(step, args=(iterator,))
        time.sleep(0.005)
    coordinator.join()
    wanted = (number + 1) * CLOSURES
    if int(first) != wanted or abs(float(second) - wanted) > 0.01:
        raise SystemExit(f"round {number}: {int(first)} and {float(second)}, not {wanted}")
    for variable in large:
        if set(variable.numpy()) != {float(wanted)}:
            raise SystemExit(f"round {number}: {set(variable.numpy())} of a large variable, not {wanted}")
    manager.save()
    line = {**fault, "round": number, "retries": coordinator.statistics.retries - retries, "seconds": time.monotonic() - begin}
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({**line, "attempt": int(os.environ["TFDIST_JAX_RESTART"])}) + "\\n")
(folder / "end").write_text(json.dumps([int(first), float(second)]))
"""


def main() -> None:
    """Run the training, and print what has come out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=30, help="how many there are (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="chooses them (default: 0)")
    parser.add_argument("--folder", type=Path, help="keeps the log there")
    arguments = parser.parse_args()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="soak_"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "plan").exists():
        parser.error(f"{folder} has the log of an earlier run, which would go on.")
    plan = _plan(arguments.faults, arguments.seed)
    (folder / "plan").write_text(json.dumps(plan))
    (folder / "program.py").write_text(_PROGRAM)
    options = ["--workers", "2", "--parameter-servers", "2", "--max-restarts", str(len(plan)), "--log-dir", str(folder)]
    options += ["--heartbeat-timeout", str(_HEARTBEAT_S)]
    command = [sys.executable, "-m", "tfdist_jax", "launch", *options, str(folder / "program.py")]
    env = {**os.environ, "SOAK": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    began = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        ended = subprocess.run(
            command, env=env, stdout=output, stderr=output, timeout=_LIMIT_S * len(plan), check=False
        )
    print(json.dumps(_summary(folder, plan, ended.returncode, time.monotonic() - began), indent=1))


def _plan(faults: int, seed: int) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
    kinds = chosen.choices(_KINDS, _WEIGHTS, k=faults)
    return [{"kind": kind, "target": chosen.randrange(2), "after_s": chosen.uniform(0, 0.4)} for kind in kinds]


def _summary(folder: Path, plan: list[dict[str, Any]], code: int, seconds: float) -> dict[str, Any]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    end = json.loads((folder / "end").read_text()) if (folder / "end").exists() else None
    time.sleep(5)  # Whoever ends by himself has had the time.
    return {
        "exit_code": code,
        "faults": len(plan),
        "by_kind": dict(collections.Counter(fault["kind"] for fault in plan)),
        "rounds": len({line["round"] for line in lines}),
        "closures_run_again": sum(line["retries"] for line in lines),
        "starts": 1 + max((line["attempt"] for line in lines), default=0),
        "in_the_end": end,
        "seconds": round(seconds),
        "left_over": len(_left_over(folder)),
        "folder": str(folder),
    }


def _left_over(folder: Path) -> list[int]:
    """Return the processes that are still there of those that the training started."""
    mark, found = f"SOAK={folder}", []
    for process in psutil.process_iter(["pid", "name", "environ", "status"]):
        environ = process.info["environ"] or {}
        if f"SOAK={environ.get('SOAK')}" == mark and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


if __name__ == "__main__":
    main()
