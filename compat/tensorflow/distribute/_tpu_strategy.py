"""`tf.distribute.TPUStrategy`."""

from typing import Any, final

import jax

import tfdist_jax
from tfdist_jax.compat.tensorflow._platform._tpu import tpu_devices
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


class _OnTPU(Strategy):
    def __init__(self, tpu_cluster_resolver: Any, device_assignment: Any) -> None:
        devices = tpu_devices()
        if jax.process_count() > 1:
            raise NotImplementedError(
                f"TPUStrategy uses the TPU of one machine, but this program runs as {jax.process_count()} processes. For a "
                "slice of several hosts use tf.distribute.MultiWorkerMirroredStrategy(), which needs no TF_CONFIG there."
            )
        if device_assignment is not None:
            devices = devices[: device_assignment.num_replicas]
        super().__init__(tfdist_jax.Mirrored(tuple(devices)), kind="TPU")
        self._resolver = tpu_cluster_resolver

    @property
    def cluster_resolver(self) -> Any:
        """The resolver that was given."""
        return self._resolver


@final
class TPUStrategy(_OnTPU):
    """Drop-in for `tf.distribute.TPUStrategy`: a replica on each TPU core.

    Without a TPU, `tfdist-jax run --emulate-tpu N` lets N CPU devices stand for its cores.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/TPUStrategy
    """

    def __init__(
        self,
        tpu_cluster_resolver: Any = None,
        experimental_device_assignment: Any = None,
        experimental_spmd_xla_partitioning: bool = False,
    ) -> None:
        """Use the cores of this machine's TPU, or as many as `experimental_device_assignment` has replicas.

        Raises:
            NotFoundError: If there is no TPU.
            NotImplementedError: If this process is one of several: each would train alone.
        """
        super().__init__(tpu_cluster_resolver, experimental_device_assignment)

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Return the tensor; a replica has one core, number 0."""
        if logical_device_id:
            raise ValueError(f"`logical_core_id` to assign must be lower then 1, got {logical_device_id}.")
        return tensor

    def experimental_split_to_logical_devices(self, tensor: Any, partition_dimensions: Any) -> Any:
        """Return the tensor; a replica has one core, so every number of parts must be 1."""
        if any(int(parts) != 1 for parts in partition_dimensions):
            raise ValueError(
                "Must partition exactly into the number of logical devices, 1. To split a model over devices use "
                "tfdist_jax's FSDP."
            )
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Return the tensor."""
        return tensor


@final
class ExperimentalTPUStrategy(_OnTPU):
    """Drop-in for `tf.distribute.experimental.TPUStrategy`, the name before TensorFlow 2.3; a class of its own there too.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/TPUStrategy
    """

    def __init__(self, tpu_cluster_resolver: Any = None, device_assignment: Any = None) -> None:
        """Do as `TPUStrategy`."""
        super().__init__(tpu_cluster_resolver, device_assignment)


ExperimentalTPUStrategy.__name__ = TPUStrategy.__name__
