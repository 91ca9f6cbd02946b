"""Libraries that are named for the facade (`--alias-for`): what they see that a program does not, and what they may mention."""

import os

import pytest

LIBRARY = """
import importlib.util
import tensorflow as tf
from keras.src.engine import keras_tensor
from tensorflow.python.eager import monitoring

tf.no_gradient("Mine>Op")
has_legacy = importlib.util.find_spec("tensorflow.keras.optimizers.legacy") is not None
has_nothing = importlib.util.find_spec("tensorflow.keras.nothing_at_all") is None
gauge = monitoring.BoolGauge("/mine", "Tells.", "label")

def count(queue: tf.queue.FIFOQueue = None, x: "tf.Tensor" = None):
    return isinstance(x, tf.Graph), isinstance(x, tf.Operation)

def make_queue():
    return tf.queue.FIFOQueue(3, [tf.int32])

def is_variable(x):
    return isinstance(x, tf.Variable)

def load():
    try:
        tf.load_op_library("mine.so")
    except tf.errors.NotFoundError as error:
        return str(error)

class Scale(tf.keras.layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight("scale/w", shape=input_shape[-1:].as_list(), initializer="ones")
        self.rank = input_shape.rank

    def call(self, x):
        return x * self.w
"""


def _with_own(folder):
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def run_library(run_script, tmp_path):
    """Run a program with an installed library `mine` that is named for the facade."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "mine.py").write_text(LIBRARY)

    def run(program):
        runner = ("-m", "tfdist_jax", "run", "--alias-for", "mine")
        return run_script(program, runner=runner, env={"PYTHONPATH": _with_own(folder)})

    return run


def test_a_named_library_may_mention_what_is_not_there(run_library):
    ran = run_library(
        """
        import mine, tensorflow as tf
        print(mine.count(x=tf.constant(1.0)), mine.has_legacy, mine.has_nothing, mine.keras_tensor.KerasTensor is tf.keras.KerasTensor)
        mine.gauge.get_cell("a").set(True)
        print(mine.gauge.get_cell("a").value(), hasattr(tf, "queue"))
        try:
            mine.make_queue()
        except NotImplementedError as error:
            print(error)
        print(mine.load())
        """
    )
    first, second, queue, compiled = ran.stdout.splitlines()
    assert first == "(False, False) True True True", ran.stderr
    assert second == "True False"
    assert "`tf.queue` is not there" in queue and "from_generator" in queue
    assert "mine.so" in compiled and "Python" in compiled


def test_a_named_library_sees_keras_2s_variables_and_shapes(run_library):
    ran = run_library(
        """
        import mine, tensorflow as tf
        layer = mine.Scale()
        print(layer(tf.ones((2, 3))).shape, layer.rank, layer.w.shape.as_list())
        print(mine.is_variable(layer.w), mine.is_variable(tf.Variable(1.0)), mine.is_variable(tf.ones(1)), isinstance(layer.w, tf.Variable))
        """
    )
    assert ran.stdout == "(2, 3) 2 [3]\nTrue True False False\n", ran.stderr
