"""`tf.GradientTape`: TensorFlow's rules around a tape."""

import contextlib
import enum
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax._autodiff._pullbacks import RowGradient, is_differentiable
from tfdist_jax._autodiff._tape import Tape
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_log = logging.getLogger(__name__)

_USED = "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)"
_NO_PFOR = (
    "GradientTape must be created with persistent=True to compute the {} with eager execution enabled and with "
    "experimental_use_pfor set to False."
)


class UnconnectedGradients(enum.Enum):
    """What a gradient is where the target does not depend on the source."""

    NONE = "none"
    ZERO = "zero"


@final
class GradientTape:
    """Drop-in for `tf.GradientTape`: records operations for automatic differentiation.

    Differs from TensorFlow: a lookup inside a `tf.function` called under the tape has a
    dense gradient (one in the same function as the tape has `tf.IndexedSlices`); JAX functions that are constant almost
    everywhere (such as `jnp.floor`) give zeros where TensorFlow's give None; a `jax.lax.while_loop` of the program's own
    that is part of a compiled function has no gradient, eagerly it has; reads of a variable that has not changed are one
    tensor.
    Ref: https://www.tensorflow.org/api_docs/python/tf/GradientTape

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> x = tf.constant(3.0)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> float(tape.gradient(y, x))
        6.0
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Make a tape.

        Args:
            persistent: Whether `gradient` may be called more than once.
            watch_accessed_variables: Whether trainable variables that are read are watched.
        """
        self._persistent = persistent
        self._watch_accessed_variables = watch_accessed_variables
        self._tape: Tape | None = None
        self._watched_variables: tuple[Any, ...] = ()

    def __enter__(self) -> "GradientTape":
        self._push()
        return self

    def __exit__(self, typ: Any, value: Any, traceback: Any) -> None:
        if self._tape is not None and self._tape.recording:
            self._tape.stop()

    def _push(self) -> None:
        if self._tape is None:
            self._tape = Tape(persistent=self._persistent, watch_reads=self._watch_accessed_variables)
        if self._tape.recording:
            raise ValueError("Tape is still recording, This can happen if you try to re-enter an already-active tape.")
        self._tape.start()

    def _recording_tape(self) -> Tape:
        if self._tape is None or not self._tape.recording:
            raise ValueError("Tape is not recording.")
        return self._tape

    def watch(self, tensor: Any) -> None:
        """Record what is done to a tensor or variable, or to those in a nested structure.

        Raises:
            ValueError: If there is something else in the structure.
        """
        if self._tape is None:
            raise ValueError("Tape is not recording. Call `watch` inside `with tape:`.")
        leaves: list[Any] = jax.tree.leaves(tensor, is_leaf=_is_leaf)
        parts = [leaf.parts() if isinstance(leaf, Composite) else [leaf] for leaf in leaves]
        for leaf in itertools.chain(*parts):
            if not _is_tensor(leaf):
                raise ValueError(
                    f"Passed in object {leaf} of type {type(leaf).__name__!r}, not tf.Tensor or tf.Variable or "
                    "ExtensionType. Convert it with tf.constant first."
                )
            if not is_differentiable(_value(leaf)):
                _log.warning("The dtype of the watched tensor must be floating (e.g. tf.float32), got %r", leaf.dtype)
            elif is_variable(leaf):
                self._tape.watch_cell(leaf, _state.read(leaf))
            else:
                self._tape.watch(leaf)

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing inside the block.

        Raises:
            RuntimeError: If the tape has never recorded.
            ValueError: If it does not record now.
        """
        if self._tape is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        with self._recording_tape().paused():
            yield

    def reset(self) -> None:
        """Forget everything recorded so far, and go on recording."""
        self._recording_tape().stop()
        self._tape = None
        self._push()

    def watched_variables(self) -> tuple[Any, ...]:
        """Return the variables watched so far, in the order of their first use."""
        if self._tape is not None:
            self._watched_variables = self._tape.watched_cells()
        return self._watched_variables

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of the sum of `target` by `sources`, in their structure.

        Args:
            target: Tensors or variables in any structure.
            sources: Tensors and variables, watched or computed from watched ones, in any structure.
            output_gradients: Weights of the targets' elements, in order; ones where None.
            unconnected_gradients: Whether a source that no target depends on gets None or zeros.

        Raises:
            RuntimeError: If the tape has been used and is not persistent.
            TypeError: If `target` is None, or something is not a tensor.
            LookupError: If there is an operation on the way that has no gradient.
        """
        tape = self._usable_tape()
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, Variables or CompositeTensors to "
                "be differentiated, but received None."
            )
        mode = _checked(unconnected_gradients)
        targets = _tensors(target, "target")
        leaves, tree = jax.tree.flatten(in_order(sources), is_leaf=_is_leaf)
        cotangents = _cotangents(targets, output_gradients)
        gradients = tape.gradient(targets, _tensors(leaves, "sources"), cotangents)
        self._let_go()
        return restore_dict_order(
            tree.unflatten([_as_asked(g, source, mode) for g, source in zip(gradients, leaves, strict=True)])
        )

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each element of a tensor, `[*target.shape, *source.shape]` for each source.

        Args:
            target: A tensor.
            sources: As for `gradient`.
            unconnected_gradients: As for `gradient`.
            parallel_iterations: Unused.
            experimental_use_pfor: Compute all rows at once, rather than one after the other with less memory.
        """
        value, mode = _value(target), _checked(unconnected_gradients)
        basis = jnp.eye(value.size, dtype=value.dtype).reshape(value.size, *value.shape)
        leaves, tree = jax.tree.flatten(in_order(sources), is_leaf=_is_leaf)
        rows = self._rows(target, leaves, basis, "jacobian", experimental_use_pfor)
        shaped = [None if row is None else row.reshape(*value.shape, *row.shape[1:]) for row in rows]
        if mode is UnconnectedGradients.ZERO:
            shaped = [
                jnp.zeros((*value.shape, *source.shape), _value(source).dtype) if row is None else row
                for row, source in zip(shaped, leaves, strict=True)
            ]
        return restore_dict_order(tree.unflatten(shaped))

    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each row of `target` by the same row of `source`; no other row may matter to it.

        Args:
            target: `[rows, *target row]`.
            source: `[rows, *source row]`.
            unconnected_gradients: Unused: without connection the result is zeros, as in TensorFlow.
            parallel_iterations: Unused.
            experimental_use_pfor: As for `jacobian`.

        Returns:
            `[rows, *target row, *source row]`.
        """
        _checked(unconnected_gradients)
        if parallel_iterations is not None and experimental_use_pfor and not self._persistent:
            raise ValueError(
                "GradientTape must be created with persistent=True to compute the batch_jacobian with parallel_iterations."
            )
        shape, source_shape = _value(target).shape, tuple(source.shape)
        for given in (shape, source_shape):
            if len(given) < 2:
                raise ValueError(f"Shape {given} must have rank at least 2")
        if shape[0] != source_shape[0]:
            raise ValueError(
                f"Need first dimension of target shape ({shape}) and source shape ({source_shape}) to match."
            )
        size = _value(target).size // shape[0]
        basis = jnp.eye(size, dtype=_value(target).dtype).reshape(size, 1, *shape[1:])
        basis = jnp.broadcast_to(basis, (size, *shape))
        (found,) = self._rows(target, [source], basis, "batch_jacobian", experimental_use_pfor)
        if found is None:
            return jnp.zeros((*shape, *source_shape[1:]), _value(target).dtype)
        return jnp.moveaxis(found, 0, 1).reshape(*shape, *source_shape[1:])

    def _rows(self, target: Any, sources: Sequence[Any], basis: jax.Array, name: str, at_once: bool) -> list[Any]:
        """Return the gradients of each weighting of `target` in `basis`, stacked."""
        self._usable_tape()
        eager = not isinstance(_value(target), Tracer)
        if not at_once and eager and not self._persistent:
            raise RuntimeError(_NO_PFOR.format(name))
        row = lambda weight: [_dense(g) for g in self.gradient(target, sources, [weight])]
        if not at_once:
            return jax.lax.map(row, basis)
        try:
            return jax.vmap(row)(basis)
        except NotImplementedError as error:
            raise ValueError(
                f"Encountered an exception while vectorizing the {name} computation. Vectorization can be disabled by "
                "setting experimental_use_pfor to False."
            ) from error

    def _usable_tape(self) -> Tape:
        if self._tape is None:
            raise RuntimeError(_USED)
        return self._tape

    def _let_go(self) -> None:
        if not self._persistent:
            self.watched_variables()
            self._tape = None


