"""A program as NumPy runs it."""

from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from tfdist_jax._internals import scan_sizes
from tfdist_jax._interpreter._rules import Compute, find_rule, is_plain, work_of

# An operation takes NumPy some microseconds, and so many elements or products a few milliseconds: less than a compilation.
_MOST_OPERATIONS = 64
_MOST_ITERATED = 2048
_MOST_WORK = 2**22


def make_program(jaxpr: ClosedJaxpr) -> "Program | None":
    """Return how NumPy runs a program; None if it does what is left to XLA, or more than is worth it."""
    try:
        return Program(jaxpr)
    except _Unknown:
        return None


class _Unknown(Exception):
    """A program is left to XLA."""


@final
class Program:
    """Operations on values that have numbers, one after the other.

    Attributes:
        calls: How often it has been run.
    """

    def __init__(self, jaxpr: ClosedJaxpr) -> None:
        """Take a program apart; programs inside of it become a part of it."""
        self._values: list[Any] = []
        self._steps: list[tuple[Compute, list[int], list[int]]] = []
        self._work = 0
        if jaxpr.effects or not all(map(is_plain, (*jaxpr.in_avals, *jaxpr.out_avals))):
            raise _Unknown
        self._inputs = [self._number() for _ in jaxpr.in_avals]
        self._outputs = self._add(jaxpr, self._inputs)
        self._computed = {number for _, _, results in self._steps for number in results}
        self._avals = jaxpr.out_avals
        self.calls = 0

    def _number(self, value: Any = None) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _add(self, closed: ClosedJaxpr, inputs: Sequence[int]) -> list[int]:
        """Add the operations of a program, and return the numbers of its results."""
        jaxpr = closed.jaxpr
        known = dict[Any, int](zip(jaxpr.invars, inputs, strict=True))
        known |= {
            var: self._number(_constant(value)) for var, value in zip(jaxpr.constvars, closed.consts, strict=True)
        }

        def number(var: Any) -> int:
            if not isinstance(var, Literal):
                return known[var]
            aval: Any = var.aval
            return self._number(np.asarray(var.val, aval.dtype))

        for equation in jaxpr.eqns:
            operands, nested = [number(var) for var in equation.invars], _nested(equation)
            if nested is not None:
                results = self._add(nested, operands)
            else:
                results = [self._number() for _ in equation.outvars]
                self._steps.append((self._choose(equation), operands, results))
            if len(self._steps) > _MOST_OPERATIONS or self._work > _MOST_WORK:
                raise _Unknown
            known.update(zip(equation.outvars, results, strict=True))
        return [number(var) for var in jaxpr.outvars]

    def _choose(self, equation: Any) -> Compute:
        """Return what computes the list of an equation's results."""
        if equation.primitive.name == "scan":
            body = Program(equation.params["jaxpr"])
            length = equation.params["length"]
            if length * len(body._steps) > _MOST_ITERATED:
                raise _Unknown
            self._work += length * body._work
            return _scan(body, equation)
        self._work += work_of(equation)
        # Before a rule is asked for, which may make an array as large as its result.
        compute = None if equation.effects or self._work > _MOST_WORK else find_rule(equation)
        if compute is None:
            raise _Unknown
        return compute if equation.primitive.multiple_results else lambda *values: (compute(*values),)

    def run(self, arguments: Sequence[np.ndarray]) -> Iterator[tuple[Any, np.ndarray]]:
        """Return the types of the results and the results, each in memory of its own."""
        self.calls += 1
        with np.errstate(all="ignore"):
            values = self.compute(arguments)
        taken = set[int]()
        for number, aval in zip(self._outputs, self._avals, strict=True):
            value = np.asarray(values[number])
            if (
                number in taken
                or number not in self._computed
                or not value.flags.owndata
                or not value.flags.c_contiguous
            ):
                value = np.array(value, order="C")
            taken.add(number)
            if value.shape != aval.shape or value.dtype != aval.dtype:
                raise AssertionError(f"NumPy has computed {value.dtype}{value.shape} for {aval.str_short()}.")
            yield aval, value

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Return all values."""
        values = self._values.copy()
        for number, argument in zip(self._inputs, arguments, strict=True):
            values[number] = argument
        for compute, operands, results in self._steps:
            for number, result in zip(results, compute(*[values[operand] for operand in operands]), strict=True):
                values[number] = result
        return values

    def results(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the results, which may share memory."""
        values = self.compute(arguments)
        return [values[number] for number in self._outputs]


def _scan(body: Program, equation: Any) -> Compute:
    params = equation.params
    num_consts, num_carry = scan_sizes(params)
    length = params["length"]
    steps = range(length - 1, -1, -1) if params["reverse"] else range(length)
    stacked = [(var.aval.shape, var.aval.dtype) for var in equation.outvars[num_carry:]]

    def compute(*operands: Any) -> list[Any]:
        consts, rows = operands[:num_consts], operands[num_consts + num_carry :]
        carry = list(operands[num_consts : num_consts + num_carry])
        outputs = [np.empty(shape, dtype) for shape, dtype in stacked]
        for step in steps:
            results = body.results([*consts, *carry, *(row[step] for row in rows)])
            carry = results[:num_carry]
            for output, result in zip(outputs, results[num_carry:], strict=True):
                output[step] = result
        return [*carry, *outputs]

    return compute


def _nested(equation: Any) -> ClosedJaxpr | None:
    """Return the program that an operation runs as it is."""
    name = equation.primitive.name
    if name in ("jit", "pjit"):
        return equation.params["jaxpr"]
    return equation.params["call_jaxpr"] if name in ("custom_jvp_call", "custom_vjp_call") else None


def _constant(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and (len(value.devices()) != 1 or not isinstance(value.dtype, np.dtype)):
        raise _Unknown
    return np.asarray(value)
