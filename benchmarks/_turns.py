"""Contenders in processes of their own, which take steps in turn, so that a change of the machine's speed meets all of them."""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def take_turns(
    commands: Mapping[str, Sequence[str]], rounds: int, seconds: float, *, env: Mapping[str, str] | None = None
) -> dict[str, list[float]]:
    """Return each contender's seconds per step, round by round.

    Args:
        commands: What starts each contender, which calls `serve`.
        rounds: How often each takes steps.
        seconds: About how long it does.
        env: Environment variables, beside those that there are.
    """
    workers = {name: _start(command, env or {}) for name, command in commands.items()}
    times: dict[str, list[float]] = {name: [] for name in workers}
    try:
        for name, process in workers.items():
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"The contender {name!r} did not start; run it with --worker {name!r} to see why.")
        steps = {name: max(1, round(seconds / _take_steps(process, 3))) for name, process in workers.items()}
        for _ in range(rounds):
            for name, process in workers.items():
                times[name].append(_take_steps(process, steps[name]))
    finally:
        for process in workers.values():
            process.kill()
            process.wait()
    return times


def serve(make: Callable[[], Callable[[int], None]]) -> None:
    """Make a contender, which is a function that takes so many steps; take as many as told on standard input, and report seconds."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print what they like; only times go to the reports.
    run = make()
    run(3)  # The first one compiles; batches are read ahead.
    print("ready", file=report, flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        run(int(line))
        print(time.perf_counter() - started, file=report, flush=True)


def find_quartiles(values: Sequence[float]) -> dict[str, Any]:
    """Return median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "quartiles": [low, high]}


def command_of(script: str, *arguments: Any) -> list[str]:
    """Return what runs a benchmark with other arguments."""
    return [sys.executable, str(Path(script).resolve()), *map(str, arguments)]


def _start(command: Sequence[str], env: Mapping[str, str]) -> Any:
    pipe = subprocess.PIPE
    environment = {**os.environ, **env}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)


def _take_steps(process: Any, steps: int) -> float:
    """Let a contender take steps, and return the seconds of one."""
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return float(process.stdout.readline()) / steps


def parse_names(
    options: argparse.ArgumentParser, names: Sequence[str], contenders: Sequence[str]
) -> argparse.Namespace:
    """Return the options of a script that measures what it is told by name, all of it if nothing; `--worker` makes it a contender."""
    options.add_argument("names", nargs="*", help=f"{'; '.join(names)}; all if none is named")
    options.add_argument("--worker", choices=contenders)
    options.add_argument("--folder", type=Path)
    args = options.parse_args()
    if unknown := set(args.names) - set(names):
        options.error(f"There is no {'; '.join(sorted(unknown))}; there are {'; '.join(names)}.")
    return args
