"""`tf.nest`: structures of lists, tuples and dictionaries.

See https://www.tensorflow.org/api_docs/python/tf/nest.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_tensors._nest": "assert_same_structure flatten is_nested map_structure pack_sequence_as",
    },
)
__dir__ = __getattr__.names
