"""`tfdist-jax launch`: a program in several processes, each with its TF_CONFIG."""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfdist_jax import _compilation_cache, _nvidia
from tfdist_jax._cluster import (
    LAUNCHED,
    PARAMETER_SERVERS,
    RESTART,
    RESTART_HEADING,
    SECRET,
    Cluster,
    Timeouts,
    make_secret,
)
from tfdist_jax.cli._arguments import (
    add_compilation_cache,
    maybe_endless,
    not_negative_int,
    positive_int,
    positive_seconds,
)
from tfdist_jax.cli._group import Member
from tfdist_jax.cli._program import Program
from tfdist_jax.cli._relay import create_log
from tfdist_jax.cli._supervise import Limits, Supervisor

# A file, not a module: for `-m`, Python would look into the working directory first, for everything that is imported.
_RUN = Path(__file__).with_name("_started") / "run.py"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "launch",
        help="run a TensorFlow program in several processes",
        description="Run a program in several processes, each with its own TF_CONFIG and log file: all on this machine, or one "
        "on each of several machines.",
        usage="%(prog)s [-h] (--workers N | --hosts A,B,... --index I) [options] (script.py | -m module) [args ...]",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--workers", type=positive_int, metavar="N", help="start N processes on this machine")
    where.add_argument(
        "--hosts",
        metavar="A,B,...",
        help="start one process, of a group with one on each of these machines: host[:port],...",
    )
    parser.add_argument("--chief", action="store_true", help="with --workers: start a chief before the workers, too")
    parser.add_argument(
        "--parameter-servers",
        type=positive_int,
        metavar="M",
        help="with --workers: start M parameter servers and the chief, whose program they and the workers serve; a worker that fails "
        "starts again alone",
    )
    parser.add_argument(
        "--evaluator",
        action="store_true",
        help="with --workers: start an evaluator beside them, too; if it fails, it starts again alone",
    )
    parser.add_argument("--index", type=int, metavar="I", help="with --hosts: which of them this machine is, from 0")
    parser.add_argument(
        "--devices-per-worker",
        type=positive_int,
        metavar="M",
        help="give each process M GPUs, or split its processor into M devices",
    )
    parser.add_argument(
        "--max-restarts",
        type=not_negative_int,
        default=0,
        metavar="K",
        help="when a process fails, stop all and start them again, up to K times (default: 0)",
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        default=Path("tfdist_logs"),
        metavar="DIR",
        help="where the logs go (default: tfdist_logs)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show the output of all processes, not of the first one only"
    )
    parser.add_argument(
        "--stop-timeout",
        type=maybe_endless,
        default=30.0,
        metavar="S",
        help="seconds that processes have to end when they are asked to (default: 30)",
    )
    for name, seconds, meaning in (
        ("start", positive_seconds, "to wait for all processes (default: 300)"),
        ("heartbeat", positive_seconds, "without a sign of life until a process counts as dead (default: 30)"),
        (
            "warn",
            maybe_endless,
            "of waiting for another process until a warning says for which, and where (default: 10)",
        ),
        ("wait", maybe_endless, "of waiting for another process until all end (default: no limit)"),
    ):
        parser.add_argument(f"--{name}-timeout", type=seconds, metavar="S", help=f"seconds {meaning}")
    add_compilation_cache(parser)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, with its own arguments")
    parser.add_argument("script", nargs="?", help="the program: a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(run=_run, error=parser.error)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not fit together."""
    if not (arguments.module or arguments.script):
        arguments.error("name a program: a Python file, or -m and a module")
    if (arguments.hosts is None) != (arguments.index is None):
        arguments.error("--hosts and --index belong together")
    if arguments.hosts is not None and (arguments.chief or arguments.evaluator or arguments.parameter_servers):
        arguments.error(
            "--chief, --evaluator and --parameter-servers belong to --workers; over machines, give each process its TF_CONFIG"
        )


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    name, *args = arguments.module or [arguments.script, *arguments.args]
    program = ["-m", name, *args] if arguments.module else [name, *args]
    try:
        if not arguments.module:
            Program.of_script(name)
        clusters = _clusters(arguments)
        gpus = _gpus_by_process([cluster.task.type for cluster in clusters], arguments.devices_per_worker)
    except (FileNotFoundError, ValueError) as error:
        print(f"tfdist-jax launch: {error}", file=sys.stderr)
        return 2
    try:
        arguments.log_dir.mkdir(parents=True, exist_ok=True)
        for cluster in clusters:
            create_log(_log(arguments, cluster))
    except OSError as error:
        print(
            f"tfdist-jax launch: no logs can be written to {arguments.log_dir}: {error}. Name a folder with --log-dir.",
            file=sys.stderr,
        )
        return 2

    arguments.secret = os.environ.get(SECRET) or make_secret()

    present = clusters

    def members(attempt: int) -> list[Member]:
        nonlocal present
        # New ports: the old ones may still be held by a process that is about to end.
        present = _clusters(arguments) if attempt else clusters
        jobs = ("chief", "ps") if arguments.parameter_servers else ("chief", "worker")
        return [
            _member(arguments, cluster, program, own, attempt)
            for cluster, own in zip(present, gpus, strict=True)
            if cluster.task.type in jobs
        ]

    def workers(attempt: int) -> list[Callable[[int], Member]]:
        pairs = [pair for pair in zip(present, gpus, strict=True) if pair[0].task.type == "worker"]
        return [functools.partial(_member, arguments, cluster, program, own) for cluster, own in pairs]

    def evaluator(attempt: int) -> Member:
        (pair,) = (pair for pair in zip(clusters, gpus, strict=True) if pair[0].task.type == "evaluator")
        return _member(arguments, pair[0], program, pair[1], attempt)

    return Supervisor(
        members,
        evaluator if arguments.evaluator else None,
        workers if arguments.parameter_servers else None,
        Limits(
            arguments.max_restarts,
            arguments.stop_timeout,
            arguments.heartbeat_timeout or Timeouts.of_environment().heartbeat_s,
        ),
    ).run()


def _clusters(arguments: argparse.Namespace) -> list[Cluster]:
    """Return the cluster as each process on this machine sees it."""
    if arguments.hosts is not None:
        hosts = [host.strip() for host in arguments.hosts.split(",")]
        return [Cluster.of_jobs({"worker": hosts}, "worker", arguments.index, source="--hosts")]
    servers = arguments.parameter_servers or 0
    counts = {"chief": int(arguments.chief or servers > 0), "worker": arguments.workers, "ps": servers}
    counts["evaluator"] = int(arguments.evaluator)
    addresses = iter([f"127.0.0.1:{port}" for port in _free_ports(sum(counts.values()))])
    jobs = {job: list(itertools.islice(addresses, count)) for job, count in counts.items() if count}
    first = Cluster.of_jobs(jobs, "worker", 0, source="--workers")
    return [dataclasses.replace(first, task=task) for task in first.tasks]


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody uses, below those that systems give to outgoing connections."""
    found: list[int] = []
    for port in random.sample(range(10000, 30000), 10000):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


def _member(
    arguments: argparse.Namespace, cluster: Cluster, program: Sequence[str], gpus: str | None, attempt: int
) -> Member:
    config, name = cluster.to_tf_config(), str(cluster.task)
    env = {"TF_CONFIG": config, LAUNCHED: config, RESTART: str(attempt), "PYTHONUNBUFFERED": "1"}
    if arguments.workers is not None:
        env[SECRET] = arguments.secret
    if arguments.parameter_servers:
        env.setdefault(PARAMETER_SERVERS, "processes")
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = gpus
    if arguments.compilation_cache is not None:
        env[_compilation_cache.VARIABLE] = arguments.compilation_cache
    for option in ("start", "heartbeat", "warn", "wait"):
        seconds = getattr(arguments, f"{option}_timeout")
        if seconds is not None:
            env[f"TFDIST_{option.upper()}_TIMEOUT_S"] = str(seconds)
    split = [] if arguments.devices_per_worker is None else ["--devices", str(arguments.devices_per_worker)]
    return Member(
        name=name,
        command=[sys.executable, str(_RUN), *split, *program],
        env=env,
        log=_log(arguments, cluster),
        prefixed=arguments.verbose,
        shown=arguments.verbose or arguments.hosts is not None or (cluster.trains and cluster.process_id == 0),
        heading=f"\n{RESTART_HEADING}{attempt} of {arguments.max_restarts}.\n" if attempt else "",
    )


def _log(arguments: argparse.Namespace, cluster: Cluster) -> Path:
    return arguments.log_dir / f"{cluster.task.type}_{cluster.task.index}.log"


def _gpus_by_process(jobs: Sequence[str], wanted: int | None) -> list[str | None]:
    """Return CUDA_VISIBLE_DEVICES for processes with these jobs; None leaves it as it is.

    Raises:
        ValueError: If there are fewer GPUs than that.
    """
    # With parameter servers, workers and an evaluator compute.
    computing = [job for job in jobs if "ps" not in jobs or job in ("worker", "evaluator")]
    gpus = iter(_gpus_by_worker(len(computing), wanted))
    none_of_them = "" if _gpus() else None
    return [next(gpus) if "ps" not in jobs or job in ("worker", "evaluator") else none_of_them for job in jobs]


def _gpus_by_worker(workers: int, wanted: int | None) -> list[str | None]:
    """Return CUDA_VISIBLE_DEVICES for each process; None leaves it as it is.

    Raises:
        ValueError: If there are fewer GPUs than that.
    """
    gpus = _gpus()
    if not gpus or (workers == 1 and wanted is None):
        return [None] * workers
    each = wanted or max(1, len(gpus) // workers)
    if workers * each > len(gpus):
        raise ValueError(
            f"{workers} workers with {each} GPU(s) each need {workers * each}, but there are {len(gpus)}. Start fewer, or set "
            "JAX_PLATFORMS=cpu to run on the processor."
        )
    return [",".join(gpus[i * each : (i + 1) * each]) for i in range(workers)]


def _gpus() -> list[str]:
    """Return the names of the NVIDIA GPUs that JAX would use, without starting it."""
    if os.environ.get("JAX_PLATFORMS", "cuda").split(",")[0] not in ("cuda", "gpu"):
        return []
    return _nvidia.gpus()
