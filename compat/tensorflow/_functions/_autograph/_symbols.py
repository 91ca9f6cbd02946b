"""The values of Python variables that a statement changes, as arrays for XLA and the rest that stays as it is."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from malt.operators.variables import Undefined, UndefinedReturnValue

from tfdist_jax.compat.tensorflow._functions._closure_guard import ById
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

RETURN_VALUE = "the value to return"


@final
@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Symbol:
    """One variable's value: a pytree of its tensors.

    Attributes:
        name: The variable's name in the user's code.
        tensors: The tensors in the value; Python numbers have become tensors.
        tree: The structure around them.
        constants: What is no tensor: `(position among the leaves, value by identity)`.
    """

    name: str
    tensors: tuple[jax.Array, ...]
    tree: Any
    constants: tuple[tuple[int, Any], ...]

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the tensors, and the rest."""
        return self.tensors, (self.name, self.tree, self.constants)

    @classmethod
    def tree_unflatten(cls, rest: Any, tensors: Sequence[Any]) -> "Symbol":
        """Put tensors and the rest together again."""
        name, tree, constants = rest
        return cls(name, tuple(tensors), tree, constants)

    def filled(self, tensors: Sequence[Any]) -> Any:
        """Return the value with other tensors in it."""
        rest = iter(tensors)
        constants = dict(self.constants)
        leaves = [constants[i].value if i in constants else next(rest) for i in range(self.tree.num_leaves)]
        return restore_dict_order(self.tree.unflatten(leaves))

    @property
    def read(self) -> "Symbol":
        """The same, with the values of variables in the variables' places."""
        rest, constants = iter(self.tensors), dict(self.constants)
        tensors: list[jax.Array] = []
        for i in range(self.tree.num_leaves):
            if i not in constants:
                tensors.append(next(rest))
            elif _is_variable(constants[i].value):
                tensors.append(convert_to_tensor(constants[i].value))
        others = tuple((i, constant) for i, constant in self.constants if not _is_variable(constant.value))
        return Symbol(self.name, tuple(tensors), self.tree, others)

    def without_read(self, tensors: Sequence[Any]) -> list[Any]:
        """Return those of `read`'s tensors that are no variables' values."""
        constants = dict(self.constants)
        places = [i for i in range(self.tree.num_leaves) if i not in constants or _is_variable(constants[i].value)]
        return [tensor for i, tensor in zip(places, tensors, strict=True) if i not in constants]

    def is_like(self, other: "Symbol") -> bool:
        """Tell whether the values differ in their tensors only."""
        return (self.tree, self.constants) == (other.tree, other.constants)

    @property
    def holds_host_values(self) -> bool:
        """Whether what is no tensor of the program stands for values that the host computes, such as strings."""
        return any(isinstance(constant.value, HostTracer) for _, constant in self.constants)

    @property
    def shown(self) -> str:
        """The name as messages show it."""
        return self.name if " " in self.name else f"'{self.name}'"

    @property
    def structure(self) -> str:
        """The value as messages show it, without the numbers."""
        return str(self.filled(["tensor"] * len(self.tensors)))

    @property
    def is_none(self) -> bool:
        """Whether the value is None."""
        return jax.tree_util.treedef_is_leaf(self.tree) and bool(self.constants) and self.constants[0][1].value is None

    @property
    def is_undefined(self) -> bool:
        """Whether the variable has no value yet."""
        return len(self.constants) == 1 and is_undefined(self.constants[0][1].value)


def is_undefined(value: Any) -> bool:
    """Tell whether a variable has no value yet, or a function has not returned."""
    return isinstance(value, Undefined | UndefinedReturnValue)


def symbols(names: Sequence[str], values: Sequence[Any]) -> list[Symbol]:
    """Take the values of variables apart."""
    return [_symbol(name, value) for name, value in zip(names, values, strict=True)]


def _symbol(name: str, value: Any) -> Symbol:
    leaves, tree = jax.tree.flatten(in_order(value), is_leaf=lambda leaf: leaf is None)
    tensors = tuple(_strong(convert_to_tensor(leaf)) for leaf in leaves if _is_tensor(leaf))
    constants = tuple((i, _constant(leaf)) for i, leaf in enumerate(leaves) if not _is_tensor(leaf))
    shown = RETURN_VALUE if name.startswith("retval_") else name
    return Symbol(shown, tensors, tree, constants)


def _strong(tensor: jax.Array) -> jax.Array:
    """Take from a tensor that it adapts its type to others, as a Python number does: it would count as another type."""
    return jax.lax.convert_element_type(tensor, tensor.dtype) if tensor.weak_type else tensor


def _is_tensor(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind not in "OSU"
    return isinstance(leaf, jax.Array | bool | int | float | complex)


def _is_variable(leaf: Any) -> bool:
    # What is undefined claims to have every attribute.
    return not is_undefined(leaf) and hasattr(leaf, "assign") and hasattr(leaf, "__jax_array__")


def _constant(leaf: Any) -> Any:
    # A name is the same wherever it is written; other things are only if they are one object.
    return ByValue(leaf) if isinstance(leaf, str | bytes) or is_undefined(leaf) else ById(leaf)


@final
@dataclasses.dataclass(frozen=True)
class ByValue:
    """A constant that equals others with the same text, or that stand for the same missing variable."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByValue):
            return False
        both_missing = is_undefined(self.value) and is_undefined(other.value)
        return both_missing or (type(self.value) is type(other.value) and self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


def tensors_of(parts: Sequence[Symbol]) -> list[jax.Array]:
    """Return the tensors of all variables in a row."""
    return [tensor for symbol in parts for tensor in symbol.tensors]


def filled(parts: Sequence[Symbol], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of all variables, with other tensors in them."""
    rest = iter(tensors)
    return tuple(symbol.filled([next(rest) for _ in symbol.tensors]) for symbol in parts)


def zeros_like(symbol: Symbol) -> Any:
    """Return the variable's value with zeros in place of its tensors."""
    return symbol.filled([jnp.zeros(tensor.shape, tensor.dtype) for tensor in symbol.tensors])
