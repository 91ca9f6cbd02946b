"""An optimizer's update with the gradients of all replicas: by each replica, or once behind them where variables are split over devices."""

from collections.abc import Callable, Sequence
from typing import Any

from tfdist_jax._sharding._layout import axes_of
from tfdist_jax._stateful._postponed_updates import spec_of
from tfdist_jax._stateful._replica_state import ReplicaScope
from tfdist_jax._stateful._served_storage import update
from tfdist_jax._stateful._state import current_scope
from tfdist_jax._stateful._storage import ShardedStorage
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import is_slices
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import (
    Gradients,
    join_overwriting,
    reduce_apart,
    reduce_gradients,
)


def apply_summed(
    context: Any, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], apply: Callable[[Gradients], Any]
) -> Any:
    """Sum gradients over the replicas, and let `apply` use the sums.

    Args:
        context: The replica's context, for its collectives.
        optimizer: The optimizer.
        gradients: This replica's gradients; entries may be None or `tf.IndexedSlices`.
        variables: The variable of each.
        apply: Changes the optimizer's variables and `variables`.

    Returns:
        What `apply` returns; None if it is called behind the replicas.
    """
    if can_postpone(optimizer, variables) and not optimizer.built:
        optimizer.build(variables)
    cells = [*optimizer.variables, *variables]
    if not can_postpone(optimizer, variables):
        sums = reduce_gradients(context, optimizer, gradients, variables)
        with context.replicated_update():
            return update(lambda: apply(sums), cells)
    own, apart = reduce_apart(context, optimizer, gradients, variables)
    own, split = sum_laid_out(context, own, variables)
    sums = join_overwriting(context.all_reduce("SUM", own), apart)
    postpone(optimizer, variables, join_overwriting(sums, split), apply)
    return None


def can_postpone(optimizer: Any, variables: Sequence[Any]) -> bool:
    """Tell whether the optimizer's update should be left to the program around the replicas."""
    scope = current_scope()
    return isinstance(scope, ReplicaScope) and scope.can_postpone([*optimizer.variables, *variables])


def postpone(optimizer: Any, variables: Sequence[Any], sums: Sequence[Any], apply: Callable[[Gradients], Any]) -> None:
    """Let `apply` be called with the sums of gradients behind the replicas, where `can_postpone` is true."""
    scope: Any = current_scope()
    for storage in {variable.storage for variable in variables}:
        if isinstance(storage, ShardedStorage):
            storage.warn_of_unmatched_rules()  # All variables are there now.
    scope.postpone(apply, list(sums), [*optimizer.variables, *variables])


def sum_laid_out(context: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> tuple[Gradients, Gradients]:
    """Return the gradients that are to be added up with others, and the sums of those whose variables are split over devices.

    Either list has None in the place of what the other one has.
    """
    own, sums = list(gradients), [None] * len(gradients)
    for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        spec = spec_of(variable)
        if axes_of(spec) and gradient is not None and not is_slices(gradient) and gradient.shape == variable.shape:
            own[i], sums[i] = None, context.sum_as_laid_out(gradient, spec)
    return own, sums
