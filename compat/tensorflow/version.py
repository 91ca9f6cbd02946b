"""`tf.version`: which TensorFlow this API follows.

See https://www.tensorflow.org/api_docs/python/tf/version.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_platform._version": (
            "COMPILER_VERSION GIT_VERSION GRAPH_DEF_VERSION GRAPH_DEF_VERSION_MIN_CONSUMER "
            "GRAPH_DEF_VERSION_MIN_PRODUCER VERSION"
        ),
    },
)
__dir__ = __getattr__.names
