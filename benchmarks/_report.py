"""What the benchmarks share: their options, and the JSON that they print."""

import argparse
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any


def parser(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of `--devices`, `--rounds` and `--out`."""
    result = argparse.ArgumentParser(description=doc)
    result.add_argument("--devices", type=int, default=4)
    result.add_argument("--rounds", type=int, default=rounds)
    result.add_argument("--out", type=Path, help="write the JSON to this file, too")
    return result


def emit(result: Any, out: Path | None) -> None:
    """Print a result as JSON, and write it to a file if one is given."""
    text = json.dumps(result, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


def describe_machine(*packages: str) -> dict[str, Any]:
    """Return what the machine is, how busy it is, and the packages' versions."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return {
        "machine": {
            "processor": model[1] if model else platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        },
        "versions": {"python": platform.python_version()} | {name: _find_version(name) for name in packages},
    }


def _find_version(name: str) -> str:
    """Return a module's version; what it comes from may be called differently."""
    return metadata.version(metadata.packages_distributions()[name][0])
