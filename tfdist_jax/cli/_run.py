"""`tfdist-jax run`: a TensorFlow program, unmodified, on JAX."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import tfdist_jax
from tfdist_jax.cli._program import Program, run_as_main


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "run",
        help="run a TensorFlow program on JAX",
        description="Run a TensorFlow program, unmodified, on JAX.",
        usage="%(prog)s [-h] [--devices N] (script.py | -m module) [args ...]",
    )
    parser.add_argument(
        "--devices", type=_count, metavar="N", help="split the processor into N devices where there is no accelerator"
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, with its own arguments")
    parser.add_argument("script", nargs="?", help="the program: a Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(run=_run, error=parser.error)


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"needs a number of devices, 1 or more, got {text!r}")
    return count


def _run(arguments: argparse.Namespace) -> int:
    name, *args = arguments.module or [arguments.script or "", *arguments.args]
    if not name:
        arguments.error("name a program: a Python file, or -m and a module")
    if arguments.devices is not None:
        tfdist_jax.use_cpu_devices(arguments.devices)
    from tfdist_jax.compat.tensorflow import _alias  # Sets Keras's backend before the program can import Keras.

    _alias.install()
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if arguments.module else str(Path(name).resolve().parent)
    try:
        program = Program.of_module(name) if arguments.module else Program.of_script(name)
    except FileNotFoundError as error:
        print(f"tfdist-jax run: {error}", file=sys.stderr)
        return 2
    sys.argv = [str(program.path) if arguments.module else name, *args]
    return run_as_main(program)
