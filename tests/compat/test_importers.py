"""Whoever imports the facade gets TensorFlow's arithmetic, by whatever form of import; whoever does not, JAX's.

What `import tensorflow` gives, `tests/parity/programs/ops_import_forms.py` compares.
"""

import jax.numpy as jnp
import pytest

import tfdist_jax.compat.tensorflow as facade
from tfdist_jax.compat._importers import imports_facade

FORMS = [
    "import tfdist_jax.compat.tensorflow as tf",
    "import tfdist_jax.compat.tensorflow",
    "import tfdist_jax.compat.tensorflow.keras",
    "import tfdist_jax.compat.tensorflow.keras as keras",
    "from tfdist_jax.compat import tensorflow as tf",
    "from tfdist_jax.compat.tensorflow import constant",
    "from tfdist_jax.compat.tensorflow.data import Dataset",
    "import importlib; importlib.import_module('tfdist_jax.compat.tensorflow.keras')",
    "__import__('tfdist_jax.compat.tensorflow')",
    "def load():\n    from tfdist_jax.compat.tensorflow import constant\nload()",
]
QUOTIENT = """
import jax.numpy as jnp
print((jnp.ones(1, "int32") / 2).dtype)
"""


def run_as_module(source, **names):
    """Run source as a user's module; return its globals."""
    namespace = {"__name__": "program", **names}
    exec(compile(source, "program.py", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_import_give_the_same_arithmetic(form, capsys):
    run_as_module(form + QUOTIENT)
    assert capsys.readouterr().out == "<dtype: 'float64'>\n"


@pytest.mark.parametrize("form", ["", "import keras", "import tfdist_jax.compat", "from tfdist_jax import Mirrored"])
def test_who_does_not_import_the_facade_has_jax_arithmetic(form, capsys):
    namespace = run_as_module(form + QUOTIENT)
    assert capsys.readouterr().out == "<dtype: 'float32'>\n"
    assert not imports_facade(namespace)


def test_who_is_handed_the_facade_has_its_arithmetic(capsys):
    run_as_module(QUOTIENT, tf=facade)
    assert capsys.readouterr().out == "<dtype: 'float64'>\n"


@pytest.mark.parametrize("form", [FORMS[2], FORMS[5], FORMS[-1]])
def test_who_loads_the_facade_has_its_arithmetic(form, run_script):
    ran = run_script(form + QUOTIENT)
    assert ran.stdout == "<dtype: 'float64'>\n", ran.stderr


def test_only_the_module_that_imports_counts(run_program, tmp_path):
    """Also where Keras's import loads the facade, or another module's."""
    (tmp_path / "helper.py").write_text(f"import tensorflow{QUOTIENT}")
    ran = run_program("import keras, helper" + QUOTIENT)
    assert ran.stdout == "<dtype: 'float64'>\n<dtype: 'float32'>\n", ran.stderr


def test_asking_again_costs_no_search():
    class Counting(dict):
        def values(self):
            raise AssertionError("searched")

    namespace = run_as_module("from tfdist_jax.compat.tensorflow import constant")
    assert imports_facade(Counting(namespace))
    assert jnp.ones(1).dtype == "float32"
