"""Two processes on loopback under `MultiWorkerMirroredStrategy`: time of a step and of the start; interleaved, as JSON.

`python benchmarks/bench_multi_worker.py [--rounds 15] [--starts 5] [--out benchmarks/results/multi_worker.json]`

A multilayer perceptron 784-1024-1024-10, 256 rows a step, of which each process takes its half from its dataset. Every
contender is a group of processes of its own; in each round each takes the same number of steps, in turn. A round's time is
that of the slower process. The start is measured with nothing else running: from the start of the processes to the end
of their first step. TensorFlow's `fit` has no figures: it does not run under this strategy.
"""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import contenders
from _report import describe_machine, emit, parser
from models import MODELS

MODEL = "wide mlp"
NAMES = ("hand-written", "custom loop", "custom loop, unfused", "fit", "tensorflow loop", "tensorflow loop, unfused")


def worker(name: str) -> None:
    """Be one process of a contender: take steps as told on standard input, report seconds on standard output."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print what they like; only times go to the reports.
    if name.startswith("tensorflow"):
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import tensorflow as tf
    else:
        import tfdist_jax.compat.tensorflow as tf
    if name == "hand-written":
        import tfdist_jax

        tfdist_jax.initialize()
        run, _ = contenders.hand_written(MODEL, feed=True)
    else:
        run = distributed(tf, name)
    run(1)
    print("started", file=report, flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        run(int(line))
        print(time.perf_counter() - started, file=report, flush=True)


def distributed(tf: Any, name: str) -> Any:
    """Return `run` of a contender under the strategy."""
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1 if name.endswith("unfused") else 0)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if name == "fit":
        return contenders.fit(tf, MODEL, strategy=strategy)[0]
    return contenders.custom_loop(tf, MODEL, feed=True, strategy=strategy)[0]


class Group:
    """A contender's processes."""

    def __init__(self, name: str, size: int, folder: Path) -> None:
        """Start them; what they say goes to `folder`."""
        self.name = name
        self._began = time.perf_counter()
        self._log = folder / f"{name}.txt"
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(size)]
        with self._log.open("wb") as log:
            self._processes: list[Any] = [
                subprocess.Popen(
                    [sys.executable, __file__, "--worker", name],
                    env={**os.environ, "TF_CONFIG": _config(addresses, index)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
                for index in range(size)
            ]

    def first_step(self) -> float:
        """Wait for the first step and return how long it took from the start."""
        for process in self._processes:
            if process.stdout.readline().strip() != "started":
                raise RuntimeError(f"The contender {self.name!r} did not start:\n{self._log.read_text()[-5000:]}")
        return time.perf_counter() - self._began

    def take(self, steps: int) -> float:
        """Take steps and return the seconds of the slower process."""
        for process in self._processes:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in self._processes)

    def end(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def _config(addresses: list[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def start_times(names: list[str], args: Any) -> dict[str, list[float]]:
    """Return each contender's seconds from its start to the end of its first step."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(args.starts):
        for name in names:
            group = Group(name, args.workers, args.folder)
            try:
                times[name].append(group.first_step())
            finally:
                group.end()
    return times


def step_times(names: list[str], args: Any) -> dict[str, list[float]]:
    """Return each contender's seconds per step, round by round."""
    times: dict[str, list[float]] = {name: [] for name in names}
    groups: list[Group] = []
    try:
        for name in names:
            groups.append(Group(name, args.workers, args.folder))
            groups[-1].first_step()
            groups[-1].take(args.steps)
        for _ in range(args.rounds):
            for group in groups:
                times[group.name].append(group.take(args.steps) / args.steps)
    finally:
        for group in groups:
            group.end()
    return times


def quartiles(values: list[float]) -> dict[str, Any]:
    """Return median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "quartiles": [low, high]}


def ratios(over: list[float], under: list[float]) -> dict[str, Any]:
    """Return median and quartiles of the ratios, round by round."""
    return quartiles([a / b for a, b in zip(over, under, strict=True)])


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=15)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--starts", type=int, default=5)
    options.add_argument("--without-tensorflow", action="store_true")
    options.add_argument("--worker")
    args = options.parse_args()
    if args.worker:
        worker(args.worker)
        return
    names = [name for name in NAMES if not (args.without_tensorflow and name.startswith("tensorflow"))]
    with tempfile.TemporaryDirectory() as folder:
        args.folder = Path(folder)
        steps = step_times(names, args)
        starts = start_times([name for name in names if not name.endswith("unfused")], args)

    result: dict[str, Any] = {
        "model": MODEL,
        "rows": MODELS[MODEL].rows,
        "workers": args.workers,
        "steps_per_round": args.steps,
        "rounds": args.rounds,
        **describe_machine("jax", "keras"),
        "ms_per_step": {name: quartiles([1000 * t for t in values]) for name, values in steps.items()},
        "seconds_to_first_step": {name: quartiles(values) for name, values in starts.items()},
        "speed_of_hand_written": {name: ratios(steps["hand-written"], values) for name, values in steps.items()},
        "unfused_over_fused": ratios(steps["custom loop, unfused"], steps["custom loop"]),
    }
    if not args.without_tensorflow:
        theirs = "tensorflow loop"
        result["times_faster_than_tensorflow"] = ratios(steps[theirs], steps["custom loop"])
        result["times_sooner_than_tensorflow"] = ratios(starts[theirs], starts["custom loop"])
    emit(result, args.out)


if __name__ == "__main__":
    main()
