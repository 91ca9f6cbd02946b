"""What a callback that makes backups knows of the training that it follows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow.keras._resume._backup_file import Arrays
from tfdist_jax.compat.tensorflow.keras._resume._callback_states import Counts
from tfdist_jax.compat.tensorflow.keras._resume._position import Reader

_PROGRESS = "_tfdist_progress"


@final
@dataclasses.dataclass
class Progress:
    """Where a training is, and what a backup has left to be given back.

    Attributes:
        callbacks: All of the training's; what they have counted belongs to a backup.
        reader: Follows how far the data are read.
        logs: What the last batch that is done has given.
        is_epoch_over: Whether the last epoch that has begun has ended.
        validation: Where the training was when the running validation began; None if none is running.
        lacks_validation: Whether the restored epoch was stopped in its validation, which has not begun again.
        tallies: What `_backup` gives metrics, seeds and rates when the epoch begins; None if that is done.
        counted: What callbacks had counted when the backup was made.
        best_weights: The weights that callbacks kept then.
    """

    callbacks: Sequence[Any] = ()
    reader: Reader = dataclasses.field(default_factory=lambda: Reader(None, None, is_epoch_done=False))
    logs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_epoch_over: bool = False
    validation: dict[str, Any] | None = None
    lacks_validation: bool = False
    tallies: Sequence[np.ndarray] | None = None
    counted: Counts = dataclasses.field(default_factory=dict)
    best_weights: Arrays = dataclasses.field(default_factory=dict)


def progress_of(callback: Any) -> Progress:
    """Return what a callback knows."""
    progress = vars(callback).get(_PROGRESS)
    return begin_progress(callback) if progress is None else progress


def begin_progress(callback: Any, callbacks: Sequence[Any] = ()) -> Progress:
    """Let a callback follow a training that begins, beside others."""
    progress = Progress(callbacks)
    setattr(callback, _PROGRESS, progress)
    return progress
