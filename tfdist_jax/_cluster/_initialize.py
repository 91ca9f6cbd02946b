"""Connects the processes of a program, and lets them part."""

import atexit
import contextlib
import dataclasses
import math
import os
import sys
import time
from typing import Any, Self, final

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax import _internals
from tfdist_jax._cluster._addresses import address_to_bind, connection_to, find_own_address
from tfdist_jax._cluster._agreement import introduce
from tfdist_jax._cluster._detect import detect_cluster
from tfdist_jax._cluster._peer_monitor import LEAVING, PeerMonitor
from tfdist_jax._cluster._rendezvous import rendezvous
from tfdist_jax._cluster._spec import Cluster
from tfdist_jax._cluster._tls import TLS
from tfdist_jax._cluster._waiting import limit_waits
from tfdist_jax._cluster._watch import Watch


@final
@dataclasses.dataclass(frozen=True)
class Timeouts:
    """How long processes wait for each other, in seconds. `warn_s` and `wait_s` may be infinite.

    Attributes:
        start_s: For all of them to arrive.
        heartbeat_s: For a sign of life of another process before it counts as dead.
        end_s: What the first process waits at its end for others to end too.
        warn_s: For others inside the program, until a warning says for whom and where.
        wait_s: For others inside the program, until all processes end, with exit code 75. No limit unless it is set; choose
            it longer than the longest step, and than what one process does alone. Compiling does not count.

    Example:
        >>> import tfdist_jax as td
        >>> td.initialize(timeouts=td.Timeouts(start_s=600, wait_s=120))  # No others here, nothing to wait for.
    """

    start_s: float = 300
    heartbeat_s: float = 30
    end_s: float = 300
    warn_s: float = 10
    wait_s: float = math.inf

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in dataclasses.asdict(self).items():
            if not value > 0:
                raise ValueError(f"`{name}` must be positive, got {value}.")
            if math.isinf(value) and name not in ("warn_s", "wait_s"):
                raise ValueError(f"`{name}` must have an end, got {value}.")

    @classmethod
    def of_environment(cls) -> Self:
        """Return the defaults, or what TFDIST_START_TIMEOUT_S and its like say.

        Raises:
            ValueError: If a variable holds no positive number.
        """
        found: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            variable = f"TFDIST_{field.name.removesuffix('_s').upper()}_TIMEOUT_S"
            if text := os.environ.get(variable):
                try:
                    found[field.name] = float(text)
                except ValueError as error:
                    raise ValueError(f"{variable} must hold a number of seconds, got {text!r}.") from error
        return cls(**found)


def initialize(
    cluster: Cluster | None = None,
    *,
    bind_address: str | None = None,
    timeouts: Timeouts | None = None,
    tls: TLS | None = None,
) -> Cluster | None:
    """Connect the processes of this program, so that `jax.devices()` are those of all of them.

    Call it before anything that starts JAX. A second call does nothing. Without a cluster, or with one of a single
    process, there is nothing to connect: the same program runs alone. An evaluator stays alone, too.

    Args:
        cluster: The processes. If None, what `tfdist-jax launch`, TF_CONFIG, Slurm, Open MPI, Kubernetes or Cloud TPU have
            set; `td.Cluster.of_processes("host:port", num_processes, process_id)` says it explicitly.
        bind_address: "host:port" at which process 0 listens, if not the address at which the others find it.
        timeouts: How long to wait for each other. If None, the defaults, or what the environment variables
            TFDIST_START_TIMEOUT_S, TFDIST_HEARTBEAT_TIMEOUT_S, TFDIST_END_TIMEOUT_S, TFDIST_WARN_TIMEOUT_S and
            TFDIST_WAIT_TIMEOUT_S say.
        tls: Certificates, to encrypt what is said to process 0.

    Returns:
        The cluster, or None if there is none.

    Raises:
        ValueError: If TF_CONFIG is of no use.
        MissingTasksError: If processes have not arrived in time; it names them.
        RuntimeError: If JAX has already started, if the processes do not fit together, or are connected in another way.
        NotImplementedError: If the cluster has parameter servers.

    Example:
        >>> import tfdist_jax as td
        >>> td.initialize() is None  # No cluster here.
        True
    """
    timeouts = timeouts or Timeouts.of_environment()
    cluster = cluster or detect_cluster(timeouts.start_s)
    if cluster is None or not _has_to_connect(cluster):
        return cluster
    deadline = time.monotonic() + timeouts.start_s
    bind_address = bind_address or _own_address(cluster, deadline) if _is_first(cluster) else ""
    connections = rendezvous(cluster, timeout_s=timeouts.start_s, bind_address=bind_address, tls=tls)
    limit_waits(timeouts.wait_s, "`wait_s`, or TFDIST_WAIT_TIMEOUT_S")
    monitor = PeerMonitor(cluster, connections, Watch(cluster, connections, timeouts.warn_s))
    atexit.register(_disconnect, monitor, timeouts.end_s)
    _connect(cluster, bind_address, deadline, timeouts, tls)
    introduce(str(cluster.task))
    return cluster


