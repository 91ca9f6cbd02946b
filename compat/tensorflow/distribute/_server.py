"""`tf.distribute.Server`: what a task of a cluster runs while the coordinator trains."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, final

from tfdist_jax._cluster import are_processes
from tfdist_jax._cluster._addresses import host_and_port
from tfdist_jax._servers import serve
from tfdist_jax.compat.tensorflow._platform._errors import InternalError
from tfdist_jax.compat.tensorflow.distribute._resolver_base import with_protocol
from tfdist_jax.compat.tensorflow.train._cluster_spec import ClusterSpec

_log = logging.getLogger("tfdist_jax")


@final
class Server:
    """Drop-in for `tf.distribute.Server`: a task "worker" or "ps" of a cluster of parameter servers.

    Where servers and workers are processes, as under `tfdist-jax launch --parameter-servers`, `join` makes this process the task. Elsewhere
    they are threads of the process that makes the strategy: a server listens nowhere then, and does nothing. Nothing starts before `join`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/Server
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        """Be a task of a cluster.

        Args:
            server_or_cluster_def: The cluster: a `tf.train.ClusterSpec`, or a dictionary from jobs to addresses.
            job_name: The task's job; the only one, if None.
            task_index: Its index; the only one, if None.
            protocol: "grpc" or another one, for `target`.
            config: Accepted.
            start: Accepted: a task starts by `join`.

        Raises:
            TypeError: If the cluster is none.
            InternalError: If there is no such task.
        """
        if not isinstance(server_or_cluster_def, ClusterSpec | Mapping):
            raise TypeError(
                "Invalid `server_or_cluster_def` passed to `tf.distribute.Server`: wanted a tf.train.ClusterSpec or a dictionary from jobs "
                f"to addresses, got {server_or_cluster_def!r}."
            )
        self._spec = ClusterSpec(server_or_cluster_def)
        self._job = _only("job_name", job_name, self._spec.jobs)
        self._index = _only("task_index", task_index, self._spec.task_indices(self._job))
        self._address, self._protocol = self._spec.task_address(self._job, self._index), protocol or "grpc"

    @property
    def target(self) -> str:
        """Where a session would connect to."""
        _, port = host_and_port(self._address)
        return with_protocol(f"localhost:{port}", self._protocol)

    def start(self) -> None:
        """Do nothing: a task starts by `join`."""

    def join(self) -> None:
        """Wait until the process is ended, as TensorFlow's servers do, and be the task meanwhile, if tasks are processes of their own.

        Raises:
            SystemExit: If a server has lost what it held.
        """
        jobs = self._spec.as_dict()
        if self._job in ("ps", "worker") and are_processes(jobs):
            serve(jobs, self._job, self._index)
        _log.warning(
            "The task %s %d waits: parameter servers and workers are threads of the process that makes the strategy, which does its work.",
            self._job,
            self._index,
        )
        threading.Event().wait()

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> "Server":
        """Return a server of a cluster of its own."""
        return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)


def _only(name: str, given: Any, there: list[Any]) -> Any:
    if given is None and len(there) == 1:
        return there[0]
    if given not in there:
        raise InternalError(
            None, None, f"`{name}` says which of the cluster's tasks it is, one of {there}, got {given!r}."
        )
    return given
