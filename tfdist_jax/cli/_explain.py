"""`tfdist-jax explain`: what the training step of a program does, told before it runs."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from tfdist_jax._explain import explain
from tfdist_jax._pipeline import PipelinePlan
from tfdist_jax._program import BEFORE_GRADIENTS
from tfdist_jax._sharding._mesh import data_mesh
from tfdist_jax._stateful._traffic_explanation import TrafficExplanation
from tfdist_jax._thread_state import having
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
    pipelines: dict[Mesh, PipelinePlan | None] = {}

    def note_pipeline(strategy: Any, *_: Any) -> None:
        pipelines[strategy.mesh] = strategy.pipeline

    def explain_step(step: Any, mesh: Mesh | None, args: tuple[Any, ...]) -> int:
        if isinstance(step, TrafficExplanation):  # On servers the step is not one program.
            explanation = step
        else:
            explanation = explain(step, args, mesh or _mesh_of(args[0]))
            # A step of `fit` has been traced by now; others are while they are explained.
            explanation = dataclasses.replace(explanation, pipeline=pipelines.get(explanation.mesh))
        print(explanation)
        if arguments.html is not None:
            explanation.write_html(arguments.html)
        return 0

    with having(BEFORE_GRADIENTS, note_pipeline):
        return run_until_step(arguments, explain_step, what="explained")


def _mesh_of(state: Any) -> Mesh:
    """Return the mesh of the one device on which a state lies."""
    return data_mesh(tuple(jax.tree.leaves(state)[0].devices()))
