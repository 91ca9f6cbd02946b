"""Tokens a second of examples/transformer.py over every kind of mesh, and a device's memory; interleaved, as JSON.

`python benchmarks/bench_meshes.py [--devices 8] [--rounds 9] [--out benchmarks/results/meshes.json]`

Virtual devices share the processor's cores, so that figures tell what a mesh costs beside the computation, not how it would scale.
"""

import contextlib
import io
import runpy
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import jax
from _report import describe_machine, emit, parser

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformer.py"
STEPS = 5
EXPERTS = "--experts 8"
MESHES = (
    "data=1",
    "data=8",
    "fsdp=8",
    "data=2,tensor=4",
    "data=2,fsdp=2,tensor=2",
    "data=2,sequence=4",
    "data=2,sequence=2,tensor=2",
    "data=2 --pipeline gpipe --stages 4",
    "data=2 --pipeline 1f1b --stages 4",
    "data=4 --pipeline interleaved --stages 2",
    "data=2 --pipeline zb-h1 --stages 4",
    "data=2,tensor=2 --pipeline 1f1b --stages 2",
    "fsdp=2,tensor=2 --pipeline 1f1b --stages 2",
    "data=2 --pipeline 1f1b --stages 2 --sequence 2",
    f"data=1 {EXPERTS}",
    f"data=8 {EXPERTS}",
    f"data=2,expert=4 {EXPERTS}",
    f"expert=4,tensor=2 {EXPERTS}",
    f"data=2,expert=2 --pipeline 1f1b --stages 2 {EXPERTS}",
)


class Training:
    """The example's training over one mesh."""

    def __init__(self, arguments: str, devices: int) -> None:
        """Run the example for a step; its program and its batches go on."""
        sys.argv = [EXAMPLE.name, "--devices", str(devices), "--steps", "1", "--mesh", *arguments.split()]
        with contextlib.redirect_stdout(io.StringIO()):
            self._names = runpy.run_path(str(EXAMPLE), run_name="__main__")
        self._state = self._names["state"]
        self._step, self._batches = self._names["train_step"], self._names["batches"]
        batch = next(self._batches)
        self.tokens = batch["x"].size
        self.memory = self._names["strategy"].explain(self._step, self._state, batch).memory

    def run(self) -> float:
        """Return the seconds that a step takes."""
        started = time.perf_counter()
        for _ in range(STEPS):
            self._state, _ = self._step(self._state, next(self._batches))
        jax.block_until_ready(self._state)
        return (time.perf_counter() - started) / STEPS


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=9)
    options.set_defaults(devices=8)
    args = options.parse_args()
    trainings = {arguments: Training(arguments, args.devices) for arguments in MESHES}
    times = {arguments: [] for arguments in MESHES}
    for number in range(args.rounds + 1):
        for arguments, training in list(trainings.items())[:: 1 if number % 2 else -1]:
            times[arguments].append(training.run())
    found = {arguments: describe(training, times[arguments][1:]) for arguments, training in trainings.items()}
    emit({**describe_machine("jax"), "devices": args.devices, "meshes": found}, args.out)


def describe(training: Training, seconds: list[float]) -> dict[str, float]:
    """Return the figures of one mesh."""
    return {
        "tokens_per_second": round(training.tokens / statistics.median(seconds)),
        "step_ms": round(statistics.median(seconds) * 1000, 2),
        "temporary_mib": round(training.memory.temporary / 2**20, 2),
        "arguments_mib": round(training.memory.arguments / 2**20, 2),
    }


if __name__ == "__main__":
    main()
