"""Modules that programs of earlier TensorFlow 2 and Keras 2 import."""

import textwrap

import pytest

from tfdist_jax.compat.tensorflow._former import _conv_utils

IMPORTS = """
import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.keras import backend as K, layers
from tensorflow.python.keras.layers import Dense
from tensorflow.python.keras.layers.convolutional import Conv2D
import tensorflow.python.keras.backend as K2
import tensorflow.python.platform.gfile
from tensorflow.python.framework import dtypes, errors, ops, tensor_shape
from tensorflow.python.ops import array_ops, control_flow_ops, math_ops, nn_ops, random_ops, state_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.eager import context
from tensorflow.python.distribute import mirrored_strategy
from tensorflow.python.util import nest
from tensorflow.python.util.tf_export import keras_export
from tensorflow.keras.utils import to_categorical
import tensorflow.keras.layers.convolutional as convolutional

assert K is K2 and Dense is tf.keras.layers.Dense and Conv2D is layers.Conv2D is convolutional.Conv2D
assert tensorflow.python.platform.gfile.GFile is tf.io.gfile.GFile
assert dtypes.float32 is tf.float32 and errors.NotFoundError is tf.errors.NotFoundError
assert ops.convert_to_tensor is tf.convert_to_tensor and tensor_shape.TensorShape is tf.TensorShape
assert math_ops.reduce_sum is tf.reduce_sum and array_ops.concat is tf.concat and nest.flatten is tf.nest.flatten
assert random_ops.random_uniform is tf.random.uniform and mirrored_strategy.MirroredStrategy is tf.distribute.MirroredStrategy
assert context.executing_eagerly() and context.context().num_gpus() == context.num_gpus()
assert context.context().device_spec.device_type is None
assert control_flow_ops.cond is tf.cond and logging.info is tf.compat.v1.logging.info
v = tf.Variable(1.0)
state_ops.assign_add(v, 2.0)
assert float(v) == 3.0

@keras_export("mine")
class Mine(layers.Layer):
    pass

found = device_lib.list_local_devices()
assert [(one.name, one.device_type) for one in found] == [("/device:CPU:0", "CPU")], found
assert 'device_type: "CPU"' in str(found) and found[0].memory_limit == 268435456
print(Mine.__name__)
"""


def test_private_modules_give_public_names(run_prepared):
    ran = run_prepared(IMPORTS, devices=None)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "Mine\n"
    assert ran.stderr.count("`tensorflow.python`, TensorFlow's private code") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "from tensorflow.python.ops.nn_ops import dropout",
        "from tensorflow.python.client import session",
        "import tensorflow.python.nothing",
        "from tensorflow.python import pywrap_tensorflow",
    ],
)
def test_private_names_without_a_public_one_are_import_errors(run_prepared, statement):
    ran = run_prepared(f"try:\n    {statement}\nexcept ImportError as error:\n    print(error)")
    assert ran.returncode == 0, ran.stderr
    assert "Use the public name under `tf.`" in ran.stdout


KERAS_2 = """
import keras
from keras import backend as K
from keras.preprocessing.image import ImageDataGenerator
from keras.preprocessing.text import Tokenizer
from keras.utils import np_utils
from keras.utils.np_utils import to_categorical
from keras.utils.generic_utils import get_custom_objects
from keras.layers.core import *
from keras.layers.merge import add, concatenate
from keras.layers.normalization import BatchNormalization
from keras.engine.topology import Layer, InputSpec
from keras.engine.training import Model
from keras.optimizers import SGD, Adam, adam_v2
from keras.utils.conv_utils import conv_output_length

assert np_utils.to_categorical is to_categorical is keras.utils.to_categorical
assert Dense is keras.layers.Dense and Layer is keras.layers.Layer and Model is keras.Model
assert float(K.mean(K.constant([1.0, 3.0]))) == 2.0 and K.image_data_format() == "channels_last"
assert conv_output_length(10, 3, "valid", 2) == 4
import sys
print([m for m in sys.modules if m in ("keras.utils.np_utils", "keras.layers.merge")])
"""


def test_modules_of_keras_2_are_found(run_program):
    ran = run_program(KERAS_2)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "['keras.utils.np_utils', 'keras.layers.merge']\n"


def test_libraries_do_not_take_keras_3_for_keras_2(run_prepared, tmp_path):
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text(
        textwrap.dedent("""
        try:
            import keras.engine
            version = 2
        except ImportError:
            version = 3
    """)
    )
    program = f"""
        import sys
        sys.path.insert(0, {str(library.parent)!r})
        import tensorflow as tf
        import library
        print(library.version)
    """
    assert run_prepared(program).stdout == "3\n"


# What `conv_utils` of tf_keras 2.21 gives.
SIZES = {
    "same": ([5, 5, 3, 9], [20, 30, 20, 19]),
    "valid": ([4, 3, 2, 11], [21, 31, 24, 21]),
    "full": ([6, 7, 4, 7], [17, 25, 16, 17]),
}


@pytest.mark.parametrize("padding", SIZES)
def test_sizes_of_convolutions_are_those_of_keras_2(padding):
    forward, backward = SIZES[padding]
    output, transposed = _conv_utils.conv_output_length, _conv_utils.deconv_output_length
    sizes = [output(10, 3, padding, 2), output(10, 3, padding, 2, 2), output(9, 4, padding, 3)]
    assert [*sizes, _conv_utils.conv_input_length(5, 3, padding, 2)] == forward
    assert [
        transposed(10, 3, padding, None, 2),
        transposed(10, 4, padding, None, 3),
        transposed(10, 3, padding, 1, 2, 2),
        transposed(10, 3, padding, 0, 2),
    ] == backward
