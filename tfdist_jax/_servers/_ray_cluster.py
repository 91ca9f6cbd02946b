"""Ray beneath a cluster of parameter servers: one of its nodes on each machine, and an actor for each task, which its process starts.

The cluster's first server's address is that of Ray's head. A machine's first task starts the machine's node; a node ends with the process
that has started it. Who does not know the cluster's secret does not take part.
"""

import atexit
import contextlib
import hashlib
import importlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from tfdist_jax._cluster import PARAMETER_SERVERS, SECRET, Timeouts
from tfdist_jax._cluster._addresses import host_and_port, resolve
from tfdist_jax._servers._ray_node import Node, in_numbers
from tfdist_jax._servers._ray_peers import Peer

_log = logging.getLogger("tfdist_jax")
_ADDRESS = "RAY_ADDRESS"
_TOKEN, _MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"
_SOON_S = 0.5
# How often a cluster's head may end before anybody has reached it: its port may still be that of an earlier one.
_MOST_ENDS = 5
# Calls by Ray that an actor answers at once: of tasks who look whether it is there.
_THREADS = 32
# What an actor takes from its task's environment; the rest is that of the task that has started the machine's node.
_OWN = ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "TF_CONFIG", "XLA_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION")


def import_ray() -> Any:
    """Return Ray, set up for clusters of ours before it is loaded.

    Raises:
        ImportError: If it is not installed.
        ValueError: If the process has no secret.
        RuntimeError: If it has been imported without one.
    """
    secret = os.environ.get(SECRET)
    if secret:
        os.environ.setdefault(_TOKEN, hashlib.sha256(f"ray {secret}".encode()).hexdigest())
    if not os.environ.get(_TOKEN):
        raise ValueError(
            f"Parameter servers in several processes let nobody take part who does not know their secret, but {SECRET} is not set. Set it "
            "to the same text, which nobody else knows, for all tasks of the cluster; `tfdist-jax launch` does so by itself. "
            f"Where {_ADDRESS} names a Ray that asks for a token, set {_TOKEN}, too."
        )
    if "ray" in sys.modules and os.environ.get(_MODE) != "token":
        raise RuntimeError(
            "Ray has been imported before the strategy was made, and knows no token. Import it afterwards, or set "
            f"{_MODE}=token and {_TOKEN} before."
        )
    os.environ[_MODE] = "token"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    # Actors that ask for no GPU see those of their task all the same.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(
            "Parameter servers in several processes take Ray: pip install 'tfdist-jax[ps]'. On one machine, "
            f"{PARAMETER_SERVERS}=threads makes them threads of one process, which takes nothing."
        ) from error


