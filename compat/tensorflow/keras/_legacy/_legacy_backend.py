"""`tf.keras.backend`: Keras 3 keeps it as functions written with TensorFlow, which here are given this TensorFlow."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras._tf_keras.keras as tf_keras

import tfdist_jax.compat.tensorflow as facade
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import legacy_backend

# Its names load when they are touched, which type checkers do not see.
tf: Any = facade


class _NoTensor:
    """A kind of tensor that is not there: nothing is an instance of it."""


class _WhenAsked:
    """What `_tensorflow` returns, made when it is asked for something: Keras may load before TensorFlow's names do."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_tensorflow(), name)


@functools.cache
def _tensorflow() -> Any:
    return _Fallback(
        tf,
        init_scope=contextlib.nullcontext,
        **{kind: getattr(tf, kind, _NoTensor) for kind in ("SparseTensor", "RaggedTensor")},
        compat=types.SimpleNamespace(v1=_version_1()),
        __internal__=types.SimpleNamespace(EagerTensor=tf.Tensor, tf2=types.SimpleNamespace(enabled=lambda: True)),
    )


class _Fallback:
    """A namespace's own names, and another's for all that it has not."""

    def __init__(self, other: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


def _print_tensor(x: Any, message: str = "", summarize: int = 3) -> Any:
    """Print `message` and the tensor when it is computed, and return it."""
    tf.print(message, x, summarize=summarize)
    return x


def _softmax(x: Any, axis: int = -1) -> Any:
    return tf.nn.softmax(x, axis=axis)


def _int_shape(x: Any) -> tuple[int | None, ...] | None:
    return tuple(x.shape) if hasattr(x, "shape") else None


def _set_value(x: Any, value: Any) -> Any:
    return x.assign(value)


def _batch_set_value(tuples: Iterable[tuple[Any, Any]]) -> None:
    for x, value in tuples:
        x.assign(value)


def _version_1() -> _Fallback:
    """Return what differs in TensorFlow 1's functions; the others are called alike."""
    renaming = functools.partial(_renaming, {"filter": "filters", "dilation_rate": "dilations"})
    return _Fallback(
        tf,
        nn=_Fallback(tf.nn, **{name: renaming(getattr(tf.nn, name)) for name in ("convolution", "conv2d_transpose")}),
        math=_Fallback(tf.math, in_top_k=lambda predictions, targets, k: tf.math.in_top_k(targets, predictions, k)),
        gradients=lambda ys, xs, colocate_gradients_with_ops: tf.gradients(ys, xs),
        assign=lambda variable, value: variable.assign(value),
        assign_add=lambda variable, value: variable.assign_add(value),
        assign_sub=lambda variable, value: variable.assign_sub(value),
    )


def _renaming(names: Mapping[str, str], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    return renamed


_backend: Any = tf_keras.backend
_DTYPE = "Keras's own takes a variable's dtype for an object; not called"

CHANGES = (
    Hook(
        legacy_backend,
        "tf",
        instead(_WhenAsked()),
        None,
        "the functions are written with TensorFlow: here with this one",
    ),
    # Losses find logits there; a traced tensor holds no attributes.
    Hook(
        legacy_backend, "softmax", instead(_softmax), "x axis", "hangs no logits on its result; not called", (_backend,)
    ),
    # Our shapes are tuples, which Keras hands out as they are.
    Hook(legacy_backend, "int_shape", instead(_int_shape), "x", "a plain tuple; not called", (_backend,)),
    Hook(_backend, "set_value", instead(_set_value), "x value", _DTYPE),
    Hook(_backend, "batch_set_value", instead(_batch_set_value), "tuples", _DTYPE),
    Addition(_backend, "print_tensor", _print_tensor),
)
