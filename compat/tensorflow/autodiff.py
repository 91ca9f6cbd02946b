"""`tf.autodiff`: derivatives.

See https://www.tensorflow.org/api_docs/python/tf/autodiff.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_gradients._forward_mode": "ForwardAccumulator",
        "_gradients._gradient_tape": "GradientTape",
    },
)
__dir__ = __getattr__.names
