"""`tfdist-jax lint`: which of TensorFlow's names a program uses are there, told without running it."""

import argparse
import collections
import functools
import json
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfdist_jax.cli._name_status import find_status
from tfdist_jax.cli._tensorflow_uses import uses_of_program

# Folders of libraries and of tools.
_NOT_THE_PROGRAM = {"site-packages", "dist-packages", "node_modules", "__pycache__"}
_KINDS = ("native", "emulated", "older form", "missing", "unknown")


class _Finding(NamedTuple):
    """What is said of a line.

    Attributes:
        file: The file.
        line: The line, from 1.
        kind: The status of a name, or "unreadable" of a file.
        name: The name.
        why: What is to be said of it.
        is_handled: Whether the program goes on where the name is not there.
    """

    file: str
    line: int
    kind: str
    name: str
    why: str
    is_handled: bool

    @property
    def is_problem(self) -> bool:
        """Whether the program fails here."""
        return self.kind == "unreadable" or (self.kind == "missing" and not self.is_handled)

    def __str__(self) -> str:
        kind = f"{self.kind} (the program goes on without)" if self.kind == "missing" and self.is_handled else self.kind
        return f"{self.file}:{self.line}: {kind}: {': '.join(filter(None, (self.name and f'`{self.name}`', self.why)))}"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "lint",
        help="say which TensorFlow names of a program are not there",
        description="Read programs without running them, and say of each line which of TensorFlow's and Keras's names and arguments are "
        "missing here, which are emulated, and which are older forms. The exit code is 1 if a program needs what is missing, 0 if "
        "not.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a program, or a folder of programs")
    parser.add_argument(
        "--all", action="store_true", help="show what is native or known only when the program runs, too"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each line instead")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    absent = [str(path) for path in arguments.paths if not path.exists()]
    if absent:
        print(f"tfdist-jax lint: no such file or folder: {', '.join(absent)}", file=sys.stderr)
        return 2
    files = sorted({file for path in arguments.paths for file in _programs(path)})
    findings = [finding for file in files for finding in examine(file)]
    for finding in findings if arguments.json or arguments.all else _worth_saying(findings):
        print(json.dumps(finding._asdict()) if arguments.json else finding)
    if not arguments.json:
        print(_summary(len(files), findings))
    return 1 if any(finding.is_problem for finding in findings) else 0


def _worth_saying(findings: list[_Finding]) -> Iterator[_Finding]:
    """Yield what is not native; what is emulated or an older form once in each file."""
    said = set[tuple[str, str, str]]()
    for finding in findings:
        what = (finding.file, finding.name, finding.why)
        again = finding.kind in ("emulated", "older form") and what in said
        if finding.kind not in ("native", "unknown") and not again:
            yield finding
        said.add(what)


def _summary(files: int, findings: list[_Finding]) -> str:
    counts = collections.Counter(finding.kind for finding in findings)
    problems = sum(finding.is_problem for finding in findings)
    named = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS)
    unreadable = f" {counts['unreadable']} could not be read." if counts["unreadable"] else ""
    end = f"{problems} to be mended." if problems else "Nothing stands in the way."
    return f"{files} {'file' if files == 1 else 'files'}; uses of names: {named}.{unreadable} {end}"


def _programs(path: Path) -> Iterator[Path]:
    """Yield the programs in a folder, or the one that is given."""
    if path.is_file():
        yield path
        return
    for file in path.rglob("*.py"):
        inside = file.relative_to(path).parts
        if not any(part in _NOT_THE_PROGRAM or part.startswith(".") for part in inside):
            yield file


def examine(file: Path) -> Iterator[_Finding]:
    try:
        with tokenize.open(file) as opened:  # In the encoding that it says it has.
            uses = uses_of_program(opened.read(), str(file))
    except (SyntaxError, UnicodeDecodeError, ValueError, OSError) as error:
        yield _Finding(str(file), getattr(error, "lineno", None) or 1, "unreadable", "", str(error), False)
        return
    for use in uses:
        kind, why = _find_status(use.name, use.keywords)
        if kind == "unknown" and use.name.startswith("."):
            continue
        yield _Finding(str(file), use.line, kind, use.name, why, use.is_handled)


_find_status = functools.cache(find_status)
