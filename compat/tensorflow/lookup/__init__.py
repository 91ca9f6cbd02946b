"""`tf.lookup`: tables that are looked up on the host.

See https://www.tensorflow.org/api_docs/python/tf/lookup.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "lookup._initializers": "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
        "lookup._static_tables": "StaticHashTable StaticVocabularyTable",
    },
    modules="experimental",
)
__dir__ = __getattr__.names
