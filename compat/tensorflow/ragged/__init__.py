"""`tf.ragged`: tensors whose rows have different lengths.

See https://www.tensorflow.org/api_docs/python/tf/ragged.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "ragged._broadcasting": "map_flat_values",
        "ragged._crossing": "cross cross_hashed",
        "ragged._joining": "stack",
        "ragged._making": "constant range=make_range row_splits_to_segment_ids segment_ids_to_row_splits",
        "ragged._selection": "boolean_mask stack_dynamic_partitions",
    },
)
__dir__ = __getattr__.names
