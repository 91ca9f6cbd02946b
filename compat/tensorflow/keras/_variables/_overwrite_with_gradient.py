"""Gradients of all replicas together. Some are a variable's next value, such as float8's scales: the largest of the replicas' counts."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from tfdist_jax.compat.tensorflow.keras._variables._gradient_memory import sum_compressed_gradients

Gradients = list[Any]


def is_overwritten(variable: Any) -> bool:
    """Tell whether an optimizer assigns the gradient to the variable instead of following it."""
    return getattr(variable, "overwrite_with_gradient", False)


def split_overwriting(gradients: Sequence[Any], variables: Sequence[Any]) -> tuple[Gradients, Gradients]:
    """Return the gradients to add up over the replicas and the values of which the largest counts, None elsewhere.

    Scales follow from the largest number seen, of any replica: then they are those of one device. A replica without
    rows has zeros, which are never the largest.
    """
    pairs = list(zip(gradients, variables, strict=True))
    return [None if is_overwritten(v) else g for g, v in pairs], [g if is_overwritten(v) else None for g, v in pairs]


def join_overwriting(summed: Sequence[Any], largest: Sequence[Any]) -> Gradients:
    """Undo `split_overwriting`."""
    return [one if other is None else other for one, other in zip(summed, largest, strict=True)]


def reduce_gradients(context: Any, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> Gradients:
    """Return what the gradients of all replicas are together.

    Args:
        context: The replica's context, for its collectives.
        optimizer: The optimizer that is to apply them.
        gradients: This replica's gradients; entries may be None or `tf.IndexedSlices`.
        variables: The variable of each.
    """
    own, apart = reduce_apart(context, optimizer, gradients, variables)
    return join_overwriting(context.all_reduce("SUM", own), apart)


def reduce_apart(
    context: Any, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]
) -> tuple[Gradients, Gradients]:
    """Return the gradients that are to be added up as they are, and what others are together, None elsewhere."""
    own, values = split_overwriting(gradients, variables)
    compressed = sum_compressed_gradients(context, optimizer, own, variables)
    rest = [gradient if total is None else None for gradient, total in zip(own, compressed, strict=True)]
    return rest, join_overwriting(largest_of(context, values), compressed)


def largest_of(context: Any, values: Sequence[Any]) -> Gradients:
    """Return the largest of the replicas' values, element by element; None stays None."""
    return [None if value is None else jnp.max(context.all_gather(value[None], 0), 0) for value in values]
