"""`tfdist-jax explain`: what the training step of a program does, told before it runs."""

import argparse
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from tfdist_jax._explain import explain
from tfdist_jax._sharding._mesh import data_mesh
from tfdist_jax._stateful._traffic_explanation import TrafficExplanation
from tfdist_jax.cli._until_step import add_program_and_step, run_until_step

# What explains a step is no part of the program's tracebacks.
__tracebackhide__ = True


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "explain",
        help="say what the training step of a program does",
        description="Run a program until its training step, compile that, and say what it does: where its state lies, what memory it "
        "takes, how devices communicate in it, how much it computes. The program then ends.",
        usage="%(prog)s [-h] [--html FILE] [--step N] [--devices N | --emulate-tpu N] [--compilation-cache DIR] "
        "(script.py | -m module) [args ...]",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as a page with pictures, too")
    add_program_and_step(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    def explain_step(step: Any, mesh: Mesh | None, args: tuple[Any, ...]) -> int:
        is_explained = isinstance(step, TrafficExplanation)  # On servers the step is not one program.
        explanation = step if is_explained else explain(step, args, mesh or _mesh_of(args[0]))
        print(explanation)
        if arguments.html is not None:
            explanation.write_html(arguments.html)
        return 0

    return run_until_step(arguments, explain_step, what="explained")


def _mesh_of(state: Any) -> Mesh:
    """Return the mesh of the one device on which a state lies."""
    return data_mesh(tuple(jax.tree.leaves(state)[0].devices()))
