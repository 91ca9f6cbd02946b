"""`tf.feature_column.indicator_column`, `embedding_column`: categories as vectors."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._ops._clip import clip_by_norm
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    DenseColumn,
    FeatureTransformationCache,
    Rows,
    SequenceDenseColumn,
    TensorSequenceLengthPair,
)
from tfdist_jax.compat.tensorflow.feature_column._checks import check_column
from tfdist_jax.compat.tensorflow.feature_column._sequence_categories import SequenceCategoricalColumn
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured, register_object
from tfdist_jax.compat.tensorflow.random._samplers import truncated_normal
from tfdist_jax.compat.tensorflow.train._reader import load_variable


class _VectorsOfCategories(Configured, DenseColumn, SequenceDenseColumn):
    """A column that makes vectors of another one's categories.

    Attributes:
        categorical_column: The other column.
    """

    categorical_column: CategoricalColumn
    _kind: str

    @property
    def is_traceable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it can be computed of numbers that have no values yet."""
        return self.categorical_column.is_traceable

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_{self._kind}"

    @property
    def parents(self) -> list[Any]:
        return [self.categorical_column]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    def _check_ids(self, ids: Any) -> None:
        """Raise if one of the numbers cannot be made a vector."""

    def _read(self, cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        ids, *weights = self.categorical_column.read_ids(cache, state_manager)
        if not isinstance(ids, np.ndarray):
            return (ids, *weights)
        self._check_ids(ids)
        return (np.minimum(ids, self.categorical_column.num_buckets).astype(np.int32), *weights)

    def read_rows(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        if isinstance(self.categorical_column, SequenceCategoricalColumn):
            raise ValueError(
                f"{self._kind}_column {self.name} is made of sequences of categories, and one vector is wanted for each example. Make "
                f"it of `categorical_column_with_*`, or use `tf.keras.experimental.SequenceFeatures` in place of DenseFeatures. "
                f"Received: {self.categorical_column!r}"
            )
        return self._read(transformation_cache, state_manager)

    def read_sequence_rows(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        column = self.categorical_column
        if not isinstance(column, SequenceCategoricalColumn):
            raise ValueError(
                f"{self._kind}_column {self.name} must be made of sequences of categories, `sequence_categorical_column_with_*`, to be "
                f"read by SequenceFeatures. Received: {column!r}"
            )
        lengths = column.read_lengths(transformation_cache, state_manager)
        return (*self._read(transformation_cache, state_manager), lengths)

    def combine_sequence_rows(self, rows: Rows, state_manager: Any) -> TensorSequenceLengthPair:
        *own, lengths = rows
        return TensorSequenceLengthPair(self.combine_rows(tuple(own), state_manager), cast(lengths, _dtypes.int64))


@functools.partial(jax.jit, static_argnames="count")
def _count(ids: Any, weights: Any, count: int) -> Any:
    """Return for each number how often it is in `ids`, `[..., n]`, or the sum of its weights: `[..., count]`."""
    hot = jax.nn.one_hot(ids, count, dtype=jnp.float32)
    return jnp.sum(hot if weights is None else hot * weights[..., None], axis=-2)


@functools.partial(jax.jit, static_argnames="combiner")
def _combine(table: Any, ids: Any, weights: Any, combiner: str, max_norm: Any) -> Any:
    """Return the rows of a table that `ids`, `[..., n]`, name, combined; those below zero, and those without weight, do not count."""
    vectors = jnp.take(table, jnp.maximum(ids, 0), axis=0)
    if max_norm is not None:
        vectors = clip_by_norm(vectors, max_norm, axes=-1)
    counts = ids >= 0
    if weights is None:
        amounts = counts.astype(vectors.dtype)
    else:
        counts = counts if combiner == "sum" else counts & (weights > 0)
        amounts = jnp.where(counts, weights, 0).astype(vectors.dtype)
    total = jnp.sum(vectors * amounts[..., None], axis=-2)
    if combiner == "sum":
        return total
    divisor = jnp.sum(amounts, -1) if combiner == "mean" else jnp.sqrt(jnp.sum(jnp.square(amounts), -1))
    return total / jnp.where(divisor == 0, 1, divisor)[..., None]


class _IndicatorFields(NamedTuple):
    categorical_column: CategoricalColumn


@final
class IndicatorColumn(_VectorsOfCategories, _IndicatorFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """For each category how often an example has it; see `indicator_column`."""

    _kind = "indicator"

    @property
    def variable_shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the vectors: one, of an entry for each category."""
        return TensorShape([1, self.categorical_column.num_buckets])

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the vectors `[batch, num_buckets]`."""
        return self.combine_rows(self._read(transformation_cache, state_manager), state_manager)

    def combine_rows(self, rows: Rows, state_manager: Any) -> Any:
        ids, *weights = rows
        return _count(ids, weights[0] if weights else None, self.categorical_column.num_buckets)


def indicator_column(categorical_column: Any) -> IndicatorColumn:
    """Return a column of how often an example has each category; with weights, the sum of these.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/indicator_column.

    Raises:
        ValueError: If it is no column of categories.
    """
    check_column(categorical_column, CategoricalColumn, "categorical_column")
    return IndicatorColumn(categorical_column)


@final
@register_object
class TruncatedNormal:
    """Draws of a normal distribution without those beyond two standard deviations."""

    def __init__(
        self, mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, dtype: Any = _dtypes.float32
    ) -> None:
        """Draw with a mean and a standard deviation."""
        self._mean, self._stddev, self._seed, self._dtype = mean, stddev, seed, _dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """Return a tensor of draws."""
        return truncated_normal(shape, self._mean, self._stddev, dtype or self._dtype, self._seed)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"mean": self._mean, "stddev": self._stddev, "seed": self._seed, "dtype": self._dtype.name}


class _EmbeddingFields(NamedTuple):
    categorical_column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Callable[..., Any]
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool
    use_safe_embedding_lookup: bool = True


@final
class EmbeddingColumn(_VectorsOfCategories, _EmbeddingFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """For each category a vector that is trained; see `embedding_column`."""

    _kind = "embedding"

    @property
    def variable_shape(self) -> TensorShape:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The shape of the vectors."""
        return TensorShape([self.dimension])

    def create_state(self, state_manager: Any) -> None:
        """Make the table, `[num_buckets, dimension]` float32; of a checkpoint if the column names one."""
        state_manager.create_variable(
            self,
            name="embedding_weights",
            shape=(self.categorical_column.num_buckets, self.dimension),
            dtype=_dtypes.float32,
            trainable=self.trainable,
            use_resource=True,
            initializer=self.initializer if self.ckpt_to_load_from is None else self._load,
        )

    def _load(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        array = load_variable(self.ckpt_to_load_from, self.tensor_name_in_ckpt or "")
        if array.shape != tuple(shape):
            raise ValueError(
                f"{self.tensor_name_in_ckpt} in {self.ckpt_to_load_from} has shape {array.shape}, and the table of {self.name} "
                f"has {tuple(shape)}."
            )
        return convert_to_tensor(array, dtype)

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the numbers and weights of the categories."""
        return self.categorical_column.get_sparse_tensors(transformation_cache, state_manager)

    def _check_ids(self, ids: Any) -> None:
        count = self.categorical_column.num_buckets
        if ids.size and ids.max() >= count:
            raise invalid(f"Category {ids.max()} of {self.name} is not in [0, {count}).")

    def combine_rows(self, rows: Rows, state_manager: Any) -> Any:
        table = convert_to_tensor(state_manager.get_variable(self, "embedding_weights"))
        ids, *weights = rows
        return _combine(table, ids, weights[0] if weights else None, self.combiner, self.max_norm)


def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:
    """Return a column of vectors, one for each category, that are trained; those of an example's categories are combined.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/embedding_column. Difference: an example without
    categories gets zeros also if `use_safe_embedding_lookup` is false.

    Args:
        categorical_column: The column of categories.
        dimension: The size of the vectors.
        combiner: "mean", "sqrtn" (the sum divided by the root of the sum of squared weights) or "sum".
        initializer: Makes the first values; by default a truncated normal distribution with 1/sqrt(dimension) as standard deviation.
        ckpt_to_load_from: A checkpoint whose tensor `tensor_name_in_ckpt` is to be the first value.
        tensor_name_in_ckpt: That name.
        max_norm: Vectors that are longer are shortened to this.
        trainable: Whether they are trained.
        use_safe_embedding_lookup: Accepted.

    Raises:
        ValueError: If the size is smaller than 1, only one of checkpoint and name is given, `initializer` is no function, or it is
            no column of categories.
    """
    if dimension is None or dimension < 1:
        raise ValueError(f"dimension must be at least 1. Received: {dimension}")
    if (ckpt_to_load_from is None) != (tensor_name_in_ckpt is None):
        raise ValueError("Give both `ckpt_to_load_from` and `tensor_name_in_ckpt`, or none of them.")
    if initializer is not None and not callable(initializer):
        raise ValueError(f"initializer must be callable if specified. Received: {initializer!r}")
    return EmbeddingColumn(
        categorical_column,
        dimension,
        combiner,
        TruncatedNormal(stddev=1 / math.sqrt(dimension)) if initializer is None else initializer,
        ckpt_to_load_from,
        tensor_name_in_ckpt,
        max_norm,
        trainable,
        use_safe_embedding_lookup,
    )


def shared_embeddings(
    categorical_columns: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> NoReturn:
    """Refuse to share vectors among columns, as TensorFlow 2 does outside of TensorFlow 1's graphs.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/shared_embeddings.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "shared_embeddings are not supported when eager execution is enabled. Use one `tf.keras.layers.Embedding` for the features, "
        "behind a `tf.keras.layers.StringLookup`."
    )
