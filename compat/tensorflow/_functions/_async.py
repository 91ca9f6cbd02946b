"""`tf.experimental.async_scope`: JAX computes while Python goes on in any case."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def async_scope() -> Iterator[None]:
    """Change nothing: operations are started one after another, and errors come where a value is asked for."""
    yield


def async_clear_error() -> None:
    """Do nothing: an error belongs to the value that could not be computed."""
