"""`tf.feature_column.categorical_column_with_*`: texts and integers as numbers of categories, found on the host."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import value_of
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    FeatureTransformationCache,
    IdWeightPair,
    Rows,
    padded_ids,
)
from tfdist_jax.compat.tensorflow.feature_column._checks import category_type, check_key
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.io._features import VarLenFeature
from tfdist_jax.compat.tensorflow.strings._hashing import to_hash_bucket_fast
from tfdist_jax.compat.tensorflow.strings._numbers import as_string

_NOT_KNOWN = (
    "A column of categories is found on the host, and takes a number here that the compiled function computes. Give the features to "
    "the function as its arguments, or find the categories outside of it."
)


def known_array(tensor: Any) -> np.ndarray:
    """Return a tensor of texts or numbers as an array.

    Raises:
        ConcreteValueRequiredError: If a compiled function computes it.
    """
    return np.asarray(value_of(tensor, _NOT_KNOWN) if isinstance(tensor, Tracer) else tensor)


def sparse_without(tensor: Any, ignored: Any) -> SparseTensor:
    """Return a tensor without the elements that are equal to `ignored`; a sparse one as it is."""
    if isinstance(tensor, SparseTensor):
        return tensor
    array = known_array(tensor)
    places = np.argwhere(array != ignored)
    values = array[tuple(places.T)]
    return SparseTensor(places, HostTensor.of(values) if values.dtype == object else values, array.shape)


def missing_category(dtype: DType) -> Any:
    """Return what stands for no category in a tensor: an empty text, or -1."""
    return b"" if dtype.name == "string" else -1


class KeyedCategories(Configured, CategoricalColumn):
    """Categories of one feature, each value of which has a number.

    Attributes:
        key: The key of the feature, texts or integers `[batch, ...]`, sparse or not.
    """

    key: str

    @property
    def name(self) -> str:
        return self.key

    @property
    def parents(self) -> list[Any]:
        return [self.key]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.value_type)}

    @property
    @abc.abstractmethod
    def value_type(self) -> DType:
        """The type of the feature."""

    @abc.abstractmethod
    def find_ids(self, values: Any, state_manager: Any) -> Any:
        """Return the numbers of values, int64 of their shape."""

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> SparseTensor:
        """Return the numbers of the values that are not '' or -1, sparse.

        Raises:
            ValueError: If the feature is of another kind than the column.
        """
        given = transformation_cache.get(self.key, state_manager)
        self._check_type(as_dtype(given.dtype))
        values = sparse_without(given, missing_category(as_dtype(given.dtype)))
        return SparseTensor(values.indices, self.find_ids(values.values, state_manager), values.dense_shape)

    def _check_type(self, dtype: DType) -> None:
        category_type(dtype, f"Feature {self.key}:")
        if dtype.is_integer != self.value_type.is_integer:
            raise ValueError(
                f"The feature's dtype and the column's do not go together: key {self.key}, column {self.value_type!r}, feature {dtype!r}."
            )

    def get_sparse_tensors(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> IdWeightPair:
        return IdWeightPair(transformation_cache.get(self, state_manager), None)

    def read_ids(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Rows:
        given = transformation_cache.get(self.key, state_manager)
        if isinstance(given, SparseTensor):
            return padded_ids(transformation_cache.get(self, state_manager), None)
        dtype = as_dtype(given.dtype)
        self._check_type(dtype)
        values = given if isinstance(given, Tracer) and self.is_traceable else known_array(given)
        where = np.where if isinstance(values, np.ndarray) else jnp.where
        return (where(values == missing_category(dtype), -1, self.find_ids(values, state_manager)),)


def find_table(column: Any, state_manager: Any, make: Callable[[], Any]) -> Any:
    """Return a column's table: the one that is kept, or a new one."""
    if not state_manager:
        return make()
    if not state_manager.has_resource(column, "hash_table"):
        state_manager.add_resource(column, "hash_table", make())
    return state_manager.get_resource(column, "hash_table")


class _IdentityFields(NamedTuple):
    key: str
    number_buckets: int
    default_value: int | None


@final
class IdentityCategoricalColumn(KeyedCategories, _IdentityFields):
    """Integers that are numbers of categories; see `categorical_column_with_identity`."""

    is_traceable = True

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.number_buckets

    @property
    def value_type(self) -> DType:
        return _dtypes.int64

    def _check_type(self, dtype: DType) -> None:
        if not dtype.is_integer:
            raise ValueError(f"Invalid input, not integer. Received: {dtype!r} for key {self.key}.")

    def find_ids(self, values: Any, state_manager: Any) -> Any:
        ids = values if isinstance(values, Tracer) else np.asarray(values).astype(np.int64)
        if self.default_value is None:
            return ids
        where = jnp.where if isinstance(values, Tracer) else np.where
        return where((ids < 0) | (ids >= self.number_buckets), self.default_value, ids)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Return a column of integers that are the numbers of categories.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/categorical_column_with_identity.

    Args:
        key: The key of the feature, integers.
        num_buckets: How many numbers there are, from 0 on.
        default_value: The number of integers that are outside; if None, embeddings raise for those that are too large.

    Raises:
        ValueError: If there are no numbers, the default is none of them, or the key no string.
    """
    if num_buckets < 1:
        raise ValueError(f"num_buckets must be at least 1. Received: {num_buckets} for key {key}.")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(f"default_value must be in range [0, {num_buckets}). Received: {default_value} for key {key}.")
    check_key(key)
    return IdentityCategoricalColumn(key, num_buckets, default_value)


class _HashedFields(NamedTuple):
    key: str
    hash_bucket_size: int
    dtype: DType


@final
class HashedCategoricalColumn(KeyedCategories, _HashedFields):
    """Hashes of texts or integers; see `categorical_column_with_hash_bucket`."""

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.hash_bucket_size

    @property
    def value_type(self) -> DType:
        return self.dtype

    def find_ids(self, values: Any, state_manager: Any) -> Any:
        texts = HostTensor.of(values) if values.dtype == object else as_string(values)
        return np.asarray(to_hash_bucket_fast(texts, self.hash_bucket_size))


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = _dtypes.string
) -> HashedCategoricalColumn:
    """Return a column of the hashes of texts or integers: FarmHash, modulo the number of buckets.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/categorical_column_with_hash_bucket.

    Args:
        key: The key of the feature.
        hash_bucket_size: How many numbers there are.
        dtype: tf.string, or a type of integers, which are hashed as the texts that spell them.

    Raises:
        ValueError: If there are no numbers, it is another type, or the key no string.
    """
    if hash_bucket_size is None or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be at least 1. Received: {hash_bucket_size} for key {key}.")
    check_key(key)
    return HashedCategoricalColumn(key, hash_bucket_size, category_type(dtype, f"column_name: {key}"))
