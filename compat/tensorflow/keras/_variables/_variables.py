"""Keras variables as cells: compiled functions, replicas and tapes see their reads and writes."""

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from tfdist_jax._autodiff._tape import observe_read
from tfdist_jax._internals import computing_now, known_value
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._state import Merge
from tfdist_jax._stateful._storage import PLAIN
from tfdist_jax._user_code import has_named_libraries, is_named_library, is_user_code
from tfdist_jax.compat.tensorflow._platform._context import new_storage, replica_context
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import user_shape
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import JaxVariable, get_stateless_scope
from tfdist_jax.compat.tensorflow.keras._variables._initial_values import first_values
from tfdist_jax.compat.tensorflow.keras._variables._served import assign_now, note_read


def _wrap(hook: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of `hook(original, self, argument)`."""

    @functools.wraps(original)
    def method(self: JaxVariable, argument: Any) -> Any:
        return hook(original, self, argument)

    return method


def _value(original: Callable[[Any], Any], variable: Any) -> Any:
    scope = get_stateless_scope()
    mapped = None if scope is None else scope.get_current_value(variable)
    if mapped is not None:
        return variable._maybe_autocast(observe_read(variable, mapped, trainable=variable.trainable))
    if variable.stored is None:
        return _not_built(original, variable)
    array = _state.read(variable)
    if variable.storage.is_served:
        note_read(variable, array)
    return variable._maybe_autocast(array)


def _array(variable: Any) -> Any:
    return None if variable.stored is None else _state.load(variable)


def _set_array(variable: Any, array: Any) -> None:
    variable.stored = array if array is None else variable.storage.store(array, variable.stored)


def _not_built(original: Callable[[Any], Any], variable: Any) -> Any:
    """Return Keras's placeholder; a variable that has lost its value is one that `fit` holds for itself."""
    if variable._initializer is None:
        raise held_by_step(variable)
    return original(variable)


def held_by_step(variable: Any) -> NotImplementedError:
    """Return the error for reading a variable whose value a step in JAX's form has got as an argument, and will return."""
    return NotImplementedError(
        f"The variable {variable.path!r} has no value here: while `fit` trains, Keras on JAX hands the values on from step "
        "to step. In a layer's `call`, where this is a metric's, update the metric in `compute_loss` or `train_step`, or "
        "keep the number as a weight with `add_weight(trainable=False)`. In the code that makes the data, keep a count of "
        "your own, or read the variable in a callback."
    )


def _direct_assign(original: Callable[[Any, Any], None], variable: Any, value: Any) -> None:
    if _state.current_scope() is not None:
        _state.write(variable, value, merge=merge_of(variable))
    elif variable._layout is not None:
        original(variable, value)
    elif variable.storage.is_served:
        assign_now(variable, value)
    else:
        _state.store(variable, value)


def merge_of(variable: Any) -> Merge:
    """Say what becomes of values that replicas assign to a Keras variable, from its aggregation or its kind."""
    context = replica_context()
    if variable.storage.is_served:
        return Merge.SUM_OF_DELTAS if variable.aggregation == "sum" else Merge.SAME
    if context is None or context.is_updating or context.num_replicas_in_sync == 1:
        return Merge.SAME
    if variable.aggregation == "sum":
        return Merge.SUM_OF_DELTAS
    if variable.aggregation == "only_first_replica":
        return Merge.FIRST
    if jnp.issubdtype(variable.dtype, jnp.floating):
        return Merge.MEAN  # Statistics such as BatchNormalization's.
    # A seed advances with each draw, whatever the data.
    return Merge.SAME if variable.name == "seed_generator_state" else Merge.FIRST


def _initialize(original: Callable[[Any, Any], None], variable: Any, value: Any) -> None:
    value = known_value(value)
    if value is None:
        raise ValueError(
            f"The variable {variable.path!r} is made inside a compiled function from a value that is not known yet. "
            "Make it from an initializer or a constant."
        )
    with _state.entering(None), computing_now():
        original(variable, value)
        is_weight = variable.trainable and jnp.issubdtype(variable.dtype, jnp.floating)
        storage = new_storage(is_weight=is_weight) if variable.storage.device is None else variable.storage
        if storage is not PLAIN and variable._layout is None:
            variable.storage = storage
            variable.storage.place(variable, variable.stored)


def _initialize_with_initializer(original: Callable[[Any, Any], None], variable: Any, initializer: Any) -> None:
    with computing_now(), first_values():
        original(variable, initializer)


def _copy_with_place(self: Any, memo: Any) -> Any:
    """Copy the variable, whose array JAX alone would copy to its default device."""
    twin = object.__new__(type(self))
    memo[id(self)] = twin
    vars(twin).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
    if twin.storage.is_of_workers and twin.stored is not None:
        twin.storage.adopt(twin, jnp.copy(_state.load(self)))
    elif twin.storage.device is not None and twin.stored is not None:
        twin.stored = twin.storage.store(twin.stored, None)
    return twin


def _shape(original: Any) -> Any:
    """Return the property that gives user code a `TensorShape`, as arrays do, and Keras its tuple."""
    read, frame = original.fget, sys._getframe

    def shape(self: Any) -> Any:
        value = read(self)
        return user_shape(value) if value is not None and is_user_code(frame(1)) else value

    return property(shape, doc=original.__doc__)


def _dtype(original: Any) -> Any:
    """Return the property that gives libraries for Keras 2 TensorFlow's type, and all others its name."""
    read, frame = original.fget, sys._getframe
    if not has_named_libraries():
        return property(read, doc=original.__doc__)

    def dtype(self: Any) -> Any:
        value = read(self)
        return as_dtype(value) if is_named_library(frame(1)) else value

    return property(dtype, doc=original.__doc__)


CHANGES = (
    Hook(JaxVariable, "shape", _shape, None, "a `TensorShape` for user code"),
    Hook(JaxVariable, "dtype", _dtype, None, "a `tf.DType` for libraries that are named for the facade"),
    # An attribute, since each step reads and writes it; what Keras calls it is the array.
    Addition(JaxVariable, "stored", None),
    Addition(JaxVariable, "storage", PLAIN),
    Addition(JaxVariable, "__deepcopy__", _copy_with_place),
    Addition(JaxVariable, "_value", property(_array, _set_array)),
    Hook(
        JaxVariable,
        "value",
        lambda original: property(functools.partial(_value, original.fget)),
        None,
        "reads become inputs of compiled functions and are seen by tapes",
    ),
    Hook(
        JaxVariable,
        "_direct_assign",
        functools.partial(_wrap, _direct_assign),
        "self value",
        "writes become outputs, merged over replicas",
    ),
    Hook(
        JaxVariable,
        "_initialize",
        functools.partial(_wrap, _initialize),
        "self value",
        "values lie on the strategy's devices, or on that of `tf.device`, also if a trace makes them",
    ),
    Hook(
        JaxVariable,
        "_initialize_with_initializer",
        functools.partial(_wrap, _initialize_with_initializer),
        "self initializer",
        "the same",
    ),
)
