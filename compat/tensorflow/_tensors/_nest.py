"""`tf.nest`: functions of structures of lists, tuples and dictionaries.

See https://www.tensorflow.org/api_docs/python/tf/nest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from tfdist_jax import PerReplica
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor

_COMPOSITES = (IndexedSlices, SparseTensor)


def _is_leaf(value: Any) -> bool:
    """Whether JAX would look into a value that TensorFlow takes as one."""
    return value is None or isinstance(value, (TensorShape, PerReplica, *_COMPOSITES))


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves, None included; those of dictionaries in the order of their keys.

    Sparse tensors and `tf.IndexedSlices` are leaves, or with `expand_composites` their parts.
    """
    leaves = jax.tree.leaves(structure, is_leaf=_is_leaf)
    if not expand_composites:
        return leaves
    return [part for leaf in leaves for part in (leaf.parts() if isinstance(leaf, _COMPOSITES) else [leaf])]


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
    kwargs.pop("expand_composites", None)
    if kwargs:
        raise ValueError(f"Only valid keyword arguments are `check_types` and `expand_composites`, got {list(kwargs)}.")
    for other in structure[1:]:
        assert_same_structure(structure[0], other)
    return map_in_order(func, *structure, is_leaf=_is_leaf)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Return the structure with its leaves replaced by those of a list."""
    tree = jax.tree.structure(in_order(structure), is_leaf=_is_leaf)
    if tree.num_leaves != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {tree.num_leaves} atoms, but flat_sequence had "
            f"{len(flat_sequence)} items: {flat_sequence}."
        )
    return restore_dict_order(jax.tree.unflatten(tree, list(flat_sequence)))


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
