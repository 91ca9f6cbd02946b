"""`tf.distribute`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "distribute._replica_context": "ReplicaContext",
        "distribute._cross_device_ops": ("CrossDeviceOps HierarchicalCopyAllReduce NcclAllReduce ReductionToOneDevice"),
        "distribute._current": "experimental_set_strategy get_replica_context get_strategy has_strategy in_cross_replica_context",
        "distribute._input": "DistributedDataset InputContext",
        "distribute._iterator": "DistributedIterator",
        "distribute._extended": "StrategyExtended",
        "distribute._options": "InputOptions InputReplicationMode RunOptions",
        "distribute._multi_worker": "MultiWorkerMirroredStrategy",
        "distribute._parameter_server": "ParameterServerStrategy",
        "distribute._server": "Server",
        "distribute._tpu_strategy": "TPUStrategy",
        "distribute._strategy": "MirroredStrategy OneDeviceStrategy Strategy ReduceOp DistributedValues=PerReplica",
    },
    modules="cluster_resolver coordinator experimental",
)
__dir__ = __getattr__.names
