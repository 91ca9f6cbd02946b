"""The examples, as a user runs them."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow("trains two models")
def test_the_demo_reaches_its_accuracy_and_draws_a_picture(run_prepared, tmp_path):
    ran = run_prepared(EXAMPLES / "digits.py", devices=8)
    assert ran.returncode == 0, ran.stderr
    accuracies = [float(a) for a in re.findall(r"test accuracy (\d\.\d+) after", ran.stdout)]
    assert len(accuracies) == 2
    assert min(accuracies) >= 0.96
    assert "8 replicas on" in ran.stdout
    assert "A batch lies on" in ran.stdout
    assert (tmp_path / "digits.png").stat().st_size > 10_000


@pytest.mark.slow("trains under three strategies")
def test_flax_losses_are_the_same_under_all_strategies(run_script):
    losses = {}
    for strategy in ("single", "mirrored", "fsdp"):
        ran = run_script(EXAMPLES / "flax_digits.py", "--strategy", strategy, "--epochs", "4")
        assert ran.returncode == 0, ran.stderr
        losses[strategy] = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", ran.stdout)]
        assert float(ran.stdout.split()[-1]) > 0.88
    assert len(losses["single"]) == 4
    assert losses["mirrored"] == pytest.approx(losses["single"], abs=2e-4)
    assert losses["fsdp"] == pytest.approx(losses["single"], abs=2e-4)


def test_the_flax_example_stays_short():
    assert len((EXAMPLES / "flax_digits.py").read_text().splitlines()) < 80
