"""`tf.config.threading`: hints that are kept and change no result.

See https://www.tensorflow.org/api_docs/python/tf/config/threading.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "config._hints": (
            "get_inter_op_parallelism_threads get_intra_op_parallelism_threads set_inter_op_parallelism_threads "
            "set_intra_op_parallelism_threads"
        ),
    },
)
__dir__ = __getattr__.names
