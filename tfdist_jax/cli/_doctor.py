"""`tfdist-jax doctor`: why the processes of a cluster do not find each other, and which checkpoints are damaged."""

import argparse
import contextlib
import importlib.metadata
import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tfdist_jax import _compilation_cache
from tfdist_jax._cluster import (
    PARAMETER_SERVERS,
    SECRET,
    Cluster,
    MissingTasksError,
    Task,
    are_processes,
    detect_cluster,
    versions,
)
from tfdist_jax._cluster._addresses import address_to_bind, connection_to, host_and_port, is_loopback, resolve
from tfdist_jax._cluster._initialize import find_address_of_collectives
from tfdist_jax._cluster._rendezvous import listening, rendezvous
from tfdist_jax._internals import setting
from tfdist_jax.cli._arguments import positive_seconds
from tfdist_jax.cli._doctor_checkpoints import look_at_checkpoints
from tfdist_jax.cli._findings import Findings
from tfdist_jax.cli._tf_config_lint import problems_of_program


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "doctor",
        help="find out why processes do not find each other, or whether checkpoints are damaged",
        description="Say what is wrong with TF_CONFIG, names, ports and versions. Start it on all machines of the cluster at "
        "about the same time, in place of the program and with the same environment; on one machine alone it checks what "
        "can be checked there. With --checkpoint, look at saved files only.",
    )
    parser.add_argument("script", nargs="?", type=Path, help="a program: look at how it sets TF_CONFIG, too")
    parser.add_argument("--hosts", metavar="A,B,...", help="the machines, instead of what TF_CONFIG says")
    parser.add_argument("--index", type=int, metavar="I", help="with --hosts: which of them this machine is, from 0")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=20.0,
        metavar="S",
        help="seconds to wait for the others (default: 20)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="compare all checkpoints, models and backups in a folder, or one of them, with their digests",
    )
    parser.set_defaults(run=_run, error=parser.error)


def _run(arguments: argparse.Namespace) -> int:
    if (arguments.hosts is None) != (arguments.index is None):
        arguments.error("--hosts and --index belong together")
    if arguments.checkpoint is not None and (arguments.script or arguments.hosts):
        arguments.error("--checkpoint looks at saved files only: leave out the program and --hosts")
    report = Findings()
    parts = [f"{name} {version}" for name, version in versions().items()]
    report.good(f"{', '.join(parts)}, Python {platform.python_version()} on {socket.gethostname()}")
    if arguments.checkpoint is not None:
        look_at_checkpoints(arguments.checkpoint, report)
    else:
        _look_at_start(arguments, report)
    print(f"{report.problems} problem(s) found." if report.problems else "No problem found.")
    return 1 if report.problems else 0


def _look_at_start(arguments: argparse.Namespace, report: Findings) -> None:
    logging.getLogger("tfdist_jax").setLevel(logging.ERROR)  # The report says who is missing.
    _look_at_compilation_cache(report)
    if arguments.script is not None:
        _look_at_program(arguments.script, report)
    cluster = _find_cluster(arguments, report)
    if cluster is not None and cluster.count("ps"):
        _look_at_parameter_servers(cluster, arguments.timeout, report)
    elif cluster is not None and cluster.num_processes > 1:
        _look_at_environment(cluster, report)
        if _look_at_names(cluster.training, report) and _look_at_own_address(cluster, report):
            _meet(cluster, arguments.timeout, report)


def _look_at_parameter_servers(cluster: Cluster, timeout_s: float, report: Findings) -> None:
    """Look at what tasks need that are found by the strategy, and do not train in step."""
    jobs: dict[str, list[str]] = {"chief": [], "worker": [], "ps": []}
    for task in cluster.tasks:
        if task.type in jobs and task.address:
            jobs[task.type].append(task.address)
    try:
        if not are_processes(jobs):
            report.good(
                "servers and workers are threads of the process that makes the strategy, since all have addresses of this machine; "
                f"{PARAMETER_SERVERS}=processes makes each task a process"
            )
            return
    except ValueError as error:
        report.bad(str(error))
        return
    _look_at_ray(report)
    tasks = [task for task in cluster.tasks if task.type in jobs and task.address]
    if _look_at_names(tasks, report) and _look_at_own_address(cluster, report):
        deadline = time.monotonic() + timeout_s
        with _listening_on_own(cluster) if cluster.task in tasks else contextlib.nullcontext():
            threads, problems = _start_reaching([task for task in tasks if task != cluster.task], deadline)
            _tell_who_was_reached(threads, problems, deadline, report)
            if not problems:
                report.good(f"all {len(tasks)} tasks can be reached")


