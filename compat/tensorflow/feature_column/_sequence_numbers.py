"""`tf.feature_column.sequence_numeric_column`: sequences of vectors of numbers."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import sparse
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.feature_column._base import (
    FeatureTransformationCache,
    Rows,
    SequenceDenseColumn,
    TensorSequenceLengthPair,
)
from tfdist_jax.compat.tensorflow.feature_column._checks import check_key, number_type, vector_shape
from tfdist_jax.compat.tensorflow.feature_column._sequence_categories import sequence_lengths
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.io._features import VarLenFeature
from tfdist_jax.compat.tensorflow.sparse._arithmetic import to_dense


class _SequenceNumericFields(NamedTuple):
    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: DType
    normalizer_fn: Callable[[Any], Any] | None


@final
class SequenceNumericColumn(Configured, SequenceDenseColumn, _SequenceNumericFields):
    """Sequences of numbers; see `sequence_numeric_column`."""

    @property
    def name(self) -> str:
        return self.key

    @property
    def parents(self) -> list[Any]:
        return [self.key]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, a function as it is."""
        return {**super().get_config(), "normalizer_fn": self.normalizer_fn}

    @property
    def variable_shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the vectors."""
        return TensorShape(self.shape)

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the feature, a sparse tensor, as the function makes it."""
        given = transformation_cache.get(self.key, state_manager)
        return given if self.normalizer_fn is None else self.normalizer_fn(given)

    def read_sequence_rows(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        given = sparse(transformation_cache.get(self, state_manager))
        count = self.variable_shape.num_elements() or 1
        whole = to_dense(given, self.default_value)
        batch = int(given.shape[0])
        if whole.size % max(batch * count, 1):
            raise invalid(
                f"{self.name} reads steps of {count} numbers. Received: a tensor of shape {tuple(given.shape)}"
            )
        vectors = whole.reshape((batch, whole.size // max(batch * count, 1), *self.shape))
        return vectors, sequence_lengths(given, count if len(given.shape) == 2 else 1)

    def combine_sequence_rows(self, rows: Rows, state_manager: Any) -> TensorSequenceLengthPair:
        return TensorSequenceLengthPair(convert_to_tensor(rows[0]), cast(rows[1], _dtypes.int64))


def sequence_numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: float = 0.0,
    dtype: Any = _dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:
    """Return a column of sequences of numbers.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/sequence_numeric_column.

    Args:
        key: The key of the feature, a sparse tensor `[batch, steps]`, in which a step has as many elements as `shape`.
        shape: The shape of one step's numbers.
        default_value: What fills sequences up.
        dtype: The type of the feature.
        normalizer_fn: Makes of the sparse tensor what the column is to hold.

    Raises:
        TypeError: If a size is no integer, or `normalizer_fn` no function.
        ValueError: If a size is smaller than 1, or the type not one of numbers.
    """
    sizes = vector_shape(shape, key)
    known = number_type(dtype, f"key {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Received: {normalizer_fn!r}")
    check_key(key)
    return SequenceNumericColumn(key, sizes, default_value, known, normalizer_fn)
