"""`tf.train`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "io._messages": "BytesList Example Feature FeatureList FeatureLists Features FloatList Int64List SequenceExample",
        "train._checkpoint": "Checkpoint",
        "train._options": "CheckpointOptions",
        "train._checkpoint_view": "CheckpointView",
        "train._new_checkpoints": "checkpoints_iterator",
        "train._cluster_spec": "ClusterSpec",
        "train._manager": "CheckpointManager",
        "train._state_file": "get_checkpoint_state latest_checkpoint",
        "train._reader": "list_variables load_checkpoint load_variable",
        "train._moving_average": "ExponentialMovingAverage",
    },
    modules="experimental",
)
__dir__ = __getattr__.names
