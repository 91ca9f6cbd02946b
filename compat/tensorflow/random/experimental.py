"""`tf.random.experimental`: older names, and a shuffle by seed.

See https://www.tensorflow.org/api_docs/python/tf/random/experimental.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "random._samplers": "stateless_fold_in=fold_in stateless_shuffle stateless_split=split",
        "random._generator": "Algorithm Generator create_rng_state get_global_generator set_global_generator",
    },
)
__dir__ = __getattr__.names
