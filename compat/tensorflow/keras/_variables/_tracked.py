"""What layers, optimizers and metrics of Keras hold: for checkpoints."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras

from tfdist_jax.compat.tensorflow._variables._tracking import Library, add_library, attributes_changed
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import TrackedDict, TrackedList
from tfdist_jax.compat.tensorflow.keras._variables import _tensorflow_names
from tfdist_jax.compat.tensorflow.keras._variables._gradient_memory import MEMORY

KINDS = (keras.Layer, keras.optimizers.Optimizer, keras.Metric, keras.Variable, keras.random.SeedGenerator)

# Keras's own lists of what the other attributes hold, and what it keeps of a model for `fit`.
_BOOKKEEPING = frozenset(
    [
        "_layers",
        "_operations",
        "_nodes",
        "_inbound_nodes",
        "_outbound_nodes",
        "_functional",
        "_metrics",
        "_trainable_variables",
        "_non_trainable_variables",
        "_seed_generators",
        "_variables",
        "_losses",
        "_loss_tracker",
        "_compile_metrics",
        "_accumulated_gradients",
    ]
)

_NO_STATE = (bool, int, float, str, type(None))


def parts(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables and objects that a Keras object holds, by attribute; those without attribute by number."""
    if isinstance(owner, keras.optimizers.Optimizer):
        yield "iterations", owner.iterations
        yield "variables", list(owner.variables)
        if memory := vars(owner).get(MEMORY):
            yield MEMORY, memory
        inner = getattr(owner, "inner_optimizer", None)
        if inner is not None:
            yield "inner_optimizer", inner
        return
    named = [(_public(name, value), value) for name, value in vars(owner).items() if name not in _BOOKKEEPING]
    yield from named
    if isinstance(owner, keras.Sequential):
        yield "layers", list(owner.layers)
    elif isinstance(owner, keras.Model) and hasattr(owner, "operations"):
        yield "_operations", list(owner.operations)
    known = {id(value) for _, value in named}
    for store in ("_trainable_variables", "_non_trainable_variables", "_seed_generators", "_variables"):
        for i, value in enumerate(vars(owner).get(store, ())):
            if id(value) not in known:
                yield f"{store}/{i}", value


def _public(name: str, value: Any) -> str:
    """Name `layer._kernel` as users see it, `layer.kernel`."""
    own = getattr(value, "name", None) if isinstance(value, keras.Variable) else None
    return own if own is not None and name == f"_{own}" else name


def assign(variable: Any, value: Any) -> None:
    """Give a variable a value; one whose value Keras has not made yet starts with it."""
    if variable.stored is None:
        variable._initializer = lambda shape, dtype: jnp.asarray(value, dtype)
    else:
        variable.assign(value)


add_library(
    Library(
        KINDS,
        parts,
        assign,
        _tensorflow_names.UNKNOWN,
        _tensorflow_names.parts,
        _tensorflow_names.known_parts,
        _tensorflow_names.wide_variables,
        _tensorflow_names.slot_variable,
    )
)


def _make_dict(keys: tuple[Any, ...], values: Any) -> Any:
    return TrackedDict(dict(zip(keys, values, strict=True)))


# Attributes that hold structures are structures for JAX, too: `encoder(model.inputs_by_name)`.
jax.tree_util.register_pytree_node(
    TrackedDict, lambda held: ([held[key] for key in sorted(held)], tuple(sorted(held))), _make_dict
)
jax.tree_util.register_pytree_node(
    TrackedList, lambda held: (list(held), None), lambda _, values: TrackedList(list(values))
)


def _telling(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __setattr__(self: Any, name: str, value: Any) -> None:
        original(self, name, value)
        if name == "built" or not isinstance(value, _NO_STATE):
            attributes_changed(self)

    return __setattr__


CHANGES = tuple(
    Hook(kind, "__setattr__", _telling, "self name value", "tell restored checkpoints of new variables")
    for kind in (keras.Layer, keras.optimizers.Optimizer, keras.Metric)
)
