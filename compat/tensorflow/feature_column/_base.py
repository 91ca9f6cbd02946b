"""What feature columns have in common: how they read a batch's features, and what they make of them."""

import abc
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._ops._shapes import expand_dims
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow.sparse._arithmetic import expand_dims as expand_sparse_dims


class StateManager(Protocol):
    """What keeps the variables and tables of columns, TensorFlow's or a program's own."""

    def create_variable(self, feature_column: Any, name: str, shape: Any, **options: Any) -> Any:
        """Make a variable of a column."""

    def get_variable(self, feature_column: Any, name: str) -> Any:
        """Return a variable of a column."""

    def add_resource(self, feature_column: Any, name: str, resource: Any) -> None:
        """Keep a table of a column."""

    def has_resource(self, feature_column: Any, name: str) -> bool:
        """Whether a table of a column is kept."""
        ...

    def get_resource(self, feature_column: Any, name: str) -> Any:
        """Return a table of a column."""


class IdWeightPair(NamedTuple):
    """The numbers of categories in a batch, and their weights.

    Attributes:
        id_tensor: A sparse tensor of int64; numbers below zero are of no category.
        weight_tensor: A sparse tensor with the same places; None if all weigh 1.
    """

    id_tensor: SparseTensor
    weight_tensor: SparseTensor | None


class TensorSequenceLengthPair(NamedTuple):
    """The vectors of sequences, and how long these are.

    Attributes:
        dense_tensor: `[batch, steps, ...]` float.
        sequence_length: `[batch]` int64.
    """

    dense_tensor: Any
    sequence_length: Any


Rows = tuple[Any, ...]
"""What a column has read of a batch on the host: arrays whose first axis is the batch's."""


