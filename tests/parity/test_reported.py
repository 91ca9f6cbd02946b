"""Programs of which each line was once another than TensorFlow's: what still differs is listed, with the reason.

`python tests/programs/on_logical_devices.py 3 NAME.py` prints what is recorded in NAME.txt.
"""

import re
from pathlib import Path

import pytest
from recording import differences

FOLDER = Path(__file__).with_name("reported")
PROGRAMS = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if path.with_suffix(".txt").exists())


def facts(text):
    """Return a program's facts by name: a value as it is printed, or the class of an error."""
    found = {}
    for line in text.splitlines():
        name, arrow, said = line.partition(" -> ")
        while name in found:  # The same question again, as in a loop.
            name += "'"
        if arrow:
            found[name] = re.sub(r"^(RAISED \w+).*", r"\1", said)
    return found


def listed():
    """Return the names of the facts that differ, by program."""
    programs = {}
    for line in (FOLDER / "differences.txt").read_text().splitlines():
        if line.startswith("## "):
            names = programs.setdefault(line.removeprefix("## "), set())
        elif line and not line.startswith((" ", "#")):
            names.add(line)
    return programs


@pytest.mark.sampled(5)
@pytest.mark.slow("asks a hundred things, some of which compile")
@pytest.mark.parametrize("name", PROGRAMS)
def test_facts_are_tensorflows_but_for_those_that_are_listed(name, run_prepared):
    ran = run_prepared(FOLDER / f"{name}.py", devices=3)
    assert ran.returncode == 0, ran.stderr
    ours, theirs = facts(ran.stdout), facts((FOLDER / f"{name}.txt").read_text())
    assert ours.keys() == theirs.keys()
    different = {fact for fact in theirs if differences(ours[fact], theirs[fact])}
    assert different == listed().get(name, set())
