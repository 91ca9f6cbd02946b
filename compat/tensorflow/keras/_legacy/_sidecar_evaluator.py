"""`tf.keras.utils.SidecarEvaluator`: evaluates what another process trains, checkpoint by checkpoint."""

import logging
import re
from collections.abc import Iterator
from typing import Any, final

import keras

from tfdist_jax.compat.tensorflow.train._checkpoint import Checkpoint
from tfdist_jax.compat.tensorflow.train._checkpoint_view import CheckpointView
from tfdist_jax.compat.tensorflow.train._formats import is_saved
from tfdist_jax.compat.tensorflow.train._new_checkpoints import wait_for_new_checkpoint
from tfdist_jax.compat.tensorflow.train._restoration import Restoration, listed
from tfdist_jax.compat.tensorflow.train._state_file import as_text

_log = logging.getLogger("tfdist_jax")
# After each such time without a checkpoint, one line says what is waited for.
_PATIENCE_S = 60.0


@final
class SidecarEvaluator:
    """Drop-in for `tf.keras.utils.SidecarEvaluator`, which Keras 3 no longer has.

    The training saves with `tf.train.Checkpoint(model=model, optimizer=optimizer)`, alone or with a `CheckpointManager`, or by
    `tf.keras.callbacks.ModelCheckpoint(folder + "/ckpt-{epoch}", save_weights_only=True)`. What is not written completely is not read.

    Differs from TensorFlow: a checkpoint without all weights of the model is an error, also if it holds the optimizer's iterations.
    Ref: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/utils/SidecarEvaluator
    """

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        checkpoint_dir: Any,
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Any = None,
    ) -> None:
        """Evaluate `model`, once `start` is called.

        Args:
            model: A compiled model, like the one that is trained.
            data: What `Model.evaluate` takes as `x`.
            checkpoint_dir: The folder in which the training saves; it need not be there yet.
            steps: How many batches are evaluated each time; None for all.
            max_evaluations: The number of the last checkpoint, the one at the end of its name, such as "ckpt-10". Checkpoints that come
                while one is evaluated are passed over but for the newest, so that fewer may be evaluated. None if there is no last one.
            callbacks: For `Model.evaluate`.

        Raises:
            ValueError: If `max_evaluations` is no positive integer.
        """
        if max_evaluations is not None and (not isinstance(max_evaluations, int) or max_evaluations < 1):
            raise ValueError(
                f"`max_evaluations` must be the number of the last checkpoint, a positive integer, or None, got {max_evaluations!r}."
            )
        self.model, self.data, self.checkpoint_dir = model, data, as_text(checkpoint_dir)
        self.steps, self.max_evaluations, self.callbacks = steps, max_evaluations, callbacks

    def start(self) -> None:
        """Wait for checkpoints and evaluate each newest one, until that is the last.

        Raises:
            RuntimeError: If a checkpoint does not hold the model's weights.
            ValueError: If `max_evaluations` is given, and the name of a checkpoint does not end with a number.
        """
        for path in self._checkpoints():
            is_last = self._is_last(path)
            restoration = self._restore(path)
            if restoration is None:
                continue
            _log.info("Evaluation starts: the weights are those of %s.", path)
            options: Any = {"steps": self.steps, "callbacks": self.callbacks, "verbose": 2}
            results = self.model.evaluate(self.data, return_dict=True, **options)
            self._require_weights(restoration)  # Some may have been made just now.
            restoration.end()
            _log.info("End of evaluation of %s: %s", path, results)
            if is_last:
                return

    def _checkpoints(self) -> Iterator[str]:
        path = None
        while True:
            new = wait_for_new_checkpoint(self.checkpoint_dir, path, _PATIENCE_S)
            if new is None:
                _log.warning(
                    "No %scheckpoint has come to %s within %g s. The training is to save there with `tf.train.Checkpoint.save`, a "
                    "`tf.train.CheckpointManager`, or `tf.keras.callbacks.ModelCheckpoint(folder + '/ckpt-{epoch}', "
                    "save_weights_only=True)`; names that end in `.weights.h5` or `.keras` are none of checkpoints.",
                    "" if path is None else "further ",
                    self.checkpoint_dir,
                    _PATIENCE_S,
                )
                continue
            path = new
            yield path

    def _is_last(self, path: str) -> bool:
        if self.max_evaluations is None:
            return False
        number = re.search(r"-(\d+)$", path)
        if number is None:
            raise ValueError(
                f"With `max_evaluations={self.max_evaluations}` the names of checkpoints must end with a number, as in 'ckpt-1', got "
                f"{path}. Save with a number, or leave `max_evaluations` out."
            )
        return int(number[1]) >= self.max_evaluations

    def _restore(self, path: str) -> Restoration | None:
        """Give the model the values of a checkpoint; return None if it has been removed meanwhile."""
        try:
            is_part = "model" in CheckpointView(path).children(0)
            # What `save_weights` writes has the model itself as its root.
            objects = {"model": self.model, "optimizer": self.model.optimizer} if is_part else {"root": self.model}
            root = Checkpoint(**{name: value for name, value in objects.items() if value is not None})
            restoration = Restoration(path, root)
        except Exception as error:
            if is_saved(path):
                raise
            _log.info("%s was removed before it was read: %s", path, error)
            return None
        restoration.is_partial_expected = True
        self._require_weights(restoration)
        return restoration

    def _require_weights(self, restoration: Restoration) -> None:
        paths = [path for path in restoration.missing(self.model) if not path.startswith("optimizer/")]
        if paths:
            raise RuntimeError(
                f"{restoration.path} has no values for {listed(paths)} of the model. Let `checkpoint_dir` be the folder in which this "
                "model is saved, with `tf.train.Checkpoint(model=model, optimizer=optimizer)` or "
                "`ModelCheckpoint(folder + '/ckpt-{epoch}', save_weights_only=True)`."
            )
