"""SIGTERM during `fit` with `BackupAndRestore`: all workers stop before the same batch, the backup is saved, they leave.

Steps give the memory of variables away. So what a thread saves, while `fit` compiles or waits for data, is found by references that
keep nothing alive: whatever a step has given away since is gone, and not half new.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, final

import keras
import numpy as np

from tfdist_jax._cluster import LateSave, Preemption
from tfdist_jax._stateful._snapshot import Snapshot
from tfdist_jax.compat.tensorflow.keras._training._accumulation import accumulates
from tfdist_jax.compat.tensorflow.keras._training._steps import TRAINED_KINDS, variables_of
from tfdist_jax.compat.tensorflow.keras._training._workers import mesh_of, writes_files

Values = Sequence[tuple[Any, np.ndarray]]
"""Variables and what they hold."""


class _Mark(NamedTuple):
    """A moment between two steps.

    Attributes:
        about: Where the training is.
        held: What the model's variables hold.
    """

    about: Any
    held: Snapshot


def is_possible() -> bool:
    """Tell whether SIGTERM is nobody's yet, and can be ours."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@final
class Guard:
    """Lets one training end early, with its state saved."""

    def __init__(
        self,
        model: keras.Model,
        *,
        about: Callable[[], Any],
        save: Callable[[], None],
        saving_as: Callable[[Any], AbstractContextManager[None]],
    ) -> None:
        """Wait for SIGTERM.

        Args:
            model: What is trained.
            about: Says where the training is.
            save: Saves that, and the model.
            saving_as: Inside it `save` saves something else as the place where the training is.
        """
        self._model = model
        self._about, self._save, self._saving_as = about, save, saving_as
        self._mark: _Mark | None = None
        self._variables: Sequence[Any] = ()
        self.saving = threading.RLock()
        self._preemption = Preemption(late=self._late)

    def begin_epoch(self) -> None:
        """Look at which variables there are."""
        self._variables = [variable for kind in TRAINED_KINDS for variable in variables_of(self._model, kind)]

    def begin_step(self, *, marked: bool = True) -> None:
        """Come before a step of training or evaluation; end the program if there is to be none any more."""
        if self._preemption.stops():
            self._save()
            self._preemption.leave()
        if marked:
            self.mark()

    def mark(self) -> None:
        """Note where the training is; it is between two steps, and what they change is settled."""
        about = self._about()  # Which puts together what replicas have accumulated.
        are_held = all(variable.stored is not None for variable in self._variables)
        self._mark = _Mark(about, Snapshot(self._variables)) if are_held else None

    def end(self, *, is_complete: bool) -> None:
        """Let SIGTERM end the process again."""
        if is_complete:
            self._preemption.close()
        else:
            self._preemption.abandon()

    def _late(self) -> LateSave | None:
        model = self._model
        if mesh_of(model) is not None and accumulates(model.optimizer):
            return None  # What the replicas have accumulated is put together by all workers.
        if not writes_files(model):
            return LateSave(lambda: None)
        mark = self._mark
        values = None if mark is None else mark.held.values()
        return None if mark is None or values is None else LateSave(lambda: self._save_late(mark.about, values))

    def _save_late(self, about: Any, values: Values) -> None:
        with self.saving, self._saving_as(about), keras.StatelessScope(state_mapping=values):
            self._save()
