"""`tf.math.special`: functions of mathematical physics.

See https://www.tensorflow.org/api_docs/python/tf/math/special.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_ops._elementwise": ("bessel_i0 bessel_i0e bessel_i1 bessel_i1e dawsn expint fresnel_cos fresnel_sin spence"),
    },
)
__dir__ = __getattr__.names
