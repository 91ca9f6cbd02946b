"""Tells what depends on the places of rows from what only points each row to itself, as in `x[jnp.arange(len(x)), labels]`."""

import itertools
from collections.abc import Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import JaxprEqn, Literal

from tfdist_jax._global_batch._programs import INLINED, open_program, programs_inside
from tfdist_jax._global_batch._row_values import FIXED, Operation, RowKind, Value, grown, grown_shape
from tfdist_jax._sharding._keys import is_key

# What draws random numbers, or makes keys.
DRAWING = frozenset({"random_bits", "random_split", "random_fold_in", "threefry2x32"})
Numbering = tuple[bool, ...] | None


def find_constant_numbering(one: np.ndarray, twin: np.ndarray) -> Numbering:
    """Return the numbering (see `Value`) of a constant, from the two that are in its place."""
    if one.ndim != twin.ndim or one.dtype.kind not in "iu":
        return None
    dimensions = grown_shape(one.shape, twin.shape)
    if len(dimensions) != 1:
        return None
    is_numbering = all(np.array_equal(each, _count_along(each.shape, dimensions[0])) for each in (one, twin))
    return (True,) if is_numbering else None


def _count_along(shape: tuple[int, ...], dimension: int) -> np.ndarray:
    sizes = [size if d == dimension else 1 for d, size in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension]).reshape(sizes), shape)


def find_numbering(operation: Operation, operands: Sequence[Value]) -> Numbering:
    """Return the numbering (see `Value`) of what an operation makes."""
    rows = operation.grown_result() if operation.eqn.outvars else ()
    if len(rows) != 1 or not jnp.issubdtype(operation.result().dtype, jnp.integer):
        return None
    params = operation.eqn.params
    match operation.name:
        case "iota":
            return (True,) if params["dimension"] == rows[0] else None
        case "concatenate" if params["dimension"] == len(operation.result().shape) - 1 != rows[0]:
            return _join(operation, operands)
        case "broadcast_in_dim":
            is_kept = [params["broadcast_dimensions"][d] for d in operation.grown(0)] == [*rows]
        case "convert_element_type":
            is_kept = jnp.iinfo(operation.result().dtype).max >= max(operation.twin_shapes()[1])
        case "reshape" | "squeeze":
            shape, made = operation.twin_shapes()
            is_kept = [size for size in shape if size != 1] == [size for size in made if size != 1]
        case _:
            return None
    return (True,) if is_kept and operands[0].numbering == (True,) else None


def _join(operation: Operation, operands: Sequence[Value]) -> Numbering:
    numbering = list[bool]()
    for i, operand in enumerate(operands):
        count = operation.operand(i).shape[-1]
        if operand.numbering is not None:
            numbering += operand.numbering * (count if len(operand.numbering) == 1 else 1)
        elif operand.kind in {*FIXED, RowKind.ROWS}:
            numbering += [False] * count
        else:
            return None
    return tuple(numbering)


def asks_for_negative(operation: Operation, operands: Sequence[Value]) -> bool:
    """Whether an operation asks of numbers of rows whether they are less than zero: JAX does, of indices."""
    if operation.name != "lt" or operands[0].numbering != (True,):
        return False
    return operands[1].known is not None and not any(each.any() for each in operands[1].known)


