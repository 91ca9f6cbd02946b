"""Running a program until its training step."""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, final

from jax.sharding import Mesh

from tfdist_jax._program import BEFORE_RUN
from tfdist_jax._thread_state import having
from tfdist_jax.cli._arguments import positive_int
from tfdist_jax.cli._run import add_program, run_program

# What looks at a step is no part of the program's tracebacks.
__tracebackhide__ = True


def add_program_and_step(parser: argparse.ArgumentParser) -> None:
    """Add what says which program runs, on what, and which of its steps is meant."""
    parser.add_argument(
        "--step",
        type=positive_int,
        default=1,
        metavar="N",
        help="the Nth of the different steps that run (default: 1)",
    )
    add_program(parser)


def run_until_step(
    arguments: argparse.Namespace, use: Callable[[Any, Mesh | None, tuple[Any, ...]], int], *, what: str
) -> int:
    """Run the program that the arguments name until its step, use that, and end the program.

    Args:
        arguments: Of `add_program_and_step`.
        use: Called with the step, its mesh and its arguments, the state first; returns the exit code.
        what: What is to become of the step, such as "explained".

    Returns:
        The exit code, if the program ends without the step.

    Raises:
        SystemExit: When the step has been used, or if the program raises it.
    """
    steps = _Steps(arguments.step, use)
    try:
        with having(BEFORE_RUN, steps.tell):
            code = run_program(arguments)
    except SystemExit as end:
        if steps.is_found or end.code:
            raise
        code = 0
    if code == 0:
        print(
            f"{arguments.prog}: the program has ended after {len(steps.seen)} different training steps; step {arguments.step} is to be "
            f"{what}. A step is what `strategy.jit` compiles, or in a TensorFlow program a `tf.function` that changes trainable "
            "variables, or `fit`.",
            file=sys.stderr,
        )
    return code or 1


@final
class _Steps:
    """The different steps that a program runs.

    Attributes:
        seen: Those that have run.
        is_found: Whether the one that is wanted has come.
    """

    def __init__(self, wanted: int, use: Callable[[Any, Mesh | None, tuple[Any, ...]], int]) -> None:
        self._wanted = wanted
        self._use = use
        self.seen: list[Any] = []
        self.is_found = False

    def tell(self, step: Any, mesh: Mesh | None, args: tuple[Any, ...]) -> None:
        """Use a step that is about to run, if it is the one that is wanted, and end the program."""
        if any(step is other for other in self.seen):
            return
        self.seen.append(step)
        if len(self.seen) == self._wanted:
            code = self._use(step, mesh, args)
            self.is_found = True
            if threading.current_thread() is not threading.main_thread():
                sys.stdout.flush()
                os._exit(code)  # An exception would end the thread alone, for which the program may wait.
            raise SystemExit(code)
