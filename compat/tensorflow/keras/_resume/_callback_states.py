"""What Keras's callbacks have counted so far, kept in backups so that a resumed training decides as it would have.

Keras's own backups leave it out: after a restart `EarlyStopping` and `ReduceLROnPlateau` would begin to wait anew.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

_COUNTED: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "cooldown_counter", "best"),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
}

Counts = dict[str, dict[str, float | None]]


def states_of(callbacks: Sequence[Any]) -> Counts:
    """Return what JSON can hold of the callbacks' states."""
    return {
        key: {name: _number(getattr(callback, name)) for name in names} for key, callback, names in _known(callbacks)
    }


def set_states(callbacks: Sequence[Any], states: Counts) -> None:
    """Give callbacks what was counted by those at the same place in the training that was stopped."""
    for key, callback, _ in _known(callbacks):
        for name, value in states.get(key, {}).items():
            setattr(callback, name, value)


def best_weights_of(callbacks: Sequence[Any]) -> dict[str, list[np.ndarray]]:
    """Return the weights that callbacks keep to put them back at the end."""
    kept = ((key, getattr(callback, "best_weights", None)) for key, callback, _ in _known(callbacks))
    return {key: weights for key, weights in kept if weights is not None}


def set_best_weights(callbacks: Sequence[Any], weights: dict[str, list[np.ndarray]]) -> None:
    """Give callbacks the weights that `best_weights_of` has returned."""
    for key, callback, _ in _known(callbacks):
        if key in weights:
            callback.best_weights = weights[key]


def _known(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Go through the callbacks that count, each with a key: its class, and its place among others of this class."""
    numbers: defaultdict[type, Iterator[int]] = defaultdict(itertools.count)
    for callback in callbacks:
        for kind, names in _COUNTED.items():
            if isinstance(callback, kind):
                yield f"{type(callback).__name__}-{next(numbers[type(callback)])}", callback, names


def _number(value: Any) -> float | None:
    return None if value is None else np.asarray(value).item()
