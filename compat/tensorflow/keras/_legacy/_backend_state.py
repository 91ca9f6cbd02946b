"""Functions of Keras 2's backend that had a state, a graph or a session behind them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import keras
import keras._tf_keras.keras as tf_keras

import tfdist_jax.compat.tensorflow as facade
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import KerasTensor, global_state, legacy_backend

# Its names load when they are touched, which type checkers do not see.
tf: Any = facade

_backend: Any = tf_keras.backend
_SESSION = (
    "TensorFlow 1's sessions are not there. Leave it out; let a GPU's memory grow with "
    "`tf.config.experimental.set_memory_growth(gpu, True)`, and `run` what a session ran as a `tf.function`."
)


def learning_phase() -> Any:
    """Return 1 in the call of a layer or model that trains, else 0."""
    context = global_state.get_global_attribute("current_call_ctx")
    training: Any = getattr(context, "training", None)
    return training if tf.is_tensor(training) else int(bool(training))


def _set_learning_phase(value: Any) -> None:
    """Accept 0, which is how layers are called unless they are told otherwise.

    Raises:
        NotImplementedError: If `value` is 1: there is no phase that all layers look at.
    """
    if value:
        raise NotImplementedError("There is no global learning phase in Keras 3. Call the model with `training=True`.")


def _in_train_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return `x` while training, else `alt`; either may be a function that makes it."""
    training = learning_phase() if training is None else training
    return legacy_backend.switch(training, x, alt) if tf.is_tensor(training) else _called(x if training else alt)


def _in_test_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return `x` while not training, else `alt`; either may be a function that makes it."""
    return _in_train_phase(alt, x, training)


def _called(value: Any) -> Any:
    return value() if callable(value) else value


@final
class BackendFunction:
    """What `keras.backend.function` returns: it computes symbolic tensors of a functional model from others.

    Args:
        inputs: The symbolic tensors that it is given values for; a learning phase among them is whether to train.
        outputs: One symbolic tensor, or several.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        listed = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        self._is_symbol = [isinstance(one, KerasTensor) for one in listed]
        symbols = [one for one in listed if isinstance(one, KerasTensor)]
        self._model: Any = keras.Model(symbols, outputs)
        self._wraps = isinstance(outputs, list) and len(outputs) == 1

    def __call__(self, inputs: Any) -> Any:
        """Return the outputs as NumPy arrays, for the values of the inputs."""
        values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(self._is_symbol):
            raise ValueError(f"The function takes {len(self._is_symbol)} inputs, got {len(values)}.")
        given = [value for value, symbol in zip(values, self._is_symbol, strict=True) if symbol]
        phases = [value for value, symbol in zip(values, self._is_symbol, strict=True) if not symbol]
        outputs = self._model(given, training=bool(phases and phases[0]))
        outputs = [outputs] if self._wraps and not isinstance(outputs, list) else outputs
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)


def _function(inputs: Any, outputs: Any, updates: Any = None, name: str | None = None, **_: Any) -> BackendFunction:
    """Return a function that computes symbolic tensors from others.

    Raises:
        NotImplementedError: If `updates` belong to it, which were operations of a graph.
    """
    tell_old_form("`keras.backend.function`", "`keras.Model(inputs, outputs)`")
    if updates:
        raise NotImplementedError("`updates` belong to TensorFlow 1's graphs. Write a `tf.function` that assigns.")
    return BackendFunction(inputs, outputs)


def _placeholder(
    shape: Sequence[int | None] | None = None,
    ndim: int | None = None,
    dtype: Any = None,
    sparse: bool = False,
    name: str | None = None,
    **_: Any,
) -> Any:
    """Return a symbolic tensor, the input of functional models."""
    tell_old_form("`keras.backend.placeholder`", "`keras.Input`")
    if shape is None and ndim is None:
        raise ValueError("`placeholder` needs `shape` or `ndim`.")
    full = tuple(shape) if shape is not None else (None,) * int(ndim or 0)
    return keras.Input(batch_shape=full, dtype=dtype, sparse=sparse, name=name)


