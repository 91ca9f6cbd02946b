"""`tf.bitwise`: bits of integers.

See https://www.tensorflow.org/api_docs/python/tf/bitwise.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_ops._binary": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift",
    },
)
__dir__ = __getattr__.names
