"""Random pipelines of transformations give the elements that TensorFlow's give, in their order, errors included."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

PROGRAM = Path(__file__).parents[2] / "parity/programs/_pipelines.py"


def load(tensorflow):
    """The module that makes pipelines, of one of the two."""
    spec = importlib.util.spec_from_file_location(f"pipelines_of_{tensorflow.__name__}", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    known = sys.modules.get("tensorflow")
    sys.modules |= {"tensorflow": tensorflow, spec.name: module}
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop("tensorflow")
        sys.modules |= {} if known is None else {"tensorflow": known}
    return module


# What such a dataset would hold is known to TensorFlow, and not to the facade, which runs functions to find out.
ERRORS_ALONE = "errors alone"


def outcome(pipelines, seed, length):
    """The elements, or of which class the error is that making them raises."""
    try:
        dataset, calls = pipelines.make(seed, length)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    except tf.errors.InvalidArgumentError:
        return ERRORS_ALONE
    return calls, pipelines.tell(dataset)


def are_lost_by_tensorflow(found, wanted):
    """Whether elements differ only in that TensorFlow's `rebatch` or `window` has taken an error for the end."""
    if isinstance(found, str) or isinstance(wanted, str):
        return False
    *before, last = wanted[1]
    return (
        any(call.startswith(("rebatch", "window")) for call in wanted[0])
        and last == "end"
        and before[-1:] == ["InvalidArgumentError"]
        and found[1][: len(before)] == before
    )


@pytest.mark.peers
@pytest.mark.exhaustive
def test_random_pipelines_give_tensorflows_elements():
    ours, real = load(tf), load(pytest.importorskip("tensorflow"))

    @settings(max_examples=600, deadline=None)
    @given(seed=st.integers(0, 2**32), length=st.integers(1, 10))
    def compare(seed, length):
        found = outcome(ours, seed, length)
        # What TensorFlow gives behind an error differs: of `interleave`, `window` 24 of 30 times nothing, 6 times the other elements.
        for _ in range(4):
            wanted = outcome(real, seed, length)
            errors_alone = found == ERRORS_ALONE and set(wanted[1]) <= {"InvalidArgumentError", "end"}
            if found == wanted or errors_alone or are_lost_by_tensorflow(found, wanted):
                return
        assert found == wanted

    compare()
