"""A process that does the same again and again holds no more for it."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs/growth.py"
REPEATED = pytest.mark.exhaustive
MOST_PROGRAMS_MORE = 12
"""Of small operations, which are compiled at their 33rd call."""
MOST_BYTES_MORE = 60 << 20
"""What the C library does not give back."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "work",
    [pytest.param("steps", marks=REPEATED), pytest.param("shapes", marks=REPEATED), "strategies", "models"],
)
def test_repeated_work_holds_no_more(run_program, work):
    ran = run_program(PROGRAM, work)
    assert ran.returncode == 0, ran.stderr
    figures = [json.loads(line) for line in ran.stdout.splitlines()]
    arrays, programs, objects, resident = zip(*figures[1:], strict=True)  # The first time compiles.
    assert arrays[-1] == arrays[0]
    assert programs[-1] <= programs[0] + MOST_PROGRAMS_MORE
    assert objects[-1] < objects[0] * 1.02
    assert resident[-1] < resident[0] + MOST_BYTES_MORE
