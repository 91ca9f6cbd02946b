"""What is forked after JAX has started is told so, instead of waiting for ever."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs/forked.py"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("use", ["operation", "compiled step", "dataset", "array on its way"])
def test_a_forked_child_cannot_compute(run_program, use):
    done = run_program(PROGRAM, use, devices=1)
    assert done.returncode == 0, done.stderr
    assert "was forked after JAX had started" in done.stdout and "spawn" in done.stdout


def test_a_forked_child_may_do_anything_else(run_program):
    assert run_program(PROGRAM, "nothing of JAX", devices=1).stdout == "done\n"
