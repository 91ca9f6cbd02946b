"""Programs that `import tensorflow`, in whatever form, get the facade; libraries do not."""

import textwrap

import pytest

from tfdist_jax.compat import _alias

IMPORTS = """
import importlib
import sys
import tensorflow
import tensorflow as tf
import tensorflow.keras
import tensorflow.keras as keras1
import tensorflow.keras.backend as K
import tensorflow.data.experimental as experimental
from tensorflow import distribute, keras as keras2
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense, Input
from tensorflow.keras.models import Model

assert tensorflow is tf is sys.modules["tfdist_jax.compat.tensorflow"]
assert keras1 is keras2 is tf.keras is importlib.import_module("tensorflow.keras") is __import__("tensorflow").keras
assert layers.Dense is Dense is tf.keras.layers.Dense is __import__("tensorflow.keras.layers", fromlist=["Dense"]).Dense
assert K is tf.keras.backend and Model is tf.keras.Model and Input is tf.keras.Input
assert experimental is tf.data.experimental and distribute is tf.distribute
assert "tensorflow" not in sys.modules
print(Dense(3)(Input((2,))).shape)
"""


def test_all_forms_of_import_give_the_facade(run_prepared):
    ran = run_prepared(IMPORTS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "(None, 3)\n"


def test_imports_inside_functions_give_the_facade(run_prepared):
    program = """
        def make():
            from tensorflow.keras.layers import Dense
            import tensorflow.keras.layers as layers
            return Dense is layers.Dense
        print(make())
    """
    assert run_prepared(program).stdout == "True\n"


def test_imports_in_code_that_the_program_makes_of_strings_give_the_facade(run_prepared):
    program = """
        exec("import tensorflow as tf; print(tf.__name__)", {})
        print(eval("__import__('tensorflow')", {}).__name__)
        exec("import importlib; print(importlib.import_module('tensorflow').__name__)", {})
    """
    assert run_prepared(program).stdout == "tfdist_jax.compat.tensorflow\n" * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorflow.python.client.session", "`tensorflow.python` is TensorFlow's private code"),
        ("tensorflow.no_such_thing", "No module named 'tensorflow.no_such_thing'"),
        ("tensorflow.kears.layers", "The nearest that is: `tf.keras`"),
    ],
)
def test_modules_that_are_not_there_are_import_errors(name, message):
    with pytest.raises(ModuleNotFoundError, match=message) as caught:
        _alias.resolve(name)
    assert name.startswith(caught.value.name)


@pytest.mark.parametrize(
    "name",
    [
        "tensorflow.keras.applications.mobilenet",
        "tensorflow.keras.callbacks",
        "tensorflow.keras.datasets.mnist",
        "tensorflow.keras.losses",
        "tensorflow.keras.mixed_precision",
        "tensorflow.keras.optimizers.schedules",
        "tensorflow.keras.preprocessing.image",
        "tensorflow.keras.regularizers",
        "tensorflow.keras.utils",
    ],
)
def test_legacy_namespaces_of_keras_can_be_imported(name):
    assert _alias.resolve(name).__name__.endswith(name.removeprefix("tensorflow."))


@pytest.mark.parametrize(
    "statement", ["from tensorflow import foo", "import tensorflow.foo", "from tensorflow.foo import bar"]
)
def test_programs_can_try_an_import(run_prepared, statement):
    program = f"try:\n    {statement}\nexcept ImportError as error:\n    print(error)"
    ran = run_prepared(program)
    assert ran.returncode == 0, ran.stderr
    assert "tf.foo` is not there (yet)" in ran.stdout


def test_tensorflow_itself_is_not_loaded(run_program, tmp_path):
    """Whatever lies at the front of the path under TensorFlow's name."""
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise AssertionError('this is not the facade')")
    ran = run_program("import tensorflow as tf; print(tf.__name__)")
    assert ran.stdout == "tfdist_jax.compat.tensorflow\n", ran.stderr


# Each looks for TensorFlow, uses it for what a training API does not have, and has a way without it.
WITHOUT_TENSORFLOW = """
import sys
from importlib.machinery import PathFinder

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "tensorflow" else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = NotInstalled()
import tensorflow as tf
"""
LIBRARIES = {
    "keras": """
        import keras, numpy as np
        from keras.src.utils.module_utils import tensorflow as found
        assert not found.available
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Rescaling(2.0), keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        model.save("model.keras")
        keras.models.load_model("model.keras")
    """,
    "orbax": """
        import numpy as np, orbax.checkpoint as ocp, pathlib
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(pathlib.Path("saved").absolute(), {"w": np.arange(3.0)})
        with ocp.StandardCheckpointer() as checkpointer:
            assert checkpointer.restore(pathlib.Path("saved").absolute())["w"][2] == 2
    """,
    "etils": """
        from etils import epath
        path = epath.Path("folder") / "text"
        path.parent.mkdir()
        path.write_text("words")
        assert path.read_text() == "words" and [p.name for p in epath.Path("folder").iterdir()] == ["text"]
    """,
    "flax": """
        import flax.io
        flax.io.makedirs("folder")
        assert flax.io.isdir("folder") and flax.io.io_mode is flax.io.BackendMode.DEFAULT
    """,
    "grain": """
        import grain
        assert list(grain.MapDataset.range(4).map(lambda x: x + 1).to_iter_dataset()) == [1, 2, 3, 4]
    """,
    "tensorflow_datasets": """
        import numpy as np, tensorflow_datasets as tfds
        class Numbers(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")
            def _info(self):
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"x": np.int64}))
            def _split_generators(self, downloads):
                return {"train": ((i, {"x": i * i}) for i in range(5))}
            def _generate_examples(self):
                pass
        builder = Numbers(data_dir="prepared", file_format="array_record")
        builder.download_and_prepare()
        assert sorted(int(row["x"]) for row in builder.as_data_source("train")) == [0, 1, 4, 9, 16]
    """,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_works_beside_the_facade(run_program, library):
    ran = run_program(WITHOUT_TENSORFLOW + textwrap.dedent(LIBRARIES[library]))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.peers
def test_libraries_still_find_the_real_tensorflow(run_program):
    program = """
        import sys
        import tensorflow as tf
        from keras.src.utils.module_utils import tensorflow as found
        assert found.available and found.__version__ and tf.__name__ == "tfdist_jax.compat.tensorflow"
        assert sys.modules["tensorflow"] is not tf
        import tensorflow as again
        assert again is tf
    """
    ran = run_program(program)
    assert ran.returncode == 0, ran.stderr
