"""Keras 2's layers of feature columns: what they read of texts is found on the host, in `fit` before each step."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax.compat.tensorflow._tensors._host_part import note_on_host
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import UnavailableString
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow.feature_column._base import (
    DenseColumn,
    FeatureColumn,
    FeatureTransformationCache,
    Rows,
    SequenceDenseColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._serialization import (
    deserialize_feature_columns,
    serialize_feature_columns,
)
from tfdist_jax.compat.tensorflow.feature_column._state import ColumnState
from tfdist_jax.compat.tensorflow.keras._change import Addition
from tfdist_jax.compat.tensorflow.keras._internals import global_state, name_scope, register_tree_node_class


@final
@register_tree_node_class
@jax.tree_util.register_pytree_node_class
class FeatureRows(Mapping[str, Any]):
    """A batch's features of which layers have read theirs: a model takes it in place of the features.

    It holds the features that are arrays of numbers; from it the layers get what they have read of texts.
    """

    def __init__(
        self, numbers: Mapping[str, Any], layers: Sequence["FeatureColumnLayer"], rows: Sequence[Sequence[Rows]]
    ) -> None:
        """Hold features by key, and what each layer has read, one for each of its columns."""
        self._numbers = dict(numbers)
        self._layers, self._rows = tuple(layers), tuple(tuple(map(tuple, own)) for own in rows)

    def rows_of(self, layer: "FeatureColumnLayer") -> tuple[Rows, ...]:
        """Return what a layer has read.

        Raises:
            ValueError: If it has read nothing, since it is none of the model's layers.
        """
        for known, rows in zip(self._layers, self._rows, strict=True):
            if known is layer:
                return rows
        raise ValueError(
            f"{layer.name} gets the features of a model that does not hold it. Make it an attribute of the model, or "
            "one of its layers."
        )

    def __getitem__(self, key: str) -> Any:
        if key not in self._numbers:
            raise KeyError(
                f"{key}: a model's step has the features that are arrays of numbers ({sorted(self._numbers)}); texts and sparse "
                "features are for layers of feature columns, which read them before it."
            )
        return self._numbers[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the arrays, and whose they are."""
        return (self._numbers, self._rows), self._layers

    @classmethod
    def tree_unflatten(cls, layers: Any, parts: Any) -> "FeatureRows":
        """Hold other arrays."""
        self = object.__new__(cls)
        (self._numbers, self._rows), self._layers = parts, layers
        return self


