"""What importing costs, and what it must not do."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import {module}
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(module):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], capture_output=True, text=True, timeout=300, check=True
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def test_the_native_library_loads_neither_keras_nor_the_facade():
    loaded = modules_after("tfdist_jax")
    assert not {name for name in loaded if name.split(".")[0] in ("keras", "tensorflow", "grain")}
    assert not {name for name in loaded if name.startswith("tfdist_jax.compat")}


def test_the_native_library_adds_little_to_jax_and_flax():
    added = modules_after("tfdist_jax") - modules_after("jax, flax")
    assert len({name for name in added if not name.startswith("tfdist_jax")}) < 20


def test_the_facade_loads_keras_only_when_it_is_used():
    loaded = modules_after("tfdist_jax.compat.tensorflow")
    assert not {name for name in loaded if name.split(".")[0] in ("keras", "tensorflow", "tensorflow_datasets")}
