"""`tf.Tensor` is `jax.Array`: methods, conversions, 64-bit types, what libraries see."""

import collections
import pprint
import subprocess
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from environment import LIMIT_S

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax import _user_code
from tfdist_jax.compat.tensorflow._tensors import _tensor


def test_tensor_has_tensorflows_methods():
    x = tf.constant([[1.0, 2.0]])
    assert isinstance(x, tf.Tensor) and isinstance(x, jax.Array)
    assert x.shape.as_list() == [1, 2] and x.get_shape() == (1, 2) and x.dtype.is_floating
    x.set_shape([1, None])
    with pytest.raises(ValueError, match="not compatible with supplied shape"):
        x.set_shape([2, 2])


def test_numpy_gives_a_copy_of_its_own_and_scalars():
    x = tf.constant([1.0, 2.0])
    array = x.numpy()
    array[0] = 5
    assert x[0] == 1 and type(tf.constant(1.5).numpy()) is np.float32


def test_traced_tensor_has_no_numpy_and_says_why():
    found = []

    @tf.function
    def program(x):
        found.append((hasattr(x, "numpy"), x.shape.as_list(), x.dtype == tf.float32, x.get_shape().rank))
        with pytest.raises(AttributeError, match="not known before the function runs"):
            x.numpy()
        return x

    program(tf.zeros([2, 3]))
    assert found == [(False, [2, 3], True, 2)]


def test_a_traced_tensor_is_printed_as_a_tensor_without_a_name(capsys):
    tf.function(lambda x: print(x, repr(x), f"{x}") or x)(tf.zeros([2, 3]))
    text = "shape=(2, 3), dtype=float32"
    assert capsys.readouterr().out == f"Tensor({text}) <tf.Tensor {text}> Tensor({text})\n"


def test_libraries_see_plain_tuples_and_numpy_dtypes():
    x = tf.zeros([2, 3])
    library = {"x": x}
    exec(compile("shape, dtype = x.shape, x.dtype", np.__file__, "exec"), library)
    assert type(library["shape"]) is tuple and type(library["dtype"]) is np.dtype("float32").__class__
    assert type(np.shape(x)) is tuple and type(keras.ops.shape(x)) is tuple


