"""Keras's training over several workers: equal random orders everywhere, files from the first one alone."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import keras

from tfdist_jax._broadcast import from_first
from tfdist_jax._cluster import agree, meet
from tfdist_jax._placement import spans_processes
from tfdist_jax.compat.tensorflow.keras._position import host_state, set_host_state

# How long a training is, where programs say it.
_MUST_AGREE = ("initial_epoch", "epochs", "steps_per_epoch", "validation_steps", "validation_freq", "steps")
# Callbacks that do nothing else than write what all workers know.
_WRITERS = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


def install() -> None:
    """Put the hook into Keras's callback that saves models."""
    checkpoint: Any = keras.callbacks.ModelCheckpoint
    checkpoint._save_model = by_first_worker(checkpoint._save_model)


def mesh_of(model: Any) -> Any:
    """Return the mesh of the strategy in whose scope the model was made, if it spans several workers; or None."""
    strategy = getattr(model, "_tfdist_strategy", None)
    return strategy.native.mesh if strategy is not None and spans_processes(strategy.native.mesh) else None


def writes_files(model: Any) -> bool:
    """Tell whether this worker's callbacks write files for all."""
    return mesh_of(model) is None or jax.process_index() == 0


def by_first_worker(original: Callable[..., None]) -> Callable[..., None]:
    """Let only the first of several workers call a callback's method."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        if writes_files(self.model):
            original(self, *args, **kwargs)

    return method


def prepared(model: Any, method: str, given: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Make workers alike before a method of training begins: data in one order.

    Args:
        model: Whose method it is.
        method: Its name, such as "fit".
        given: All that it is called with, by name.
        arguments: The keyword arguments.

    Returns:
        The keyword arguments for this worker.

    Raises:
        DisagreementError: If workers are about to do different things, such as different numbers of steps.
    """
    if mesh_of(model) is None:
        return arguments
    agree(f"`{method}`", {name: repr(value) for name, value in given.items() if name in _MUST_AGREE})
    model._tfdist_strategy.draw_alike()
    set_host_state(meet("the order of data", host_state())[0])
    callbacks = arguments.get("callbacks")
    if writes_files(model) or not isinstance(callbacks, list | tuple):
        return arguments
    return {**arguments, "callbacks": [one for one in callbacks if not isinstance(one, _WRITERS)]}


def take_from_first(model: Any) -> None:
    """Give all workers the first one's weights and state of the optimizer."""
    mesh = mesh_of(model)
    for variable in (*model.variables, *(model.optimizer.variables if model.optimizer else ())):
        variable.assign(from_first(variable.value, mesh))
