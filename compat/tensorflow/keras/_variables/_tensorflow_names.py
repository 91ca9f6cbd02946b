"""By which names TensorFlow's checkpoints know what Keras's objects hold."""

import itertools
from collections.abc import Iterator
from typing import Any

import keras

UNKNOWN = (keras.Metric, keras.random.SeedGenerator)
"""What Keras does not give to TensorFlow's checkpoints."""

# Keras's stores of what a layer's other attributes hold: with TensorFlow they are made where it does not look.
_STORES = frozenset(["_trainable_variables", "_non_trainable_variables", "_layers", "_metrics", "_seed_generators"])

# What optimizers of Keras 2 and of TensorFlow 1 call what they keep of a variable, and in which lists it is now.
_SLOTS = {
    "m": ("_momentums", "_m"),
    "v": ("_velocities", "_u"),
    "vhat": ("_velocity_hats",),
    "momentum": ("momentums", "_momentums"),
    "rms": ("_velocities",),
    "mg": ("_average_gradients",),
    "accumulator": ("_accumulators",),
    "linear": ("_linears",),
    "accum_grad": ("_accumulated_grads",),
    "accum_var": ("_accumulated_delta_vars",),
}


def parts(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield what Keras 3 with TensorFlow has in checkpoints.

    Lists and dictionaries that Keras has put its own classes in place of are not followed, but those of optimizers are.
    """
    if isinstance(owner, keras.Variable):
        return
    for name, value in list(vars(owner).items()):
        if isinstance(owner, keras.optimizers.Optimizer):
            yield name, list(value) if isinstance(value, list) else value
        elif name not in _STORES:
            yield name, value


def known_parts(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield that, and what Keras 2 has under other names; it follows all lists and dictionaries."""
    yield from parts(owner)
    if isinstance(owner, keras.optimizers.Optimizer):
        yield "iter", owner._iterations
        yield "learning_rate", owner._learning_rate
        return
    if isinstance(owner, keras.Model):
        yield from _numbered_layers(owner)
    for name, value in list(vars(owner).items()):
        if isinstance(value, keras.Variable) and name.startswith("_"):
            yield name.removeprefix("_"), value
        elif isinstance(value, list) and name not in _STORES:
            yield name, list(value)
        elif isinstance(value, dict):
            yield name, dict(value)


def _numbered_layers(model: keras.Model) -> Iterator[tuple[str, keras.Layer]]:
    with_weights = itertools.count()
    for number, layer in enumerate(model.layers):
        yield f"layer-{number}", layer
        if layer.weights:
            yield f"layer_with_weights-{next(with_weights)}", layer


def wide_variables(owner: Any) -> Iterator[keras.Variable]:
    """Yield the variables of Keras's type "int", which stands for int64 with TensorFlow, and here for int32."""
    if isinstance(owner, keras.optimizers.Optimizer):
        yield owner._iterations
        if isinstance(owner, keras.optimizers.LossScaleOptimizer):
            yield owner.step_counter
    elif isinstance(owner, keras.layers.Normalization) and hasattr(owner, "count"):
        yield owner.count


def slot_variable(optimizer: Any, variable: Any, name: str) -> Any:
    """Return what an optimizer keeps of a variable, by the name that Keras 2 has for it; None if nothing is there (yet)."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    places = [number for number, each in enumerate(optimizer._trainable_variables) if each is variable]
    kept = next(
        (found for list_name in _SLOTS.get(name, (name,)) if (found := getattr(optimizer, list_name, None))), ()
    )
    return kept[places[0]] if places and places[0] < len(kept) else None
