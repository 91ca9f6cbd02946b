"""`tf.train.CheckpointManager`: keeps the last few checkpoints of a training."""

import os
import time
from collections.abc import Callable
from typing import Any, final

from tfdist_jax.compat.tensorflow.train import _formats
from tfdist_jax.compat.tensorflow.train._checkpoint import Checkpoint
from tfdist_jax.compat.tensorflow.train._damage import find_whole
from tfdist_jax.compat.tensorflow.train._options import CheckpointOptions, calling_too
from tfdist_jax.compat.tensorflow.train._state_file import as_text, get_checkpoint_state, update_checkpoint_state

_HOUR_S = 3600


@final
class CheckpointManager:
    """Drop-in for `tf.train.CheckpointManager`.

    A second process that makes a manager for the same folder goes on where the first has stopped.
    Ref: https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
    ) -> None:
        """Manage the checkpoints in a folder.

        Args:
            checkpoint: What is saved.
            directory: The folder.
            max_to_keep: How many are kept; None keeps all.
            keep_checkpoint_every_n_hours: Keep one for good each time that so many hours have passed.
            checkpoint_name: The checkpoints' names without their number.
            step_counter: A variable that counts steps, for `checkpoint_interval`.
            checkpoint_interval: Save only if so many steps have passed since the last time.
            init_fn: Called by `restore_or_initialize` if there is no checkpoint.
            last_checkpoint_step: At which step the last checkpoint was made, for `checkpoint_interval`.

        Raises:
            ValueError: If `max_to_keep` is not positive, or there is an interval without a counter.
        """
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(f"Expected a positive integer or `None` for `max_to_keep`, got {max_to_keep}.")
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("`step_counter` should be passed if `checkpoint_interval` is not None.")
        self._checkpoint = checkpoint
        self._directory, self._name = as_text(directory), checkpoint_name
        self._max_to_keep, self._keep_hours = max_to_keep, keep_checkpoint_every_n_hours
        self._step_counter, self._interval, self._init_fn = step_counter, checkpoint_interval, init_fn
        self._last_step = last_checkpoint_step
        self._has_saved = False
        self._times: dict[str, float] = {}
        self._newest: str | None = None
        self._preserved = time.time() - 1  # Before whatever is saved now, by a clock that may stand still.
        self._read_state()

    def _read_state(self) -> None:
        state = get_checkpoint_state(self._directory)
        if state is None:
            return
        self._newest = state.model_checkpoint_path
        self._preserved = min(state.last_preserved_timestamp, time.time())
        # Without times they have been saved by another than a manager, and are not this one's to remove.
        managed = zip(state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps, strict=False)
        self._times = {path: moment for path, moment in managed if moment > self._preserved and _formats.is_saved(path)}

    @property
    def directory(self) -> str:
        """The folder."""
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        """What is saved."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """How many steps pass between checkpoints, at least."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """The kept checkpoints, the oldest first; without those that no manager has saved."""
        return list(self._times)

    @property
    def latest_checkpoint(self) -> str | None:
        """The newest one that is not damaged, or None."""
        newest = [] if self._newest is None else [self._newest]
        return find_whole(dict.fromkeys([*newest, *reversed(self._times)]))

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: CheckpointOptions | None = None
    ) -> str | None:
        """Save, unless it is too early, and delete the oldest ones that are too many.

        Args:
            checkpoint_number: The number in the name; how often has been saved, if None.
            check_interval: Whether `checkpoint_interval` counts.
            options: Whether to write in the background; then the new one is among `checkpoints` when it is written.

        Returns:
            The path, or None if nothing was saved.

        Raises:
            RuntimeError: If what was written in the background before has failed.
        """
        with self._checkpoint.lock:
            return self._save(checkpoint_number, check_interval, options)

    def _save(self, checkpoint_number: Any, check_interval: bool, options: CheckpointOptions | None) -> str | None:
        step = None if self._step_counter is None else int(self._step_counter.numpy())
        if check_interval and self._is_early(step):
            return None
        self.sync()
        self._last_step = step
        if not self._has_saved:
            # Not before: another process may only want to read what a third one is writing.
            _formats.clear_leftovers(self._directory, f"{self._name}-")
            self._has_saved = True
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        number = int(counter.numpy() if checkpoint_number is None else checkpoint_number)
        path = os.path.join(self._directory, f"{self._name}-{number}")
        return self._checkpoint.write(path, calling_too(options, self._note))

    def _note(self, path: str) -> None:
        """Put a checkpoint that is written on the list, and take off and remove those that are too many."""
        # The dictionary is replaced, not changed: this may be another thread than that which reads it.
        self._times = {other: moment for other, moment in self._times.items() if other != path} | {path: time.time()}
        self._newest = path
        # First the newest is noted, then the oldest are removed, then they are taken off: wherever this is stopped, the
        # list names the newest, and none that is there without being named.
        self._write_state()
        surplus = self._surplus()
        for old in surplus:
            _formats.delete(old)
        if surplus:
            self._write_state()

    def _is_early(self, step: int | None) -> bool:
        if self._interval is None or self._last_step is None or step is None:
            return False
        return step - self._last_step < self._interval

    def _surplus(self) -> list[str]:
        """Take the oldest checkpoints off the list and return those that are not kept for good."""
        surplus, times = [], dict(self._times)
        while self._max_to_keep is not None and len(times) > self._max_to_keep:
            oldest = next(iter(times))
            moment = times.pop(oldest)
            if self._keep_hours is not None and moment - self._preserved >= self._keep_hours * _HOUR_S:
                self._preserved = moment
            else:
                surplus.append(oldest)
        self._times = times
        return surplus

    def _write_state(self) -> None:
        newest = self.checkpoints[-1]
        times = list(self._times.values())
        update_checkpoint_state(self._directory, newest, self.checkpoints, None, times, self._preserved)

    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint, or call `init_fn` if there is none; return its path or None."""
        self.sync()
        path = self.latest_checkpoint
        if path is not None:
            self._checkpoint.restore(path)
            if self._step_counter is not None:
                self._last_step = int(self._step_counter.numpy())
        elif self._init_fn is not None:
            self._init_fn()
        return path

    def sync(self) -> None:
        """Wait until all is written that is being written in the background, and raise if that has failed."""
        self._checkpoint.sync()
