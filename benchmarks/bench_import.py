"""Time to import the native library, beside jax and flax alone; interleaved, as JSON: `python benchmarks/bench_import.py`."""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import emit

MODULES = {"jax and flax": "jax, flax", "tfdist_jax": "jax, flax, tfdist_jax", "facade": "tfdist_jax.compat.tensorflow"}


def seconds(modules: str) -> float:
    """Start Python, import, end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for modules in MODULES.values():
        seconds(modules)
    rounds = [{name: seconds(modules) for name, modules in MODULES.items()} for _ in range(args.rounds)]
    ratios = [r["tfdist_jax"] / r["jax and flax"] for r in rounds]
    result = {
        "seconds": {name: statistics.median(r[name] for r in rounds) for name in MODULES},
        "tfdist_jax over jax and flax": {"median": statistics.median(ratios), "range": [min(ratios), max(ratios)]},
    }
    emit(result, args.out)


if __name__ == "__main__":
    main()
