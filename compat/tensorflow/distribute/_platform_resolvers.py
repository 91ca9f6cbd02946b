"""Cluster resolvers that ask a scheduler where the processes are: Slurm, Kubernetes, Google Compute Engine."""

import enum
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, final

from tfdist_jax import _nvidia
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver, with_protocol
from tfdist_jax.compat.tensorflow.train._cluster_spec import ClusterSpec


class _PlatformResolver(ClusterResolver):
    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of a task, of this one if none is named; empty if it is not known."""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            return ""
        return with_protocol(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self.rpc_layer)


@final
class SlurmClusterResolver(_PlatformResolver):
    """Drop-in for `tf.distribute.cluster_resolver.SlurmClusterResolver`: the tasks of the Slurm step.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/SlurmClusterResolver
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: Any = None,
        auto_set_gpu: bool = True,
        rpc_layer: str = "grpc",
    ) -> None:
        """Read what is not given from the environment that `srun` makes.

        Raises:
            RuntimeError: Outside of Slurm, or if there are fewer GPUs or tasks than asked for.
            ValueError: If Slurm's variables cannot be understood.
        """
        super().__init__(rpc_layer=rpc_layer)
        self._rank = int(_slurm("PROCID"))
        self._jobs = dict(jobs) if jobs is not None else {"worker": int(_slurm("STEP_NUM_TASKS"))}
        self._port_base = port_base
        self._tasks = _tasks_by_host(tasks_per_node)
        most = max(self._tasks.values())
        self._gpus = len(_nvidia.gpus()) if gpus_per_node is None else gpus_per_node
        self._gpus_per_task = self._gpus // most if gpus_per_task is None else gpus_per_task
        self._auto_set_gpu = auto_set_gpu
        if most * self._gpus_per_task > self._gpus:
            raise RuntimeError(
                f"{most} tasks on a node with {self._gpus_per_task} GPU(s) each are more GPUs than the {self._gpus} there are."
            )
        wanted, given = sum(self._jobs.values()), sum(self._tasks.values())
        if wanted != given:
            raise RuntimeError(f"{wanted} tasks were asked for, but Slurm gives {given}.")

    def cluster_spec(self) -> ClusterSpec:
        """Return the addresses; also sets the task of this process and the GPUs that it sees."""
        places = [(host, i) for host, count in sorted(self._tasks.items()) for i in range(count)]
        addresses = [f"{host}:{self._port_base + i}" for host, i in places]
        if self._auto_set_gpu and self._gpus_per_task:
            first = places[self._rank][1] * self._gpus_per_task
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(first + i) for i in range(self._gpus_per_task))
        spec, start = {}, 0
        for job, count in sorted(self._jobs.items()):
            spec[job] = addresses[start : start + count]
            if start <= self._rank < start + count:
                self.task_type, self.task_id = job, self._rank - start
            start += count
        return ClusterSpec(spec)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Return the job and the index of this process; None before `cluster_spec()`."""
        return self.task_type, self.task_id

    def num_accelerators(self, task_type: Any = None, task_id: Any = None, config_proto: Any = None) -> dict[str, int]:
        """Return how many GPUs each task has."""
        return {"GPU": self._gpus_per_task}


def _slurm(name: str) -> str:
    if f"SLURM_{name}" not in os.environ:
        raise RuntimeError(f"SLURM_{name} is not set. Start the program by `srun`.")
    return os.environ[f"SLURM_{name}"]


def _tasks_by_host(tasks_per_node: Any) -> dict[str, int]:
    if isinstance(tasks_per_node, dict):
        return tasks_per_node
    hosts = list(_hosts(_slurm("STEP_NODELIST")))
    if tasks_per_node is not None:
        return dict.fromkeys(hosts, int(tasks_per_node))
    return dict(zip(hosts, _counts(_slurm("STEP_TASKS_PER_NODE")), strict=True))


def _hosts(text: str) -> Iterator[str]:
    """Return the hosts in Slurm's short form, such as "n[1-2],m5,o[03,06-09]"."""
    parts = re.findall(r"([^,\[\]]+)(?:\[([^\[\]]+)\])?(?:,|$)", text)
    if ",".join(f"{prefix}[{ranges}]" if ranges else prefix for prefix, ranges in parts) != text:
        raise ValueError(f"{text!r} is no list of hosts as Slurm writes it.")
    for prefix, ranges in parts:
        if not ranges:
            yield prefix
        for numbers in filter(None, ranges.split(",")):
            first, _, last = numbers.partition("-")
            if not first.isdigit() or not (last or first).isdigit():
                raise ValueError(f"{text!r} is no list of hosts as Slurm writes it.")
            yield from (f"{prefix}{i:0{len(first)}d}" for i in range(int(first), int(last or first) + 1))


