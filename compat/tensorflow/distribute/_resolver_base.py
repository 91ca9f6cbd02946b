"""`tf.distribute.cluster_resolver`: where the devices are."""

from collections import Counter
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._platform._devices import device_type
from tfdist_jax.compat.tensorflow._platform._tpu import tpu_devices
from tfdist_jax.compat.tensorflow.tpu._system import TPUSystemMetadata, initialize_tpu_system
from tfdist_jax.compat.tensorflow.train._cluster_spec import ClusterSpec


class ClusterResolver:
    """Base of what finds the processes of a program.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/ClusterResolver
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    environment: str = ""

    def __init__(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> None:
        """Note which process this is, where that is known, and the protocol that addresses are given with."""
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer

    @property
    def task_type(self) -> str | None:
        """The job of this process; None if it is not known."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job; None if it is not known."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol that addresses are given with."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> Any:
        """Return the addresses of all processes."""
        raise NotImplementedError(f"{type(self).__name__} does not say where the processes are.")

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of a process: of this one if none is named."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to connect to.")

    def num_accelerators(self, task_type: Any = None, task_id: Any = None, config_proto: Any = None) -> dict[str, int]:
        """Return the number of accelerators of a process by type: of this one, whichever is named. Starts JAX."""
        return dict(Counter(device_type(device) for device in jax.local_devices() if device.platform != "cpu"))


# Nobody connects to it: the program has the TPU itself.
_TPU_ADDRESS = "localhost:8470"


def with_protocol(address: str, rpc_layer: str | None) -> str:
    """Return an address as a URL, where there is a protocol."""
    return f"{rpc_layer}://{address}" if rpc_layer else address


@final
class TPUClusterResolver(ClusterResolver):
    """Drop-in for `tf.distribute.cluster_resolver.TPUClusterResolver`: the TPU of this machine.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TPUClusterResolver
    """

    def __init__(
        self,
        tpu: str | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: Any = "default",
        service: Any = None,
        discovery_url: str | None = None,
    ) -> None:
        """Find the TPU of this machine; `tpu=""`, `"local"` and None mean that one, a name is that of this slice.

        Raises:
            NotFoundError: If there is no TPU; it is a ValueError, too.
        """
        super().__init__(job_name, 0)
        self._tpu = tpu
        self._devices = tpu_devices()

    @classmethod
    def connect(
        cls, tpu: str | None = None, zone: str | None = None, project: str | None = None
    ) -> "TPUClusterResolver":
        """Find the TPU and start it."""
        resolver = cls(tpu, zone, project)
        initialize_tpu_system(resolver)
        return resolver

    @property
    def tpu(self) -> str:
        """The name that was given."""
        return self._tpu or ""

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of the process to connect to: this one."""
        return ""

    def cluster_spec(self) -> ClusterSpec:
        """Return the addresses of the processes that have the TPU's cores: this one's, where TPU hosts listen."""
        return ClusterSpec({str(self.task_type): [_TPU_ADDRESS]})

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Return how many cores there are."""
        names = tuple(f"/device:TPU:{i}" for i in range(len(self._devices)))
        return TPUSystemMetadata(len(names), 1, len(names), initialize_tpu_system(self), names)

    def num_accelerators(self, task_type: Any = None, task_id: Any = None, config_proto: Any = None) -> dict[str, int]:
        """Return the number of cores."""
        return {"TPU": len(self._devices)}


def experimental_connect_to_cluster(
    cluster_spec_or_resolver: Any,
    job_name: str = "localhost",
    task_index: int = 0,
    protocol: Any = None,
    make_master_device_default: bool = True,
    cluster_device_filters: Any = None,
) -> None:
    """Do nothing for the TPU of this machine: JAX has it already.

    Raises:
        NotImplementedError: For other clusters.
    """
    if not isinstance(cluster_spec_or_resolver, TPUClusterResolver):
        raise NotImplementedError(
            "tf.config.experimental_connect_to_cluster is for TPUs. The processes of other clusters start by themselves, "
            "each with its TF_CONFIG."
        )


def experimental_connect_to_host(remote_host: Any = None, job_name: str = "worker") -> None:
    """Refuse: programs run where they are started.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "tf.config.experimental_connect_to_host is not supported: start the program on that machine instead."
    )