def _gradients(loss: Any, variables: Any) -> Any:
    if isinstance(loss, KerasTensor):
        raise NotImplementedError(
            "`keras.backend.gradients` of symbolic tensors needs TensorFlow 1's graphs. Compute the loss under a `tf.GradientTape`."
        )
    return tf.gradients(loss, variables)


def _ctc_batch_cost(y_true: Any, y_pred: Any, input_length: Any, label_length: Any) -> Any:
    """Return the CTC loss of each row; the last class is the blank one."""
    labels = tf.cast(y_true, tf.int32)
    lengths = [tf.cast(tf.reshape(length, (-1,)), tf.int32) for length in (label_length, input_length)]
    logits = tf.math.log(tf.cast(y_pred, tf.float32) + keras.backend.epsilon())
    loss = tf.nn.ctc_loss(labels, logits, *lengths, logits_time_major=False, blank_index=-1)
    return tf.expand_dims(loss, 1)


def _logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the logarithm of the sum of exponentials."""
    return tf.reduce_logsumexp(x, axis, keepdims)


def _random_binomial(shape: Any, p: float = 0.0, dtype: Any = None, seed: Any = None) -> Any:
    """Draw zeros, and ones with probability `p`."""
    return legacy_backend.random_bernoulli(shape, p, dtype, seed)


def _normalize_in_training(x: Any, gamma: Any, beta: Any, reduction_axes: Any, epsilon: float = 1e-3) -> Any:
    """Normalize by a batch's own moments, which are returned with it."""
    mean, variance = tf.nn.moments(x, list(reduction_axes))
    if sorted(reduction_axes) != list(range(legacy_backend.ndim(x)))[:-1]:
        shape = [1 if axis in reduction_axes else size for axis, size in enumerate(x.shape)]
        broad = [None if one is None else tf.reshape(one, shape) for one in (mean, variance, beta, gamma)]
    else:
        broad = [mean, variance, beta, gamma]
    return tf.nn.batch_normalization(x, *broad, epsilon), mean, variance


def _local_conv(
    inputs: Any, kernel: Any, kernel_size: Any, strides: Any, output_shape: Any, data_format: Any = None
) -> Any:
    raise NotImplementedError(
        "Locally connected layers are not in Keras 3. Take patches with `keras.ops.image.extract_patches`, and multiply them."
    )


def _do_nothing(*args: Any) -> None:
    """Accept what concerned graphs."""


def _refusing_session(name: str) -> Callable[..., Any]:
    def session(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"`keras.backend.{name}`: {_SESSION}")

    return session


_ADDED: dict[str, Any] = {
    "learning_phase": learning_phase,
    "set_learning_phase": _set_learning_phase,
    "in_train_phase": _in_train_phase,
    "in_test_phase": _in_test_phase,
    "function": _function,
    "placeholder": _placeholder,
    "logsumexp": _logsumexp,
    "random_binomial": _random_binomial,
    "normalize_batch_in_training": _normalize_in_training,
    "local_conv1d": _local_conv,
    "local_conv2d": _local_conv,
    "manual_variable_initialization": _do_nothing,
    "reset_uids": _do_nothing,
    "get_session": _refusing_session("get_session"),
    "set_session": _refusing_session("set_session"),
}


def _of_backend(name: str) -> Callable[..., Any]:
    @functools.wraps(_ADDED[name] if name in _ADDED else getattr(_backend, name))
    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(_backend, name)(*args, **kwargs)

    return function


def _for_keras_alone() -> Iterator[Change]:
    """Give `keras.backend`, which programs of Keras 2 import by itself, what `tf.keras.backend` has."""
    names = {name for name, value in vars(_backend).items() if name[0] != "_" and callable(value)}
    for name in sorted(names | set(_ADDED)):
        if not hasattr(keras.backend, name):
            yield Addition(keras.backend, name, _of_backend(name))


CHANGES: tuple[Change, ...] = (
    *(Addition(_backend, name, value) for name, value in _ADDED.items()),
    Hook(_backend, "gradients", instead(_gradients), "loss variables", "symbolic tensors have none; not called"),
    Hook(
        _backend,
        "ctc_batch_cost",
        instead(_ctc_batch_cost),
        "y_true y_pred input_length label_length",
        "Keras's own calls a function of TensorFlow 1; not called",
    ),
    *_for_keras_alone(),
)
