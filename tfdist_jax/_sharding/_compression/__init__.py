"""Forms in which gradients travel between replicas, with fewer bytes than they have."""

from tfdist_jax._sharding._compression._bfloat16 import BFloat16 as BFloat16
from tfdist_jax._sharding._compression._int8 import Int8 as Int8
from tfdist_jax._sharding._compression._method import (
    MIN_SIZE as MIN_SIZE,
    RESIDUAL as RESIDUAL,
    Compression as Compression,
    Memory as Memory,
    are_finite as are_finite,
    init_replica_memory as init_replica_memory,
    is_compressed as is_compressed,
    keep_if as keep_if,
    sum_compressed as sum_compressed,
)
from tfdist_jax._sharding._compression._power_sgd import PowerSGD as PowerSGD
from tfdist_jax._sharding._compression._top_k import TopK as TopK
