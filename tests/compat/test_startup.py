"""Keras starts on JAX and hooked, whatever is set; TensorFlow's environment settings reach JAX."""

import json
import os

import jax
import pytest

from tfdist_jax.compat.tensorflow._platform import _environment

HOOKED = """
from tfdist_jax.compat.tensorflow.keras import _internals
import keras
assert keras.config.backend() == "jax", keras.config.backend()
assert "stored" in vars(_internals.JaxVariable), "the hooks are missing"
print("hooked")
"""

MORE_STARTS = (
    "import keras, tensorflow as tf",
    "import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\nimport tensorflow as tf, keras",
    "import os\nimport tensorflow as tf\nos.environ['KERAS_BACKEND'] = 'torch'\ntf.keras",
    "import os\nos.environ.pop('KERAS_BACKEND')\nimport keras",
)


@pytest.fixture
def other_backend(tmp_path):
    """A home folder whose keras.json asks for TensorFlow."""
    folder = tmp_path / "home" / ".keras"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "keras.json").write_text(json.dumps({"backend": "tensorflow", "floatx": "float32"}))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "program",
    [
        "import tensorflow as tf",
        "import keras",
        "import tensorflow as tf, keras\nassert tf.keras.layers.Dense is keras.layers.Dense",
        "import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\nimport keras",
        *(pytest.param(program, marks=pytest.mark.exhaustive) for program in MORE_STARTS),
    ],
)
def test_keras_starts_on_jax_with_hooks(run_program, run_script, other_backend, program):
    ran = run_program(f"{program}\n{HOOKED}", env={"KERAS_BACKEND": "tensorflow"})
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "hooked\n"


def test_plain_scripts_get_the_same_keras(run_script, other_backend):
    ran = run_script(f"import tfdist_jax.compat.tensorflow as tf\n{HOOKED}", env={"KERAS_BACKEND": "torch"})
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "hooked\n"


def test_keras_that_was_loaded_on_jax_is_hooked(run_script):
    ran = run_script(f"import keras, tfdist_jax.compat.tensorflow as tf\n{HOOKED}", env={"KERAS_BACKEND": "jax"})
    assert ran.returncode == 0, ran.stderr


def test_keras_that_was_loaded_with_another_backend_is_an_error(run_script):
    ran = run_script("import keras, tfdist_jax.compat.tensorflow as tf", env={"KERAS_BACKEND": "numpy"})
    assert ran.returncode == 1
    assert "RuntimeError: Keras is loaded with the 'numpy' backend, but strategies need 'jax'." in ran.stderr
    assert "KERAS_BACKEND=jax" in ran.stderr


def test_keras_is_not_loaded_before_the_program_wants_it(run_program):
    program = (
        "import sys\nimport tensorflow as tf\ntf.constant(1.0)\nprint('keras' in sys.modules, 'flax' in sys.modules)"
    )
    assert run_program(program).stdout == "False False\n"


# JAX imports its plugins when it starts, as it does with CUDA's; this one shows what it would be told.
PLUGIN = """
import os

def initialize():
    print({name: os.environ.get(name) for name in ("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR")})
"""


@pytest.fixture
def memory_settings(run_program, tmp_path):
    """Run a program and return JAX's memory settings (preallocate, allocator) when it started."""
    folder = tmp_path / "jax_plugins" / "shown"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)

    def run(program, env):
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        ran = run_program(program, env={"PYTHONPATH": path, **env})
        assert ran.returncode == 0, ran.stderr
        shown = json.loads(ran.stdout.replace("'", '"').replace("None", "null"))
        return shown["XLA_PYTHON_CLIENT_PREALLOCATE"], shown["XLA_PYTHON_CLIENT_ALLOCATOR"]

    return run


USES_DEVICES = "import tensorflow as tf\n{}\ntf.distribute.MirroredStrategy().num_replicas_in_sync"
GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
ASYNC = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (None, None)),
        (GROWTH, ("false", None)),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, ("true", None)),
        (ASYNC, (None, "cuda_async")),
        ({"TF_GPU_ALLOCATOR": "other"}, (None, None)),
        (GROWTH | ASYNC, ("false", "cuda_async")),
        (GROWTH | {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, ("true", None)),
    ],
)
def test_memory_settings_are_those_of_the_environment(memory_settings, env, expected):
    assert memory_settings(USES_DEVICES.format(""), env) == expected


def test_memory_settings_may_follow_the_imports(memory_settings):
    assignments = f"import os\nos.environ.update({GROWTH | ASYNC})"
    assert memory_settings(USES_DEVICES.format(assignments), {}) == ("false", "cuda_async")


def test_memory_settings_are_in_time_for_keras(memory_settings):
    program = f"import os, keras, tensorflow as tf\nos.environ.update({GROWTH})\nkeras.layers.Dense(1).build((1, 1))"
    assert memory_settings(program, {}) == ("false", None)


def test_memory_settings_that_come_too_late_are_reported_once(monkeypatch, caplog):
    jax.devices()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    for _ in range(2):
        _environment.apply_environment()
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE")
    assert [record.message for record in caplog.records] == [
        "JAX has started already: XLA_PYTHON_CLIENT_PREALLOCATE take(s) effect in the next run only."
    ]
