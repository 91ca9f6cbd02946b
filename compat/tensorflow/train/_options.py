"""`tf.train.CheckpointOptions`: whether to save in the background, and what to call when it is done."""

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any, final


@final
class CheckpointOptions:
    """Drop-in for `tf.train.CheckpointOptions`.

    Differs from TensorFlow: the device for files, the sharding on disk and the skipping of slots are accepted, and mean
    nothing here. What fails in the background is raised by the next `save`, `write`, `restore`, `read` or `sync`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/train/CheckpointOptions
    """

    def __init__(
        self,
        experimental_io_device: str | None = None,
        experimental_enable_async_checkpoint: bool = False,
        experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None,
        enable_async: bool = False,
        experimental_skip_slot_variables: bool = False,
        experimental_sharding_callback: Any = None,
    ) -> None:
        """Keep the options.

        Args:
            experimental_io_device: Accepted.
            experimental_enable_async_checkpoint: The former name of `enable_async`.
            experimental_write_callbacks: Functions of nothing, or of the path, to call when a checkpoint is written.
            enable_async: Take the values and return; the files are written in the background.
            experimental_skip_slot_variables: Accepted.
            experimental_sharding_callback: Accepted.

        Raises:
            AssertionError: If a callback takes more than one argument.
        """
        for callback in experimental_write_callbacks or ():
            _count_of_arguments(callback)
        self.experimental_io_device = experimental_io_device
        self.enable_async = experimental_enable_async_checkpoint or enable_async
        self.experimental_enable_async_checkpoint = self.enable_async
        self.experimental_write_callbacks = experimental_write_callbacks
        self.experimental_skip_slot_variables = experimental_skip_slot_variables
        self.experimental_sharding_callback = experimental_sharding_callback

    def __copy__(self) -> "CheckpointOptions":
        """Return equal options, with a list of callbacks of their own."""
        copied = CheckpointOptions()
        vars(copied).update(vars(self))
        callbacks = self.experimental_write_callbacks
        copied.experimental_write_callbacks = None if callbacks is None else list(callbacks)
        return copied


def _count_of_arguments(callback: Callable[..., Any]) -> int:
    count = len(inspect.signature(callback).parameters)
    if count > 1:
        raise AssertionError(
            f"A callback for checkpoints takes the path or nothing, but {callback} takes {count} arguments."
        )
    return count


def calling_too(options: CheckpointOptions | None, callback: Callable[[str], Any]) -> CheckpointOptions:
    """Return options as these that call one more function when a checkpoint is written, after the others."""
    result = CheckpointOptions() if options is None else copy.copy(options)
    result.experimental_write_callbacks = [*(result.experimental_write_callbacks or ()), callback]
    return result


def call_back(options: CheckpointOptions, path: str) -> None:
    """Tell the callbacks that a checkpoint is written."""
    for callback in options.experimental_write_callbacks or ():
        callback(*[path][: _count_of_arguments(callback)])
