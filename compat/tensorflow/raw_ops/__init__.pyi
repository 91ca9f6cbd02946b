# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.raw_ops._normalization import (
    FusedBatchNormV2 as FusedBatchNormV2,
    FusedBatchNormV3 as FusedBatchNormV3,
)
from tfdist_jax.compat.tensorflow.raw_ops._projective_transform import (
    ImageProjectiveTransformV2 as ImageProjectiveTransformV2,
    ImageProjectiveTransformV3 as ImageProjectiveTransformV3,
)
from tfdist_jax.compat.tensorflow.raw_ops._updates import (
    ResourceApplyKerasMomentum as ResourceApplyKerasMomentum,
    ResourceApplyProximalAdagrad as ResourceApplyProximalAdagrad,
)