def keeps_to_rows(operation: Operation, operands: Sequence[Value]) -> bool:
    """Whether a `gather` or `scatter` reads or writes, for each row, at this row alone."""
    if operation.name != "gather" and not operation.name.startswith("scatter"):
        return False
    numbering, rows, rows_of_indices = operands[1].numbering, operation.grown(0), operation.grown(1)
    if numbering is None or len(rows) != 1 or len(rows_of_indices) != 1:
        return False
    params = operation.eqn.params["dimension_numbers"]
    is_gather = operation.name == "gather"
    indexed = params.start_index_map if is_gather else params.scatter_dims_to_operand_dims
    one_each = params.collapsed_slice_dims if is_gather else params.inserted_window_dims
    numbered = [
        d for d, is_number in zip(indexed, numbering * (len(indexed) // len(numbering)), strict=True) if is_number
    ]
    has_index_of_each = all(
        shapes[0][rows[0]] == shapes[1][rows_of_indices[0]]
        for shapes in ([operation.operand(i).shape for i in range(2)], operation.twin_operands())
    )
    return numbered == [*rows] and rows[0] in one_each and has_index_of_each


def has_other_number(eqn: JaxprEqn, twin: JaxprEqn) -> bool:
    """Whether an operation has another number in it where there are more rows: an exponent, or where a part begins."""
    params, twins = eqn.params, twin.params
    match eqn.primitive.name:
        case "integer_pow":
            return params["y"] != twins["y"]
        case "slice":
            key, variables = "start_indices", (eqn.invars[0], twin.invars[0])
        case "pad":
            key, variables = "padding_config", (eqn.outvars[0], twin.outvars[0])
        case _:
            return False
    pairs, rows = zip(params[key], twins[key], strict=True), grown(*variables)
    return any(one != other for dimension, (one, other) in enumerate(pairs) if dimension not in rows)


@final
class Dependence:
    """On what values of a program for one row depend: on `ROWS`, its row, on `PLACES`, its place, and on `COUNT`, the number of rows.

    What is drawn with a key that is a place's counts as none of them.

    Attributes:
        drawn: The operations that draw so.
    """

    def __init__(self) -> None:
        self.drawn: list[JaxprEqn] = []

    def find(self, one: Any, twin: Any, given: Sequence[frozenset[RowKind]]) -> list[frozenset[RowKind]]:
        """Return on what the results of a program depend.

        Args:
            one: The program.
            twin: It with more rows.
            given: On what each of its arguments depends.
        """
        consts = [
            _NOTHING if _is_same(*pair) else _NUMBER
            for pair in zip(getattr(one, "consts", ()), getattr(twin, "consts", ()), strict=True)
        ]
        one, twin = open_program(one), open_program(twin)
        known = dict(zip([*one.constvars, *one.invars], [*consts, *given], strict=True))

        def read(var: Any, twin: Any) -> frozenset[RowKind]:
            if not isinstance(var, Literal):
                return known[var]
            return _NOTHING if isinstance(twin, Literal) and _is_same(var.val, twin.val) else _NUMBER

        for eqn, other in zip(one.eqns, twin.eqns, strict=True):
            results = self._apply(eqn, other, [read(*pair) for pair in zip(eqn.invars, other.invars, strict=True)])
            known.update(zip(eqn.outvars, results, strict=True))
        return [read(*pair) for pair in zip(one.outvars, twin.outvars, strict=True)]

    def _apply(self, eqn: JaxprEqn, twin: JaxprEqn, operands: Sequence[frozenset[RowKind]]) -> list[frozenset[RowKind]]:
        inner, twins = programs_inside(eqn), programs_inside(twin)
        if eqn.primitive.name in INLINED and len(inner) == 1 and len(open_program(inner[0]).invars) == len(operands):
            count = len(self.drawn)
            results = self.find(inner[0], twins[0], operands)
            if len(self.drawn) > count and eqn.primitive.name in ("jit", "pjit"):
                self.drawn[count:] = [eqn]
            return results
        within = [
            self.find(*pair, [_NOTHING] * len(open_program(pair[0]).invars)) for pair in zip(inner, twins, strict=True)
        ]
        depends = _NOTHING.union(*operands, *itertools.chain(*within))
        if has_other_number(eqn, twin) or any(itertools.starmap(grown, zip(eqn.outvars, twin.outvars, strict=True))):
            depends |= _NUMBER
        if eqn.primitive.name in DRAWING and depends == {RowKind.PLACES}:
            self.drawn.append(eqn)
            depends = _NOTHING
        return [depends] * len(eqn.outvars)


_NOTHING = frozenset[RowKind]()
_NUMBER = frozenset({RowKind.COUNT})


def _is_same(one: Any, twin: Any) -> bool:
    if one is twin or isinstance(one, Tracer) or isinstance(twin, Tracer) or is_key(one):
        return one is twin
    return np.array_equal(one, twin)
