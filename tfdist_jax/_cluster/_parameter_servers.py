"""Whether a cluster's parameter servers and workers are processes."""

import os
import socket
from collections.abc import Mapping, Sequence

from tfdist_jax._cluster._addresses import host_and_port, is_loopback, resolve

PARAMETER_SERVERS = "TFDIST_PARAMETER_SERVERS"
"""Whether parameter servers and workers are "threads" of the process that makes the strategy, or "processes", each task its own. If not
set, they are processes where a task is on another machine; the launcher sets it."""


def are_processes(jobs: Mapping[str, Sequence[str]]) -> bool:
    """Whether the tasks "ps" and "worker" of a cluster are processes of their own, and not threads of the one that makes the strategy.

    Raises:
        ValueError: If the environment says neither, or wants threads on other machines.
    """
    wanted = os.environ.get(PARAMETER_SERVERS)
    if wanted not in (None, "", "threads", "processes"):
        raise ValueError(f'{PARAMETER_SERVERS} is "threads" or "processes", got {wanted!r}.')
    elsewhere = [address for job in ("chief", "ps", "worker") for address in jobs.get(job, ()) if not _is_here(address)]
    if wanted == "threads" and elsewhere:
        raise ValueError(f"{PARAMETER_SERVERS} is threads, but the task at {elsewhere[0]} is on another machine.")
    return bool(jobs.get("ps")) and (wanted == "processes" or bool(elsewhere))


def _is_here(address: str) -> bool:
    host, _ = host_and_port(address)
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        return is_loopback(resolve(host))
    except OSError:
        return False