def _look_at_ray(report: Findings) -> None:
    try:
        report.good(f"servers and workers are processes, which Ray {importlib.metadata.version('ray')} joins")
    except importlib.metadata.PackageNotFoundError:
        report.bad("servers and workers are processes, which takes Ray: pip install 'tfdist-jax[ps]'")
    if not os.environ.get(SECRET):
        report.bad(
            f"{SECRET} is not set: set it to the same text, which nobody else knows, for all tasks of the cluster"
        )


def _look_at_compilation_cache(report: Findings) -> None:
    folder, own = _compilation_cache.find_folder(), setting("jax_compilation_cache_dir")
    if own == "" or not setting("jax_enable_compilation_cache"):
        report.good("compiled programs are not kept: JAX's own settings say so")
    elif own is not None:
        report.good(f"compiled programs are kept in {own}: JAX_COMPILATION_CACHE_DIR says so")
    elif folder is None:
        report.good(
            f"compiled programs are not kept: {_compilation_cache.VARIABLE} says so, or there is no home folder"
        )
    elif problem := _compilation_cache.CompilationCache(folder).find_problem():
        report.odd(
            f"compiled programs are not kept in {folder}: this processor cannot load them. {problem.splitlines()[0]}"
        )
    else:
        report.good(f"compiled programs are kept in {folder}")


def _look_at_program(script: Path, report: Findings) -> None:
    try:
        problems = problems_of_program(script.read_text(), str(script))
    except (OSError, SyntaxError, ValueError) as error:
        report.bad(f"{script} cannot be read: {error}")
        return
    for problem in problems:
        report.bad(problem)
    if not problems:
        report.good(f"{script} sets TF_CONFIG rightly, or leaves it to the environment")


def _find_cluster(arguments: argparse.Namespace, report: Findings) -> Cluster | None:
    try:
        if arguments.hosts is not None:
            jobs = {"worker": [host.strip() for host in arguments.hosts.split(",")]}
            cluster = Cluster.of_jobs(jobs, "worker", arguments.index, source="--hosts")
        else:
            cluster = detect_cluster(arguments.timeout)
    except (ValueError, RuntimeError) as error:
        report.bad(str(error))
        return None
    if cluster is None:
        report.odd("neither TF_CONFIG nor a scheduler names other processes: programs run alone here")
    elif cluster.count("ps"):
        report.good(f"{cluster.source}: this is {cluster.task.with_address} of a cluster with parameter servers")
    elif not cluster.trains:
        report.good(f"{cluster.source}: this is {cluster.task.with_address}, which runs beside the others, alone")
    else:
        report.good(
            f"{cluster.source}: this is {cluster.task.with_address}, process {cluster.process_id} of {cluster.num_processes}"
        )
    return cluster


def _look_at_environment(cluster: Cluster, report: Findings) -> None:
    if os.environ.get("TF_CONFIG") and cluster.source not in ("TF_CONFIG", "--hosts"):
        report.odd(f"TF_CONFIG is set, but {cluster.source} counts")
    proxies = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")]
    host = host_and_port(cluster.coordinator)[0]
    exceptions = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    if proxies and host not in exceptions:
        report.odd(f"{proxies[0]} is set: connections to process 0 may go to the proxy. Add {host} to no_proxy")
    own = find_address_of_collectives(cluster)
    if own is None:
        report.odd(
            "this machine's own address is not known: collectives between processors (not GPUs, not TPUs) take what its "
            f"name {socket.gethostname()} stands for"
        )
    elif _several_machines(cluster) and is_loopback(own):
        report.odd(
            f"collectives between processors (not GPUs, not TPUs) would listen on {own}, where the other machines cannot "
            "reach them: name this machine by its address in the network"
        )
    else:
        report.good(f"collectives between processors listen on {own} only")


