"""`tf.io`: whole files as strings."""

import os
from typing import Any

from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _gfile


def read_file(filename: Any, name: str | None = None) -> HostTensor:
    """Return a file's bytes as a string tensor."""
    with _gfile.GFile(_name(filename), "rb") as file:
        return convert_to_tensor(file.read())


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """Write a string to a file, making its folder if it is not there."""
    path = _name(filename)
    _gfile.makedirs(os.path.dirname(path) or ".")
    with _gfile.GFile(path, "wb") as file:
        file.write(convert_to_tensor(contents).numpy())


def matching_files(pattern: Any, name: str | None = None) -> HostTensor:
    """Return the paths that match a pattern, or any of several, as a string tensor."""
    patterns = convert_to_tensor(pattern).numpy()
    names = [patterns] if isinstance(patterns, bytes) else list(patterns)
    return convert_to_tensor(_gfile.glob([one.decode() for one in names]), "string")


def match_filenames_once(pattern: Any, name: str | None = None) -> HostTensor:
    """Return the paths that match a pattern, or any of several, as they are now: a string tensor `[n]`.

    Differs from TensorFlow, which returns a variable that holds them.
    Ref: https://www.tensorflow.org/api_docs/python/tf/io/match_filenames_once
    """
    return matching_files(pattern)


def _name(filename: Any) -> str:
    return convert_to_tensor(filename).numpy().decode()
