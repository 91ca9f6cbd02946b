"""Profiles of a part of a program, for TensorBoard."""

import logging
import warnings
from typing import Any

import jax

_log = logging.getLogger("tfdist_jax")
_is_profiling = False


def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: Any = None) -> None:
    """Begin to record.

    Args:
        graph: TensorFlow's graphs; there are none, which a warning says once.
        profiler: Whether to record a profile.
        profiler_outdir: The folder for the profile, without which none is recorded.
    """
    global _is_profiling
    if not profiler:
        if graph:
            warn_of_graphs()
        return
    if profiler_outdir is None:
        _log.warning("No `profiler_outdir` passed to trace_on(). Profiler won't be enabled.")
        return
    if _is_profiling:
        warnings.warn("Must disable trace before enabling a new one.", stacklevel=2)
        return
    jax.profiler.start_trace(profiler_outdir)
    _is_profiling = True


def trace_export(name: str, step: Any = None, profiler_outdir: Any = None) -> None:
    """Stop recording and write the profile."""
    trace_off()


def trace_off() -> None:
    """Stop recording."""
    global _is_profiling
    if _is_profiling:
        _is_profiling = False
        jax.profiler.stop_trace()


def graph(graph_data: Any) -> bool:
    """Write nothing: there are no graphs of TensorFlow; a warning says so once."""
    warn_of_graphs()
    return False


_has_warned = False


def warn_of_graphs() -> None:
    """Say once that there are no graphs."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(
            "No graph is written for TensorBoard: functions are compiled by XLA. "
            "Show `tf.function(...).experimental_get_compiler_ir` or a profile instead.",
            stacklevel=3,
        )