@final
class RayCluster:
    """This process's connection to the cluster's Ray.

    Attributes:
        ray: Ray.
    """

    def __init__(self, jobs: Mapping[str, Sequence[str]], task: tuple[str, int] | None) -> None:
        """Connect, and start the machine's node before if that is this task's.

        Args:
            jobs: The addresses of the cluster's tasks, by their jobs.
            task: Which of them this process is; None if none.

        Raises:
            TimeoutError: If there is nothing to connect to for as long as `TFDIST_START_TIMEOUT_S` says.
            ValueError: If `RAY_ADDRESS` is that of a server for Ray's clients.
            RuntimeError: If the cluster's head ends again and again.
        """
        self.ray = import_ray()
        self._jobs, self._task = jobs, task
        if "//" in self.address:
            raise ValueError(
                f"{_ADDRESS} is {self.address}: tasks join a Ray as nodes of it do, at the address host:port of its head."
            )
        # Trainings that share a Ray do not meet: each has a secret, or servers, of its own.
        own = hashlib.sha256(repr((os.environ.get(SECRET), list(jobs["ps"]))).encode()).hexdigest()
        self._namespace = f"tfdist_jax {own[:16]}"
        self._is_head = task == ("ps", 0)
        self._node: Node | None = None
        self._ends = 0
        deadline = time.monotonic() + Timeouts.of_environment().start_s
        while True:
            error = self._try_to_connect()
            if error is None:
                atexit.register(self.close)
                return
            if self._is_head and self._ends == _MOST_ENDS:
                raise error
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(
                    f"The cluster's Ray cannot be reached at {self.address}: {error} Its first server, {jobs['ps'][0]}, has to run, too, "
                    f"and {SECRET} to be the same for all. {_ADDRESS} names another Ray, {_TOKEN} its token."
                ) from error
            time.sleep(_SOON_S)

    @property
    def address(self) -> str:
        """Where Ray's head is."""
        return os.environ.get(_ADDRESS) or self._jobs["ps"][0]

    def _try_to_connect(self) -> Exception | None:
        """Connect, unless nobody listens there: Ray itself would wait for that, and complain meanwhile."""
        if self.ray.is_initialized():  # By another strategy of this process.
            return None
        try:
            if self._node is None and self._starts_node():
                self._node = Node(self._own_host() or "", self._jobs["ps"][0], is_head=self._is_head)
            if self._node is not None and (error := self._node.error()) is not None:
                _log.warning("%s It starts again.", error)
                self._node, self._ends = None, self._ends + 1
                return error
            address = self.address
            if address != "auto":
                socket.create_connection(host_and_port(address), _SOON_S).close()
                address = in_numbers(address)
            self.ray.init(
                address=address,
                namespace=self._namespace,
                logging_level=logging.ERROR,
                log_to_driver=False,
                _node_ip_address=self._own_host(),
            )
        except Exception as error:
            return error
        return None

    def _own_host(self) -> str | None:
        """Return this machine's address, in numbers; None if none of the cluster's tasks is here."""
        if self._task is None:
            return None
        job, index = self._task
        return resolve(host_and_port(self._jobs[job][index])[0])

    def _starts_node(self) -> bool:
        """Whether this task is the first one of the cluster on its machine."""
        if os.environ.get(_ADDRESS) or self._task is None:
            return False
        own = self._own_host()
        tasks = [(job, i) for job in ("ps", "chief", "worker") for i, _ in enumerate(self._jobs.get(job, ()))]
        first = next(task for task in tasks if resolve(host_and_port(self._jobs[task[0]][task[1]])[0]) == own)
        return first == self._task

    def wait_for_peer(self, job: str, index: int, is_over: Callable[[], bool] | None = None) -> Any:
        """Return a task's actor, a `Peer`, when its process has started it and it answers.

        Args:
            job: The task's job.
            index: The task's index.
            is_over: When to wait no longer, and return None; may raise. If None, it waits as long as `TFDIST_START_TIMEOUT_S` says.

        Raises:
            TimeoutError: If it has not come for so long.
        """
        limits, start, told = Timeouts.of_environment(), time.monotonic(), 0
        while is_over is None or not is_over():
            peer = self._find_peer(job, index)
            if peer is not None:
                return peer
            waited = time.monotonic() - start
            if waited > limits.warn_s * 2**told:
                _log.warning(
                    "Waiting for the task %s %d, at %s, for %.0f s.", job, index, self._jobs[job][index], waited
                )
                told += 1
            if is_over is None and waited > limits.start_s:
                raise TimeoutError(
                    f"The task {job} {index}, at {self._jobs[job][index]}, has not come for {waited:.0f} s. Tasks find each other by "
                    f"the addresses of their servers, as TF_CONFIG writes them, and {SECRET}: these have to be the same for all."
                )
        return None

    def _find_peer(self, job: str, index: int) -> Peer | None:
        """Return the actor of a task; None if there is none that answers soon."""
        try:
            actor = self.ray.get_actor(f"{job} {index}")
            endpoint = self.ray.get(actor.endpoint.remote(), timeout=_SOON_S)
        except ValueError:  # There is none of this name.
            time.sleep(_SOON_S)
        except (self.ray.exceptions.GetTimeoutError, self.ray.exceptions.RayActorError):
            return None
        else:
            return Peer(self.ray, actor, endpoint)
        return None

    def start_actor(self, kind: type) -> Any:
        """Start this task's actor, which ends with this process, and return it when it is there.

        Raises:
            ValueError: If Ray refuses it, also when there is no earlier one of this name any more.
        """
        job, index = self._task or ("", 0)
        options = {
            "name": f"{job} {index}",
            "num_cpus": 0,
            "max_concurrency": _THREADS,
            "scheduling_strategy": self._own_node(),
        }
        environment = {name: os.environ.get(name) for name in _OWN}
        deadline = time.monotonic() + Timeouts.of_environment().start_s
        while True:
            try:
                actor = self.ray.remote(kind).options(**options).remote(environment, self._own_host())
            except ValueError:  # One of the process that was this task before is still there.
                if time.monotonic() > deadline:
                    raise
            else:
                self.ray.get(actor.ping.remote())
                return actor
            with contextlib.suppress(ValueError):
                self.ray.kill(self.ray.get_actor(options["name"]))
            time.sleep(_SOON_S)

    def _own_node(self) -> Any:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        return strategies.NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)

    def close(self) -> None:
        """Leave the cluster, and end the machine's node if this process has started it."""
        atexit.unregister(self.close)
        self.ray.shutdown()  # Else the node would wait for it.
        if self._node is not None:
            self._node.close()
