"""Columns of categories that a list or a file holds the values of."""

import abc
import itertools
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._tensors._text_numbers import read_numbers
from tfdist_jax.compat.tensorflow.feature_column._categories import KeyedCategories, find_table
from tfdist_jax.compat.tensorflow.feature_column._checks import category_type, check_key
from tfdist_jax.compat.tensorflow.io._gfile import GFile, exists
from tfdist_jax.compat.tensorflow.io._records import read_records
from tfdist_jax.compat.tensorflow.lookup._initializers import (
    KeyValueTensorInitializer,
    TableInitializer,
    TextFileIndex,
    TextFileInitializer,
)
from tfdist_jax.compat.tensorflow.lookup._static_tables import StaticHashTable, StaticVocabularyTable

_RECORDS = "tfrecord_gzip"


class _Vocabulary(KeyedCategories):
    """Categories that a table knows the numbers of.

    Attributes:
        num_oov_buckets: How many numbers there are for values that are not in the table, by their hash.
        default_value: Their number, if there are no such buckets.
    """

    dtype: DType
    num_oov_buckets: int
    default_value: int

    @property
    def value_type(self) -> DType:
        return self.dtype

    @abc.abstractmethod
    def _make_initializer(self, key_dtype: DType) -> TableInitializer:
        """Return what the table is filled from."""

    def _make_table(self) -> StaticHashTable | StaticVocabularyTable:
        key_dtype = _dtypes.int64 if self.dtype.is_integer else self.dtype
        initializer = self._make_initializer(key_dtype)
        if self.num_oov_buckets:
            return StaticVocabularyTable(initializer, self.num_oov_buckets)
        return StaticHashTable(initializer, self.default_value)

    def find_ids(self, values: Any, state_manager: Any) -> Any:
        table = find_table(self, state_manager, self._make_table)
        if isinstance(values, Tracer):
            return table.lookup(values.astype(jnp.int64))
        keys = HostTensor.of(values) if values.dtype == object else convert_to_tensor(np.asarray(values, np.int64))
        return np.asarray(table.lookup(keys))


class _VocabularyListFields(NamedTuple):
    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: DType
    default_value: int
    num_oov_buckets: int


