"""Programs of which each line was once another than TensorFlow's: what still differs is listed, with the reason."""

import re
from pathlib import Path

import pytest
from recording import differences

FOLDER = Path(__file__).with_name("reported")
PROGRAMS = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if path.with_suffix(".txt").exists())
# The first line of a fact; its value may go on in further lines.
_FACT = re.compile(r"^(.+?) -> (.*)$")


def facts(text):
    """Return a program's facts by name: a value as it is printed, or the class of an error."""
    found, name = {}, None
    for line in text.splitlines():
        first = _FACT.match(line)
        if first is not None:
            name, line = first.groups()
            while name in found:  # The same question again, as in a loop.
                name += "'"
            found[name] = ""
        if name is not None:
            found[name] += line + "\n"
    return {name: re.sub(r"^(RAISED \w+)[^\0]*", r"\1", value) for name, value in found.items()}


def listed():
    """Return the names of the facts that differ, by program."""
    programs = {}
    for line in (FOLDER / "differences.txt").read_text().splitlines():
        if line.startswith("## "):
            names = programs.setdefault(line.removeprefix("## "), set())
        elif line and not line.startswith((" ", "#")):
            names.add(line)
    return programs


@pytest.mark.slow("asks a hundred things, some of which compile")
@pytest.mark.parametrize("name", PROGRAMS)
def test_facts_are_tensorflows_but_for_those_that_are_listed(name, run_prepared):
    ran = run_prepared(FOLDER / f"{name}.py", devices=3)
    assert ran.returncode == 0, ran.stderr
    ours, theirs = facts(ran.stdout), facts((FOLDER / f"{name}.txt").read_text())
    assert ours.keys() == theirs.keys()
    different = {fact for fact in theirs if differences(ours[fact], theirs[fact])}
    assert different == listed().get(name, set())
