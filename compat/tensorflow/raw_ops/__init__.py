"""`tf.raw_ops`: of TensorFlow's own operations those that have no other public name.

See https://www.tensorflow.org/api_docs/python/tf/raw_ops.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "raw_ops._normalization": "FusedBatchNormV2 FusedBatchNormV3",
        "raw_ops._projective_transform": "ImageProjectiveTransformV2 ImageProjectiveTransformV3",
        "raw_ops._updates": "ResourceApplyKerasMomentum ResourceApplyProximalAdagrad",
    },
)
__dir__ = __getattr__.names
