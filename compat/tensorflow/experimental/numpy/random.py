"""`tf.experimental.numpy.random`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "experimental.numpy._random": "poisson rand randint randn random seed standard_normal uniform",
    },
)
__dir__ = __getattr__.names
