"""Which tasks a cluster of parameter servers has, and which of them may be its coordinator."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tfdist_jax._cluster import LAUNCHED, LAUNCHER, are_processes
from tfdist_jax._servers import serve
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver
from tfdist_jax.compat.tensorflow.train._cluster_spec import ClusterSpec

_log = logging.getLogger("tfdist_jax")
_KINDS = ("chief", "worker", "evaluator", "ps")


def find_jobs(resolver: ClusterResolver, *, is_given: bool) -> Mapping[str, Sequence[str]]:
    """Return the addresses of servers, workers and the chief; no addresses at all if a cluster is neither given nor in TF_CONFIG.

    A program that makes the strategy in every task, as one for a single process does, has the launcher's servers and workers serve here,
    and never returns in them.

    Raises:
        ValueError: If there is no server or no worker, if tasks are none of a coordinator's cluster, or this is none of them.
        RuntimeError: If this is a task that others are to give work to, each in its process, and no launcher has started it.
    """
    spec = resolver.cluster_spec()
    if not spec:
        if is_given:
            raise ValueError("Cluster spec must be non-empty in `tf.distribute.cluster_resolver.ClusterResolver`.")
        return {"ps": (), "worker": ()}
    _check(spec, resolver)
    jobs = {
        job: [address for address in spec.job_tasks(job) if address] if job in spec.jobs else []
        for job in ("ps", "worker", "chief")
    }
    for job in ("ps", "worker"):
        if not jobs[job]:
            raise ValueError(f"There must be at least one {job}: the cluster is {spec.as_dict()}.")
    if resolver.task_type in ("worker", "ps", "evaluator"):
        has_processes = are_processes(jobs)
        if has_processes and LAUNCHED in os.environ and resolver.task_type != "evaluator":
            _serve(jobs, resolver.task_type, resolver.task_id or 0)
        _tell_place(resolver, has_processes=has_processes)
    return jobs


def _serve(jobs: Mapping[str, Sequence[str]], task: str, index: int) -> NoReturn:
    _log.warning(
        "This process is the task %s %d of %s, and the program makes its strategy in it without asking which task it is: it serves from "
        "here on, as with `tf.distribute.Server(...).join()`. Call that first in servers and workers, and they are there sooner.",
        task,
        index,
        LAUNCHER,
    )
    serve(jobs, task, index)


def _check(spec: ClusterSpec, resolver: ClusterResolver) -> None:
    """Check what TensorFlow checks of all tasks."""
    task, index = resolver.task_type, resolver.task_id
    unknown = [job for job in spec.jobs if job not in _KINDS]
    if unknown:
        raise ValueError(
            f"Disallowed task type {unknown[0]!r} found in the cluster spec {spec.as_dict()}: allowed are {_KINDS}."
        )
    for job in ("chief", "evaluator"):
        if job in spec.jobs and spec.num_tasks(job) > 1:
            raise ValueError(f"There must be at most one {job!r}: the cluster is {spec.as_dict()}.")
    if not task:
        return
    if task not in _KINDS:
        raise ValueError(f"Unrecognized task_type {task!r}: it is one of {_KINDS}.")
    if task not in spec.jobs:
        # An evaluator need not be in the cluster, whose other tasks do without it.
        if task != "evaluator":
            raise ValueError(f"The `task_type` {task!r} is not in the cluster spec {spec.as_dict()}.")
    elif index is not None and index >= spec.num_tasks(task):
        raise ValueError(
            f"`task_id` {index} exceeds the maximum id of {task!r}, {spec.num_tasks(task) - 1}: the cluster is {spec.as_dict()}."
        )


def _tell_place(resolver: ClusterResolver, *, has_processes: bool) -> None:
    """Say what a task that is no coordinator does by making the strategy; refuse where it would be a second one of the same servers."""
    task, index = resolver.task_type, resolver.task_id
    remedy = {
        "evaluator": "Make its model without the strategy, and restore what the training saves, as "
        "`tf.keras.utils.SidecarEvaluator` does."
    }.get(task or "", "Call `tf.distribute.Server(...).join()` in all tasks but the coordinator.")
    if has_processes:
        raise RuntimeError(
            f"This process is the task {task} {index} of its cluster, and makes a `ParameterServerStrategy`, which only the chief may: it "
            f"would change the training's variables. {remedy}"
        )
    _log.warning(
        "This process is the task %s %s of its cluster, and makes the strategy: it is the coordinator, with all workers and "
        "servers in it. If other tasks run the program too, each trains for itself. %s",
        task,
        index,
        remedy,
    )
