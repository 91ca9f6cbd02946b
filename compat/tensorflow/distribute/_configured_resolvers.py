"""Cluster resolvers that are told where the processes are: by TF_CONFIG, by the program, by other resolvers."""

import json
import logging
from typing import Any, final

from tfdist_jax._cluster import Cluster, tf_config
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver, with_protocol
from tfdist_jax.compat.tensorflow.train._cluster_spec import ClusterSpec

_log = logging.getLogger("tfdist_jax")


def cluster_of(resolver: ClusterResolver) -> Cluster | None:
    """Return the cluster that a resolver describes, or None if it has no processes.

    Raises:
        ValueError: If the resolver does not say which process this is, or if something does not fit together.
    """
    jobs = resolver.cluster_spec().as_dict()
    source = type(resolver).__name__
    if not any(jobs.values()):
        return None
    if resolver.task_type is None or resolver.task_id is None:
        raise ValueError(f"{source} does not say which process this is: set its `task_type` and `task_id`.")
    sparse = [job for job, tasks in jobs.items() if not isinstance(tasks, list)]
    if sparse:
        raise ValueError(f"{source} leaves out tasks of the job '{sparse[0]}'; all addresses are needed.")
    return Cluster.of_jobs(jobs, resolver.task_type, resolver.task_id, source=source)


