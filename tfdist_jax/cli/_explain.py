"""`tfdist-jax explain`: what the training step of a program does, told before it runs."""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any, final

import jax
from jax.sharding import Mesh

from tfdist_jax._explain import explain
from tfdist_jax._program import BEFORE_RUN
from tfdist_jax._sharding._mesh import data_mesh
from tfdist_jax._stateful._traffic_explanation import TrafficExplanation
from tfdist_jax.cli._arguments import positive_int
from tfdist_jax.cli._run import add_program, run_program

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
    parser.add_argument(
        "--step",
        type=positive_int,
        default=1,
        metavar="N",
        help="explain the Nth of the different steps that run (default: 1)",
    )
    add_program(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    steps = _Steps(arguments.step, arguments.html)
    before = BEFORE_RUN.set(steps.tell)
    try:
        code = run_program(arguments)
    except SystemExit as end:
        if steps.is_explained or end.code:
            raise
        code = 0
    finally:
        BEFORE_RUN.reset(before)
    if code == 0:
        print(
            f"{arguments.prog}: the program has ended after {len(steps.seen)} different training steps; step {arguments.step} is to be "
            "explained. A step is what `strategy.jit` compiles, or in a TensorFlow program a `tf.function` that changes trainable "
            "variables, or `fit`.",
            file=sys.stderr,
        )
    return code or 1


@final
class _Steps:
    """The different steps that a program runs.

    Attributes:
        seen: Those that have run.
        is_explained: Whether the one that is wanted has come.
    """

    def __init__(self, wanted: int, page: Path | None) -> None:
        self._wanted = wanted
        self._page = page
        self.seen: list[Any] = []
        self.is_explained = False

    def tell(self, step: Any, mesh: Mesh | None, args: tuple[Any, ...]) -> None:
        """Explain a step that is about to run, if it is the one that is wanted, and end the program."""
        if any(step is other for other in self.seen):
            return
        self.seen.append(step)
        if len(self.seen) == self._wanted:
            is_explained = isinstance(step, TrafficExplanation)  # On servers the step is not one program.
            explanation = step if is_explained else explain(step, args, mesh or _mesh_of(args[0]))
            self.is_explained = True
            print(explanation)
            if self._page is not None:
                explanation.write_html(self._page)
            if threading.current_thread() is not threading.main_thread():
                sys.stdout.flush()
                os._exit(0)  # An exception would end the thread alone, for which the program may wait.
            raise SystemExit(0)


def _mesh_of(state: Any) -> Mesh:
    """Return the mesh of the one device on which a state lies."""
    return data_mesh(tuple(jax.tree.leaves(state)[0].devices()))
