"""Gradients of all replicas, added up: scattered as their layouts say, in few transfers, compressed where they are to be."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax._global_batch._gathers import run_on_parts
from tfdist_jax._global_batch._replica_function import ReplicaFunction
from tfdist_jax._sharding._collectives import fused_sum, scatter_sum_over, sum_over
from tfdist_jax._sharding._compression import Compression, Memory, are_finite, keep_if, sum_compressed
from tfdist_jax._sharding._layout import WHOLE, Layout, axes_of, names_of, restrict

Memories = Sequence[Memory]
"""What a replica keeps of each gradient from step to step; nothing of those that travel without."""


def sum_gradients(
    function: ReplicaFunction, parts: Sequence[Any], grads: Any, memories: Memories
) -> tuple[list[Any], Any, Memories]:
    """Add up what replicas have of results and gradients, in a program of replicas.

    Args:
        function: The function.
        parts: What its `run` has returned.
        grads: This replica's gradients, like the parameters.
        memories: What it keeps of each.

    Returns:
        Merged results, gradients laid out as their layouts say, and the new memories.
    """
    leaves, tree = jax.tree.flatten(grads)
    layouts = tree.flatten_up_to(function.split.layouts)
    axes, kept = function.split.wide_axes, list(memories)
    scattered = [_scatter(*each, axes) for each in zip(leaves, layouts, strict=True)]
    grads, missing = [grad for grad, _ in scattered], [over for _, over in scattered]
    ways = [(over, layout.wire) for over, layout in zip(missing, layouts, strict=True)]
    # Most go with the results, in one transfer.
    merged, sums = function.merge(parts, _only(grads, ways, (axes, None)))
    grads = _replaced(grads, sums)
    for over, wire in dict.fromkeys(ways):
        if wire is not None and (over or wire.has_memory):
            chosen = [i for i, way in enumerate(ways) if way == (over, wire)]
            for group in _groups(chosen, layouts, axes):
                totals, new = _sum_group(wire, [(grads[i], kept[i], layouts[i]) for i in group], over, axes)
                for i, total, memory in zip(group, totals, new, strict=True):
                    grads[i], kept[i] = total, memory
        elif over and over != axes:
            grads = _replaced(grads, fused_sum(_only(grads, ways, (over, None)), over))
    if any(memories):
        kept = keep_if(_are_finite_on_all(grads, layouts, axes), kept, memories)
    return merged, tree.unflatten(grads), kept


def _are_finite_on_all(grads: Sequence[jax.Array], layouts: Sequence[Layout], axes: tuple[str, ...]) -> jax.Array:
    """Return whether all gradients are finite, of which replicas may hold parts: all get the same answer."""
    split = {axis for layout in layouts for axis in axes_of(layout.gradient or layout.spec)}
    over = tuple(axis for axis in axes if axis in split)
    is_finite = are_finite(grads)
    return jax.lax.psum((~is_finite).astype(jnp.int32), over) == 0 if over else is_finite


def _only(grads: Sequence[jax.Array], ways: Sequence[Any], way: Any) -> list[jax.Array | None]:
    """Return the gradients that are to be summed over some axes in one form, and None for others."""
    return [grad if each == way else None for grad, each in zip(grads, ways, strict=True)]


def _replaced(grads: Sequence[jax.Array], sums: Sequence[jax.Array | None]) -> list[jax.Array]:
    return [grad if total is None else total for grad, total in zip(grads, sums, strict=True)]


def _scatter(grad: jax.Array, layout: Layout, axes: tuple[str, ...]) -> tuple[jax.Array, tuple[str, ...]]:
    """Return a replica's gradient, scattered as its layout says, and the axes over which it is still to be summed.

    A sharded parameter's is summed over its axes: the transpose of its all-gather is a reduce-scatter.
    """
    wire = layout.wire if isinstance(layout.wire, Compression) else None
    done = [axis for axis in axes_of(layout.spec) if axis in axes]
    for dimension, axis in [] if wire and wire.has_memory else _scattered(layout, axes):
        scatter = scatter_sum_over if wire is None else wire.scatter_sum
        grad = scatter(grad, axis, dimension)
        done.append(axis)
    missing = tuple(axis for axis in axes if axis not in done)
    if wire is None and missing and not _is_replicas(layout, axes):
        # In a bucket with others, what XLA divides would be put together first.
        return sum_over(grad, missing), ()
    return grad, missing


def _scattered(layout: Layout, axes: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return over which axes, and along which dimensions, a gradient is scattered that its parameter is not."""
    entries = enumerate(layout.gradient or ())
    return [
        (dimension, axis)
        for dimension, entry in entries
        for axis in names_of(entry)
        if axis in axes and axis not in axes_of(layout.spec)
    ]


def _is_replicas(layout: Layout, axes: tuple[str, ...]) -> bool:
    """Whether XLA divides nothing of a parameter."""
    return set(axes_of(layout.spec)) <= {*axes}


def _groups(chosen: Sequence[int], layouts: Sequence[Layout], axes: tuple[str, ...]) -> list[list[int]]:
    """Part positions into those that travel together: what XLA divides travels alone."""
    together = [i for i in chosen if _is_replicas(layouts[i], axes)]
    return [*([together] if together else []), *([i] for i in chosen if i not in together)]


def _sum_group(
    wire: Compression,
    group: Sequence[tuple[jax.Array, Memory, Layout]],
    over: tuple[str, ...],
    axes: tuple[str, ...],
) -> tuple[list[jax.Array], list[Memory]]:
    """Sum gradients over some axes, and return what is this replica's of them, with the new memories."""
    of_xla = [name for name in axes_of(group[0][2].spec) if name not in axes]
    spec = restrict(group[0][2].spec, of_xla) if wire.is_by_element else WHOLE
    given = [grad for grad, _, _ in group], [memory for _, memory, _ in group]
    totals, memories = run_on_parts(lambda given: sum_compressed(wire, given[0], given[1], over), given, spec)
    pairs = zip(totals, group, strict=True)
    return [_own_part(total, layout, over) for total, (_, _, layout) in pairs], memories


def _own_part(total: jax.Array, layout: Layout, over: tuple[str, ...]) -> jax.Array:
    """Return this replica's part of a sum that all have, as its layout says; of forms without memory it is scattered already."""
    for dimension, axis in _scattered(layout, over):
        size = total.shape[dimension] // jax.lax.axis_size(axis)
        total = jax.lax.dynamic_slice_in_dim(total, jax.lax.axis_index(axis) * size, size, dimension)
    return total
