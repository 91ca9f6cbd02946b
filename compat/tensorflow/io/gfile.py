"""`tf.io.gfile`: files by path.

See https://www.tensorflow.org/api_docs/python/tf/io/gfile.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "io._gfile": (
            "GFile copy exists get_registered_schemes glob isdir join listdir makedirs mkdir remove rename rmtree "
            "stat walk"
        ),
    },
)
__dir__ = __getattr__.names
