"""Traces of a program, taken by JAX's profiler."""

import os
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._platform import _errors


class Trace(jax.profiler.TraceAnnotation):
    """A named part of a trace: the block of a `with` statement.

    Ref: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/Trace
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Name the part; `kwargs` are shown beside the name."""
        super().__init__(name, **kwargs)


def start(logdir: str | os.PathLike[str], options: Any = None) -> None:
    """Start a trace, to be written below `logdir`.

    Raises:
        AlreadyExistsError: A trace is being taken.
        NotImplementedError: `options` are given; `jax.profiler.start_trace` takes JAX's own.

    Ref: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/start
    """
    if options is not None:
        raise NotImplementedError("`options` of the profiler are not supported; use jax.profiler.start_trace.")
    try:
        jax.profiler.start_trace(os.fspath(logdir))
    except RuntimeError as error:
        raise _errors.AlreadyExistsError(None, None, str(error)) from error


def stop(save: bool = True) -> None:
    """End the trace and write it.

    Raises:
        UnavailableError: No trace is being taken.
        NotImplementedError: `save` is False; JAX always writes a trace.

    Ref: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/stop
    """
    if not save:
        raise NotImplementedError("A trace cannot be dropped; call stop() and delete its folder.")
    try:
        jax.profiler.stop_trace()
    except RuntimeError as error:
        raise _errors.UnavailableError(None, None, str(error)) from error


@final
class Profile:
    """A trace of the block of a `with` statement.

    Ref: https://www.tensorflow.org/api_docs/python/tf/profiler/experimental/Profile
    """

    def __init__(self, logdir: str | os.PathLike[str], options: Any = None) -> None:
        """Remember where to write; takes the arguments of `start`."""
        self._arguments = (logdir, options)

    def __enter__(self) -> None:
        """Start the trace."""
        start(*self._arguments)

    def __exit__(self, *_: object) -> None:
        """End the trace and write it."""
        stop()
