"""Which cluster this process is in, as its environment tells."""

import functools
import logging
import os

from tfdist_jax import _internals
from tfdist_jax._cluster._spec import Cluster

_log = logging.getLogger("tfdist_jax")

LAUNCHED = "TFDIST_JAX_CLUSTER"
"""What `tfdist-jax launch` tells each process, in TF_CONFIG's form: a program may overwrite TF_CONFIG itself."""

RESTART = "TFDIST_JAX_RESTART"
"""How often the launcher has started the group again, for the program to see."""

LAUNCHER = "tfdist-jax launch"

RESTART_HEADING = f"{LAUNCHER}: restart "
"""With this a line of a log begins that parts a start's output from the one before: "restart 1 of 3."."""


def tf_config() -> str:
    """Return the text that counts as TF_CONFIG: what the launcher has set, or else the environment variable's.

    A program that writes another task into TF_CONFIG than the launcher gave it is told once.
    """
    launched, own = os.environ.get(LAUNCHED), os.environ.get("TF_CONFIG", "{}")
    if launched is None:
        return own
    if own not in (launched, "{}"):
        _tell_which_counts(launched, own)
    return launched


@functools.cache
def _tell_which_counts(launched: str, own: str) -> None:
    counts = Cluster.of_tf_config(launched, source=LAUNCHER)
    try:
        other = Cluster.of_tf_config(own)
    except ValueError as error:
        _log.warning("The program's own TF_CONFIG is of no use, but %s has set another. %s", LAUNCHER, error)
        return
    if counts is None or other is None:
        return
    if (other.task, other.num_processes) != (counts.task, counts.num_processes):
        _log.warning(
            "The program sets TF_CONFIG itself, to %s of %d process(es). It runs as %s of %d: what %s has set counts. Only a "
            "program that is started by hand needs its own index in TF_CONFIG.",
            other.task,
            other.num_processes,
            counts.task,
            counts.num_processes,
            LAUNCHER,
        )


def detect_cluster(timeout_s: float = 300) -> Cluster | None:
    """Return the cluster that this process is in, or None if the environment names none.

    Looks at what `tfdist-jax launch` has set, then at TF_CONFIG, then for what JAX knows: Slurm, Open MPI, Kubernetes
    and Cloud TPU.

    Args:
        timeout_s: How long to wait for the first process's host to be known.

    Raises:
        ValueError: If TF_CONFIG is of no use.
    """
    found = Cluster.of_tf_config(tf_config(), source=LAUNCHER if LAUNCHED in os.environ else "TF_CONFIG")
    if found is not None:
        return found
    detected = _internals.detect_processes(round(timeout_s))
    if detected is None:
        return None
    name, coordinator, num_processes, process_id, local_device_ids = detected
    return Cluster.of_processes(coordinator, num_processes, process_id, source=name, local_device_ids=local_device_ids)
