"""Commands and their arguments. A command is a module with `add_parser(subparsers)`."""

import argparse
import importlib.metadata
from collections.abc import Sequence

from tfdist_jax.cli import _doctor, _explain, _launch, _lint, _plan, _run

_COMMANDS = (_run, _explain, _plan, _launch, _doctor, _lint)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; the process's own if None.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="tfdist-jax", description="Run tf.distribute programs on JAX.")
    version = importlib.metadata.version("tfdist-jax")
    parser.add_argument("--version", action="version", version=f"tfdist-jax {version}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(subparsers)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)
