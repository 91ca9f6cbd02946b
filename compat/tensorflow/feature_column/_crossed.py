"""`tf.feature_column.crossed_column`: combinations of the values of several features."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn,
    FeatureTransformationCache,
    IdWeightPair,
)
from tfdist_jax.compat.tensorflow.feature_column._categories import HashedCategoricalColumn
from tfdist_jax.compat.tensorflow.feature_column._serialization import Configured
from tfdist_jax.compat.tensorflow.io._features import VarLenFeature
from tfdist_jax.compat.tensorflow.sparse._crossing import cross_hashed


class _CrossedFields(NamedTuple):
    keys: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None


@final
class CrossedColumn(Configured, CategoricalColumn, _CrossedFields):
    """Hashes of combinations; see `crossed_column`."""

    @property
    def name(self) -> str:
        return "_X_".join(sorted(key if isinstance(key, str) else key.name for key in self.leaves()))

    def leaves(self) -> Iterator[Any]:
        """Go through the keys, those of columns that are crosses themselves in their place."""
        for key in self.keys:
            if isinstance(key, CrossedColumn):
                yield from key.leaves()
            else:
                yield key

    @property
    def parents(self) -> list[Any]:
        return list(self.keys)

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key in self.keys:
            spec |= {key: VarLenFeature(_dtypes.string)} if isinstance(key, str) else key.parse_example_spec
        return spec

    @property
    def num_buckets(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers there are."""
        return self.hash_bucket_size

    def transform_feature(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> SparseTensor:
        """Return hashes of all combinations of an example's values, sparse int64.

        Raises:
            ValueError: If a column has weights.
        """
        inputs = []
        for key in self.leaves():
            if isinstance(key, str):
                inputs.append(transformation_cache.get(key, state_manager))
                continue
            ids, weights = key.get_sparse_tensors(transformation_cache, state_manager)
            if weights is not None:
                raise ValueError(f"crossed_column does not take columns with weights. Received: {key.name}")
            inputs.append(ids)
        return cross_hashed(inputs, self.hash_bucket_size, self.hash_key)

    def get_sparse_tensors(self, transformation_cache: FeatureTransformationCache, state_manager: Any) -> IdWeightPair:
        return IdWeightPair(transformation_cache.get(self, state_manager), None)


def crossed_column(keys: Sequence[Any], hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """Return a column of combinations of the values of several features, by their hashes.

    See https://www.tensorflow.org/api_docs/python/tf/feature_column/crossed_column.

    Args:
        keys: Keys of features, texts or integers `[batch, n]`, and columns of categories.
        hash_bucket_size: How many numbers there are.
        hash_key: What the hashes begin with.

    Raises:
        ValueError: If there are fewer than two keys, one is neither a key nor a column of categories, or is a column of hashes; or if there
            are no numbers.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be at least 1. Received: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Received: {keys!r}")
    for key in keys:
        if not isinstance(key, str | CategoricalColumn):
            raise ValueError(f"Each key must be a string or a column of categories. Received: {key!r}")
        if isinstance(key, HashedCategoricalColumn):
            raise ValueError(
                f"categorical_column_with_hash_bucket is not supported for crossing: what is hashed twice collides more often. Use "
                f"the key {key.key!r} itself."
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)
