"""Many trainings to which faults happen at random: each has to end as one to which nothing happens.

    python tests/cluster/soak.py --faults 100 --seed 0

Works in a folder with a copy of the committed sources, so that they may change meanwhile. Each training's line in the
folder's `log.jsonl` is written when it is over: stopped at any moment, the same command goes on after the last line.
"""

import argparse
import collections
import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from faults import PROGRAMS, choose_faults, first_steps, launch, read_end

from tfdist_jax.testing import Chaos, EndedError, Fault, StuckError, Training
from tfdist_jax.testing._training import MARK

_ROOT = Path(__file__).parents[2]
_FAULTS_EACH = 5
_LIMIT_S = 240.0
_LOG = "log.jsonl"


def main() -> None:
    """Run the trainings that are missing, and print what has come out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=100, help="how many there are to be (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="chooses the faults (default: 0)")
    parser.add_argument("--folder", type=Path, default=_ROOT / "build" / "soak")
    parser.add_argument("--background", action="store_true", help="go on in the background; say so if it does already")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    missing = range(len(_lines(folder, arguments.seed)), -(-arguments.faults // _FAULTS_EACH))
    if arguments.background and missing:
        print(_in_background(folder, arguments))
    elif missing:
        (folder / "pid").write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # What it has started ends with it.
        source = _source(folder)
        (folder / _LOG).write_text(_whole_lines(folder))
        for training in missing:
            line = _trained(folder, source, arguments.seed, training)
            with (folder / _LOG).open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"training {training}: {line['outcome']}, {line['seconds']} s", flush=True)
    print(json.dumps(summary(_lines(folder, arguments.seed)), indent=2))


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts that matter of a log's lines.

    A fault is `resumed` if its training went on after it, and `lost` if that did not end as it should have.
    """
    struck = [fault for line in lines for fault in line["faults"]]
    return {
        "trainings": len(lines),
        "faults": len(struck),
        "by_kind": dict(collections.Counter(fault["kind"] for fault in struck)),
        "by_phase": dict(collections.Counter(fault["pattern"].removeprefix("at ") or "start" for fault in struck)),
        "resumed": sum(line["resumed"] for line in lines),
        "from_a_checkpoint": sum(line["from_a_checkpoint"] for line in lines),
        "lost": sum(len(line["faults"]) for line in lines if line["outcome"] != "equal"),
        "orphans": sum(line["orphans"] for line in lines),
        "hung": sum(line["outcome"] == "hung" for line in lines),
        "commits": sorted({line["commit"] for line in lines}),
        "hours": round(sum(line["seconds"] for line in lines) / 3600, 2),
    }


def _in_background(folder: Path, arguments: argparse.Namespace) -> str:
    """Go on in another process, unless one is at it; say which."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        if str(Path(__file__)).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return f"Process {pid} is at it. So far:"
    options = ["--faults", str(arguments.faults), "--seed", str(arguments.seed), "--folder", str(folder)]
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            ["nice", sys.executable, str(Path(__file__)), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return f"Process {process.pid} goes on in {folder}; `kill {process.pid}` stops it. So far:"


def _source(folder: Path) -> Path:
    """Return a copy of the last commit's sources, made when the soak begins."""
    source = folder / "source"
    if not (source / "commit").exists():
        shutil.rmtree(source, ignore_errors=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=_ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="tar")
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=True)
        (source / "commit").write_text(head.stdout.strip())
    return source


def _lines(folder: Path, seed: int) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in _whole_lines(folder).splitlines()]
    if any(line["seed"] != seed for line in lines):
        raise SystemExit(f"{folder} is of another seed than {seed}: remove it, or choose another --folder.")
    return lines


def _whole_lines(folder: Path) -> str:
    """Return the log without a last line that was being written when the soak was stopped."""
    log = folder / _LOG
    text = log.read_text() if log.exists() else ""
    return text[: text.rfind("\n") + 1]


def _trained(folder: Path, source: Path, seed: int, number: int) -> dict[str, Any]:
    """Run one training and return its line."""
    name = sorted(PROGRAMS)[number % len(PROGRAMS)]
    env = {"PYTHONPATH": str(source)}
    wanted = _undisturbed(folder, name, env)
    where = folder / f"training{number}"
    _remove(where)
    began = time.monotonic()
    struck: list[Fault] = []
    with Chaos(f"{seed}/{number}", folder, limit_s=_LIMIT_S) as chaos:
        faults = choose_faults(chaos, _FAULTS_EACH)
        training = launch(chaos, name, where, restarts=len(faults), env=env)
        outcome = _disturbed(training, faults, struck, wanted)
        time.sleep(0.5)
        orphans = len(training.leftovers())
    steps = first_steps(training)
    line = {
        "seed": seed,
        "training": number,
        "program": name,
        "commit": (source / "commit").read_text(),
        "faults": [dataclasses.asdict(fault) for fault in struck],
        "outcome": outcome,
        "resumed": min(len(struck), max(steps, default=0)),
        "from_a_checkpoint": sum(attempt > 0 and step > 1 for attempt, step in steps.items()),
        "orphans": orphans,
        "seconds": round(time.monotonic() - began),
    }
    if outcome == "equal" and not orphans:
        _remove(where)
    return line


def _disturbed(training: Training, faults: list[Fault], struck: list[Fault], wanted: dict[str, Any]) -> str:
    """Let faults happen to a training, note those that have, and say what has become of it."""
    try:
        for fault in faults:
            training.strike(fault)
            struck.append(fault)
        code = training.wait()
    except EndedError as error:
        return str(error).partition("\n")[0]
    except StuckError:
        _show_stacks(training)
        return "hung"
    if code:
        return f"exit code {code}"
    try:
        return "equal" if read_end(training) == wanted else "different"
    except AssertionError as error:
        return f"different: {error}"


def _undisturbed(folder: Path, name: str, env: dict[str, str]) -> dict[str, Any]:
    """Return how a training ends to which nothing happens."""
    path = folder / f"undisturbed_{name}.json"
    if not path.exists():
        where = folder / f"undisturbed_{name}"
        _remove(where)
        with Chaos(0, folder, limit_s=_LIMIT_S) as chaos:
            training = launch(chaos, name, where, env=env).succeed()
            path.with_suffix(".new").write_text(json.dumps(read_end(training)))
        path.with_suffix(".new").replace(path)
    return json.loads(path.read_text())


def _remove(folder: Path) -> None:
    for process in psutil.process_iter():  # What a soak that was killed has left.
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(f"{folder}:"):
                process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def _show_stacks(training: Training) -> None:
    """Keep where each thread of a training that hangs is, as far as there are tools to say so."""
    shown = []
    for pid in [process.pid for process in training.leftovers()]:
        shown.append(f"== process {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
        shown += [Path(f"/proc/{pid}/status").read_text()]
        for command in (
            ["py-spy", "dump", "--native", "--pid", str(pid)],
            ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
        ):
            if shutil.which(command[0]):
                shown.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    (training.folder / "stacks.txt").write_text("\n".join(shown))


if __name__ == "__main__":
    main()
