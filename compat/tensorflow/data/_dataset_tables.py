"""Tables that are filled from datasets: `tf.data.experimental.table_from_dataset` and its kin."""

from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, string
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.lookup._initializers import TableInitializer
from tfdist_jax.compat.tensorflow.lookup._static_tables import StaticHashTable, StaticVocabularyTable

# The name of a hash, and its key.
_FAST = ("fasthash", None)


@final
class DatasetInitializer(TableInitializer):
    """Keys and values that the elements of a dataset hold.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/DatasetInitializer
    """

    def __init__(self, dataset: Dataset) -> None:
        """Take a dataset of pairs of scalars.

        Raises:
            ValueError: If its elements are something else.
        """
        spec = dataset.element_spec
        is_pair = isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(part, TensorSpec) for part in spec)
        if not is_pair or any(part.shape.rank for part in spec):
            raise ValueError(
                f"The elements of a dataset that fills a table must be pairs of a key and a value, scalars. Received: {spec}"
            )
        self.dataset = dataset
        self.key_dtype, self.value_dtype = (as_dtype(part.dtype) for part in spec)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = list(self.dataset._plan.elements(SeedLog()))
        columns = zip(*pairs, strict=True) if pairs else ((), ())
        types = (
            np.dtype(object if dtype == string else dtype.as_numpy_dtype)
            for dtype in (self.key_dtype, self.value_dtype)
        )
        keys, values = (
            np.array([np.asarray(part).item() for part in column], kind)
            for column, kind in zip(columns, types, strict=True)
        )
        return keys, values


def table_from_dataset(
    dataset: Dataset | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: Any = None,
    hasher_spec: Any = _FAST,
    key_dtype: Any = string,
    name: str | None = None,
) -> Any:
    """Return a table of a dataset's keys and values.

    Args:
        dataset: Pairs of a key and a value.
        num_oov_buckets: How many numbers behind the values other keys get, by their hash.
        vocab_size: How many elements to take; all of them if None.
        default_value: What other keys get without such numbers; -1 if None.
        hasher_spec: TensorFlow's fast hash, which is the only one there is.
        key_dtype: The keys' type.
        name: Unused.

    Raises:
        ValueError: If the elements are no such pairs, or their keys have another type.
        FailedPreconditionError: If a key comes twice, with different values.
    """
    if dataset is None:
        raise ValueError("`dataset` is needed: pairs of a key and a value.")
    if hasher_spec is not None and tuple(hasher_spec) != _FAST:
        raise NotImplementedError(
            f"`hasher_spec` must be {_FAST}: keys out of the vocabulary are hashed with FarmHash. Received: {hasher_spec}"
        )
    taken = dataset if vocab_size is None else dataset.take(vocab_size)
    initializer = DatasetInitializer(taken)
    if initializer.key_dtype != as_dtype(key_dtype):
        raise ValueError(
            f"`key_dtype` is {as_dtype(key_dtype).name}, and the dataset's keys are {initializer.key_dtype.name}."
        )
    if num_oov_buckets:
        return StaticVocabularyTable(initializer, num_oov_buckets, lookup_key_dtype=as_dtype(key_dtype))
    return StaticHashTable(initializer, -1 if default_value is None else default_value)


def index_table_from_dataset(
    dataset: Dataset | None = None,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: Any = -1,
    hasher_spec: Any = _FAST,
    key_dtype: Any = string,
    name: str | None = None,
) -> Any:
    """Return a table from a dataset's elements to their numbers, from 0 on; see `table_from_dataset`.

    Raises:
        ValueError: If there is no dataset.
    """
    if dataset is None:
        raise ValueError("`dataset` is needed: the keys.")
    numbered = dataset.enumerate().map(lambda number, key: (key, number))
    return table_from_dataset(numbered, num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name)
