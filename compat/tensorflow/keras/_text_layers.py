"""Keras's layers of strings, which compute with TensorFlow whatever Keras runs on: the facade's tensors go through them."""

import functools
import sys
from collections.abc import Callable
from typing import Any, final

import keras
import numpy as np
from jax.experimental.sparse import BCOO

from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    Functional,
    backend,
    backend_utils,
    dtypes,
    feature_space,
    hashed_crossing,
    index_lookup,
    integer_lookup,
    layer_module,
    string_lookup,
    text_vectorization,
)

_FACADE = "tfdist_jax.compat.tensorflow"


@final
class _TensorFlowBackend:
    """What these layers, and datasets of images, use of Keras's backend for TensorFlow."""

    # By this end of the name Keras knows that `tf.math.bincount` is there.
    __name__ = "tensorflow"

    @property
    def core(self) -> "_TensorFlowBackend":
        """Itself."""
        return self

    numpy = nn = image = core

    def convert_to_tensor(self, x: Any) -> Any:
        """Return a tensor."""
        return _tf().convert_to_tensor(x)

    def resize(self, images: Any, size: Any, interpolation: str, data_format: str) -> Any:
        """Return images, `[height, width, channels]` or a batch of them, in another size; channels may be first."""
        if data_format == "channels_last":
            return _tf().image.resize(images, size, interpolation)
        return _tf().einsum(
            "...hwc->...chw", self.resize(_tf().einsum("...chw->...hwc", images), size, interpolation, "channels_last")
        )

    def shape(self, x: Any) -> tuple[int | None, ...]:
        """Return the sizes; of ragged axes None."""
        return tuple(x.get_shape())

    def cast(self, x: Any, dtype: Any) -> Any:
        """Return a tensor in another type."""
        return _tf().cast(x, dtype)

    def expand_dims(self, x: Any, axis: int) -> Any:
        """Return a tensor with an axis more."""
        return _tf().expand_dims(x, axis)

    def reshape(self, x: Any, newshape: Any) -> Any:
        """Return a tensor in another shape."""
        return _tf().reshape(x, newshape)

    def multiply(self, x: Any, y: Any) -> Any:
        """Return a product."""
        return _tf().multiply(x, y)

    def sum(self, x: Any, axis: Any = None) -> Any:
        """Return a sum along an axis."""
        return _tf().reduce_sum(x, axis)

    def one_hot(self, x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Any:
        """Return ones where the classes are, and zeros elsewhere."""
        hot = _tf().one_hot(x, num_classes, axis=axis, dtype=dtype or keras.config.floatx())
        return _tf().sparse.from_dense(hot) if sparse else hot

    def multi_hot(self, x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False) -> Any:
        """Return ones where one of a row's classes is, and zeros elsewhere."""
        hot = _tf().reduce_max(self.one_hot(x, num_classes, axis, dtype), axis=1 if len(self.shape(x)) > 1 else 0)
        return _tf().sparse.from_dense(hot) if sparse else hot


@final
class _NamedTensorFlow:
    """Keras's backend by TensorFlow's name: by another, these layers refuse ragged and sparse results."""

    def backend(self) -> str:
        """Return the name."""
        return "tensorflow"

    def __getattr__(self, name: str) -> Any:
        """Return what the backend has by this name."""
        return getattr(backend, name)


def _tf() -> Any:
    return sys.modules[_FACADE]


def _keep(original: Callable[..., Any]) -> Callable[..., Any]:
    def convert_tf_tensor(outputs: Any, dtype: Any = None) -> Any:
        """Return a tensor of the facade, which Keras takes as it is."""
        return outputs if dtype is None else _tf().cast(outputs, dtype)

    return convert_tf_tensor


def _accepting_strings(original: Callable[..., Any]) -> Callable[..., Any]:
    def is_backend_tensor_or_symbolic(x: Any, allow_none: bool = False) -> bool:
        return original(x, allow_none) or _tf().is_tensor(x)

    return is_backend_tensor_or_symbolic


def _keeping_strings(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
        if dtype in (None, "string") and _is_text(x):
            return _tf().convert_to_tensor(x, _tf().string)
        if isinstance(x, SparseTensor):
            x = BCOO((x.values, x.indices), shape=tuple(x.shape))
        return original(x, dtype, sparse, ragged)

    return convert_to_tensor


def _is_text(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "OSU"


def _fitting_strings(original: Callable[..., Any]) -> Callable[..., Any]:
    def _adjust_input_rank(self: Any, flat_inputs: list[Any]) -> Any:
        pairs = list(zip(flat_inputs, self._inputs, strict=True))
        # One example without an axis for rows, as in `Dataset.map` before `batch`: Keras 2 took it, and Keras 3 counts axes.
        examples = [_is_text(x) and wanted.shape[-1] != 1 and x.shape == wanted.shape[1:] for x, wanted in pairs]
        fitted = [_fit(x, tuple(wanted.shape)) if _is_text(x) else x for x, wanted in pairs]
        counted = [wanted if is_one else x for x, is_one, (_, wanted) in zip(fitted, examples, pairs, strict=True)]
        adjusted = original(self, counted)
        return [x if is_one else other for x, is_one, other in zip(flat_inputs, examples, adjusted, strict=True)]

    return _adjust_input_rank


def _fit(texts: Any, wanted: tuple[int | None, ...]) -> Any:
    """Return strings with a last axis of one more or less, where that makes them fit."""
    if texts.ndim == len(wanted) - 1 and wanted[-1] == 1:
        return _tf().expand_dims(texts, -1)
    return _tf().squeeze(texts, -1) if texts.ndim == len(wanted) + 1 and texts.shape[-1] == 1 else texts


@final
class _Kinds(dict[Any, str]):
    """Keras's names of types, by Python's and NumPy's; NumPy's for strings, one for each length, are one."""

    def get(self, dtype: Any, default: Any = None) -> Any:
        """Return the name of a type."""
        return "string" if isinstance(dtype, np.dtype) and dtype.kind in "OSU" else super().get(dtype, default)


def _with_strings(original: dict[Any, str]) -> dict[Any, str]:
    return _Kinds(original)


CHANGES = (
    Hook(
        dtypes,
        "PYTHON_DTYPES_MAP",
        _with_strings,
        None,
        "arrays of strings are arrays of objects, or have types by length",
    ),
    Hook(
        backend.core,
        "convert_to_tensor",
        _keeping_strings,
        "x dtype sparse ragged",
        "JAX has no strings",
        elsewhere=(backend,),
    ),
    Hook(Functional, "_adjust_input_rank", _fitting_strings, "self flat_inputs", "JAX has no strings"),
    Addition(backend, "tensorflow", _TensorFlowBackend()),
    *(
        Hook(module, "backend", instead(_NamedTensorFlow()), None, "tensors are the facade's")
        for module in (feature_space, hashed_crossing, index_lookup, integer_lookup, string_lookup, text_vectorization)
    ),
    Hook(backend_utils, "convert_tf_tensor", _keep, "outputs dtype", "Keras's backend would make 64 bits 32"),
    Hook(
        backend_utils.TFGraphScope,
        "__enter__",
        instead(lambda self: None),
        "self",
        "there are no tensors of another kind",
    ),
    Hook(
        layer_module,
        "is_backend_tensor_or_symbolic",
        _accepting_strings,
        "x allow_none",
        "strings are tensors, too",
    ),
)