@final
class VocabularyListCategoricalColumn(_Vocabulary, _VocabularyListFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Places of values in a list; see `categorical_column_with_vocabulary_list`."""

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _make_initializer(self, key_dtype: DType) -> TableInitializer:
        keys = np.asarray(self.vocabulary_list, np.int64 if key_dtype.is_integer else object)
        return KeyValueTensorInitializer(keys, np.arange(len(keys)), key_dtype, _dtypes.int64)


def categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Any, dtype: Any = None, default_value: int = -1, num_oov_buckets: int = 0
) -> VocabularyListCategoricalColumn:
    """Return a column of the places that values have in a list.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/categorical_column_with_vocabulary_list.

    Args:
        key: The key of the feature.
        vocabulary_list: The values, texts or integers, each once.
        dtype: The type of the feature; that of the list if None.
        default_value: The number of values that are not in the list; -1 for none.
        num_oov_buckets: How many numbers there are, behind those of the list, for such values, by their hash.

    Raises:
        ValueError: If the list is empty, holds a value twice, or is of another kind than `dtype`; if there are both buckets and a default
            value; or if the key is no string.
    """
    values = () if vocabulary_list is None else tuple(vocabulary_list)
    if not values:
        raise ValueError(f"vocabulary_list must be non-empty. Received: {vocabulary_list!r} for key {key}.")
    if len(set(values)) != len(values):
        raise ValueError(f"vocabulary_list holds a value twice. Received: {vocabulary_list!r} for key {key}.")
    _check_buckets(key, num_oov_buckets, has_default=default_value != -1)
    own = category_type(np.array(vocabulary_list).dtype, f"column_name: {key} vocabulary")
    wanted = own if dtype is None else category_type(dtype, f"column_name: {key}")
    if wanted.is_integer != own.is_integer:
        raise ValueError(f"dtype {wanted!r} and vocabulary dtype {own!r} do not match, column_name: {key}")
    check_key(key)
    return VocabularyListCategoricalColumn(key, values, wanted, default_value, num_oov_buckets)


def _check_buckets(key: str, num_oov_buckets: int, *, has_default: bool) -> None:
    if num_oov_buckets and has_default:
        raise ValueError(f"Leave one of num_oov_buckets and default_value out. Received both for key {key}.")
    if num_oov_buckets and num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must not be negative. Received: {num_oov_buckets} for key {key}.")


class _VocabularyFileFields(NamedTuple):
    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: DType
    default_value: int
    file_format: str | None = None


@final
class VocabularyFileCategoricalColumn(_Vocabulary, _VocabularyFileFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """Numbers of the lines in a file; see `categorical_column_with_vocabulary_file`."""

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.vocabulary_size + self.num_oov_buckets

    def _make_initializer(self, key_dtype: DType) -> TableInitializer:
        if self.file_format == _RECORDS:
            texts = list(itertools.islice(read_records(self.vocabulary_file, "GZIP"), self.vocabulary_size))
            keys = read_numbers(texts, np.dtype(np.int64)) if key_dtype.is_integer else np.array(texts, object)
            return KeyValueTensorInitializer(keys, np.arange(len(texts)), key_dtype, _dtypes.int64)
        whole, number = TextFileIndex.WHOLE_LINE, TextFileIndex.LINE_NUMBER
        return TextFileInitializer(
            self.vocabulary_file, key_dtype, whole, _dtypes.int64, number, vocab_size=self.vocabulary_size
        )


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    dtype: Any = _dtypes.string,
    default_value: int | None = None,
    num_oov_buckets: int = 0,
    file_format: str | None = None,
) -> VocabularyFileCategoricalColumn:
    """Return a column of the numbers of the lines that hold values.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/categorical_column_with_vocabulary_file.

    Args:
        key: The key of the feature.
        vocabulary_file: The file, which has one value in each line.
        vocabulary_size: How many lines count; all of them if None.
        dtype: The type of the feature, texts or integers.
        default_value: The number of values that are in no line; -1, for none, if None.
        num_oov_buckets: How many numbers there are, behind those of the lines, for such values, by their hash.
        file_format: "tfrecord_gzip" if the file holds compressed records, as one that ends in "tfrecord.gz" does.

    Raises:
        ValueError: If there is no such file, `vocabulary_size` is smaller than 1, there are both buckets and a default value, it is
            another type, or the key no string.
    """
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file for key {key}.")
    is_compressed = file_format is None and str(vocabulary_file).endswith("tfrecord.gz")
    kind = _RECORDS if is_compressed else file_format
    size = _count_values(key, vocabulary_file, kind) if vocabulary_size is None else vocabulary_size
    if size < 1:
        raise ValueError(f"vocabulary_size must be at least 1. Received: {size} for key {key}.")
    _check_buckets(key, num_oov_buckets, has_default=default_value is not None)
    known = category_type(dtype, f"column_name: {key}")
    check_key(key)
    default = -1 if default_value is None else default_value
    return VocabularyFileCategoricalColumn(key, vocabulary_file, size, num_oov_buckets, known, default, kind)


def categorical_column_with_vocabulary_file_v1(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = _dtypes.string,
) -> VocabularyFileCategoricalColumn:
    """Return `categorical_column_with_vocabulary_file`, with TensorFlow 1's order of arguments."""
    return categorical_column_with_vocabulary_file(
        key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
    )


def _count_values(key: str, path: str, file_format: str | None) -> int:
    if not exists(path):
        raise ValueError(f"vocabulary_file {path} of key {key} does not exist.")
    if file_format == _RECORDS:
        return sum(1 for _ in read_records(path, "GZIP"))
    with GFile(path, "rb") as file:
        return len(file.read().splitlines())
