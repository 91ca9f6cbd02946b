"""Finds out whether a function does for some number of rows what it does for two others, from which one knows what it returns.

Numbers that are proportional to those two need not be so to a third: `max(len(x), 2)` is not for one row.
"""

import dataclasses
import enum
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.interpreters.partial_eval import dce_jaxpr

from tfdist_jax._global_batch._programs import INLINED, open_program, programs_inside
from tfdist_jax._global_batch._row_kinds import constant
from tfdist_jax._global_batch._row_values import RowKind, line_of
from tfdist_jax._sharding._exact import is_assumed_exact

# What changes no number: with one row, programs leave some of these out, or do them otherwise, because of dimensions of length one. That
# a sum over others is left out, too, is seen by the sizes of what comes behind it.
_MOVING = frozenset({"reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "copy", "reduce_sum"})
_MOVING_CONSTANTS = (_MOVING | {"optimization_barrier", "device_put"}) - {"reduce_sum"}
# What is computed of constants. All of it is done to each number by itself.
_FOLDED = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "neg",
        "max",
        "min",
        "sign",
        "abs",
        "floor",
        "ceil",
        "round",
        "integer_pow",
        "pow",
        "sqrt",
        "rsqrt",
    }
    | {
        "exp",
        "log",
        "log1p",
        "expm1",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "not",
        "select_n",
        "convert_element_type",
    }
)
_PRINTING = frozenset({"debug_callback", "debug_print"})
# Parameters that say how something is done and not what.
_HOW = frozenset(
    {"indices_are_sorted", "unique_indices", "sharding", "out_sharding", "name", "inline", "unroll", "metadata"}
)
# Those that are no lengths of arrays, and so the same for one row.
_OF_ONE_ROW = frozenset({"length", "y", "k", "reverse"})


@final
@dataclasses.dataclass(frozen=True)
class _Step:
    """An operation of a program, where calls of functions are opened, and constants computed.

    Attributes:
        eqn: The operation; None for what a program returns.
        known: Each operand that is a constant, or one in another shape; None for others.
        sources: By which operation with floating numbers each other operand was made, whatever has been moved since; None if that is
            not known.
    """

    eqn: JaxprEqn | None
    known: tuple[Any, ...]
    sources: tuple[Any, ...]

    @property
    def name(self) -> str:
        return "" if self.eqn is None else self.eqn.primitive.name

    @property
    def is_arithmetic(self) -> bool:
        """Whether it computes with floating numbers, or is the end of a program."""
        return self.eqn is None or (self.name not in _MOVING and any(map(_is_floating, self.variables)))

    @property
    def variables(self) -> list[Any]:
        """Its operands and results."""
        return [] if self.eqn is None else [*self.eqn.invars, *self.eqn.outvars]

    @property
    def ranks(self) -> list[int]:
        """How many dimensions its operands and results have."""
        return [len(_shape(var)) for var in self.variables]

    def numbers(self, names: frozenset[str] | None = None) -> list[int]:
        """Return the whole numbers among its parameters, or among those of some names."""
        leaves = (leaf for name, leaf in self._params if names is None or name in names)
        return [int(leaf) for leaf in leaves if isinstance(leaf, int | np.integer) and not isinstance(leaf, bool)]

    def choices(self, names: frozenset[str] | None = None) -> list[Any]:
        """Return what else is among them and can only be the same, and the types of its results."""
        leaves = (leaf for name, leaf in self._params if names is None or name in names)
        types = [] if self.eqn is None else [getattr(var.aval, "dtype", None) for var in self.eqn.outvars]
        return [*(leaf for leaf in leaves if isinstance(leaf, bool | str | enum.Enum | np.dtype)), *types]

    @property
    def _params(self) -> Iterator[tuple[str, Any]]:
        params = {} if self.eqn is None else self.eqn.params
        for name in sorted(params.keys() - _HOW):
            yield from ((name, leaf) for leaf in jax.tree.leaves(params[name]))


