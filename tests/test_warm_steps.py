"""What a warm training step passes of the project: a bound on the layers between the user and the compiled program."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import bench_modules

from tfdist_jax import _internals

WAYS = {
    "loop": lambda: bench_modules.loop_step(compiled=False),
    "tf.function loop": lambda: bench_modules.loop_step(compiled=True),
    "fit": bench_modules.fit_step,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_warm_step_passes_few_modules(way):
    # An error of the data comes in its own step, and the steps go on behind it: one module of these. One ends blocks that are interrupted.
    passed = bench_modules.passed(WAYS[way]())
    assert 5 <= passed["modules"] <= 24 + _internals.takes_trace_away(), passed["names"]
