"""What the compiled steps cost, exactly: floating-point operations, memory and communication."""

import re
import sys
from pathlib import Path

import pytest

import tfdist_jax.compat.tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import contenders


def figures(compiled):
    text = compiled.as_text()
    return {
        "flops": compiled.cost_analysis()["flops"],
        "temp bytes": compiled.memory_analysis().temp_size_in_bytes,
        "all-reduces": len(re.findall(r" all-reduce(?:-start)?\(", text)),
    }


# Compile for up to half a minute.
LARGE = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("resnet", "resnet50")]


@pytest.mark.parametrize("model", ["mlp", "cnn", "transformer", *LARGE])
def test_a_custom_loop_costs_what_the_hand_written_step_costs(model):
    _, hand = contenders.hand_written(model)
    _, ours = contenders.custom_loop(tf, model)
    expected, actual = figures(hand()), figures(ours())
    # Means of moving statistics may be divided before or after the reduction.
    assert actual["flops"] == pytest.approx(expected["flops"], rel=1e-4)
    assert actual["all-reduces"] == expected["all-reduces"]
    assert actual["temp bytes"] <= expected["temp bytes"] * 1.005
