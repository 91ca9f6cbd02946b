"""Keras's training over several workers: equal random orders everywhere, files from the first one alone."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import keras
from jax.sharding import Mesh

from tfdist_jax._cluster import agree, allgather_object
from tfdist_jax._multiprocess._broadcast import broadcast_from_first
from tfdist_jax._sharding._placement import spans_processes
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._training._dataset_creator import require_steps
from tfdist_jax.compat.tensorflow.keras._variables._random import host_state, set_host_state

STRATEGY = "_tfdist_strategy"
"""The attribute of a model that holds the strategy in whose scope it was made."""

# How long a training is, where programs say it.
_MUST_AGREE = ("initial_epoch", "epochs", "steps_per_epoch", "validation_steps", "validation_freq", "steps")
# Callbacks that do nothing else than write what all workers know.
_WRITERS = (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)


def strategy_of(model: keras.Model) -> Strategy | None:
    """Return the strategy in whose scope `model` was made, or None."""
    return getattr(model, STRATEGY, None)


def mesh_of(model: keras.Model) -> Mesh | None:
    """Return the mesh of the strategy in whose scope the model was made, if it spans several workers; or None."""
    strategy = strategy_of(model)
    return strategy.native.mesh if strategy is not None and spans_processes(strategy.native.mesh) else None


def writes_files(model: keras.Model) -> bool:
    """Tell whether this worker's callbacks write files for all."""
    return mesh_of(model) is None or jax.process_index() == 0


def by_first_worker(original: Callable[..., None]) -> Callable[..., None]:
    """Let only the first of several workers call a callback's method."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        if writes_files(self.model):
            original(self, *args, **kwargs)

    return method


def prepared(model: keras.Model, method: str, given: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
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
        ValueError: If data of a `DatasetCreator` have no end.
    """
    require_steps(method, given)
    strategy = strategy_of(model)
    if strategy is None or mesh_of(model) is None:
        return arguments
    agree(f"`{method}`", {name: repr(value) for name, value in given.items() if name in _MUST_AGREE})
    strategy.draw_alike()
    set_host_state(allgather_object("the order of data", host_state())[0])
    callbacks = arguments.get("callbacks")
    if writes_files(model) or not isinstance(callbacks, list | tuple):
        return arguments
    return {**arguments, "callbacks": [one for one in callbacks if not isinstance(one, _WRITERS)]}


def take_from_first(model: keras.Model, mesh: Mesh) -> None:
    """Give all workers the first one's weights and state of the optimizer."""
    for variable in (*model.variables, *(model.optimizer.variables if model.optimizer else ())):
        variable.assign(broadcast_from_first(variable.value, mesh))


CHANGES = (
    Hook(
        keras.callbacks.ModelCheckpoint,
        "_save_model",
        by_first_worker,
        "self epoch batch logs",
        "of several workers one writes",
    ),
)
