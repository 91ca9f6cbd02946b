"""What the benchmarks share: their options, and the JSON that they print."""

import argparse
import json
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
