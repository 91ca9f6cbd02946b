"""`tf.autodiff.ForwardAccumulator`: derivatives along a direction."""

from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._autodiff._tape import Tape, recording_tapes, resuming
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._gradients._gradient_tape import UnconnectedGradients, is_variable
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@final
class ForwardAccumulator:
    """Drop-in for `tf.autodiff.ForwardAccumulator`: Jacobian-vector products of what is computed inside the block.

    Differs from TensorFlow: it keeps a record and runs it backwards twice, so it saves no memory over a tape.
    Ref: https://www.tensorflow.org/api_docs/python/tf/autodiff/ForwardAccumulator

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> x = tf.constant([2.0, 3.0])
        >>> with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 0.0])) as accumulator:
        ...     y = x * x
        >>> accumulator.jvp(y).tolist()
        [4.0, 0.0]
    """

    def __init__(self, primals: Any, tangents: Any) -> None:
        """Follow `primals`, tensors or variables in any structure, along `tangents` of the same shapes.

        Raises:
            ValueError: If the structures or shapes differ.
        """
        self._primals = jax.tree.leaves(primals, is_leaf=is_variable)
        self._tangents = [convert_to_tensor(t) for t in jax.tree.leaves(tangents, is_leaf=is_variable)]
        shapes = [[tuple(leaf.shape) for leaf in leaves] for leaves in (self._primals, self._tangents)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"`tangents` must have the shapes of `primals`, {shapes[0]}, but have {shapes[1]}.")
        if len(set(map(id, self._primals))) < len(self._primals):
            raise ValueError(
                "A tensor or variable was specified as a primal multiple times. This may indicate an error. If it was "
                "intended, please sum the corresponding tangents."
            )
        self._outer: list[Tape] = []
        self._tape = Tape(persistent=True, watch_reads=False)

    def __enter__(self) -> "ForwardAccumulator":
        self._outer = recording_tapes()
        self._tape.start()
        for primal in self._primals:
            if is_variable(primal):
                self._tape.watch_cell(primal, _state.read(primal))
            else:
                self._tape.watch(primal)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._tape.stop()

    def jvp(self, primals: Any, unconnected_gradients: Any = UnconnectedGradients.NONE) -> Any:
        """Return the derivatives of tensors, in any structure, along the tangents; None or zeros without connection."""
        mode = UnconnectedGradients(unconnected_gradients)
        # TensorFlow has computed the derivatives already, where tapes around this one have seen it.
        with resuming(self._outer):
            return jax.tree.map(lambda target: self._jvp(convert_to_tensor(target), mode), primals, is_leaf=is_variable)

    def _jvp(self, target: jax.Array, mode: UnconnectedGradients) -> Any:
        weight, back = jnp.ones_like(target), Tape()
        back.start()
        back.watch(weight)
        gradients = self._tape.gradient([target], self._primals, [weight])
        products = [jnp.sum(convert(g) * t) for g, t in zip(gradients, self._tangents, strict=True) if g is not None]
        back.stop()
        if not products:
            return jnp.zeros_like(target) if mode is UnconnectedGradients.ZERO else None
        # The gradient is linear in the weight, and the products' gradient by it is what is asked for.
        (found,) = back.gradient(products, [weight])
        return jnp.zeros_like(target) if found is None else found


def convert(gradient: Any) -> Any:
    """Return a gradient of whatever kind as an array."""
    return gradient if isinstance(gradient, jax.Array) else gradient.dense()
