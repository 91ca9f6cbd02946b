"""`tf.io`: files.

See https://www.tensorflow.org/api_docs/python/tf/io.
"""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_files": "matching_files read_file write_file",
    },
    modules="gfile",
)
__dir__ = __getattr__.names
