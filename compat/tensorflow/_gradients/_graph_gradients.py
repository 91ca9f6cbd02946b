"""`tf.gradients` and `tf.hessians`: derivatives of what a function has computed so far."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax._internals import replay
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._gradients._gradient_tape import UnconnectedGradients, conjugate, is_variable
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tracing


class AggregationMethod:
    """Ways to add gradients up, of which XLA chooses its own.

    Ref: https://www.tensorflow.org/api_docs/python/tf/AggregationMethod.
    """

    ADD_N = DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:
    """Return the gradients of the sum of `ys` by each of `xs`, inside `tf.function`.

    Args:
        ys: A tensor or a list of them.
        xs: Tensors or variables, or one.
        grad_ys: Weights of the elements of `ys`; ones if None.
        name: Unused.
        gate_gradients: Unused.
        aggregation_method: Unused.
        stop_gradients: Tensors that count as constants.
        unconnected_gradients: Whether one that no `ys` depend on gets None or zeros.

    Raises:
        RuntimeError: Outside of `tf.function`, where nothing is recorded; use `tf.GradientTape`.
    """
    if not is_tracing():
        raise RuntimeError(
            "tf.gradients is not supported when eager execution is enabled. Use tf.GradientTape instead."
        )
    targets, sources = _tensors(ys), list(map(_values, _leaves(xs)))
    fixed = [value for leaf in _leaves(stop_gradients) for value in _values(leaf)]
    mode = UnconnectedGradients(unconnected_gradients)
    given = grad_ys if isinstance(grad_ys, list | tuple) else [grad_ys] * len(targets)
    weights = [
        jnp.ones_like(y) if w is None else conjugate(convert_to_tensor(w)) for y, w in zip(targets, given, strict=True)
    ]
    # One by one: a source may itself be on the way from another one.
    found = [_gradient(targets, weights, source, fixed) for source in sources]
    if mode is UnconnectedGradients.ZERO:
        return [jnp.zeros_like(x[-1]) if g is None else g for x, g in zip(sources, found, strict=True)]
    return found


def hessians(
    ys: Any, xs: Any, gate_gradients: bool = False, aggregation_method: Any = None, name: str = "hessians"
) -> list[Any]:
    """Return, for each of `xs`, the second derivatives of the sum of `ys`, `[*x.shape, *x.shape]`."""
    found = []
    for x in _tensors(xs):
        (first,) = gradients(ys, x)
        flat = first.reshape(-1)
        rows = [gradients(flat[i], x, unconnected_gradients="zero")[0] for i in range(flat.size)]
        found.append(jnp.stack(rows).reshape(*x.shape, *x.shape))
    return found


def _leaves(given: Any) -> list[Any]:
    many = given if isinstance(given, Sequence) else [given]
    return jax.tree.leaves(list(many), is_leaf=is_variable)


def _tensors(given: Any) -> list[jax.Array]:
    return list(map(convert_to_tensor, _leaves(given)))


def _values(leaf: Any) -> list[jax.Array]:
    """Return a tensor, or all values that a variable has had: each of its reads counts."""
    scope = current_scope()
    return scope.values(leaf) if is_variable(leaf) and scope is not None else [convert_to_tensor(leaf)]


def _gradient(targets: Sequence[Any], weights: Sequence[Any], source: Sequence[Any], fixed: Sequence[Any]) -> Any:
    """Return the gradient by what has had the values `source`, one after the other; None if nothing depends on them."""
    program = replay(targets, [*source, *fixed])
    of_source = lambda *values: program(*values, *fixed)
    if not _depends(of_source, source):
        return None
    _, pull = jax.vjp(of_source, *source)
    return conjugate(functools.reduce(operator.add, pull(list(weights))))


def _depends(program: Any, arguments: Sequence[Any]) -> bool:
    jaxpr = jax.make_jaxpr(program)(*arguments).jaxpr
    reached = set(map(id, jaxpr.invars))
    for equation in jaxpr.eqns:
        if any(id(atom) in reached for atom in equation.invars):
            reached |= {id(variable) for variable in equation.outvars}
    return any(id(atom) in reached for atom in jaxpr.outvars)
