"""`tensorflow.python.feature_column`: the classes of columns, which have no public names."""

from tfdist_jax.compat.tensorflow.feature_column._base import (
    CategoricalColumn as CategoricalColumn,
    DenseColumn as DenseColumn,
    FeatureColumn as FeatureColumn,
    FeatureTransformationCache as FeatureTransformationCache,
    SequenceDenseColumn as SequenceDenseColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._categories import (
    HashedCategoricalColumn as HashedCategoricalColumn,
    IdentityCategoricalColumn as IdentityCategoricalColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._crossed import CrossedColumn as CrossedColumn
from tfdist_jax.compat.tensorflow.feature_column._embedding import (
    EmbeddingColumn as EmbeddingColumn,
    IndicatorColumn as IndicatorColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._numeric import (
    BucketizedColumn as BucketizedColumn,
    NumericColumn as NumericColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._sequence_categories import (
    SequenceCategoricalColumn as SequenceCategoricalColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._sequence_numbers import SequenceNumericColumn as SequenceNumericColumn
from tfdist_jax.compat.tensorflow.feature_column._serialization import (
    deserialize_feature_column as deserialize_feature_column,
    deserialize_feature_columns as deserialize_feature_columns,
    serialize_feature_column as serialize_feature_column,
    serialize_feature_columns as serialize_feature_columns,
)
from tfdist_jax.compat.tensorflow.feature_column._vocabularies import (
    VocabularyFileCategoricalColumn as VocabularyFileCategoricalColumn,
    VocabularyListCategoricalColumn as VocabularyListCategoricalColumn,
)
from tfdist_jax.compat.tensorflow.feature_column._weighted import WeightedCategoricalColumn as WeightedCategoricalColumn
