"""`tf.GradientTape` and what belongs to it."""

import contextlib
import enum
import functools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax import _state
from tfdist_jax._tape import Tape
from tfdist_jax._tape_trace import is_differentiable
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor


class UnconnectedGradients(enum.Enum):
    """What a gradient is where the target does not depend on the source."""

    NONE = "none"
    ZERO = "zero"


@final
class GradientTape:
    """Drop-in for `tf.GradientTape`: records operations for automatic differentiation.

    Differs from TensorFlow: gradients are always dense tensors, never `tf.IndexedSlices`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/GradientTape
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Make a tape; `persistent` allows several calls of `gradient`."""
        self._persistent = persistent
        self._tape = Tape(persistent=persistent, watch_reads=watch_accessed_variables)
        self._used = False

    def __enter__(self) -> "GradientTape":
        self._tape.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._tape.recording:
            self._tape.stop()

    def watch(self, tensor: Any) -> None:
        """Record what is done to a tensor or variable, or to those in a nested structure."""
        for leaf in jax.tree.leaves(tensor, is_leaf=is_variable):
            if not is_variable(leaf) and not isinstance(leaf, jax.Array):
                raise ValueError(
                    f"Passed in object {leaf!r} of type {type(leaf).__name__!r}, not tf.Tensor or tf.Variable. "
                    "Convert it with tf.constant first."
                )
            if not is_differentiable(leaf):
                continue
            if is_variable(leaf):
                self._tape.watch_cell(leaf, _state.read(leaf))
            else:
                self._tape.watch(leaf)

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables watched so far, in the order of their first use."""
        return self._tape.watched_cells()

    def stop_recording(self) -> contextlib.AbstractContextManager[None]:
        """Record nothing inside the block."""
        if not self._tape.recording:
            raise ValueError("Tape is not recording.")
        return self._tape.paused()

    def reset(self) -> None:
        """Forget everything recorded so far."""
        self._tape.reset()
        self._used = False

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of the sum of `target` with respect to `sources`, in their structure.

        Args:
            target: Tensor or nested structure of tensors.
            sources: Watched tensors and variables, in any nested structure.
            output_gradients: Weights of the targets' elements, in their structure; ones if None.
            unconnected_gradients: Whether a source that no target depends on gets None or zeros.

        Raises:
            RuntimeError: On a second call of a tape that is not persistent.
        """
        if self._used and not self._persistent:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)"
            )
        if self._tape.recording and not self._persistent:
            self._tape.stop()
        self._used = True
        leaves, tree = jax.tree.flatten(sources, is_leaf=_is_source)
        targets = [_as_target(leaf) for leaf in jax.tree.leaves(target, is_leaf=is_variable)]
        weights = None if output_gradients is None else jax.tree.leaves(output_gradients, is_leaf=lambda x: x is None)
        gradients = self._tape.gradient(targets, leaves, weights)
        if UnconnectedGradients(unconnected_gradients) is UnconnectedGradients.ZERO:
            gradients = [_zeros_like(s) if g is None else g for s, g in zip(leaves, gradients, strict=True)]
        return tree.unflatten(gradients)

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each element of the tensor `target`: `[*target.shape, *source.shape]` for each source."""
        leaves, tree = jax.tree.flatten(sources, is_leaf=_is_source)
        target = _as_target(target)
        basis = jnp.eye(target.size, dtype=target.dtype).reshape(target.size, *target.shape)
        rows = self._rows(target, leaves, basis, unconnected_gradients)
        return tree.unflatten([None if r is None else r.reshape(*target.shape, *r.shape[1:]) for r in rows])

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each row of `target` by the same row of `source`: `[rows, *target row, *source row]`.

        Rows of `target` must not depend on other rows of `source`.
        """
        target = _as_target(target)
        if target.ndim < 1 or target.shape[0] != source.shape[0]:
            raise ValueError(
                f"Need first dimension of target shape ({target.shape}) and source shape ({tuple(source.shape)}) to match."
            )
        rows, size = target.shape[0], target.size // max(target.shape[0], 1)
        basis = jnp.eye(size, dtype=target.dtype).reshape(size, 1, *target.shape[1:])
        basis = jnp.broadcast_to(basis, (size, *target.shape))
        (found,) = self._rows(target, [source], basis, unconnected_gradients)
        if found is None:
            return None
        return jnp.moveaxis(found, 0, 1).reshape(rows, *target.shape[1:], *source.shape[1:])

    def _rows(self, target: Any, sources: list[Any], basis: jax.Array, unconnected: Any) -> list[Any]:
        """Return the gradients of each weighting in `basis`, stacked."""
        if self._used and not self._persistent:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)"
            )
        persistent, self._persistent = self._persistent, True
        self._tape.keep(True)
        try:
            if self._tape.recording and not persistent:
                self._tape.stop()
            rows = [self.gradient(target, sources, [weight], unconnected) for weight in basis]
        finally:
            self._persistent = persistent
            self._tape.keep(persistent)
        return [None if column[0] is None else jnp.stack(column) for column in zip(*rows, strict=True)]


def is_variable(leaf: Any) -> bool:
    """Tell whether `leaf` is a `tf.Variable` or `keras.Variable`: a cell."""
    return hasattr(type(leaf), "stored") or hasattr(leaf, "stored")


def _is_source(leaf: Any) -> bool:
    return leaf is None or is_variable(leaf)


def _as_target(leaf: Any) -> Any:
    return convert_to_tensor(leaf)


def _zeros_like(source: Any) -> jax.Array:
    return jnp.zeros(tuple(source.shape), convert_to_tensor(source).dtype)


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Return the tensor unchanged, with no gradient through it."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(convert_to_tensor(leaf)), input, is_leaf=is_variable)


def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Give a function its own gradient.

    Args:
        f: Returns `(result, grad_fn)`; `grad_fn(*upstream)` gives the gradient for each argument of `f`.

    Returns:
        A function that computes `f`'s result and differentiates by `grad_fn`.
    """
    if f is None:
        return custom_gradient

    @jax.custom_vjp
    def compute(*args: Any) -> Any:
        return f(*args)[0]

    def forward(*args: Any) -> Any:
        result, grad_fn = f(*args)
        # What `grad_fn` closes over must travel as arrays: trace it now, keep its constants.
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), result)
        pullback, constants = jax.closure_convert(functools.partial(_call_gradient, grad_fn), shapes)
        return result, (jax.tree_util.Partial(pullback), constants, args)

    def backward(saved: Any, upstream: Any) -> Any:
        pullback, constants, args = saved
        grads = pullback(upstream, *constants)
        return tuple(jnp.zeros_like(a) if g is None else g for g, a in zip(grads, args, strict=True))

    @functools.wraps(f)
    def decorated(*args: Any) -> Any:
        return compute(*(convert_to_tensor(a) for a in args))

    compute.defvjp(forward, backward)
    return decorated


def _call_gradient(grad_fn: Callable[..., Any], upstream: Any) -> tuple[Any, ...]:
    grads = grad_fn(*upstream) if isinstance(upstream, (tuple, list)) else grad_fn(upstream)
    return tuple(grads) if isinstance(grads, (tuple, list)) else (grads,)