def _counts(text: str) -> Iterator[int]:
    """Return the numbers in Slurm's short form, such as "3(x2),2,1"."""
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not found:
            raise ValueError(f"{text!r} is no list of numbers of tasks as Slurm writes it.")
        yield from [int(found[1])] * int(found[2] or 1)


class KubernetesExecutableLocation(enum.Enum):
    """Where the program runs that asks Kubernetes."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


@final
class KubernetesClusterResolver(_PlatformResolver):
    """Drop-in for `tf.distribute.cluster_resolver.KubernetesClusterResolver`: the pods with certain labels.

    It does not know which pod this is: set `task_type` and `task_id`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/KubernetesClusterResolver
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, list[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = KubernetesExecutableLocation.WITHIN_CLUSTER,
    ) -> None:
        """Connect to Kubernetes, unless a client is given.

        Raises:
            ImportError: If there is neither a client nor the package `kubernetes`.
            ValueError: If `executable_location` is not one of the two.
        """
        super().__init__(rpc_layer=rpc_layer)
        self._selectors = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port = tf_server_port
        self._client = override_client or _kubernetes_client(executable_location)

    def cluster_spec(self) -> ClusterSpec:
        """Ask for the addresses of the pods.

        Raises:
            RuntimeError: If one of them does not run.
        """
        return ClusterSpec({job: list(self._addresses(labels)) for job, labels in self._selectors.items()})

    def _addresses(self, labels: list[str]) -> Iterator[str]:
        for label in labels:
            pods = self._client.list_pod_for_all_namespaces(label_selector=label).items
            for pod in sorted(pods, key=lambda pod: pod.metadata.name):
                if pod.status.phase != "Running":
                    raise RuntimeError(f'Pod "{pod.metadata.name}" does not run: its phase is "{pod.status.phase}".')
                yield f"{pod.status.host_ip}:{self._port}"


def _kubernetes_client(location: Any) -> Any:
    try:
        config = importlib.import_module("kubernetes.config")
        client = importlib.import_module("kubernetes.client")
    except ImportError as error:
        raise ImportError(
            "KubernetesClusterResolver asks Kubernetes by its Python client, which is not installed: `pip install "
            "kubernetes`. A Job with `tfdist-jax launch --hosts` needs no client: see examples/cluster."
        ) from error
    if not isinstance(location, KubernetesExecutableLocation):
        raise ValueError(f"`executable_location` must be a KubernetesExecutableLocation, got {location!r}.")
    is_inside = location is KubernetesExecutableLocation.WITHIN_CLUSTER
    (config.load_incluster_config if is_inside else config.load_kube_config)()
    return client.CoreV1Api()


@final
class GCEClusterResolver(_PlatformResolver):
    """Drop-in for `tf.distribute.cluster_resolver.GCEClusterResolver`: the machines of an instance group.

    It does not know which machine this is: give `task_id`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/GCEClusterResolver
    """

    def __init__(
        self,
        project: str,
        zone: str,
        instance_group: str,
        port: int,
        task_type: str = "worker",
        task_id: int = 0,
        rpc_layer: str = "grpc",
        credentials: Any = "default",
        service: Any = None,
    ) -> None:
        """Connect to Compute Engine, unless a service is given.

        Raises:
            ImportError: If there is neither a service nor the package `google-api-python-client`.
        """
        super().__init__(task_type, task_id, rpc_layer)
        self._group = {"project": project, "zone": zone, "instanceGroup": instance_group}
        self._port = port
        self._service = service or _gce_service(credentials)

    @property
    def task_type(self) -> str | None:
        """The job of the group's machines, which stays as it was given."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        raise RuntimeError("The task_type of a GCEClusterResolver cannot be changed.")

    def cluster_spec(self) -> ClusterSpec:
        """Ask for the addresses of the machines that run."""
        return ClusterSpec({str(self.task_type): sorted(self._addresses())})

    def _addresses(self) -> Iterator[str]:
        groups, machines = self._service.instanceGroups(), self._service.instances()
        request = groups.listInstances(**self._group, body={"instanceState": "RUNNING"}, orderBy="name")
        where = {name: self._group[name] for name in ("project", "zone")}
        while request is not None:
            response = request.execute()
            for item in response.get("items", ()):
                machine = machines.get(**where, instance=item["instance"].rpartition("/")[2]).execute()
                yield f"{machine['networkInterfaces'][0]['networkIP']}:{self._port}"
            request = groups.listInstances_next(previous_request=request, previous_response=response)


def _gce_service(credentials: Any) -> Any:
    try:
        discovery = importlib.import_module("googleapiclient.discovery")
    except ImportError as error:
        raise ImportError(
            "GCEClusterResolver asks Compute Engine by Google's API client, which is not installed: `pip install "
            "google-api-python-client`. Without it, name the machines: `tfdist-jax launch --hosts a,b --index 0 script.py`."
        ) from error
    return discovery.build("compute", "v1", **({} if credentials == "default" else {"credentials": credentials}))
