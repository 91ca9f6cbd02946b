"""Datasets give what TensorFlow's give: elements, types, sizes and specs."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "dataset_programs.py"


def facts(ran):
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("["))


@pytest.mark.slow("TensorFlow runs the same program")
@pytest.mark.peers
def test_datasets_are_tensorflows(run_script, run_prepared):
    ours, theirs = facts(run_prepared(PROGRAM)), facts(run_script(PROGRAM))
    assert ours.keys() == theirs.keys()
    for expression, expected in theirs.items():
        assert ours[expression] == expected, expression
