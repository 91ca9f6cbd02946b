"""`tf.config.optimizer`: hints that are kept and change no result.

See https://www.tensorflow.org/api_docs/python/tf/config/optimizer.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "config._hints": ("get_experimental_options get_jit set_experimental_options set_jit"),
    },
)
__dir__ = __getattr__.names
