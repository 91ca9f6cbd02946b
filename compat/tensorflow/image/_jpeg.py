"""JPEG files decoded by libjpeg-turbo, with TensorFlow's settings: the same pixels."""

import functools
import importlib
from typing import Any

import numpy as np

_SPACES = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}
_WANTED = {1: "GRAY", 3: "RGB"}
# TensorFlow's default is the fast one.
_METHODS = {"": True, "INTEGER_FAST": True, "INTEGER_ACCURATE": False}


@functools.lru_cache(1)
def _library() -> Any:
    try:
        return importlib.import_module("simplejpeg")
    except ModuleNotFoundError:
        return None


def decode(data: bytes, channels: int, *, ratio: int = 1, fancy: bool = True, method: str = "") -> np.ndarray | None:
    """Return the pixels of a JPEG file, `[height, width, channels]` uint8; None for what is not decoded here.

    That is a file that is damaged, or of other colours than gray and RGB; or any, if the package is not installed.

    Args:
        data: The file's bytes.
        channels: 1 or 3, or 0 for the file's own number.
        ratio: How many times smaller the image becomes: 1, 2, 4 or 8.
        fancy: Whether colours of fewer pixels than the brightness are smoothed.
        method: How cosines are computed: "INTEGER_FAST" (the default) or "INTEGER_ACCURATE".
    """
    library = _library()
    if library is None or method not in _METHODS:
        return None
    try:
        height, width, space, _ = library.decode_jpeg_header(data)
        mode = _WANTED.get(channels, _SPACES.get(space))
        if mode is None or space not in _SPACES:
            return None
        smaller = {"min_height": -(-height // ratio), "min_width": -(-width // ratio)} if ratio > 1 else {}
        return library.decode_jpeg(data, mode, fastdct=_METHODS[method], fastupsample=not fancy, **smaller)
    except ValueError:
        return None
