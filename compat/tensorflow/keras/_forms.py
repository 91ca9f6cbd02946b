"""The two forms of a step that users write: TensorFlow's `train_step(self, data)` and JAX's `(self, state, data)`."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfdist_jax.compat.tensorflow.keras._internals import JAXTrainer
from tfdist_jax.compat.tensorflow.keras._optimizer import applied_by_steps


def is_overridden(model: Any, name: str) -> bool:
    """Tell whether the model's class brings its own step."""
    return getattr(type(model), name) is not getattr(JAXTrainer, name)


def is_tensorflow_form(model: Any, name: str) -> bool:
    """Tell whether a step takes the data alone and changes the model's variables itself."""
    parameters = inspect.signature(getattr(model, name)).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(needed) == 1 and needed[0].kind is not inspect.Parameter.VAR_POSITIONAL


def stateless(model: Any, name: str, carried: Sequence[Any] = ()) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return the step `name` of `model` in JAX's form: `step(state, data)` gives its result and the new state.

    The variables `carried`, of other optimizers than the model's, come after those of the model's optimizer.
    """
    method = getattr(model, name)
    if not is_tensorflow_form(model, name):
        return method

    def step(state: Any, data: Any) -> tuple[Any, Any]:
        groups = _variables(model, name)
        if name == "train_step":
            # When the state was read the optimizer may have had fewer.
            groups[2] = [*groups[2][: len(state[2]) - len(carried)], *carried]
        pairs = [pair for group, values in zip(groups, state, strict=True) for pair in zip(group, values, strict=True)]
        with keras.StatelessScope(state_mapping=pairs) as scope, applied_by_steps():
            result = method(data)
        new = tuple([scope.get_current_value(variable) for variable in group] for group in groups)
        return result, new[1] if name == "predict_step" else new

    return step


def _variables(model: Any, name: str) -> list[Any]:
    """Return the model's variables in the lists that Keras passes to its step."""
    groups = [model.trainable_variables, model.non_trainable_variables]
    if name == "train_step":
        groups.append(model.optimizer.variables)
    return groups if name == "predict_step" else [*groups, model.metrics_variables]