@final
class TFConfigClusterResolver(ClusterResolver):
    """Drop-in for `tf.distribute.cluster_resolver.TFConfigClusterResolver`: reads TF_CONFIG whenever it is asked.

    Differs from TensorFlow: under `tfdist-jax launch` what the launcher has set counts, whatever the program writes into
    TF_CONFIG.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        """Let arguments that are given count before TF_CONFIG."""
        super().__init__(task_type, task_id, rpc_layer)
        self.environment = environment  # type: ignore[assignment]

    @property
    def task_type(self) -> str | None:
        """The job of this process."""
        found = self._task_type if self._task_type is not None else _task().get("type")
        return None if found is None else str(found)

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job."""
        found = self._task_id if self._task_id is not None else _task().get("index")
        return None if found is None else int(found)

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol that addresses are given with; none if it is not known."""
        return self._rpc_layer if self._rpc_layer is not None else _config().get("rpc_layer")

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Return the addresses in TF_CONFIG; an empty ClusterSpec if there are none."""
        return ClusterSpec(_config().get("cluster", {}))

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of a task: of this one if none is named; empty if it is the only one."""
        if "session_master" in _config():
            return _config()["session_master"]
        spec = self.cluster_spec()
        if sum(spec.num_tasks(job) for job in spec.jobs) <= 1:
            return ""
        task_type = str(self.task_type) if task_type is None else task_type
        task_id = self.task_id or 0 if task_id is None else task_id
        return with_protocol(spec.task_address(task_type, task_id), rpc_layer or self.rpc_layer)


def _config() -> dict[str, Any]:
    return json.loads(tf_config())


def _task() -> dict[str, Any]:
    return _config().get("task", {})


@final
class SimpleClusterResolver(ClusterResolver):
    """Drop-in for `tf.distribute.cluster_resolver.SimpleClusterResolver`: says what it was told.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/SimpleClusterResolver
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: dict[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        """Take the addresses, and which process this is.

        Raises:
            TypeError: If `cluster_spec` is no ClusterSpec, or `master` no string.
        """
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(f"`cluster_spec` must be a tf.train.ClusterSpec, got {cluster_spec!r}.")
        if not isinstance(master, str):
            raise TypeError(f"`master` must be a string, got {master!r}.")
        super().__init__(task_type, task_id, rpc_layer)
        self.environment = environment
        self._spec, self._master, self._accelerators = cluster_spec, master, num_accelerators

    def cluster_spec(self) -> ClusterSpec:
        """Return the addresses that were given."""
        return self._spec

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of a task, or what was given as `master`."""
        is_named = None not in (task_type, task_id)
        address = self._spec.task_address(task_type, task_id) if is_named else self._master
        return with_protocol(address, rpc_layer or self.rpc_layer)

    def num_accelerators(self, task_type: Any = None, task_id: Any = None, config_proto: Any = None) -> dict[str, int]:
        """Return what was given."""
        return self._accelerators or {}


@final
class UnionResolver(ClusterResolver):
    """Drop-in for `tf.distribute.cluster_resolver.UnionResolver`: the processes of several resolvers.

    What is not an address comes from the first one.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/UnionResolver
    """

    def __init__(self, *args: ClusterResolver, **kwargs: Any) -> None:
        """Take the resolvers, and `task_type`, `task_id` or `rpc_layer` instead of the first one's.

        Raises:
            TypeError: If something else than a resolver is given.
            ValueError: If there is none, or another keyword.
        """
        self._own = {name: kwargs.pop(name, None) for name in ("task_type", "task_id", "rpc_layer")}
        if kwargs:
            raise ValueError(f"UnionResolver does not know the arguments {sorted(kwargs)}.")
        if not args:
            raise ValueError("At least one ClusterResolver is needed.")
        for resolver in args:
            if not isinstance(resolver, ClusterResolver):
                raise TypeError(f"All arguments must be ClusterResolvers, got {resolver!r}.")
        super().__init__(*self._own.values())
        self._resolvers = args
        self.environment = args[0].environment

    def _first(self, name: str) -> Any:
        return self._own[name] or getattr(self._resolvers[0], name)

    @property
    def task_type(self) -> str | None:
        """The job of this process."""
        return self._first("task_type")

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._own["task_type"] = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job."""
        return self._first("task_id")

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._own["task_id"] = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol that addresses are given with."""
        return self._first("rpc_layer")

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._own["rpc_layer"] = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Return the addresses of all resolvers: lists one after the other, dictionaries together.

        Raises:
            KeyError: If two resolvers give different tasks the same index.
        """
        specs = [resolver.cluster_spec().as_dict() for resolver in self._resolvers]
        jobs = dict.fromkeys(job for spec in specs for job in spec)
        return ClusterSpec({job: _union([spec[job] for spec in specs if job in spec]) for job in jobs})

    def master(self, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None) -> str:
        """Return the address of a task, or the first resolver's."""
        if task_type is None or task_id is None:
            return self._resolvers[0].master(rpc_layer=rpc_layer)
        return with_protocol(self.cluster_spec().task_address(task_type, task_id), rpc_layer or self._own["rpc_layer"])

    def num_accelerators(self, task_type: Any = None, task_id: Any = None, config_proto: Any = None) -> dict[str, int]:
        """Return the first resolver's number."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)


def _union(parts: list[Any]) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [task for part in parts for task in part]
    tasks: dict[int, str] = {}
    for part in parts:
        added = dict(enumerate(part)) if isinstance(part, list) else part
        twice = tasks.keys() & added.keys()
        if twice:
            raise KeyError(f"Several resolvers have tasks with the indices {sorted(twice)}.")
        tasks |= added
    return tasks


def tell_unused_servers(strategy: str) -> None:
    """Warn if TF_CONFIG has parameter servers, of which a strategy of one process makes no use. An evaluator needs none."""
    resolver = TFConfigClusterResolver()
    # A text that is of no use need not be, where it has nothing to do with servers.
    has_servers = '"ps"' in tf_config() and resolver.cluster_spec().as_dict().get("ps")
    if has_servers and resolver.task_type != "evaluator":
        _log.warning(
            "TF_CONFIG has parameter servers (the job 'ps'), but `%s` uses the devices of this process alone: each task that runs this "
            "program, as %s %s does, trains for itself. Make a `tf.distribute.ParameterServerStrategy` in the chief and call "
            "`tf.distribute.Server(...).join()` in the servers and workers, or leave TF_CONFIG out.",
            strategy,
            resolver.task_type,
            resolver.task_id,
        )