@pytest.mark.parametrize(
    ("filename", "is_user"),
    [
        (__file__, True),
        ("<stdin>", True),
        ("/home/me/train.py", True),
        (jax.__file__, False),
        (np.__file__, False),
        (subprocess.__file__, False),
        (_user_code.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        ("/opt/lib/site-packages/thing/__init__.py", False),
    ],
)
def test_code_is_a_users_or_a_librarys_by_its_file(filename, is_user):
    assert _user_code.is_user_file(filename) is is_user


def test_pythons_own_library_prints_tensors_for_the_user():
    pair = collections.namedtuple("Pair", "x")(tf.constant(1))
    assert repr(pair) == "Pair(x=<tf.Tensor: shape=(), dtype=int32, numpy=1>)"
    assert pprint.pformat([tf.constant(1)]) == "[<tf.Tensor: shape=(), dtype=int32, numpy=1>]"


def test_dtypes_that_tensorflow_lacks_stay_jaxs():
    assert jnp.issubdtype(jax.random.key(0).dtype, jax.dtypes.prng_key)


def test_references_are_equal_for_the_same_tensor():
    x = tf.constant(1.0)
    assert x.ref() == x.ref() and x.ref().deref() is x and hash(x.ref()) == hash(x.ref())
    assert x.ref() != tf.constant(1.0).ref() and "Reference wrapping" in repr(x.ref())


def test_float64_and_int64_are_whole_without_the_global_switch():
    assert not jax.config.jax_enable_x64
    assert tf.constant(np.float64(0.1)).numpy() == 0.1
    assert tf.constant(2**40).numpy() == 2**40
    assert (tf.constant(np.ones(1)) * 0.1).numpy()[0] == 0.1
    assert (0.1 * tf.constant(np.ones(1))).numpy()[0] == 0.1
    assert (tf.constant(np.int64(1)) + 2**40).numpy() == 2**40 + 1
    assert (tf.constant(np.ones(1)) - np.array([0.1])).numpy()[0] == 0.9
    assert jnp.ones(1).dtype == jnp.float32 and (tf.constant(1.0) * np.float64(2)).dtype == tf.float32


def test_operators_take_sequences():
    x = tf.constant([1.0, 2.0])
    assert (x * [1, 2]).numpy().tolist() == [1, 4]
    assert ([1, 2] - x).numpy().tolist() == [0, 0]
    assert (x == (1.0, 3.0)).numpy().tolist() == [True, False]


def test_tensor_does_not_share_memory_with_its_array():
    array = np.ones((500, 500), np.float32)
    x = tf.constant(array)
    array[:] = 2
    assert x[0, 0] == 1


def test_conversion_keeps_tensors_and_reads_variables():
    x, v, k = tf.constant(1.0), tf.Variable(2.0), keras.Variable(3.0)
    assert tf.convert_to_tensor(x) is x
    assert tf.convert_to_tensor(v) == 2 and tf.convert_to_tensor(k) == 3
    assert tf.convert_to_tensor([x, v, k, 4]).numpy().tolist() == [1, 2, 3, 4]
    assert tf.is_tensor(v) and tf.is_tensor(k) and not tf.is_tensor(np.ones(1)) and tf.is_tensor(tf.constant("a"))


def test_integers_are_known_while_a_function_is_traced():
    @tf.function
    def program(x):
        return tf.reshape(x, tf.constant([3, 2]))

    assert program(tf.zeros([2, 3])).shape == (3, 2)


def test_static_value_is_none_for_traced_tensors():
    found = []
    jax.jit(lambda x: found.append((tf.get_static_value(x), tf.is_symbolic_tensor(x))))(1.0)
    assert found == [(None, True)]
    assert tf.get_static_value([1, 2]).tolist() == [1, 2]


def test_a_function_of_keras_placeholders_becomes_a_part_of_the_model():
    inputs = keras.Input((2,))
    model = keras.Model(inputs, tf.add(inputs, 1.0))
    np.testing.assert_array_equal(model(np.zeros((1, 2))), [[1, 1]])


def test_arrays_of_other_libraries_are_converted():
    class Other:
        def __array__(self, dtype=None, copy=None):
            return np.ones(2, np.float64)

    assert tf.convert_to_tensor(Other()).dtype == tf.float64


def test_texts_are_bytes_on_the_host():
    text = tf.constant(["a", "é"])
    assert text.dtype == tf.string and text.shape == (2,) and text.numpy().tolist() == [b"a", "é".encode()]
    assert tf.constant("a", shape=[2]).numpy().tolist() == [b"a", b"a"]
    assert tf.constant(np.array(["a"])).numpy().tolist() == [b"a"]
    with pytest.raises(TypeError, match="Cannot convert 'a'"):
        tf.constant("a", tf.float32)
    with pytest.raises(ValueError, match="Cannot convert strings"):
        tf.constant(np.array(["a"]), tf.float32)
    with pytest.raises(TypeError, match="dtype string"):
        tf.constant(1, tf.string)


def test_installing_again_changes_nothing():
    before = type(tf.zeros([1])).shape
    _tensor.install()
    assert type(tf.zeros([1])).shape is before


def test_importing_the_facade_starts_neither_jax_nor_keras():
    program = (
        "import sys; import tfdist_jax.compat.tensorflow as tf; "
        "from tfdist_jax._internals import backends_are_initialized as started; "
        "tf.float32, tf.add, tf.nn.relu, tf.random.set_seed(1); assert not started() and 'keras' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=LIMIT_S)


def test_number_that_does_not_fit_beside_an_integer_tensor_is_refused():
    for operate in (lambda x: x + 2**40, lambda x: 2**40 * x, lambda x: x < 2**40):
        with pytest.raises(ValueError, match="does not fit into a tensor of int32"):
            operate(tf.constant(1))
    with pytest.raises(ValueError, match="out-of-range"):
        tf.constant([-1], tf.uint64)
    assert tf.constant([2**64 - 1, 1], tf.uint64).numpy().tolist() == [2**64 - 1, 1]
