"""`tf.distribute.experimental`: older names, and options."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "distribute._options": (
            "CollectiveCommunication CollectiveHints CommunicationImplementation CommunicationOptions"
        ),
        "distribute._central_storage": "CentralStorageStrategy",
        "distribute._multi_worker": "MultiWorkerMirroredStrategy=ExperimentalMultiWorkerMirroredStrategy",
        "distribute._parameter_server": "ParameterServerStrategy",
        "distribute._pipeline": "PipelineStrategy",
        "distribute._preemption": "PreemptionCheckpointHandler TerminationConfig",
        "distribute._sharded": "FSDPStrategy ModelParallelStrategy",
        "distribute._strategy": "ValueContext",
        "distribute._tpu_strategy": "TPUStrategy=ExperimentalTPUStrategy",
    },
    modules="coordinator partitioners",
)
__dir__ = __getattr__.names
