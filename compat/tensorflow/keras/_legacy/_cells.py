"""`keras.layers.AbstractRNNCell`: Keras 2's base class for cells of one's own."""

from typing import Any

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change


class AbstractRNNCell(keras.Layer):
    """A layer that computes one step of a sequence, for `keras.layers.RNN`.

    A subclass has `call(inputs, states)`, which returns the output and the new states, and the attributes or properties
    `state_size` and `output_size`.

    See https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/layers/AbstractRNNCell.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Tell how the class is written today."""
        super().__init_subclass__(**kwargs)
        tell_old_form("`keras.layers.AbstractRNNCell`", "`keras.Layer` with `state_size`")

    def call(self, inputs: Any, states: Any) -> Any:
        """Compute a step: subclasses have it.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `call(inputs, states)`.")

    @property
    def state_size(self) -> Any:
        """The size of the state, or sizes of several: numbers or shapes, nested like the states."""
        raise NotImplementedError(f"{type(self).__name__} must have `state_size`.")

    @property
    def output_size(self) -> Any:
        """The size of the output."""
        raise NotImplementedError(f"{type(self).__name__} must have `output_size`.")

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """Return zeros for each state.

        Args:
            inputs: A tensor that has the batch's size and type, in place of these.
            batch_size: How many sequences there are.
            dtype: The type; the layer's, unless it is given.
        """
        return zero_states(self, inputs, batch_size, dtype)


def zero_states(cell: Any, inputs: Any, batch_size: Any, dtype: Any) -> Any:
    """Return zeros for each state of a cell.

    Raises:
        ValueError: If nothing says how many sequences there are.
    """
    if inputs is not None:
        batch_size, dtype = inputs.shape[0], inputs.dtype
    if batch_size is None:
        raise ValueError("`get_initial_state` needs `inputs` or `batch_size`. Received neither.")
    known = keras.backend.standardize_dtype(dtype or cell.compute_dtype)
    return _make_zeros(cell.state_size, batch_size, known)


def _make_zeros(size: Any, batch_size: Any, dtype: str) -> Any:
    """Return zeros for sizes, nested like them; a `TensorShape` is the shape of one state, and a list several sizes."""
    if isinstance(size, list | tuple):
        zeros = [_make_zeros(one, batch_size, dtype) for one in size]
        return type(size)(*zeros) if hasattr(size, "_fields") else type(size)(zeros)
    shape = [size] if isinstance(size, int) else list(size)
    return keras.ops.zeros((batch_size, *shape), dtype)


CHANGES: tuple[Change, ...] = tuple(
    Addition(module, "AbstractRNNCell", AbstractRNNCell) for module in (keras.layers, tf_keras.layers)
)
