"""Functions of Keras 2 that make data: in forms that Keras 3 no longer takes."""

import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Hook


def _resizing_smartly(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def image_dataset_from_directory(*args: Any, **kwargs: Any) -> Any:
        if "smart_resize" in kwargs:
            tell_old_form("`smart_resize=`", "`crop_to_aspect_ratio=`")
            kwargs["crop_to_aspect_ratio"] = kwargs.pop("smart_resize")
        return original(*args, **kwargs)

    return image_dataset_from_directory


def _drawing_whole_seeds(original: Callable[..., Any]) -> Callable[..., Any]:
    """Shuffle as Keras does, with a seed that Python 3.12 takes: its own is drawn from 0 to a float."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def skipgrams(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        if not given.arguments["shuffle"] or given.arguments["seed"] is not None:
            return original(*args, **kwargs)
        couples, labels = original(**given.arguments | {"shuffle": False})
        seed = random.randint(0, 10_000_000)
        for values in (couples, labels):
            random.seed(seed)
            random.shuffle(values)
        return couples, labels

    return skipgrams


CHANGES = (
    Hook(
        keras.utils,
        "image_dataset_from_directory",
        _resizing_smartly,
        "directory",
        "`smart_resize=`",
        (keras.preprocessing, tf_keras.utils, tf_keras.preprocessing),
    ),
    Hook(
        tf_keras.preprocessing.sequence,
        "skipgrams",
        _drawing_whole_seeds,
        "sequence vocabulary_size window_size negative_samples shuffle categorical sampling_table seed",
        "Python 3.12 draws no integers up to a float",
    ),
)