class FeatureColumn(abc.ABC):
    """Says how a feature of a batch becomes numbers.

    Attributes:
        is_traceable: Whether it can be computed of numbers that have no values yet.
    """

    is_traceable = False

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name, by which layers put columns in order."""

    @property
    @abc.abstractmethod
    def parents(self) -> list[Any]:
        """The columns, and keys of features, that it is made of."""

    @property
    @abc.abstractmethod
    def parse_example_spec(self) -> dict[str, Any]:
        """What `tf.io.parse_example` has to read for it, by key."""

    @abc.abstractmethod
    def transform_feature(self, transformation_cache: "FeatureTransformationCache", state_manager: Any) -> Any:
        """Return what it makes of the features of a batch: a tensor or sparse tensor."""

    @property
    def feature_keys(self) -> list[str]:
        """The keys of the features that it reads."""
        return list(dict.fromkeys(_keys(self)))


def _keys(column: FeatureColumn) -> Iterator[str]:
    for parent in column.parents:
        if isinstance(parent, str):
            yield parent
        else:
            yield from _keys(parent)


class DenseColumn(FeatureColumn):
    """A column of vectors: of numbers read on the host, and of variables.

    Attributes:
        variable_shape: The shape of the vectors.
    """

    variable_shape: TensorShape

    def create_state(self, state_manager: Any) -> None:
        """Make its variables."""

    @abc.abstractmethod
    def read_rows(self, transformation_cache: "FeatureTransformationCache", state_manager: Any) -> Rows:
        """Return what the host reads of a batch."""

    @abc.abstractmethod
    def combine_rows(self, rows: Rows, state_manager: Any) -> Any:
        """Return the vectors `[batch, *variable_shape]`, float, of what the host has read."""

    def get_dense_tensor(self, transformation_cache: "FeatureTransformationCache", state_manager: Any) -> Any:
        """Return the vectors of a batch, `[batch, *variable_shape]`, float."""
        return self.combine_rows(self.read_rows(transformation_cache, state_manager), state_manager)


class SequenceDenseColumn(FeatureColumn):
    """A column of sequences of vectors, for `tf.keras.experimental.SequenceFeatures`.

    Attributes:
        variable_shape: The shape of the vectors.
    """

    variable_shape: TensorShape

    def create_state(self, state_manager: Any) -> None:
        """Make its variables."""

    @abc.abstractmethod
    def read_sequence_rows(self, transformation_cache: "FeatureTransformationCache", state_manager: Any) -> Rows:
        """Return what the host reads of a batch; last how long each sequence is, `[batch]` int64."""

    @abc.abstractmethod
    def combine_sequence_rows(self, rows: Rows, state_manager: Any) -> TensorSequenceLengthPair:
        """Return the vectors `[batch, steps, *variable_shape]`, and how long sequences are."""

    def get_sequence_dense_tensor(
        self, transformation_cache: "FeatureTransformationCache", state_manager: Any
    ) -> TensorSequenceLengthPair:
        """Return the sequences of a batch, and how long they are."""
        rows = self.read_sequence_rows(transformation_cache, state_manager)
        return self.combine_sequence_rows(rows, state_manager)


class CategoricalColumn(FeatureColumn):
    """A column of categories, each of which has a number.

    Attributes:
        num_buckets: How many numbers there are.
    """

    num_buckets: int

    @abc.abstractmethod
    def get_sparse_tensors(
        self, transformation_cache: "FeatureTransformationCache", state_manager: Any
    ) -> IdWeightPair:
        """Return the numbers of categories in a batch, and their weights."""

    def read_ids(self, transformation_cache: "FeatureTransformationCache", state_manager: Any) -> Rows:
        """Return the numbers `[batch, ..., n]`, -1 where there is none, and if they have weights these likewise."""
        ids, weights = self.get_sparse_tensors(transformation_cache, state_manager)
        return padded_ids(ids, weights)


@final
class FeatureTransformationCache:
    """The features of a batch, and what columns have made of them, once each."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        """Hold features by key."""
        self._features = features
        self._found: dict[Any, Any] = {}

    def get(self, key: Any, state_manager: Any, training: bool | None = None) -> Any:
        """Return a feature, or what a column makes of features.

        Args:
            key: The key of a feature, or a column.
            state_manager: What keeps the column's tables; None for nothing.
            training: Unused.

        Returns:
            A tensor or sparse tensor `[batch, ...]`; a feature `[batch]` as `[batch, 1]`.

        Raises:
            ValueError: If there is no such feature, or it has no axis.
            TypeError: If `key` is neither a key nor a column.
        """
        if key not in self._found:
            if isinstance(key, FeatureColumn):
                self._found[key] = key.transform_feature(self, state_manager)
            elif isinstance(key, str):
                self._found[key] = self._read(key)
            else:
                raise TypeError(f"`key` must be a str or a FeatureColumn. Received: {key!r}")
        return self._found[key]

    def _read(self, key: str) -> Any:
        if key not in self._features:
            raise ValueError(f"Feature {key} is not in features dictionary. It holds: {sorted(self._features)}.")
        given = self._features[key]
        if isinstance(given, SparseTensor):
            return expand_sparse_dims(given, -1) if len(given.shape) == 1 else given
        tensor = given if is_tensor(given) else convert_to_tensor(given)
        if not len(tensor.shape):
            raise ValueError(f"Feature (key: {key}) cannot have rank 0. Received: {given!r}")
        return expand_dims(tensor, -1) if len(tensor.shape) == 1 else tensor


# How many ids rows have room for doubles: each size of an array is a program to compile.
def _room(longest: int) -> int:
    return 1 << max(longest - 1, 0).bit_length()


def padded_ids(ids: SparseTensor, weights: SparseTensor | None, *, keeps_size: bool = False) -> Rows:
    """Return the numbers of a sparse tensor as an array, -1 where it has none, and if given their weights, 0 there.

    Args:
        ids: Integers `[batch, ..., n]`.
        weights: Weights with the same places, or None.
        keeps_size: Whether the last axis keeps its size; else it gets one of few.

    Raises:
        InvalidArgumentError: If weights have other places.
    """
    places = np.asarray(ids.indices)
    *outer, longest = map(int, ids.shape)
    shape = (*outer, longest if keeps_size else _room(longest))
    padded = np.full(shape, -1, np.int64)
    padded[tuple(places.T)] = np.asarray(ids.values)
    if weights is None:
        return (padded,)
    check_same_places(ids, weights)
    amounts = np.zeros(shape, np.float32)
    amounts[tuple(places.T)] = np.asarray(weights.values)
    return padded, amounts


def check_same_places(ids: SparseTensor, weights: SparseTensor) -> None:
    """Raise InvalidArgumentError if weights do not belong to the numbers."""
    if not np.array_equal(np.asarray(ids.indices), np.asarray(weights.indices)):
        from_ids, from_weights = (tuple(np.shape(tensor.indices)) for tensor in (ids, weights))
        raise invalid(
            f"Weights are at other places than the categories they belong to: indices of shapes {from_weights} and {from_ids}. "
            "Categories that are missing ('' or -1) have no weight, and a weight of 0 in a dense feature is none."
        )
