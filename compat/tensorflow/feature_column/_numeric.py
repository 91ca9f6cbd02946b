"""`tf.feature_column.numeric_column`, `bucketized_column`: vectors of numbers, and intervals of numbers."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    DenseColumn,
    FeatureTransformationCache,
    IdWeightPair,
    Rows,
)
from tfdist_jax.compat.tensorflow.feature_column._checks import check_key, default_vector, number_type, vector_shape
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.io._features import FixedLenFeature


class _NumericFields(NamedTuple):
    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: DType
    normalizer_fn: Callable[[Any], Any] | None


@final
class NumericColumn(Configured, DenseColumn, _NumericFields):
    """Numbers as they are, or as a function makes them; see `numeric_column`."""

    is_traceable = True

    @property
    def name(self) -> str:
        return self.key

    @property
    def parents(self) -> list[Any]:
        return [self.key]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the vectors."""
        return TensorShape(self.shape)

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the numbers as float32.

        Raises:
            ValueError: If they are a sparse tensor.
        """
        given = transformation_cache.get(self.key, state_manager)
        if isinstance(given, SparseTensor):
            raise ValueError(
                f"Numeric column {self.key} reads a tensor, and the feature is a SparseTensor. Use `tf.sparse.to_dense`."
            )
        return cast(given if self.normalizer_fn is None else self.normalizer_fn(given), _dtypes.float32)

    def read_rows(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        return (transformation_cache.get(self, state_manager),)

    def combine_rows(self, rows: Rows, state_manager: Any) -> Any:
        return rows[0]


def numeric_column(
    key: str,
    shape: Any = (1,),
    default_value: Any = None,
    dtype: Any = _dtypes.float32,
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """Return a column of numbers.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/numeric_column.

    Args:
        key: The key of the feature, `[batch, *shape]`.
        shape: The shape of one example's numbers.
        default_value: What `tf.io.parse_example` puts where an example has none.
        dtype: The type that it reads; the column's numbers are float32.
        normalizer_fn: Makes of the feature what the column is to hold.

    Raises:
        TypeError: If a size is no integer, the default of another type, or `normalizer_fn` no function.
        ValueError: If a size is smaller than 1, the default of another shape, the type not one of numbers, or the key no string.
    """
    sizes = vector_shape(shape, key)
    known = number_type(dtype, f"key {key}")
    default = default_vector(default_value, sizes, known, key)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Received: {normalizer_fn!r}")
    check_key(key)
    return NumericColumn(key, sizes, default, known, normalizer_fn)


class _BucketizedFields(NamedTuple):
    source_column: NumericColumn
    boundaries: tuple[float, ...]


@final
class BucketizedColumn(Configured, DenseColumn, CategoricalColumn, _BucketizedFields):
    """The intervals in which numbers lie; see `bucketized_column`."""

    is_traceable = True

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parents(self) -> list[Any]:
        return [self.source_column]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.source_column.parse_example_spec

    @property
    def variable_shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the vectors: for each number one entry for each interval."""
        return TensorShape((*self.source_column.shape, len(self.boundaries) + 1))

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many intervals there are, of all numbers of an example."""
        return (len(self.boundaries) + 1) * self.source_column.shape[0]

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the number of the interval in which each number lies, int32; a boundary belongs to the one above it."""
        numbers = transformation_cache.get(self.source_column, state_manager)
        bounds = np.asarray(self.boundaries, np.float32)
        if isinstance(numbers, Tracer):
            return jnp.searchsorted(bounds, numbers, side="right").astype(jnp.int32)
        return convert_to_tensor(np.searchsorted(bounds, np.asarray(numbers), side="right").astype(np.int32))

    def read_rows(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        return (transformation_cache.get(self, state_manager),)

    def combine_rows(self, rows: Rows, state_manager: Any) -> Any:
        return jax.nn.one_hot(rows[0], len(self.boundaries) + 1, dtype=jnp.float32)

    def read_ids(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        found = transformation_cache.get(self, state_manager)
        count = self.source_column.shape[0]
        if found.ndim != 2 or found.shape[1] != count:
            raise invalid(f"{self.name} reads [batch, {count}] numbers. Received: {list(map(int, found.shape))}")
        return (found + np.arange(count, dtype=np.int32) * (len(self.boundaries) + 1),)

    def get_sparse_tensors(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> IdWeightPair:
        (ids,) = self.read_ids(transformation_cache, state_manager)
        known = np.asarray(ids, np.int32)
        places = np.argwhere(np.ones_like(known))
        return IdWeightPair(SparseTensor(places, known.reshape(-1), known.shape), None)


def bucketized_column(source_column: Any, boundaries: Any) -> BucketizedColumn:
    """Return a column of the intervals in which the numbers of another one lie.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/bucketized_column.

    Args:
        source_column: A `numeric_column` whose shape has one axis.
        boundaries: Rising numbers, a list or tuple; of n there are n + 1 intervals.

    Raises:
        ValueError: If it is another column, or the boundaries do not rise.
    """
    if not isinstance(source_column, NumericColumn):
        raise ValueError(f"source_column must be a column of numeric_column(). Received: {source_column!r}")
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Received: {source_column!r}")
    if not isinstance(boundaries, list | tuple) or not boundaries:
        raise ValueError(f"boundaries must be a sorted list that is not empty. Received: {boundaries!r}")
    if any(low >= high for low, high in itertools.pairwise(boundaries)):
        raise ValueError(f"boundaries must be a sorted list. Received: {boundaries!r}")
    return BucketizedColumn(source_column, tuple(boundaries))
