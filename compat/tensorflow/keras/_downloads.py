"""Data sets and weights that Keras downloads: where there is no network the error says where the file belongs."""

import functools
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError, URLError

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import file_utils


def _saying_where(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def urlretrieve(url: str, filename: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(url, filename, *args, **kwargs)
        except URLError as error:
            remedy = (
                f"{error.reason}. Without a network, fetch {url} on another machine and put the file, unchanged, at "
                f"{filename}: it is read from there. The folder follows from KERAS_HOME, or `cache_dir=` of `get_file`."
            )
            # What Keras shows of the two.
            setattr(error, "msg" if isinstance(error, HTTPError) else "reason", remedy)
            raise

    return urlretrieve


CHANGES = (
    # All of Keras's downloads go through it.
    Hook(file_utils, "urlretrieve", _saying_where, "url filename", "without a network, say where the file belongs"),
)
