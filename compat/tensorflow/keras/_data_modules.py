"""Keras's modules that make and read datasets, and old layers, with TensorFlow: the facade is theirs, which works with what they use.

Keras's other modules that compute with TensorFlow find the real one, if it is installed, or an error that says what they need.
"""

import sys
from types import ModuleType
from typing import Any, final

from tfdist_jax._user_code import see_as_user_file
from tfdist_jax.compat.tensorflow.keras._change import Hook, instead
from tfdist_jax.compat.tensorflow.keras._internals import (
    audio_dataset_utils,
    dataset_utils,
    discretization,
    feature_space,
    hashed_crossing,
    hashing,
    image_dataset_utils,
    index_lookup,
    integer_lookup,
    lazy_tensorflow,
    legacy_layers,
    module_utils,
    normalization,
    string_lookup,
    text_dataset_utils,
    text_vectorization,
    tf_utils,
    timeseries_dataset_utils,
)

_FACADE = "tfdist_jax.compat.tensorflow"
_OF_TEXTS: tuple[ModuleType, ...] = (
    feature_space,
    hashed_crossing,
    hashing,
    index_lookup,
    integer_lookup,
    string_lookup,
    text_vectorization,
    tf_utils,
)
_SERVED: tuple[ModuleType, ...] = (
    audio_dataset_utils,
    discretization,
    image_dataset_utils,
    legacy_layers,
    normalization,
    text_dataset_utils,
    timeseries_dataset_utils,
    *_OF_TEXTS,
)


@final
class _Facade:
    """The facade, which loads after Keras's hooks are made."""

    available = True

    def __getattr__(self, name: str) -> Any:
        """Return what the facade has by this name."""
        return getattr(sys.modules[_FACADE], name)


@final
class _ByCaller:
    """What Keras's functions import as TensorFlow when they run: the facade for those that it serves."""

    def __getattr__(self, name: str) -> Any:
        """Return the facade's or the real TensorFlow's name.

        Raises:
            ImportError: If the real one is needed and not installed.
        """
        if sys._getframe(1).f_globals is vars(dataset_utils):
            return getattr(_facade, name)
        return getattr(lazy_tensorflow, name)


_facade = _Facade()
for _module in _OF_TEXTS:  # They ask tensors for what TensorFlow's have.
    see_as_user_file(str(_module.__file__))
_REASON = "datasets and tensors are the facade's"
CHANGES = (
    *(Hook(module, "tf", instead(_facade), None, _REASON) for module in _SERVED),
    Hook(module_utils, "tensorflow", instead(_ByCaller()), None, "the facade for functions that make datasets"),
)
