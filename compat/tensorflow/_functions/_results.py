"""What compiled functions and replicas return: tensors, and beside them Python values, strings and variables."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any, final

import jax
from jax.core import Tracer

from tfdist_jax import PerReplica
from tfdist_jax._replica import is_per_replica
from tfdist_jax._stateful._replica_state import ReplicaScope, Replicated, is_replicated
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._functions._autograph._host import is_host_iterable, require_host
from tfdist_jax.compat.tensorflow._functions._closure_guard import ById
from tfdist_jax.compat.tensorflow._tensors._composite import StaticPart
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import PerReplicaStrings, per_replica_strings
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow._variables._variable_creators import is_new

SCALARS = (bool, int, float, complex, str, bytes)
"""Python values that are constants of a program."""


@final
@jax.tree_util.register_pytree_node_class
class Constant:
    """What is no array among a program's results: part of the results' structure."""

    def __init__(self, value: Any) -> None:
        """Hold `value`."""
        self.value = value

    def tree_flatten(self) -> tuple[tuple[()], Hashable]:
        """Return no leaves, and the value; scalars are equal by value, other objects if they are the same."""
        return (), (type(self.value), self.value if isinstance(self.value, SCALARS) else ById(self.value))

    @classmethod
    def tree_unflatten(cls, typed: Any, leaves: Any) -> "Constant":
        """Hold the value again."""
        _, value = typed
        return cls(value.value if isinstance(value, ById) else value)


def is_constant(leaf: Any) -> bool:
    """Whether a part of a program's results is no array."""
    return isinstance(leaf, Constant)


@final
@dataclasses.dataclass(frozen=True)
class _OfHost:
    """Stands for a value of the host among a program's results, by its number in the host part."""

    number: int


def has_host_values(results: Any) -> bool:
    """Tell whether some of what a traced function returns is computed by its host part."""
    return any(
        is_constant(leaf) and isinstance(leaf.value, _OfHost) for leaf in jax.tree.leaves(results, is_leaf=is_constant)
    )


def fill_host_values(results: Any, values: Sequence[Any]) -> Any:
    """Put what the host has computed for a call into its results."""
    return map_in_order(lambda leaf: values[leaf.number] if isinstance(leaf, _OfHost) else leaf, results)


def as_replica_results(results: Any, shared: Sequence[Any] = (), merged: Sequence[Any] = ()) -> Any:
    """Turn what a replica returns into tensors and constants.

    Args:
        results: Any structure. Python's numbers and strings are constants, and what is `shared` too: it is the same object
            on all replicas.
        shared: The arguments of all replicas.
        merged: Tensors that are equal on all replicas; they become `Replicated`.
    """
    passed = set(map(id, shared))
    keep = lambda leaf: id(leaf) in passed or isinstance(leaf, SCALARS)
    return jax.tree.map(
        lambda leaf: Constant(leaf) if keep(leaf) else _as_result(leaf), mark_replicated(in_order(results), merged)
    )


def keep_variables(results: Any) -> Any:
    """Let variables among a replica's results be returned themselves, unless it has changed them: then their value is its own.

    Those that the step has made are returned in any case.
    """
    scope = current_scope()
    written = {id(cell) for cell, *_ in scope.writes()} if isinstance(scope, ReplicaScope) else set()
    is_kept = lambda leaf: isinstance(leaf, Variable) and (id(leaf) not in written or is_new(leaf))
    return map_in_order(lambda leaf: Constant(leaf) if is_kept(leaf) else leaf, results)


def mark_replicated(results: Any, merged: Sequence[Any]) -> Any:
    """Mark the `merged` tensors among a replica's results."""
    equal = set(map(id, merged))
    return jax.tree.map(lambda leaf: Replicated(leaf) if id(leaf) in equal else leaf, results) if equal else results


def as_results(results: Any) -> Any:
    """Turn what a traced function returns into tensors: variables give their values; strings are constants."""
    return jax.tree.map(_as_result, in_order(results))


def restore_constants(results: Any) -> Any:
    """Put what is no array back into a program's results, and dictionaries in their order."""
    return restore_dict_order(
        jax.tree.map(lambda leaf: leaf.value if is_constant(leaf) else leaf, results, is_leaf=is_constant)
    )


def from_spmd_results(results: Any, num_replicas: int) -> Any:
    """Put back what is no array into the results of all replicas, which one program has computed."""

    def one(leaf: Any) -> Any:
        if is_replicated(leaf):
            return leaf.value
        if is_constant(leaf):
            # A string that the program has made is one for each replica.
            is_text = isinstance(leaf.value, HostTensor)
            return per_replica_strings([leaf.value] * num_replicas) if is_text else leaf.value
        return leaf

    is_leaf = lambda leaf: is_replicated(leaf) or is_constant(leaf) or is_per_replica(leaf)
    return jax.tree.map(one, results, is_leaf=is_leaf)


def join_results(results: Sequence[Any]) -> Any:
    """Join the results of replicas that were traced one by one; what is the same object everywhere stays it."""

    def joined(*leaves: Any) -> Any:
        if is_replicated(leaves[0]):
            return leaves[0].value
        same = all(is_constant(leaf) and leaf.tree_flatten() == leaves[0].tree_flatten() for leaf in leaves)
        values = restore_constants(leaves)
        if same:
            return values[0]
        return per_replica_strings(values) if isinstance(values[0], HostTensor) else PerReplica.uneven(values)

    return jax.tree.map(joined, *results, is_leaf=lambda leaf: is_constant(leaf) or is_replicated(leaf))


def _as_result(leaf: Any) -> Any:
    if isinstance(leaf, (jax.Array, Tracer)):
        return leaf
    if isinstance(leaf, PerReplicaStrings | StaticPart):
        return Constant(leaf)
    if isinstance(leaf, HostTracer):
        return Constant(_OfHost(leaf.number))
    if is_host_iterable(leaf):
        # Its functions may have captured tensors, which outside of the function would have no values.
        require_host()
        return Constant(leaf)
    try:
        tensor = convert_to_tensor(leaf.value() if isinstance(leaf, Variable) else leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"A compiled function returned a {type(leaf).__name__} ({leaf!r}). Its results must be tensors, numbers or "
            "None, in tuples, lists or dicts. Compute other values outside of it."
        ) from error
    return Constant(tensor) if isinstance(tensor, HostTensor) and not tensor.has_symbols else tensor