def _several_machines(cluster: Cluster) -> bool:
    return len({host_and_port(task.address)[0] for task in cluster.training if task.address}) > 1


def _look_at_names(tasks: Iterable[Task], report: Findings) -> bool:
    unknown = 0
    for task in tasks:
        try:
            if task.address:
                resolve(host_and_port(task.address)[0])
        except OSError as error:
            unknown += 1
            report.bad(f"{task.with_address}: {error.strerror}")
    if not unknown:
        report.good("all hosts are known")
    return not unknown


def _look_at_own_address(cluster: Cluster, report: Findings) -> bool:
    if cluster.task.address is None:
        return True
    try:
        with _listening_on_own(cluster):
            report.good("this machine can listen on its address")
    except OSError as error:
        report.bad(str(error.strerror))
        return False
    return True


@contextlib.contextmanager
def _listening_on_own(cluster: Cluster) -> Iterator[socket.socket]:
    address = cluster.task.address or ""
    others = [task.address for task in cluster.tasks if task.address and task != cluster.task]
    with listening(address_to_bind(address, others), cluster) as listener:
        yield listener


def _meet(cluster: Cluster, timeout_s: float, report: Findings) -> None:
    """Call the roll with the doctors on the other machines, and let all try to reach all."""
    deadline = time.monotonic() + timeout_s
    with _answering(cluster):
        # The rendezvous reaches the first one.
        threads, problems = _start_reaching([task for task in cluster.training[1:] if task != cluster.task], deadline)
        _rendezvous(cluster, timeout_s, report)
        _tell_who_was_reached(threads, problems, deadline, report)


def _start_reaching(tasks: Iterable[Task], deadline: float) -> tuple[list[threading.Thread], dict[Task, str]]:
    """Start threads that try to reach tasks; return them, and where they note why a task cannot be reached."""
    problems: dict[Task, str] = {}
    threads = [
        threading.Thread(target=_reach, args=(task, deadline, problems), daemon=True) for task in tasks if task.address
    ]
    for thread in threads:
        thread.start()
    return threads, problems


def _tell_who_was_reached(
    threads: Iterable[threading.Thread], problems: dict[Task, str], deadline: float, report: Findings
) -> None:
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()) + 1)
    time.sleep(1)  # Others may still be looking.
    for task, problem in sorted(problems.items(), key=lambda pair: (pair[0].type, pair[0].index)):
        report.bad(f"{task.with_address} cannot be reached from here: {problem}")


def _rendezvous(cluster: Cluster, timeout_s: float, report: Findings) -> None:
    others = [task.address for task in cluster.training[1:] if task.address]
    bind_address = address_to_bind(cluster.coordinator, others) if cluster.process_id == 0 else ""
    try:
        connections = rendezvous(cluster, timeout_s=timeout_s, bind_address=bind_address, tls=None)
    except MissingTasksError as error:
        report.bad(f"{error} (Is the doctor running there, too?)")
    except (RuntimeError, OSError) as error:
        report.bad(str(error))
    else:
        report.good(f"all {cluster.num_processes} processes have met at {cluster.coordinator}")
        for connection in connections.values():
            connection.close()


@contextlib.contextmanager
def _answering(cluster: Cluster) -> Iterator[None]:
    """Listen on this process's address, for the others to try; process 0 does so for the rendezvous."""
    if cluster.process_id == 0 or cluster.task.address is None:
        yield
        return
    with _listening_on_own(cluster):
        yield


def _reach(task: Task, deadline: float, problems: dict[Task, str]) -> None:
    problems[task] = "not tried"
    while time.monotonic() < deadline:
        try:
            with connection_to(task.address or "", timeout_s=3):
                del problems[task]
                return
        except TimeoutError:
            problems[task] = "no answer at all. Is there a firewall?"
        except ConnectionRefusedError:
            problems[task] = "nobody listens there. Is the doctor running there, too?"
        except OSError as error:
            problems[task] = str(error)
        time.sleep(0.2)
