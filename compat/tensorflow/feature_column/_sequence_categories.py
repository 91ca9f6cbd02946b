"""Columns of sequences of categories."""

from typing import Any, NamedTuple, final

import numpy as np

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow.feature_column import _categories, _vocabularies
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    FeatureTransformationCache,
    IdWeightPair,
    Rows,
    padded_ids,
)
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.sparse._arithmetic import reshape


class _SequenceFields(NamedTuple):
    categorical_column: CategoricalColumn


@final
class SequenceCategoricalColumn(Configured, CategoricalColumn, _SequenceFields):
    """Sequences of another column's categories; see `sequence_categorical_column_with_identity`."""

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def parents(self) -> list[Any]:
        return [self.categorical_column]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.categorical_column.num_buckets

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return what the other column makes of the feature."""
        return self.categorical_column.transform_feature(transformation_cache, state_manager)

    def get_sparse_tensors(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> IdWeightPair:
        """Return numbers and weights `[batch, steps, n]`, sparse: of a step that is not a list, n is 1."""
        ids, weights = self.categorical_column.get_sparse_tensors(transformation_cache, state_manager)
        batch, steps, *rest = map(int, ids.shape)
        shape = [batch, steps, int(np.prod(rest))]
        return IdWeightPair(reshape(ids, shape), None if weights is None else reshape(weights, shape))

    def read_ids(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        ids, weights = self.get_sparse_tensors(transformation_cache, state_manager)
        return padded_ids(ids, weights, keeps_size=True)

    def read_lengths(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> np.ndarray:
        """Return how long each sequence is, `[batch]` int64."""
        return sequence_lengths(self.get_sparse_tensors(transformation_cache, state_manager).id_tensor)


def sequence_lengths(tensor: SparseTensor, num_elements: int = 1) -> np.ndarray:
    """Return how long the sequence of each example is, `[batch]` int64: up to its last element.

    Args:
        tensor: `[batch, steps, ...]`, sparse.
        num_elements: How many elements are one step.
    """
    places = np.asarray(tensor.indices)
    lengths = np.zeros(int(tensor.shape[0]), np.int64)
    np.maximum.at(lengths, places[:, 0], places[:, 1] + 1)
    return -(-lengths // num_elements)


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """Return a column of sequences of integers that are the numbers of categories.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/sequence_categorical_column_with_identity. Arguments and errors
    are those of `categorical_column_with_identity`; the feature is `[batch, steps]`.
    """
    return SequenceCategoricalColumn(_categories.categorical_column_with_identity(key, num_buckets, default_value))


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = _dtypes.string
) -> SequenceCategoricalColumn:
    """Return a column of sequences of hashes.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/sequence_categorical_column_with_hash_bucket. Arguments and errors
    are those of `categorical_column_with_hash_bucket`; the feature is `[batch, steps]`.
    """
    return SequenceCategoricalColumn(_categories.categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


def sequence_categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Any, dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> SequenceCategoricalColumn:
    """Return a column of sequences of places that values have in a list.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/sequence_categorical_column_with_vocabulary_list. Arguments and
    errors are those of `categorical_column_with_vocabulary_list`; the feature is `[batch, steps]`.
    """
    return SequenceCategoricalColumn(
        _vocabularies.categorical_column_with_vocabulary_list(
            key, vocabulary_list, dtype, default_value, num_oov_buckets
        )
    )


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = _dtypes.string,
) -> SequenceCategoricalColumn:
    """Return a column of sequences of the numbers of the lines that hold values.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/sequence_categorical_column_with_vocabulary_file. Arguments and
    errors are those of `categorical_column_with_vocabulary_file`; the feature is `[batch, steps]`.
    """
    return SequenceCategoricalColumn(
        _vocabularies.categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
        )
    )
