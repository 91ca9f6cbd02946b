"""Writers of event files."""

# The generated modules make their classes when they are loaded.
# pyright: reportAttributeAccessIssue=false

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, final

import jax
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import directory_check

from tfdist_jax.compat.tensorflow._tensors._tensor import is_tracing
from tfdist_jax.compat.tensorflow.summary import _recording

_FLUSH_MILLIS = 120_000
_numbers = itertools.count()


@final
class SummaryWriter:
    """Writes summaries into one event file.

    Ref: https://www.tensorflow.org/api_docs/python/tf/summary/SummaryWriter
    """

    def __init__(self, logdir: Any = None, flush_millis: int = _FLUSH_MILLIS, filename_suffix: str = ".v2") -> None:
        """Begin a file in the folder `logdir`; a writer without a folder writes nothing."""
        self._flush_s, self._flushed_at, self._closed = flush_millis / 1000, time.monotonic(), False
        self._file = None
        if logdir is not None:
            # Writers of one folder may begin in the same second.
            suffix = f".{os.getpid()}.{next(_numbers)}{filename_suffix}"
            directory_check(os.fspath(logdir))
            self._file = EventsWriter(os.path.join(os.fspath(logdir), "events"), suffix)
            self._file.flush()

    def as_default(self, step: Any = None) -> AbstractContextManager["SummaryWriter"]:
        """Return a context in which summaries go to this writer.

        Args:
            step: The default step inside, unless None.
        """
        self._check_open()
        return self._as_default(step)

    @contextmanager
    def _as_default(self, step: Any) -> Iterator["SummaryWriter"]:
        with _recording.using(self, step):
            try:
                yield self
            finally:
                wait_for_summaries()

    def set_as_default(self, step: Any = None) -> None:
        """Let summaries go to this writer from now on, with the default `step` unless it is None."""
        self._check_open()
        _recording.change(**_recording.defaults(self, step))

    def init(self) -> None:
        """Do nothing: the file is there already."""

    def flush(self) -> None:
        """Put what was written on disk, including what compiled functions are about to write."""
        wait_for_summaries()
        self._flush()

    def close(self) -> None:
        """Put what was written on disk and end the file."""
        if self._closed:
            return
        wait_for_summaries()
        self._closed = True
        if self._file is not None:
            self._file.close()

    def add(self, value: Summary.Value, step: int) -> None:
        """Write a summary."""
        if self._file is None or self._closed:
            return
        self._file.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
        if time.monotonic() - self._flushed_at > self._flush_s:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None and not self._closed:
            self._file.flush()
        self._flushed_at = time.monotonic()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"SummaryWriter {self!r} is already closed")


def create_file_writer(
    logdir: Any,
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
    experimental_trackable: bool = False,
    experimental_mesh: Any = None,
) -> SummaryWriter:
    """Return a writer into a new event file.

    Args:
        logdir: The folder; made if it is not there.
        max_queue: Unused: summaries are written at once, into the file's buffer.
        flush_millis: The longest time that summaries stay in the buffer while others follow; two minutes if None.
        filename_suffix: How the file's name ends; ".v2" if None.
        name: Unused.
        experimental_trackable: Unused.
        experimental_mesh: Unused.
    """
    return SummaryWriter(logdir, _FLUSH_MILLIS if flush_millis is None else flush_millis, filename_suffix or ".v2")


def create_noop_writer() -> SummaryWriter:
    """Return a writer that writes nothing."""
    return SummaryWriter()


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> None:
    """Put on disk what `writer`, the default one if None, was given."""
    writer = writer or _recording.current().writer
    if writer is not None:
        writer.flush()


_is_staged = False


def stage() -> None:
    """Remember that a compiled function writes summaries: they are written some time after its call."""
    global _is_staged
    _is_staged = True


def wait_for_summaries() -> None:
    """Wait until the compiled functions that were called have written their summaries."""
    if _is_staged and not is_tracing():
        jax.effects_barrier()
