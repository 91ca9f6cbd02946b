"""What programs print under real TensorFlow, recorded; run as a script, records it again and shows what changed.

python tests/parity/recording.py [NAME ...]     # no NAME: all of tests/parity/programs
"""

import concurrent.futures
import difflib
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DEVICES = 4
TIMEOUT_S = 150

_UNDER_TENSORFLOW = HERE.parent / "programs/on_logical_devices.py"
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w])", re.IGNORECASE)


def programs() -> dict[str, Path]:
    """Return the programs by name."""
    found = sorted((HERE / "programs").glob("[a-z]*.py"))
    return {path.stem: path for path in found}


def recorded(name: str) -> Path:
    """Return where the output of a program under TensorFlow is kept."""
    return HERE / "recorded" / f"{name}.txt"


def tensorflow_command(name: str) -> list[str]:
    """Return the command that runs a program under TensorFlow, its processor split into `DEVICES`."""
    return [sys.executable, str(_UNDER_TENSORFLOW), str(DEVICES), str(programs()[name])]


def differences(found: str, wanted: str, tolerance: float = 1e-5) -> list[str]:
    """Return the lines that differ, as `-wanted` and `+found`; numbers with a fraction may differ by `tolerance`."""
    lines = difflib.SequenceMatcher(
        None, *([_Line(line, tolerance) for line in text.splitlines()] for text in (wanted, found)), autojunk=False
    )
    shown: list[str] = []
    for kind, i, j, k, m in lines.get_opcodes():
        if kind != "equal":
            shown += [f"-{line}" for line in wanted.splitlines()[i:j]]
            shown += [f"+{line}" for line in found.splitlines()[k:m]]
    return shown


class _Line:
    """A line of output; equal to another if the words are and the numbers are close."""

    def __init__(self, line: str, tolerance: float) -> None:
        self._words = _NUMBER.sub("#", " ".join(line.split()))
        self._numbers = _NUMBER.findall(line)
        self._tolerance = tolerance

    def __hash__(self) -> int:
        return hash(self._words)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Line)
            and self._words == other._words
            and len(self._numbers) == len(other._numbers)
            and all(map(self._close, self._numbers, other._numbers))
        )

    def _close(self, one: str, other: str) -> bool:
        if one == other:
            return True
        if all(re.fullmatch(r"[-+]?\d+", number) for number in (one, other)):
            return False
        return math.isclose(float(one), float(other), rel_tol=self._tolerance, abs_tol=self._tolerance)


def _record(name: str) -> tuple[str, list[str], bool]:
    try:
        with tempfile.TemporaryDirectory() as folder:  # For the files that programs write.
            ran = subprocess.run(
                tensorflow_command(name),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                cwd=folder,
                env=_environment(),
            )
    except subprocess.TimeoutExpired:
        return name, [f"did not end within {TIMEOUT_S} s"], False
    if ran.returncode:
        return name, [f"exit {ran.returncode}", *ran.stderr.splitlines()[-15:]], False
    file = recorded(name)
    before = file.read_text() if file.exists() else ""
    changed = differences(ran.stdout, before)
    if changed:
        file.write_text(ran.stdout)
    return name, changed, True


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "JAX_", "XLA_"))}


def main(names: list[str]) -> int:
    """Record the named programs, or all; return how many failed under TensorFlow."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        for name, lines, good in pool.map(_record, names or programs()):
            failed += not good
            print(f"{name}: {'FAILED' if not good else 'changed' if lines else 'as recorded'}", *lines, sep="\n  ")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