class FeatureColumnLayer(keras.layers.Layer):
    """A layer of feature columns.

    Attributes:
        feature_columns: Its columns, in the order of their names.
    """

    _kind: type[FeatureColumn]

    def __init__(self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any) -> None:
        """Make a layer of columns.

        Args:
            feature_columns: A column, or several.
            trainable: Whether the columns' variables are trained.
            name: Its name.
            **kwargs: Keras's own arguments of layers.

        Raises:
            ValueError: If one is no column, or one of another kind; if two have one name; or if there are none.
        """
        super().__init__(name=name, trainable=trainable, **kwargs)
        self._columns = tuple(sorted(_checked(feature_columns, self._kind), key=lambda column: column.name))
        self._tables: list[Any] = []
        self._state = ColumnState(self._make_variable)
        self._allow_non_tensor_positional_args = True
        self._convert_input_args = False

    @property
    def feature_columns(self) -> list[Any]:
        """Its columns, in the order of their names."""
        return list(self._columns)

    @property
    def feature_keys(self) -> list[str]:
        """The keys of the features that its columns read."""
        return list(dict.fromkeys(key for column in self._columns for key in column.feature_keys))

    def _make_variable(self, column: Any, name: str, shape: Any, initializer: Any, trainable: bool) -> Any:
        with name_scope(re.sub(r"[^A-Za-z0-9_.\-]", "_", column.name)):
            variable = keras.Variable(initializer, tuple(shape), trainable=trainable and self.trainable, name=name)
        self._tables.append(variable)
        return variable

    def build(self, input_shape: Any = None) -> None:
        """Make the columns' variables."""
        for column in self._columns:
            column.create_state(self._state)
        self.built = True

    def get_build_config(self) -> dict[str, Any]:
        """Return nothing: variables do not depend on shapes."""
        return {"input_shape": None}

    def build_from_config(self, config: Any) -> None:
        """Make the columns' variables."""
        if not self.built:
            with self._open_name_scope():
                self.build()

    def read(self, features: Mapping[str, Any]) -> tuple[Rows, ...]:
        """Return what each column reads of a batch's features on the host."""
        cache = FeatureTransformationCache(features)
        return tuple(self._read_column(number, features, cache) for number in range(len(self._columns)))

    def _read_column(self, number: int, features: Mapping[str, Any], cache: FeatureTransformationCache) -> Rows:
        column = self._columns[number]
        own = {key: features[key] for key in column.feature_keys if key in features}
        noted = note_on_host(self._read_alone, (number, own), {}, always=not column.is_traceable)
        return self._read_rows(column, cache) if noted is NotImplemented else noted

    def _read_alone(self, number: int, features: Mapping[str, Any]) -> Rows:
        return self._read_rows(self._columns[number], FeatureTransformationCache(features))

    def _read_rows(self, column: Any, cache: FeatureTransformationCache) -> Rows:
        raise NotImplementedError

    def __call__(self, features: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the columns' vectors.

        Args:
            features: The features of a batch by key.
            *args: Those of `call`.
            **kwargs: Those of `call`.

        Raises:
            ValueError: If `features` is no dictionary, or lacks one.
        """
        if isinstance(features, FeatureRows):
            return super().__call__(features.rows_of(self), *args, **kwargs)
        if not isinstance(features, Mapping):
            raise ValueError(f"We expected a dictionary here. Instead we got: {features!r}")
        if any(isinstance(value, keras.KerasTensor) for value in features.values()):
            return super().__call__(dict(features), *args, **kwargs)
        check_strings_are_known(features)
        rows = jax.tree.map(jnp.asarray, self.read(features))
        return super().__call__(rows, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, columns as their configurations."""
        return {**super().get_config(), "feature_columns": serialize_feature_columns(self._columns)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return the layer of a configuration."""
        in_scope = global_state.get_global_attribute("custom_objects_scope_dict") or {}
        known = {**keras.saving.get_custom_objects(), **in_scope, **(custom_objects or {})}
        rest = {name: value for name, value in config.items() if name not in ("feature_columns", "partitioner")}
        return cls(deserialize_feature_columns(config["feature_columns"], known), **rest)


def _checked(feature_columns: Any, kind: type[FeatureColumn]) -> list[Any]:
    if isinstance(feature_columns, Mapping):
        raise ValueError(f"Expected feature_columns to be iterable, found dict. Received: {feature_columns!r}")
    is_one = isinstance(feature_columns, FeatureColumn)  # Which is a tuple, too.
    columns: list[Any] = [feature_columns] if is_one else list(feature_columns)
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    by_name: dict[str, Any] = {}
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"Items of feature_columns must be a FeatureColumn. Received: {column!r} of type {type(column).__name__}."
            )
        if column.name in by_name:
            raise ValueError(
                f"Duplicate feature column name found for columns: {column} and {by_name[column.name]}. Both are made of one feature; "
                "leave one out, or give the features the same values under another key."
            )
        by_name[column.name] = column
        if not isinstance(column, kind):
            raise ValueError(
                f"Items of feature_columns must be a {kind.__name__}. You can wrap a categorical column with an embedding_column or "
                f"indicator_column. Received: {column!r}"
            )
    return columns


def _width(shape: TensorShape) -> int:
    return shape.num_elements() or 1


def _batch_size(features: Any) -> int | None:
    return keras.tree.flatten(features)[0].shape[0]


@final
@keras.saving.register_keras_serializable("tfdist_jax")
class DenseFeatures(FeatureColumnLayer):
    """Drop-in for Keras 2's `tf.keras.layers.DenseFeatures`: the vectors of columns, one behind the other.

    Ref: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/layers/DenseFeatures. Difference: texts are read on the host;
    in `fit` before each step, for models that hold the layer and are given the features as a dictionary.
    """

    _kind = DenseColumn

    def _read_rows(self, column: Any, cache: FeatureTransformationCache) -> Rows:
        return column.read_rows(cache, self._state)

    def call(self, features: Any, cols_to_output_tensors: Any = None, training: bool | None = None) -> Any:
        """Return the vectors `[batch, width]`.

        Args:
            features: What the columns have read of a batch.
            cols_to_output_tensors: A dictionary that gets the vectors of each column.
            training: Unused.
        """
        parts = []
        for column, rows in zip(self._columns, features, strict=True):
            vectors = column.combine_rows(rows, self._state)
            part = jnp.reshape(vectors, (rows[0].shape[0], _width(column.variable_shape)))
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = part
            parts.append(part)
        return jnp.concatenate(parts, axis=-1).astype(self.compute_dtype)

    def compute_output_spec(
        self, features: Any, cols_to_output_tensors: Any = None, training: bool | None = None, **kwargs: Any
    ) -> Any:
        """Return the symbolic vectors."""
        return keras.KerasTensor((_batch_size(features), self._width()), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """Return the shape of the vectors."""
        first = next(iter(input_shape.values())) if isinstance(input_shape, Mapping) else (None,)
        return first[0], self._width()

    def _width(self) -> int:
        return sum(_width(column.variable_shape) for column in self._columns)


@final
@keras.saving.register_keras_serializable("tfdist_jax")
class SequenceFeatures(FeatureColumnLayer):
    """Drop-in for Keras 2's `tf.keras.experimental.SequenceFeatures`: the vectors of sequences, and how long these are.

    Ref: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/experimental/SequenceFeatures.
    """

    _kind = SequenceDenseColumn

    def _read_rows(self, column: Any, cache: FeatureTransformationCache) -> Rows:
        return column.read_sequence_rows(cache, self._state)

    def call(self, features: Any, training: bool | None = None) -> tuple[Any, Any]:
        """Return the vectors `[batch, steps, width]`, and the lengths `[batch]`, which are those of the last column.

        Args:
            features: What the columns have read of a batch.
            training: Unused.

        Raises:
            ValueError: If columns have sequences of different length.
        """
        found = [
            column.combine_sequence_rows(rows, self._state)
            for column, rows in zip(self._columns, features, strict=True)
        ]
        steps = {pair.dense_tensor.shape[1] for pair in found}
        if len(steps) > 1:
            raise ValueError(f"All columns must have sequences of one length. Received: {sorted(steps)} steps.")
        parts = [
            jnp.reshape(pair.dense_tensor, (*pair.dense_tensor.shape[:2], _width(column.variable_shape)))
            for column, pair in zip(self._columns, found, strict=True)
        ]
        return jnp.concatenate(parts, axis=-1).astype(self.compute_dtype), found[-1].sequence_length

    def compute_output_spec(self, features: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Return the symbolic vectors and lengths."""
        size = _batch_size(features)
        width = sum(_width(column.variable_shape) for column in self._columns)
        return (
            keras.KerasTensor((size, None, width), dtype=self.compute_dtype),
            keras.KerasTensor((size,), dtype="int64"),
        )


def check_strings_are_known(features: Mapping[str, Any]) -> None:
    """Raise ConcreteValueRequiredError, by which a step runs replica by replica, if it is traced with each replica's own strings."""
    for key, value in features.items():
        if isinstance(value, UnavailableString):
            raise ConcreteValueRequiredError(
                f"A layer of feature columns reads the strings of {key!r} on the host, and each replica has its own."
            )


def read_features(model: keras.Model, features: Any) -> FeatureRows | None:
    """Return what the layers of a model read of a batch's features; None if it has no layers of feature columns for them.

    Raises:
        ValueError: If a layer reads some of the features, and another that is not there.
    """
    if not isinstance(features, Mapping) or isinstance(features, FeatureRows):
        return None
    layers = [layer for layer in feature_layers(model) if not features.keys().isdisjoint(layer.feature_keys)]
    if not layers:
        return None
    is_number = lambda value: isinstance(value, np.ndarray | jax.Array) and value.dtype.kind not in "OSU"
    numbers = {key: value for key, value in features.items() if is_number(value)}
    return FeatureRows(numbers, layers, [layer.read(features) for layer in layers])


def feature_layers(model: keras.Model) -> list[FeatureColumnLayer]:
    """Return the layers of feature columns that a model holds."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, FeatureColumnLayer)]


CHANGES = tuple(Addition(module.layers, "DenseFeatures", DenseFeatures) for module in (keras, tf_keras))