def _is_first(cluster: Cluster) -> bool:
    return cluster.process_id == 0


def _own_address(cluster: Cluster, deadline: float) -> str:
    """Return the address of process 0 in numbers; a scheduler may need a while until it is known under its name."""
    others = [task.address for task in cluster.training[1:] if task.address]
    while True:
        try:
            return address_to_bind(cluster.coordinator, others)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def find_address_of_collectives(cluster: Cluster) -> str | None:
    """Return the address at which the others reach this process; None if only Gloo may find one."""
    others = [task.address for task in cluster.training if task != cluster.task and task.address]
    return find_own_address(cluster.task.address, (others or [cluster.coordinator])[0])


def _has_to_connect(cluster: Cluster) -> bool:
    """Tell whether this process is one of several that are not connected yet."""
    if cluster.count("ps"):
        raise NotImplementedError(
            f"{cluster.source} has parameter servers (the job 'ps'), which do not train in step. For processes that do, take "
            "the 'ps' out and use workers only."
        )
    if cluster.num_processes == 1:
        return False
    wanted = (cluster.num_processes, cluster.process_id)
    if joined := _internals.joined_processes():
        if joined[1:] != wanted:
            raise RuntimeError(
                f"{cluster.source} makes this process {wanted[1]} of {wanted[0]}, but it has joined others as {joined[2]} "
                f"of {joined[1]} already."
            )
        return False
    if _internals.backends_are_initialized():
        raise RuntimeError(
            f"JAX has already started, alone, so that {cluster.task} cannot be connected to {cluster.num_processes - 1} "
            "other(s) any more. Create the strategy, or call `tfdist_jax.initialize()`, before the first tensor or variable "
            "and before asking for devices; set TF_CONFIG before that."
        )
    return True


def _connect(cluster: Cluster, bind_address: str, deadline: float, timeouts: Timeouts, tls: TLS | None) -> None:
    # JAX would take SIGTERM for itself, and the process would not end.
    jax.config.update("jax_enable_preemption_service", False)
    if not _is_first(cluster):
        _wait_for_jax(cluster.coordinator, deadline)
    if (own := find_address_of_collectives(cluster)) is not None:
        _internals.listen_for_collectives_on(own)
    options: dict[str, Any] = tls.jax_options() if tls else {}
    jax.distributed.initialize(
        coordinator_address=cluster.coordinator,
        num_processes=cluster.num_processes,
        process_id=cluster.process_id,
        local_device_ids=cluster.local_device_ids,
        cluster_detection_method="deactivate",
        coordinator_bind_address=bind_address or None,
        initialization_timeout=max(10, round(deadline - time.monotonic())),
        heartbeat_timeout_seconds=max(1, round(timeouts.heartbeat_s)),
        # Zero: who leaves does so at once, which frees those who wait for it in a collective. See `_disconnect`.
        shutdown_timeout_seconds=0,
        **options,
    )


def _wait_for_jax(address: str, deadline: float) -> None:
    """Wait until process 0 listens; JAX itself would come back only after a second."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), connection_to(address, timeout_s=1):
            return
        time.sleep(0.02)


def _failure() -> str:
    """Return how the program fails, which `atexit` does not say; empty if it does not."""
    error = getattr(sys, "last_value", None)  # Python leaves the exception here that nobody has caught.
    if isinstance(error, SystemExit):
        return f"it exits with {error.code!r}"
    return "" if error is None else f"{type(error).__name__}: {error}"


def _finish_what_nobody_holds() -> None:
    """Wait for steps whose results are gone: on another device, or in another process, somebody may look at his part.

    A process with several devices comes back from a step as soon as the part that it looks at is done. If it left then, the
    others' devices would wait for ever, and so would JAX at their end. XLA runs collectives on the processor in their order.
    """
    devices = jax.local_devices()
    if devices[0].platform == "cpu" and len(devices) > 1:
        mesh, split = Mesh(devices, "all"), PartitionSpec("all")
        last = jax.shard_map(
            lambda ones: jax.lax.psum(ones, "all"), mesh=mesh, in_specs=split, out_specs=PartitionSpec()
        )
        jax.block_until_ready(jax.jit(last)(np.ones(len(devices), np.float32)))


def _disconnect(monitor: PeerMonitor, timeout_s: float) -> None:
    """Leave the others at the end of the program: at once after an error, otherwise when this process's steps are done."""
    # Who leaves with the others has said so, and its steps may wait for theirs.
    failure = "" if LEAVING.is_set() else _failure()
    if not failure and not LEAVING.is_set() and _internals.backends_are_initialized():
        try:
            # A step may still run in the background, and the others' steps with it.
            jax.block_until_ready(jax.live_arrays())
            _finish_what_nobody_holds()
        except (RuntimeError, ValueError) as error:
            failure = f"its last step has failed: {error}"
    monitor.leave(failure, timeout_s)
