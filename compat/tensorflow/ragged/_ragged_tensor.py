"""`tf.RaggedTensor`: rows of different lengths."""

from collections.abc import Callable, Iterator
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._ops import _binary, _elementwise
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors import _conversions
from tfdist_jax.compat.tensorflow.ragged._broadcasting import elementwise
from tfdist_jax.compat.tensorflow.ragged._factories import Factories
from tfdist_jax.compat.tensorflow.ragged._slicing import get_part
from tfdist_jax.compat.tensorflow.ragged._spec import RaggedTensorSpec


def _operator(function: Callable[..., Any], *, is_reflected: bool = False) -> Callable[..., Any]:
    if is_reflected:
        return lambda self, other: elementwise(function, [other, self])
    return lambda self, other: elementwise(function, [self, other])


@final
@jax.tree_util.register_pytree_node_class
class RaggedTensor(Factories):
    """Drop-in for `tf.RaggedTensor`: rows of different lengths, on the host.

    Ref: https://www.tensorflow.org/api_docs/python/tf/RaggedTensor. Differences: how rows are split is known on the host; a
    `tf.function` that gets or makes a ragged tensor of its arguments' values runs as Python, and XLA compiles none.
    """

    # NumPy's operators leave theirs to this class.
    __array_ufunc__ = None

    def __init__(self, values: Any, row_partition: Any) -> None:
        """Refuse: there are methods that make ragged tensors.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "RaggedTensor constructor is private; please use one of the factory methods instead (e.g., "
            "RaggedTensor.from_row_lengths())"
        )

    def __getitem__(self, key: Any) -> Any:
        """Return a row, or a part by integers, slices, `...` and `tf.newaxis` for several axes."""
        return get_part(self, key)

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows."""
        return (self[i] for i in range(self.outer.nrows))

    @property
    def _type_spec(self) -> RaggedTensorSpec:
        return RaggedTensorSpec.from_value(self)

    __add__, __radd__ = _operator(_binary.add), _operator(_binary.add, is_reflected=True)
    __sub__, __rsub__ = _operator(_binary.subtract), _operator(_binary.subtract, is_reflected=True)
    __mul__, __rmul__ = _operator(_binary.multiply), _operator(_binary.multiply, is_reflected=True)
    __truediv__, __rtruediv__ = _operator(_binary.truediv), _operator(_binary.truediv, is_reflected=True)
    __floordiv__, __rfloordiv__ = _operator(_binary.floordiv), _operator(_binary.floordiv, is_reflected=True)
    __mod__, __rmod__ = _operator(_binary.floormod), _operator(_binary.floormod, is_reflected=True)
    __pow__, __rpow__ = _operator(_binary.pow), _operator(_binary.pow, is_reflected=True)
    __and__, __rand__ = _operator(_binary.logical_and), _operator(_binary.logical_and, is_reflected=True)
    __or__, __ror__ = _operator(_binary.logical_or), _operator(_binary.logical_or, is_reflected=True)
    __xor__, __rxor__ = _operator(_binary.logical_xor), _operator(_binary.logical_xor, is_reflected=True)
    __lt__, __le__ = _operator(_binary.less), _operator(_binary.less_equal)
    __gt__, __ge__ = _operator(_binary.greater), _operator(_binary.greater_equal)

    def __neg__(self) -> Any:
        """Return the negated values."""
        return elementwise(_elementwise.negative, [self])

    def __abs__(self) -> Any:
        """Return the absolute values."""
        return elementwise(_elementwise.abs, [self])

    def __invert__(self) -> Any:
        """Return the opposite truth values."""
        return elementwise(_elementwise.logical_not, [self])

    def __eq__(self, other: object) -> Any:
        """Tell which values are equal; False for what has other rows."""
        return self._compare(other, _binary.equal, is_other=False)

    def __ne__(self, other: object) -> Any:
        """Tell which values differ; True for what has other rows."""
        return self._compare(other, _binary.not_equal, is_other=True)

    def _compare(self, other: Any, compare: Callable[..., Any], *, is_other: bool) -> Any:
        if other is None:
            return is_other
        try:
            return elementwise(compare, [self, other])
        except InvalidArgumentError:
            return is_other

    __hash__ = Factories.__hash__


def _refuse_conversion(value: RaggedTensor, **_: Any) -> Any:
    raise ValueError(
        f"A RaggedTensor (shape {value.shape}) is no tensor: its rows differ in length. Use `to_tensor()`, which fills them up, "
        "or `flat_values`; functions that take ragged tensors are listed at https://www.tensorflow.org/api_docs/python/tf/ragged."
    )


_conversions.register_tensor_conversion_function(RaggedTensor, _refuse_conversion, priority=0)
