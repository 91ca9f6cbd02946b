# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.feature_column._categories import (
    categorical_column_with_hash_bucket as categorical_column_with_hash_bucket,
    categorical_column_with_identity as categorical_column_with_identity,
)
from tfdist_jax.compat.tensorflow.feature_column._crossed import (
    crossed_column as crossed_column,
)
from tfdist_jax.compat.tensorflow.feature_column._embedding import (
    embedding_column as embedding_column,
    indicator_column as indicator_column,
)
from tfdist_jax.compat.tensorflow.feature_column._numeric import (
    bucketized_column as bucketized_column,
    numeric_column as numeric_column,
)
from tfdist_jax.compat.tensorflow.feature_column._parsing import (
    make_parse_example_spec as make_parse_example_spec,
)
from tfdist_jax.compat.tensorflow.feature_column._sequence_categories import (
    sequence_categorical_column_with_hash_bucket as sequence_categorical_column_with_hash_bucket,
    sequence_categorical_column_with_identity as sequence_categorical_column_with_identity,
    sequence_categorical_column_with_vocabulary_file as sequence_categorical_column_with_vocabulary_file,
    sequence_categorical_column_with_vocabulary_list as sequence_categorical_column_with_vocabulary_list,
)
from tfdist_jax.compat.tensorflow.feature_column._sequence_numbers import (
    sequence_numeric_column as sequence_numeric_column,
)
from tfdist_jax.compat.tensorflow.feature_column._vocabularies import (
    categorical_column_with_vocabulary_file_v1 as _categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list as categorical_column_with_vocabulary_list,
)
from tfdist_jax.compat.tensorflow.feature_column._weighted import (
    weighted_categorical_column as weighted_categorical_column,
)
categorical_column_with_vocabulary_file = _categorical_column_with_vocabulary_file
