"""`tf.lookup.experimental`: tables that change.

See https://www.tensorflow.org/api_docs/python/tf/lookup/experimental.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(__name__, {"lookup._mutable_tables": "DenseHashTable MutableHashTable"})
__dir__ = __getattr__.names