def is_variable(leaf: Any) -> bool:
    """Whether `leaf` is a `tf.Variable` or a `keras.Variable`."""
    return hasattr(leaf, "stored")


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | HostTensor) or is_variable(leaf)


def _is_leaf(leaf: Any) -> bool:
    return leaf is None or is_variable(leaf)


def _value(leaf: Any) -> Any:
    """Return a tensor, or a variable's value without watching it."""
    return leaf if isinstance(leaf, jax.Array | HostTensor) else convert_to_tensor(leaf)


def _tensors(structure: Any, role: str) -> list[Any]:
    leaves = jax.tree.leaves(structure, is_leaf=_is_leaf)
    for leaf in leaves:
        if hasattr(leaf, "is_sharded_variable"):
            raise AttributeError(
                f"{leaf!r} in `{role}` has several values: give its `variables`, for a gradient by each."
            )
        if not _is_tensor(leaf):
            raise TypeError(
                f"`{role}` must be tensors or variables, but there is {leaf!r} of type {type(leaf).__name__!r}."
            )
    return leaves


def _checked(mode: Any) -> UnconnectedGradients:
    try:
        return UnconnectedGradients(mode)
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {mode!r}. Use 'none' or 'zero'.") from None


def _cotangents(targets: Sequence[Any], output_gradients: Any) -> list[Any]:
    """Return JAX's cotangents: conjugates of TensorFlow's, ones where none is given."""
    given = jax.tree.leaves(output_gradients, is_leaf=_is_leaf) if output_gradients is not None else []
    given = [*given[: len(targets)], *[None] * (len(targets) - len(given))]
    return [_cotangent(_value(target), weight) for target, weight in zip(targets, given, strict=True)]


def _cotangent(target: Any, weight: Any) -> Any:
    if isinstance(target, HostTensor):
        return np.zeros((), np.int32)  # Texts have no gradients, as integers have none.
    if weight is None:
        return jnp.ones_like(target)
    return conjugate(jnp.broadcast_to(convert_to_tensor(weight, dtype=target.dtype), target.shape))


def _as_asked(gradient: Any, source: Any, mode: UnconnectedGradients) -> Any:
    if gradient is None and mode is UnconnectedGradients.ZERO:
        return jnp.zeros_like(_value(source))
    if isinstance(gradient, RowGradient):
        return IndexedSlices(conjugate(gradient.values), gradient.indices, gradient.shape)
    return conjugate(gradient)


def _dense(gradient: Any) -> Any:
    return convert_to_tensor(gradient) if isinstance(gradient, IndexedSlices) else gradient


def conjugate(gradient: Any) -> Any:
    """Turn JAX's gradient by a complex number into TensorFlow's, its conjugate, or back."""
    return gradient if gradient is None or not jnp.iscomplexobj(gradient) else jnp.conj(gradient)
