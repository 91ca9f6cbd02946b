"""Starting TPUs: JAX does it itself; these functions tell what there is."""

import dataclasses
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._tpu import tpu_devices


@final
@dataclasses.dataclass(frozen=True)
class Topology:
    """Where the cores of a TPU are.

    Ref: https://www.tensorflow.org/api_docs/python/tf/tpu/experimental/Topology

    Attributes:
        device_coordinates: `[tasks, cores of a task, 4]` int32: x, y, z and core.
    """

    device_coordinates: np.ndarray

    @property
    def num_tasks(self) -> int:
        """Number of processes."""
        return self.device_coordinates.shape[0]

    @property
    def num_tpus_per_task(self) -> int:
        """Number of cores of each process."""
        return self.device_coordinates.shape[1]

    @property
    def mesh_shape(self) -> np.ndarray:
        """The number of different coordinates along each axis."""
        return self.device_coordinates.reshape(-1, 4).max(0) + 1

    @property
    def mesh_rank(self) -> int:
        """Number of axes."""
        return 4


@final
@dataclasses.dataclass(frozen=True)
class DeviceAssignment:
    """Which cores make up which replica: one each.

    Ref: https://www.tensorflow.org/api_docs/python/tf/tpu/experimental/DeviceAssignment
    """

    topology: Topology
    num_replicas: int
    num_cores_per_replica: int = 1

    @staticmethod
    def build(
        topology: Topology, computation_shape: Any = None, computation_stride: Any = None, num_replicas: int = 1
    ) -> "DeviceAssignment":
        """Assign one core to each of `num_replicas` replicas.

        Raises:
            NotImplementedError: If a replica is to have several cores.
            ValueError: If there are fewer cores than replicas.
        """
        if computation_shape is not None and int(np.prod(computation_shape)) != 1:
            raise NotImplementedError(
                "A replica of several TPU cores is not supported: use tfdist_jax's FSDP, or one core for each replica."
            )
        cores = topology.num_tasks * topology.num_tpus_per_task
        if num_replicas > cores:
            raise ValueError(f"There are {cores} TPU cores, too few for {num_replicas} replicas.")
        return DeviceAssignment(topology, num_replicas)


@final
@dataclasses.dataclass(frozen=True)
class TPUSystemMetadata:
    """How many cores and hosts there are."""

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: Topology
    devices: tuple[str, ...]


def initialize_tpu_system(cluster_resolver: Any = None) -> Topology:
    """Find the TPU's cores.

    Raises:
        NotFoundError: If there is no TPU.
    """
    devices = tpu_devices()
    emulated = [(i, 0, 0, 0) for i in range(len(devices))]
    places = [
        (*_coordinates(d, place[:3]), getattr(d, "core_on_chip", 0)) for d, place in zip(devices, emulated, strict=True)
    ]
    return Topology(np.asarray([places], np.int32))


def _coordinates(device: Any, otherwise: Any) -> Any:
    return tuple(getattr(device, "coords", otherwise))


def shutdown_tpu_system(cluster_resolver: Any = None) -> None:
    """Do nothing: JAX gives the TPU back when the process ends."""
