"""Gradients of a loss that is computed for some of a replica's rows at a time, and added up before replicas communicate."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from tfdist_jax._global_batch._replica_function import ReplicaFunction, zeros_like
from tfdist_jax._global_batch._results import How
from tfdist_jax._sharding._collectives import at_least_float32, switch_on_size
from tfdist_jax._sharding._keys import fold_keys

Found = tuple[list[Any], list[Any], list[Any]]
"""The loss, with its weight if it has one; the results, None for arguments; the gradients of the first, None where there are none."""


def accumulate_gradients(
    function: ReplicaFunction, params: Any, data: Any, extra: Any
) -> tuple[list[Any], Callable[..., Any], list[Any]]:
    """Differentiate a function for one part of a replica's rows after another, in a program of replicas.

    Parameters are gathered before the first part, and their gradients scattered after the last. Where layers gather theirs, each part
    does, so that no more than a layer is whole at a time.

    Args:
        function: The function, whose first result is the loss.
        params: What the replica has of the parameters.
        data: Its rows, for as many parts as `function.split.accumulate`.
        extra: The other arguments.

    Returns:
        As `jax.vjp` of the loss: the replica's loss and, if it has one, its weight; a function from their cotangents to the gradients of
        `params`; and the replica's part of each result.
    """
    split, whole, gathers = function.split, params, function.split.gathers
    scatter: Callable[..., Any] = lambda grads: (grads,)
    own_extra = function.own_keys(extra)
    if not (split.is_even and function.gathers_late):
        function.warn_of_gathering(params)
        whole, scatter = jax.vjp(split.gather_params, params)
        gathers = [None] * len(gathers)

    def differentiate(rows: Any, number: Any, size: int) -> Found:
        numbered = fold_keys(own_extra, number)

        def own_loss(whole: Any) -> tuple[Any, Any]:
            parts = function.run_rows(whole, rows, numbered, size, gathers)
            return function.pick_loss(parts), parts

        own, pull_back, parts = jax.vjp(own_loss, whole, has_aux=True)
        grads: list[Any] = []
        for i in range(len(own)):
            one = [jnp.full((), float(i == j), each.dtype) for j, each in enumerate(own)]
            # A weight is most often one of the batch alone: it has no gradients that would have to be kept.
            has_grads = i == 0 or _depends_on(lambda whole, i=i: own_loss(whole)[0][i], whole)
            grads.append(jax.tree.map(at_least_float32, pull_back(one)[0]) if has_grads else None)
        return own, parts, grads

    def branch(size: int) -> Callable[[Any], Found]:
        if size:
            return lambda data: _add_up(function, differentiate, data, size)
        return lambda data: _without_rows(function, branch(max(split.sizes))(data))

    own, parts, grads = switch_on_size(split.sizes, branch, data, split.row_axes)

    def pull_back(cotangents: Sequence[jax.Array]) -> tuple[Any]:
        pairs = [(ct, each) for ct, each in zip(cotangents, grads, strict=True) if each is not None]

        def combine(param: jax.Array, *each: jax.Array) -> jax.Array:
            parts = [ct * grad for (ct, _), grad in zip(pairs, each, strict=True)]
            return functools.reduce(jnp.add, parts).astype(param.dtype)

        return scatter(jax.tree.map(combine, whole, *(each for _, each in pairs)))

    return own, pull_back, parts


def _add_up(function: ReplicaFunction, differentiate: Callable[..., Found], data: Any, size: int) -> Found:
    """Return the sums of what there is for each part of `size` rows, and entries of rows behind one another."""
    sizes = [each for each in function.split.part_sizes(size) if each]
    count, most = sizes.count(sizes[0]), sizes[0]
    end = count * most
    alike = jax.tree.map(lambda leaf: leaf[:end].reshape(count, most, *leaf.shape[1:]), data)

    def turn(total: Any, part: Any) -> tuple[Any, Any]:
        number, rows = part
        found, entries = _take_entries(function, differentiate(rows, number, most))
        return _add(function, total, found), entries

    first = jax.tree.map(lambda leaf: leaf[0], alike)
    shapes = jax.eval_shape(lambda rows: _take_entries(function, differentiate(rows, 0, most))[0], first)
    total, entries = jax.lax.scan(turn, jax.tree.map(zeros_like, shapes), (jnp.arange(count), alike))
    entries = [each.reshape(end, *each.shape[2:]) for each in entries]
    if end < size:
        rest = differentiate(jax.tree.map(lambda leaf: leaf[end:size], data), count, size - end)
        found, last = _take_entries(function, rest)
        total = _add(function, total, found)
        entries = [jnp.concatenate(pair) for pair in zip(entries, last, strict=True)]
    own, parts, grads = total
    remaining = map(function.pad_rows, entries)
    pairs = zip(function.rules, parts, strict=True)
    return own, [next(remaining) if rule.has_entries else part for rule, part in pairs], grads


def _take_entries(function: ReplicaFunction, found: Found) -> tuple[Found, list[Any]]:
    """Return what is found without the results that have an entry for each row, and these."""
    own, parts, grads = found
    pairs = list(zip(function.rules, parts, strict=True))
    entries = [part for rule, part in pairs if rule.has_entries]
    return (own, [None if rule.has_entries else part for rule, part in pairs], grads), entries


def _add(function: ReplicaFunction, total: Found, found: Found) -> Found:
    (own, parts, grads), (more, others, more_grads) = total, found
    add = lambda one, other: jax.tree.map(jnp.add, one, other)
    merged = [
        other if other is None or rule.how is How.KEEP else part + other
        for rule, part, other in zip(function.rules, parts, others, strict=True)
    ]
    return add(own, more), merged, add(grads, more_grads)


def _without_rows(function: ReplicaFunction, found: Found) -> Found:
    own, parts, grads = found
    return [*map(zeros_like, own)], function.without_rows(parts), jax.tree.map(zeros_like, grads)


def _depends_on(fn: Callable[[Any], jax.Array], params: Any) -> bool:
    """Whether a function has a gradient by its argument that is not zero wherever it is."""
    pull_back = lambda params, cotangent: jax.vjp(fn, params)[1](cotangent)
    program = jax.make_jaxpr(pull_back)(params, jax.eval_shape(fn, params)).jaxpr
    dependent = {program.invars[-1]}
    for eqn in program.eqns:
        if any(not isinstance(var, Literal) and var in dependent for var in eqn.invars):
            dependent.update(eqn.outvars)
    return any(not isinstance(var, Literal) and var in dependent for var in program.outvars)
