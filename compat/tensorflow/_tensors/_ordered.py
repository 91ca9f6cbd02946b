"""Dictionaries keep their order: JAX sorts the keys of those that it takes apart and puts together, TensorFlow does not."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, final

import jax


def in_order(structure: Any) -> Any:
    """Return a structure with something in place of its dictionaries that comes out of JAX's trees in the same order."""
    if type(structure) is dict:
        return _Ordered({key: in_order(value) for key, value in structure.items()})
    return _with_parts(structure, in_order)


def restore_dict_order(structure: Any) -> Any:
    """Return a structure with its dictionaries again."""
    if type(structure) is _Ordered:
        return {key: restore_dict_order(value) for key, value in structure.items.items()}
    return _with_parts(structure, restore_dict_order)


def map_in_order(
    fn: Callable[..., Any], structure: Any, *others: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Do as `jax.tree.map`, and keep the order of dictionaries."""
    return restore_dict_order(jax.tree.map(fn, in_order(structure), *map(in_order, others), is_leaf=is_leaf))


def _with_parts(structure: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a sequence with `fn` of its parts that are structures; itself if that changes nothing."""
    kind = type(structure)
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if kind is not list and kind is not tuple and not named:
        return structure
    parts = [fn(part) if isinstance(part, _STRUCTURES) else part for part in structure]
    if all(map(operator.is_, parts, structure)):
        return structure
    return kind(*parts) if named else kind(parts)


def leaves_of(structure: Any) -> list[Any]:
    """Return the leaves of a structure, in JAX's order; also of dictionaries whose keys cannot be sorted."""
    try:
        return jax.tree.leaves(structure)
    except ValueError:
        return jax.tree.leaves(in_order(structure))


def _sorted(keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return keys in an order that does not depend on theirs; None if there is none, as of `variable.ref()`."""
    try:
        return tuple(sorted(keys))
    except TypeError:
        return None


@final
class _Keys:
    """The keys of a dictionary in their order; equal to the same ones in any order, as dictionaries are.

    Keys that cannot be sorted are equal in the same order only: their leaves are in that.
    """

    __slots__ = ("keys", "same")

    def __init__(self, keys: tuple[Any, ...], are_sortable: bool) -> None:
        self.keys = keys
        self.same = frozenset(keys) if are_sortable else keys

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keys) and self.same == other.same

    def __hash__(self) -> int:
        return hash(self.same)

    def __repr__(self) -> str:
        return repr(list(_sorted(self.keys) or self.keys))


@final
@jax.tree_util.register_pytree_node_class
class _Ordered:
    """A dictionary that JAX gives back in its order. Its leaves are in the order of the sorted keys, where these can be sorted."""

    __slots__ = ("items",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self.items = items

    def tree_flatten(self) -> tuple[list[Any], _Keys]:
        keys = tuple(self.items)
        in_leaf_order = _sorted(keys)
        return [self.items[key] for key in in_leaf_order or keys], _Keys(keys, in_leaf_order is not None)

    @classmethod
    def tree_unflatten(cls, keys: _Keys, values: Any) -> "_Ordered":
        by_key = dict(zip(_sorted(keys.keys) or keys.keys, values, strict=True))
        return cls({key: by_key[key] for key in keys.keys})


# Most parts are tensors: asking costs less than a call for each.
_STRUCTURES = (dict, list, tuple, _Ordered)
