"""The guide's programs and tests, under pytest."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.exhaustive
def test_the_tests_of_the_guide_pass(run_script, tmp_path):
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    tests = [name for name, _ in blocks if name.startswith("test_")]
    assert len(tests) == 3 and len(blocks) == 5
    ran = run_script(
        tmp_path / tests[0],
        *tests[1:],
        runner=("-m", "tfdist_jax", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^5 passed", ran.stdout, re.MULTILINE), ran.stdout
