"""`tf.feature_column.weighted_categorical_column`: categories with weights of their own."""

from typing import Any, NamedTuple, final

import numpy as np

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    FeatureTransformationCache,
    IdWeightPair,
)
from tfdist_jax.compat.tensorflow.feature_column._categories import sparse_without
from tfdist_jax.compat.tensorflow.feature_column._checks import number_type
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.io._features import VarLenFeature


class _WeightedFields(NamedTuple):
    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: DType


@final
class WeightedCategoricalColumn(Configured, CategoricalColumn, _WeightedFields):
    """Categories with weights; see `weighted_categorical_column`."""

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parents(self) -> list[Any]:
        return [self.categorical_column, self.weight_feature_key]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise ValueError(f"Feature {self.weight_feature_key} is read already: {spec[self.weight_feature_key]}.")
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.categorical_column.num_buckets

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> Any:
        """Return the numbers and the weights, both sparse; weights that are 0 in a feature that is not sparse are none.

        Raises:
            ValueError: If the weights are of another type than the column says.
        """
        given = transformation_cache.get(self.weight_feature_key, state_manager)
        if as_dtype(given.dtype) != self.dtype:
            raise ValueError(
                f"Weights {self.weight_feature_key} must be of dtype {self.dtype!r}. Received: {as_dtype(given.dtype)!r}."
            )
        weights = sparse_without(given, 0)
        if not self.dtype.is_floating:
            weights = weights.with_values(np.asarray(weights.values).astype(np.float32))
        ids = transformation_cache.get(self.categorical_column, state_manager)
        return sparse_without(ids, -1), weights

    def get_sparse_tensors(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> IdWeightPair:
        return IdWeightPair(*transformation_cache.get(self, state_manager))


def weighted_categorical_column(
    categorical_column: Any, weight_feature_key: str, dtype: Any = _dtypes.float32
) -> WeightedCategoricalColumn:
    """Return a column of categories whose weights another feature holds.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/weighted_categorical_column.

    Args:
        categorical_column: The column of categories.
        weight_feature_key: The key of the weights, of the shape of the categories' feature.
        dtype: The weights' type.

    Raises:
        ValueError: If it is not a type of numbers.
    """
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, number_type(dtype, weight_feature_key))
