"""`tf.distribute`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_context": "ReplicaContext",
        "distribute._cross_device_ops": ("CrossDeviceOps HierarchicalCopyAllReduce NcclAllReduce ReductionToOneDevice"),
        "distribute._current": "get_replica_context get_strategy has_strategy in_cross_replica_context",
        "distribute._input": "DistributedDataset DistributedIterator InputContext",
        "distribute._strategy": "MirroredStrategy OneDeviceStrategy Strategy ReduceOp DistributedValues=PerReplica",
    },
)
__dir__ = __getattr__.names
