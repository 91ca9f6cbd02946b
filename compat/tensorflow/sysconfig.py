"""`tf.sysconfig`: how TensorFlow would have been built.

See https://www.tensorflow.org/api_docs/python/tf/sysconfig.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_platform._version": "get_build_info",
    },
)
__dir__ = __getattr__.names
