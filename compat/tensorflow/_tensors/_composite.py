"""Values that are made of several tensors and that TensorFlow takes as one: sparse and ragged tensors, rows of a tensor."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError


class StaticPart:
    """A part of such a value that is no tensor, and is known while a function is traced."""


class Composite(abc.ABC):
    """A value that is made of tensors; a leaf of structures, unless they are asked to expand it."""

    has_operators: ClassVar[bool] = False
    """Whether operators with a tensor are those of its class, as a ragged tensor's are."""

    @property
    @abc.abstractmethod
    def shape(self) -> Any:
        """The sizes, as far as they are known."""

    @abc.abstractmethod
    def parts(self) -> list[Any]:
        """Return the tensors that it is made of."""

    @abc.abstractmethod
    def with_parts(self, parts: Sequence[Any]) -> Self:
        """Return the value of its kind that is made of other tensors."""

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Self:
        """Return a batch of such values."""
        raise InvalidArgumentError(None, None, f"Cannot batch {cls.__name__}s.")

    def entries(self) -> list[Any]:
        """Return the entries along the first axis."""
        raise InvalidArgumentError(None, None, f"Cannot take the entries of a {type(self).__name__}.")

    def printed(self, summarize: int) -> str:
        """Return what `tf.print` shows of it, with so many entries at each end of an axis; all if that is negative."""
        return str(self)
