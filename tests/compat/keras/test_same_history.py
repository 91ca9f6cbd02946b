"""The same seeds give the same history under every synchronous strategy."""

import json
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).parents[2] / "programs/same_history.py"


def histories(ran, **replicas):
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout.splitlines()[-1])
    assert results["replicas"] == replicas
    return results["histories"]


@pytest.mark.slow("trainings under seven strategies")
def test_every_synchronous_strategy_gives_the_same_history(run_prepared):
    names = {"default": 1, "one device": 1, "1": 1, "2": 2, "4": 4}
    results = histories(run_prepared(PROGRAM, *names, devices=4), **names)
    ran = run_prepared(PROGRAM, "tpu", devices=4, option="--emulate-tpu")
    results |= histories(ran, tpu=4)
    expected = results.pop("default")
    assert len(expected["loss"]) == 3 and expected["loss"][2] < expected["loss"][0]
    for name, history in results.items():
        assert history.keys() == expected.keys()
        for key, values in expected.items():
            np.testing.assert_allclose(history[key], values, atol=2e-5, err_msg=f"{name}, {key}")
