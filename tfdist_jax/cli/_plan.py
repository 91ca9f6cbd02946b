"""`tfdist-jax plan`: over which mesh of other devices the training of a program would be fastest."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, final

import jax
from jax.sharding import Mesh

from tfdist_jax._hardware import HARDWARE
from tfdist_jax._plan import Training, make_plan
from tfdist_jax._program import BEFORE_GRADIENTS
from tfdist_jax._sharding._input import PaddedBatch
from tfdist_jax._thread_state import having
from tfdist_jax.cli._arguments import positive_int
from tfdist_jax.cli._until_step import add_program_and_step, run_until_step

# What plans for a step is no part of the program's tracebacks.
__tracebackhide__ = True


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "plan",
        help="say over which mesh of other devices a program would train fastest",
        description="Run a program until its training step, and compare the meshes of other devices over which its loss could be trained, "
        "by predicted time and memory. The program then ends. The loss is what the step differentiates by `strategy.value_and_grad`; rules "
        "are those of its strategy.",
        usage="%(prog)s [-h] --for N --hardware NAME [--programs N] [--top N] [--step N] [--devices N] [--compilation-cache DIR] "
        "(script.py | -m module) [args ...]",
    )
    parser.add_argument(
        "--for", dest="count", type=positive_int, required=True, metavar="N", help="how many devices there will be"
    )
    parser.add_argument(
        "--hardware", choices=[*HARDWARE, "cpu"], required=True, metavar="NAME", help=", ".join([*HARDWARE, "cpu"])
    )
    parser.add_argument(
        "--programs",
        type=positive_int,
        default=20,
        metavar="N",
        help="how many programs are compiled at most (default: 20)",
    )
    parser.add_argument(
        "--top", type=positive_int, default=10, metavar="N", help="how many meshes are shown (default: 10)"
    )
    add_program_and_step(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    def plan_step(step: Any, mesh: Mesh | None, args: tuple[Any, ...]) -> int:
        try:
            training, rules = _find_training(step, args)
            plan = make_plan(
                training,
                devices=arguments.count,
                hardware=arguments.hardware,
                rules=rules,
                programs=arguments.programs,
            )
        except ValueError as error:
            print(f"{arguments.prog}: {error}", file=sys.stderr)
            return 1
        print(plan.format(arguments.top))
        return 0

    return run_until_step(arguments, plan_step, what="planned for")


@final
class _FoundLoss:
    """A loss that a step differentiates, with the shapes of its arguments."""

    def __init__(self, strategy: Any, loss: Callable[..., Any], has_aux: bool, args: tuple[Any, ...]) -> None:
        self._strategy, self._loss, self._has_aux = strategy, loss, has_aux
        params, batch, *extra = args
        if isinstance(batch, PaddedBatch):  # Without the rows that only fill it up.
            count = sum(batch.sizes)
            batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), batch.data)
        self._params, self._batch, self._extra = jax.eval_shape(lambda *given: given, params, batch, extra)

    def as_training(self, state: Any) -> tuple[Training, tuple[Any, Any]]:
        """Return what is trained, with a state of the step, and the strategy's rules.

        Raises:
            ValueError: If the parameters are no part of the state.
        """
        shapes = jax.eval_shape(lambda given: given, state)
        if self._find(shapes) is None:
            raise ValueError(
                "The loss is not differentiated by a part of the step's state, so that it is not known what else is kept for it. Use "
                "`td.plan`, which takes a loss and shapes."
            )
        training = Training(self._loss, shapes, self._find, self._batch, tuple(self._extra), self._has_aux)
        return training, (getattr(self._strategy, "rules", ()), getattr(self._strategy, "axis_rules", ()))

    def _find(self, state: Any) -> Any:
        """Return the first part of a state that is like the parameters; None if there is none."""
        found = jax.tree.leaves(state, is_leaf=self._is_alike)
        return next((part for part in found if self._is_alike(part)), None)

    def _is_alike(self, part: Any) -> bool:
        return _shapes_of(part) == _shapes_of(self._params)


def _shapes_of(tree: Any) -> tuple[Any, list[Any]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves]


def _find_training(step: Any, args: tuple[Any, ...]) -> tuple[Training, tuple[Any, Any]]:
    """Return what a step trains, which is traced for it, and the rules of its strategy.

    Raises:
        ValueError: If it differentiates no loss, or not by a part of its state.
    """
    found: list[_FoundLoss] = []
    with having(BEFORE_GRADIENTS, lambda *given: found.append(_FoundLoss(*given))):
        if hasattr(step, "lower"):  # Not where parameters lie on servers.
            step.lower(*args)
    if not found:
        raise ValueError(
            f"The step {getattr(step, '__name__', step)!r} differentiates no loss by `strategy.value_and_grad`, so that it cannot be "
            "planned for. `td.plan` takes a loss and shapes."
        )
    return found[0].as_training(args[0])