@final
class Compared:
    """A function for two numbers of rows, by which it is judged for others.

    Attributes:
        rows: The smaller number.
        total: The larger number.
    """

    def __init__(self, rows: int, program: ClosedJaxpr, total: int, whole: ClosedJaxpr) -> None:
        """Compare the function for `rows` and for `total` rows."""
        self.rows, self.total = rows, total
        steps = _list_steps(program), _list_steps(whole)
        # What goes on within kernels may be something else.
        self._is_known = len({*map(_names, steps)}) == 1
        self._pairs = list(zip(*steps, strict=self._is_known))

    def has_operations_of(self, rows: int, program: ClosedJaxpr) -> bool:
        """Whether the function does the same for another number of rows; of one row, all that computes with floating numbers."""
        found, pairs = self._align(rows, program)
        return not self._is_known or _names(found) == _names([one for one, _ in pairs])

    def find_other_number(self, rows: int, program: ClosedJaxpr) -> str | None:
        """Return where the function, which has the same operations, has another number for so many rows than follows from the others.

        That is a line of the program, or words if nobody knows which; None if there is no such number.
        """
        if not self._is_known:
            return None
        ratios = Fraction(self.total, rows), Fraction(self.total, self.rows)
        for step, pair in zip(*self._align(rows, program), strict=True):
            if not _is_in_line(rows, (step, *pair), ratios):
                return (line_of(step.eqn) if step.eqn is not None else "") or "a place that is not known"
        return None

    def _align(self, rows: int, program: ClosedJaxpr) -> tuple[list[_Step], list[tuple[_Step, _Step]]]:
        """Return the operations for so many rows, and those for the two other numbers, that are to be the same."""
        found = _list_steps(program)
        if rows > 1:
            return found, self._pairs
        return [step for step in found if step.is_arithmetic], [pair for pair in self._pairs if pair[0].is_arithmetic]


def _names(steps: Sequence[_Step]) -> tuple[str, ...]:
    return tuple(step.name for step in steps)


def _is_in_line(rows: int, steps: tuple[_Step, _Step, _Step], ratios: tuple[Fraction, Fraction]) -> bool:
    """Whether an operation is for so many rows what it has to be by those for two other numbers of rows."""
    step, one, _ = steps
    # With one row, indices have other shapes.
    is_alike = rows > 1 or (len({tuple(each.ranks) for each in steps}) == 1 and "gather" not in step.name)
    names = None if is_alike and "scatter" not in step.name else _OF_ONE_ROW
    sizes = [_lengths(each) if rows > 1 else _sizes(each) for each in steps]
    numbers = [[*each.known, *each.numbers(names), *size] for each, size in zip(steps, sizes, strict=True)]
    if len({*map(len, numbers)}) > 1 or step.choices(names) != one.choices(names):
        return False
    are_numbers = all(_is_number_in_line(each, ratios) for each in zip(*numbers, strict=True))
    pairs = zip(step.sources, one.sources, strict=True)
    return are_numbers and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _lengths(step: _Step) -> list[int]:
    """Return the lengths of the dimensions of results."""
    return [] if step.eqn is None else [length for var in step.eqn.outvars for length in _shape(var)]


def _sizes(step: _Step) -> list[int]:
    """Return how many floating numbers operands and results have, in whatever shape."""
    return [math.prod(_shape(var)) for var in step.variables if _is_floating(var) and not isinstance(var, Literal)]


def _is_number_in_line(numbers: Sequence[Any], ratios: tuple[Fraction, Fraction]) -> bool:
    """Whether a number is what it has to be by two others; if it is not known in all programs, nothing says that it is not."""
    if any(number is None for number in numbers):
        return True
    other, one, whole = numbers
    if other is one is whole or (isinstance(other, int) and other == one == whole):
        return True
    kind = _kind(one, whole, ratios[1])
    return kind is RowKind.OTHER or kind is _kind(other, whole, ratios[0])


def _kind(one: Any, twin: Any, ratio: Fraction) -> RowKind:
    kind = constant(one, twin, ratio).kind
    return RowKind.SAME if kind is RowKind.ZERO else kind


