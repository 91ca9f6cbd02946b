"""Programs with tapes give under the facade what they give under TensorFlow: values, None, and errors."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import tfdist_jax.compat.tensorflow as tf

SCRIPT = Path(__file__).with_name("gradient_tape_programs.py")


def load_programs():
    spec = importlib.util.spec_from_file_location("gradient_tape_programs", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(found, wanted, where=""):
    """Assert equal structure, None in the same places, and equal numbers."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key in wanted:
            same(found[key], wanted[key], f"{where}[{key!r}]")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            same(a, b, f"{where}[{i}]")
    elif wanted is None:
        assert found is None, where
    else:
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6, err_msg=where)


def words(text):
    return re.findall(r"\w+", text)


def difference(name, ours, theirs):
    """Say how the facade's result differs from TensorFlow's, or return None."""
    try:
        if "error" in theirs:
            assert ours.get("error") == theirs["error"]
            # The same words to begin with: values are shown differently, and advice may follow.
            assert words(ours["text"])[:5] == words(theirs["text"])[:5]
        else:
            assert "value" in ours
            same(ours["value"], theirs["value"])
    except AssertionError as error:
        return f"{name}: {error}\nfacade: {ours}\nTensorFlow: {theirs}"
    return None


@pytest.mark.slow("TensorFlow runs the same programs")
@pytest.mark.peers
def test_programs_give_what_they_give_under_tensorflow(run_script):
    printed = run_script(SCRIPT)
    assert printed.returncode == 0, printed.stderr
    wanted = json.loads(printed.stdout.splitlines()[-1])
    programs = load_programs()
    found = programs.results(tf)
    assert found.keys() == wanted.keys()
    differences = [difference(name, json.loads(json.dumps(found[name])), wanted[name]) for name in wanted]
    assert not any(differences), "\n".join(filter(None, differences))
    assert len(wanted) > 60
