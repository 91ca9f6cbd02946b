# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.distribute._partitioners import (
    FixedShardsPartitioner as FixedShardsPartitioner,
    MaxSizePartitioner as MaxSizePartitioner,
    MinSizePartitioner as MinSizePartitioner,
    Partitioner as Partitioner,
)
