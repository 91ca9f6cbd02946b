"""Where a row of functions is cut into stages, so that the slowest is as fast as can be."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr


def cut_evenly(costs: Sequence[float], parts: int) -> list[range]:
    """Divide numbers into parts that follow each other, none empty, so that the largest sum is as small as can be.

    Example:
        >>> cut_evenly([1, 1, 4, 1, 1], 3)
        [range(0, 2), range(2, 3), range(3, 5)]
    """
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    best = {0: (0.0, ())}
    for part in range(1, parts + 1):
        rest = parts - part
        best = {
            end: min(
                (max(worst, sums[end] - sums[start]), (*cuts, start))
                for start, (worst, cuts) in best.items()
                if start < end
            )
            for end in range(part, len(costs) - rest + 1)
        }
    starts = [*best[len(costs)][1], len(costs)]
    return [range(*pair) for pair in itertools.pairwise(starts)]


def count_operations(program: Any, is_counted: Callable[[Any], bool] = lambda eqn: True) -> float:
    """Return about how many operations a program does: those of products of matrices and convolutions, and one for each number made.

    Args:
        program: A jaxpr.
        is_counted: Of which equations they are to be counted.
    """
    jaxpr: Jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    total = 0.0
    for eqn in jaxpr.eqns:
        values = [each for one in eqn.params.values() for each in (one if isinstance(one, tuple | list) else (one,))]
        inner = [each for each in values if isinstance(each, ClosedJaxpr | Jaxpr)]
        if inner:
            total += eqn.params.get("length", 1) * max(count_operations(each, is_counted) for each in inner)
        elif is_counted(eqn):
            total += _count_in_equation(eqn)
    return total


def _count_in_equation(eqn: Any) -> float:
    shape = lambda var: tuple[int, ...](getattr(var.aval, "shape", ()))
    made = sum(math.prod(shape(var)) for var in eqn.outvars)
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * made * math.prod(shape(eqn.invars[0])[axis] for axis in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        kernel = shape(eqn.invars[1])
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * made * math.prod(kernel) / features
    return made
