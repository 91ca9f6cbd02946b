"""`tf.nest`: functions of structures of lists, tuples and dictionaries.

See https://www.tensorflow.org/api_docs/python/tf/nest.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from tfdist_jax import PerReplica
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape


def _is_leaf(value: Any) -> bool:
    """Whether JAX would look into a value that TensorFlow takes as one."""
    return value is None or isinstance(value, TensorShape | PerReplica | Composite)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves, None included; those of dictionaries in the order of their keys.

    Sparse and ragged tensors and `tf.IndexedSlices` are leaves, or with `expand_composites` their parts.
    """
    leaves = jax.tree.leaves(structure, is_leaf=_is_leaf)
    if not expand_composites:
        return leaves
    return [part for leaf in leaves for part in (leaf.parts() if isinstance(leaf, Composite) else [leaf])]


def is_nested(seq: Any) -> bool:
    """Whether it is a structure rather than a leaf."""
    return jax.tree.structure(seq, is_leaf=_is_leaf) != jax.tree.structure(0)


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Return the structure with `func` called on its leaves; on those of all structures, if there are several.

    Raises:
        TypeError: If `func` cannot be called or there is no structure.
        ValueError: If the structures differ.
    """
    if not callable(func):
        raise TypeError(f"Argument `func` must be callable, got: {func}")
    if not structure:
        raise TypeError("Must provide at least one structure.")
    kwargs.pop("check_types", None)
    expand_composites = kwargs.pop("expand_composites", False)
    if kwargs:
        raise ValueError(f"Only valid keyword arguments are `check_types` and `expand_composites`, got {list(kwargs)}.")
    for other in structure[1:]:
        assert_same_structure(structure[0], other)
    return map_in_order(_of_parts(func) if expand_composites else func, *structure, is_leaf=_is_leaf)


def _of_parts(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does to the parts of sparse and ragged tensors what `func` does to tensors."""

    def call(*leaves: Any) -> Any:
        if not isinstance(leaves[0], Composite):
            return func(*leaves)
        return leaves[0].with_parts([func(*parts) for parts in zip(*(leaf.parts() for leaf in leaves), strict=True)])

    return call


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Return the structure with its leaves replaced by those of a list."""
    tree = jax.tree.structure(in_order(structure), is_leaf=_is_leaf)
    if expand_composites:
        flat_sequence = _joined(flatten(structure), flat_sequence)
    if tree.num_leaves != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {tree.num_leaves} atoms, but flat_sequence had "
            f"{len(flat_sequence)} items: {flat_sequence}."
        )
    return restore_dict_order(jax.tree.unflatten(tree, list(flat_sequence)))


def _joined(leaves: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
    """Return parts as leaves: several of them make a sparse or a ragged tensor like the one that is among `leaves`."""
    counts = [len(leaf.parts()) if isinstance(leaf, Composite) else 1 for leaf in leaves]
    if sum(counts) != len(parts):
        return list(parts)
    rest = iter(parts)
    taken = [list(itertools.islice(rest, count)) for count in counts]
    return [
        leaf.with_parts(own) if isinstance(leaf, Composite) else own[0] for leaf, own in zip(leaves, taken, strict=True)
    ]


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Raise a ValueError if two structures differ, or a TypeError if only their types do."""
    first, second = (jax.tree.structure(nest, is_leaf=_is_leaf) for nest in (nest1, nest2))
    if first == second:
        return
    if len(flatten(nest1)) != len(flatten(nest2)) or _plain(nest1) != _plain(nest2):
        raise ValueError(
            f"The two structures don't have the same nested structure.\n\nFirst: {first}\n\nSecond: {second}"
        )
    if check_types:
        raise TypeError(f"The two structures don't have the same sequence type: {first} and {second}.")


def _plain(nest: Any) -> Any:
    """Return a structure's form without the types of its sequences."""
    if isinstance(nest, dict):
        return {key: _plain(value) for key, value in nest.items()}
    if isinstance(nest, list | tuple) and not _is_leaf(nest):
        return [_plain(value) for value in nest]
    return None
