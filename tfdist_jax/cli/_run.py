"""`tfdist-jax run`: a TensorFlow program, unmodified, on JAX."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import tfdist_jax
from tfdist_jax import _compilation_cache
from tfdist_jax._cluster import detect_cluster
from tfdist_jax.cli._arguments import add_compilation_cache, positive_int
from tfdist_jax.cli._parent_death import follow_launcher
from tfdist_jax.cli._program import Program, run_as_main
from tfdist_jax.compat import _alias


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "run",
        help="run a TensorFlow program on JAX",
        description="Run a TensorFlow program, unmodified, on JAX.",
        usage="%(prog)s [-h] [--devices N | --emulate-tpu N] [--compilation-cache DIR] "
        "[--alias-for LIBRARIES] (script.py | -m module) [args ...]",
    )
    add_program(parser)
    parser.set_defaults(run=run_program)


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add what says which program runs, and on what."""
    split = parser.add_mutually_exclusive_group()
    split.add_argument(
        "--devices",
        type=positive_int,
        metavar="N",
        help="split the processor into N devices where there is no accelerator",
    )
    split.add_argument(
        "--emulate-tpu",
        type=positive_int,
        metavar="N",
        help="let N parts of the processor stand for the cores of a TPU",
    )
    parser.add_argument(
        "--alias-for",
        metavar="LIBRARIES",
        help="libraries, separated by commas, whose `import tensorflow` gets tfdist_jax as the program's own does "
        f"(default: {_alias.ALIAS_FOR})",
    )
    add_compilation_cache(parser)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, with its own arguments")
    parser.add_argument("script", nargs="?", help="the program: a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(error=parser.error, prog=parser.prog)


def run_program(arguments: argparse.Namespace) -> int:
    """Run the program that the arguments name, and return its exit code."""
    is_launched = follow_launcher()
    name, *args = arguments.module or [arguments.script or "", *arguments.args]
    if not name:
        arguments.error("name a program: a Python file, or -m and a module")
    if arguments.devices is not None:
        tfdist_jax.use_cpu_devices(arguments.devices)
    if arguments.emulate_tpu is not None:
        os.environ["TFDIST_EMULATED_TPU_CORES"] = str(arguments.emulate_tpu)
        tfdist_jax.use_cpu_devices(arguments.emulate_tpu)
    if arguments.compilation_cache is not None:  # Also for processes that the program starts.
        os.environ[_compilation_cache.VARIABLE] = arguments.compilation_cache
    _compilation_cache.enable()
    if is_launched and not _join(arguments.prog):
        return 1
    if arguments.alias_for is not None:
        os.environ[_alias.ALIAS_FOR] = arguments.alias_for
    try:
        _alias.install()
    except ModuleNotFoundError as error:
        print(f"{arguments.prog}: {error}, which {_alias.ALIAS_FOR} or --alias-for names", file=sys.stderr)
        return 2
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if arguments.module else str(Path(name).resolve().parent)
    try:
        program = Program.of_module(name) if arguments.module else Program.of_script(name)
    except FileNotFoundError as error:
        print(f"{arguments.prog}: {error}", file=sys.stderr)
        return 2
    sys.argv = [str(program.path) if arguments.module else name, *args]
    return run_as_main(program)


def _join(command: str) -> bool:
    """Join the launcher's other processes before the program starts JAX, which it may do long before its strategy.

    Parameter servers, and whoever uses them, do not train in step: their strategy lets them meet.
    """
    try:
        cluster = detect_cluster()
        if cluster is None or not cluster.count("ps"):
            tfdist_jax.initialize()
    except (OSError, RuntimeError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return False
    return True
