"""`tf.custom_gradient` and `tf.stop_gradient`."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._autodiff._custom_pullback import cells_read, with_pullback
from tfdist_jax.compat.tensorflow._gradients._gradient_tape import GradientTape, conjugate, is_variable
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def stop_gradient(input: Any, name: str | None = None) -> jax.Array:
    """Return the tensor unchanged, with no gradient through it."""
    return jax.lax.stop_gradient(convert_to_tensor(input))


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Give a function a gradient of its own.

    Works under tapes, in compiled functions and under JAX's transformations.

    Args:
        f: Returns `(result, grad_fn)`. `grad_fn(*upstream)` takes a gradient for each tensor of the result and gives
            one (or None) for each argument of `f`. If `f` reads trainable variables, `grad_fn(*upstream, variables)`
            gives a pair, the second being a list with a gradient for each of them.

    Returns:
        A function that computes `f`'s result and is differentiated by `grad_fn`.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> @tf.custom_gradient
        ... def clip_gradient(x):
        ...     return tf.identity(x), lambda upstream: tf.clip_by_value(upstream, -1.0, 1.0)
        >>> x = tf.Variable(2.0)
        >>> with tf.GradientTape() as tape:
        ...     y = clip_gradient(x) * 100.0
        >>> float(tape.gradient(y, x))
        1.0
    """
    return custom_gradient if f is None else _WithGradient(f)


def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like `f` that keeps none of its intermediate results: its gradient computes them again."""

    @custom_gradient
    @functools.wraps(f)
    def recomputing(*args: Any, **kwargs: Any) -> Any:
        def grad(*upstream: Any, variables: Sequence[Any] = ()) -> Any:
            # Otherwise XLA finds that both computations are one, and keeps the results.
            given, tree = jax.tree.flatten(in_order(args), is_leaf=is_variable)
            again = jax.lax.optimization_barrier([convert_to_tensor(arg) for arg in given])
            with GradientTape() as tape:
                tape.watch(again)
                result = f(*restore_dict_order(tree.unflatten(again)), **kwargs)
            results = jax.tree.leaves(in_order(result), is_leaf=is_variable)
            by_args, by_variables = tape.gradient(results, (again, list(variables)), list(upstream))
            return (by_args, by_variables) if variables else by_args

        return f(*args, **kwargs), grad

    return recomputing


def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes `f` and has the gradient of `tf.identity`."""

    @custom_gradient
    @functools.wraps(f)
    def passing(*args: Any, **kwargs: Any) -> Any:
        def grad(*upstream: Any, variables: Sequence[Any] = ()) -> Any:
            return (upstream, [None] * len(variables)) if variables else upstream

        return f(*args, **kwargs), grad

    return passing


@final
class _WithGradient:
    """A function, or a method of the object it is looked up on, that is differentiated by a function of the user's."""

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self._f = f

    def __get__(self, instance: Any, owner: Any) -> "_WithGradient":
        return self if instance is None else _WithGradient(self._f.__get__(instance, owner))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (result, grad_fn), read = cells_read(lambda: self._f(*args, **kwargs))
        tensors, others = (jax.tree.leaves(in_order(given), is_leaf=is_variable) for given in (args, kwargs))
        hidden = [(cell, value) for cell, value in read if all(cell is not leaf for leaf in (*tensors, *others))]
        variables = [cell for cell, _ in hidden]
        _must_take_variables(grad_fn, variables)
        inputs = [convert_to_tensor(leaf) for leaf in tensors] + [value for _, value in hidden]
        outputs, tree = jax.tree.flatten(in_order(result), is_leaf=is_variable)
        outputs = [convert_to_tensor(output) for output in outputs]
        pullback = functools.partial(_pull, grad_fn, outputs, len(tensors), variables)
        return restore_dict_order(tree.unflatten(with_pullback(inputs, outputs, pullback)))


def _must_take_variables(grad_fn: Callable[..., Any], variables: Sequence[Any]) -> None:
    parameters = inspect.signature(grad_fn).parameters
    if variables and "variables" not in parameters and all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(
            "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function uses variables: "
            f"{list(variables)}"
        )


def _pull(
    grad_fn: Callable[..., Any],
    outputs: Sequence[Any],
    num_args: int,
    variables: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """Call the user's function with TensorFlow's gradients; return JAX's."""
    upstream = [jnp.zeros_like(o) if c is None else conjugate(c) for o, c in zip(outputs, cotangents, strict=True)]
    if variables:
        by_args, by_variables = grad_fn(*upstream, variables=list(variables))
        if len(by_variables) != len(variables):
            raise ValueError("Must return gradient for each variable from @custom_gradient grad_fn.")
    else:
        by_args, by_variables = grad_fn(*upstream), []
    gradients = jax.tree.leaves(by_args, is_leaf=lambda leaf: leaf is None)
    if len(gradients) != num_args:
        raise ValueError(
            f"custom_gradient function expected to return {num_args} gradients, but returned {len(gradients)} instead."
        )
    return [None if g is None else conjugate(convert_to_tensor(g)) for g in (*gradients, *by_variables)]
