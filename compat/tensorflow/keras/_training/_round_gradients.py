"""Gradients of workers that train in rounds: the optimizer applies the mean of all workers', once, or each worker's to its copies."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax._internals import computing_now
from tfdist_jax._stateful._handed_over import current_outbox, hand_over
from tfdist_jax._stateful._state import cell_name, entering
from tfdist_jax._stateful._worker_copies import current_training
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.keras._variables._overwrite_with_gradient import is_overwritten


def give_to_round(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any] | None) -> bool:
    """Give gradients to the round that a worker trains in.

    Args:
        optimizer: Applies the mean when the round ends.
        grads: Gradients; entries may be None or `tf.IndexedSlices`.
        variables: The variable of each; None for those that the optimizer has been built for.

    Returns:
        Whether there is a round; else, and where there is nothing that could be applied, they are to be applied at once.
    """
    if current_training() is not None:
        _train_copies(optimizer, variables)
    if current_outbox() is None or (variables is None and not optimizer.built):
        return False
    targets = list(optimizer._trainable_variables if variables is None else variables)
    if len(targets) != len(grads) or all(grad is None for grad in grads):
        return False
    if not optimizer.built:
        optimizer.build(targets)
    apply = functools.partial(_apply_mean, optimizer)
    hand_over(optimizer, targets, list(grads), apply, [*targets, *_changing(optimizer)])
    return True


def _train_copies(optimizer: Any, variables: Sequence[Any] | None) -> None:
    """Let an optimizer change a worker's own copies, and keep of them what is that worker's own, too.

    Raises:
        NotImplementedError: If there are no copies of a variable.
    """
    if variables is None and not optimizer.built:
        return  # It refuses.
    targets = list(optimizer._trainable_variables if variables is None else variables)
    for variable in targets:
        if not variable.storage.is_of_workers:
            raise NotImplementedError(
                f"An optimizer changes {cell_name(variable)!r}, of which workers have no copies of their own, as `sync_every` wants. Make "
                "it in the strategy's scope, with trainable=True and a floating type."
            )
    if not optimizer.built:
        optimizer.build(targets)
    with entering(None), computing_now():
        for variable in optimizer.variables:
            targets[0].storage.keep_like(variable, targets[0])
    targets[0].storage.allow(targets)


def _changing(optimizer: Any) -> Iterator[Any]:
    """Return the optimizer's variables that an update changes: not the learning rate, which programs like to log."""
    rate = getattr(getattr(optimizer, "inner_optimizer", optimizer), "_learning_rate", None)
    return (variable for variable in optimizer.variables if variable is not rate)


def _apply_mean(optimizer: Any, parts: list[tuple[tuple[Any, ...], Any]]) -> None:
    """Apply the mean of gradients that several workers have given; None counts as zeros where others have given some."""
    variables = {id(variable): variable for targets, _ in parts for variable in targets}
    of_each: dict[int, list[Any]] = {key: [] for key in variables}
    for targets, grads in parts:
        for variable, grad in zip(targets, grads, strict=True):
            if grad is not None:
                of_each[id(variable)].append(grad)
    means = [_together(grads, len(parts), variables[key]) for key, grads in of_each.items()]
    optimizer.apply(means, list(variables.values()))


def _together(grads: Sequence[Any], count: int, variable: Any) -> Any:
    """Return the mean of so many gradients, of which those that are zeros are left out; as it would be of one batch."""
    if not grads:
        return None
    if is_overwritten(variable):
        return functools.reduce(jnp.maximum, grads)
    if all(isinstance(grad, IndexedSlices) for grad in grads):
        values = jnp.concatenate([grad.values for grad in grads])
        indices = jnp.concatenate([grad.indices for grad in grads])
        return IndexedSlices((values / count).astype(values.dtype), indices, grads[0].dense_shape)
    return _mean(list(map(convert_to_tensor, grads)), count)


def _mean(grads: Sequence[jax.Array], count: int) -> jax.Array:
    """Return the mean, added up in the order of the closures, of short types in float32."""
    wide = [grad.astype(jnp.promote_types(grad.dtype, jnp.float32)) for grad in grads]
    return (functools.reduce(jnp.add, wide) / count).astype(grads[0].dtype)
