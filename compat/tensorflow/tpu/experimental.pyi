# Made by `make api` from the namespace's table of names.
from tfdist_jax.compat.tensorflow.tpu._system import (
    DeviceAssignment as DeviceAssignment,
    TPUSystemMetadata as TPUSystemMetadata,
    Topology as Topology,
    initialize_tpu_system as initialize_tpu_system,
    shutdown_tpu_system as shutdown_tpu_system,
)
