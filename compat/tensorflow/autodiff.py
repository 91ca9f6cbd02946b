"""`tf.autodiff`: derivatives.

See https://www.tensorflow.org/api_docs/python/tf/autodiff.
"""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_forward_mode": "ForwardAccumulator",
        "_gradient_tape": "GradientTape",
    },
)
__dir__ = __getattr__.names
