"""Iterators over datasets."""

from collections.abc import Iterator
from typing import Any, final

from tfdist_jax.compat.tensorflow.data import _elements


@final
class DatasetIterator:
    """What `iter(dataset)` gives: tensors, one element after the other."""

    def __init__(self, elements: Iterator[Any], element_spec: Any) -> None:
        """Hand `elements` (of arrays) out as tensors."""
        self._elements = elements
        self._element_spec = element_spec

    def __iter__(self) -> "DatasetIterator":
        return self

    def __next__(self) -> Any:
        return _elements.as_tensors(next(self._elements))

    def get_next(self) -> Any:
        """Return the next element.

        Raises:
            tf.errors.OutOfRangeError: At the end.
        """
        try:
            return next(self)
        except StopIteration:
            from tfdist_jax.compat.tensorflow._errors import OutOfRangeError

            raise OutOfRangeError(None, None, "End of sequence") from None

    @property
    def element_spec(self) -> Any:
        """Types and shapes of the elements."""
        return self._element_spec()
