"""`tf.tpu.experimental`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {"tpu._system": "DeviceAssignment TPUSystemMetadata Topology initialize_tpu_system shutdown_tpu_system"},
)
__dir__ = __getattr__.names
