"""`tf.train.checkpoints_iterator`: the checkpoints that another process saves, as they come."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from tfdist_jax.compat.tensorflow.train._state_file import latest_checkpoint

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0


def checkpoints_iterator(
    checkpoint_dir: Any,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], Any] | None = None,
) -> Iterator[str]:
    """Yield the newest checkpoint of a folder whenever there is a new one.

    See https://www.tensorflow.org/api_docs/python/tf/train/checkpoints_iterator.

    Args:
        checkpoint_dir: The folder; it need not be there yet.
        min_interval_secs: How long to stay away from the folder after a checkpoint, in seconds.
        timeout: How long to wait for the next one, in seconds; None waits for ever.
        timeout_fn: Asked whether that was all, after each checkpoint and when the time is over. Without it, that was all
            when the time is over.
    """
    path = None
    while True:
        new = wait_for_new_checkpoint(checkpoint_dir, path, timeout)
        if new is not None:
            path, begin = new, time.monotonic()
            yield path
            time.sleep(max(0.0, begin + min_interval_secs - time.monotonic()))
        elif timeout_fn is None:
            _log.info("No new checkpoint has come within %s s.", timeout)
            return
        if timeout_fn is not None and timeout_fn():
            return


def wait_for_new_checkpoint(folder: Any, known: str | None, timeout_s: float | None) -> str | None:
    """Return the newest checkpoint of a folder once it is another than the known one; None if that takes too long."""
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        newest = latest_checkpoint(folder)
        if newest is not None and newest != known:
            return newest
        if end is not None and time.monotonic() + _PAUSE_S > end:
            return None
        time.sleep(_PAUSE_S)