def _list_steps(program: ClosedJaxpr) -> list[_Step]:
    """Return the operations on which what a program returns depends."""
    eqns = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name not in _PRINTING]
    jaxpr = program.jaxpr.replace(eqns=eqns, effects=frozenset().union(*(eqn.effects for eqn in eqns)))
    jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    walk = _Walk()
    given = [(None, ("argument", i)) for i, is_used in enumerate(used) if is_used]
    walk.end(walk.run(jaxpr, program.consts, given))
    return walk.steps


@final
class _Walk:
    """Goes through a program.

    Attributes:
        steps: What it has found.
    """

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._count = 0

    def run(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Add the operations of a program, and return of its results what is known of them, and their sources.

        Args:
            jaxpr: The program.
            consts: Its constants.
            given: The same of its arguments.
        """
        constants = [(_known(const), None) for const in consts]
        found = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *given], strict=True))
        read = lambda var: (_known(var.val), None) if isinstance(var, Literal) else found[var]
        for eqn in jaxpr.eqns:
            found.update(zip(eqn.outvars, self._apply(eqn, list(map(read, eqn.invars))), strict=True))
        return list(map(read, jaxpr.outvars))

    def end(self, results: Sequence[tuple[Any, Any]]) -> None:
        """Add what a program returns."""
        self._add(None, results)

    def _apply(self, eqn: JaxprEqn, operands: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
        name, inner, count = eqn.primitive.name, programs_inside(eqn), len(eqn.outvars)
        if is_assumed_exact(eqn):
            self._add(None, operands)
            return [(None, None)] * count
        if name in INLINED and len(inner) == 1 and len(open_program(inner[0]).invars) == len(operands):
            return self.run(open_program(inner[0]), getattr(inner[0], "consts", ()), operands)
        known = [number for number, _ in operands]
        if name in _FOLDED and all(number is not None and np.ndim(number) == 0 for number in known):
            return [(_compute(eqn, known), None)]
        if name in _MOVING_CONSTANTS - _MOVING:
            return operands
        step = self._add(eqn, operands)
        for each in inner:
            program, consts = open_program(each), getattr(each, "consts", ())
            self.end(self.run(program, consts, [(None, (self._count, i)) for i in range(len(program.invars))]))
        if name in _MOVING and len(operands) == count == 1:
            ((number, source),) = operands
            return [(number if name in _MOVING_CONSTANTS else None, source)]
        if name == "convert_element_type":
            return [(known[0], (self._count, 0) if step.is_arithmetic else None)]
        return [(None, (self._count, i) if step.is_arithmetic and not inner else None) for i in range(count)]

    def _add(self, eqn: JaxprEqn | None, operands: Sequence[tuple[Any, Any]]) -> _Step:
        known, sources = (tuple(each) for each in zip(*operands, strict=True)) if operands else ((), ())
        step = _Step(eqn, known, sources)
        self.steps.append(step)
        self._count += step.is_arithmetic
        return step


def _known(const: Any) -> Any:
    """Return a constant of a program, None if it is no number yet, or lies on devices of other processes."""
    is_here = not isinstance(const, jax.Array) or (not isinstance(const, Tracer) and const.is_fully_addressable)
    return const if is_here else None


def _compute(eqn: JaxprEqn, operands: Sequence[Any]) -> Any:
    """Return what an operation makes of numbers, which stand for arrays of equal ones."""
    avals: list[Any] = [var.aval for var in eqn.invars]
    # Without the shardings that they may have.
    numbers = [np.asarray(number).astype(aval.dtype) for number, aval in zip(operands, avals, strict=True)]
    if eqn.primitive.name == "convert_element_type":
        return numbers[0].astype(eqn.params["new_dtype"])
    with jax.ensure_compile_time_eval():
        return np.asarray(eqn.primitive.bind(*numbers, **eqn.params))


def _is_floating(var: Any) -> bool:
    return jnp.issubdtype(getattr(var.aval, "dtype", jnp.bool_), jnp.inexact)


def _shape(var: Any) -> tuple[int, ...]:
    return getattr(var.aval, "shape", ())
