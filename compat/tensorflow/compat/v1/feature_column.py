"""`tf.compat.v1.feature_column`: columns, by the names that they have in TensorFlow 2 too."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "feature_column._numeric": "bucketized_column numeric_column",
        "feature_column._categories": "categorical_column_with_hash_bucket categorical_column_with_identity",
        "feature_column._vocabularies": (
            "categorical_column_with_vocabulary_file=categorical_column_with_vocabulary_file_v1 "
            "categorical_column_with_vocabulary_list"
        ),
        "feature_column._weighted": "weighted_categorical_column",
        "feature_column._crossed": "crossed_column",
        "feature_column._embedding": "embedding_column indicator_column",
        "feature_column._sequence_categories": (
            "sequence_categorical_column_with_hash_bucket sequence_categorical_column_with_identity "
            "sequence_categorical_column_with_vocabulary_file sequence_categorical_column_with_vocabulary_list"
        ),
        "feature_column._sequence_numbers": "sequence_numeric_column",
        "feature_column._parsing": "make_parse_example_spec",
    },
)
__dir__ = __getattr__.names
