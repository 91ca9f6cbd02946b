"""`tf.experimental.Optional`: a value that may not be there, such as the next element at the end of a dataset."""

from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor

_NOTHING = object()


@final
class Optional:
    """Drop-in for `tf.experimental.Optional`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/experimental/Optional
    """

    def __init__(self, value: Any, element_spec: Any = None) -> None:
        """Hold `value`; use `from_value` and `empty`."""
        self._value = value
        self._element_spec = element_spec

    @classmethod
    def from_value(cls, value: Any) -> "Optional":
        """Return an optional with a value: a structure of tensors."""
        held = jax.tree.map(convert_to_tensor, value, is_leaf=is_tensor)
        return cls(held, jax.tree.map(TensorSpec.from_tensor, held, is_leaf=is_tensor))

    @classmethod
    def empty(cls, element_spec: Any) -> "Optional":
        """Return an optional without a value."""
        return cls(_NOTHING, element_spec)

    @classmethod
    def of_next(cls, next_element: Callable[[], Any], element_spec: Any = None) -> "Optional":
        """Return the next element, or an empty optional at the end."""
        try:
            return cls(next_element(), element_spec)
        except StopIteration:
            return cls.empty(element_spec)

    def has_value(self, name: str | None = None) -> jax.Array:
        """Tell whether there is a value, as a boolean scalar."""
        return jnp.asarray(self._value is not _NOTHING)

    def get_value(self, name: str | None = None) -> Any:
        """Return the value.

        Raises:
            InvalidArgumentError: If there is none.
        """
        if self._value is _NOTHING:
            raise InvalidArgumentError(None, None, "The given optional does not have a value.")
        return self._value

    @property
    def element_spec(self) -> Any:
        """The type of the value."""
        return self._element_spec() if callable(self._element_spec) else self._element_spec
