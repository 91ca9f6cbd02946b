"""What operations make of values of each kind: of what has to do with the rows of a batch in one way or another.

Of a batch that is split, each device has the results for its own rows only. Sums, means and values for each row can be put together
to what one device would have; nothing else can.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import JaxprEqn

from tfdist_jax._global_batch._row_order import join_orders
from tfdist_jax._global_batch._row_places import find_constant_numbering, keeps_to_rows
from tfdist_jax._global_batch._row_values import FIXED, OF_THE_BATCH, WITH_ROWS, Operation, RowKind, Value
from tfdist_jax._sharding._keys import is_key

# Of how many entries constants are computed with.
_MOST_KNOWN = 64
# What is computed with them: what is in proportion to numbers of rows for any number, and comparisons of these with zero.
_OF_CONSTANTS = frozenset(
    {"add", "sub", "mul", "div", "neg", "reduce_sum", "reduce_prod", "convert_element_type", "reshape", "squeeze"}
    | {"concatenate", "slice", "broadcast_in_dim"}
)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_SIGNS = [{RowKind.COUNT, RowKind.ZERO}, {RowKind.INVERSE_COUNT, RowKind.ZERO}]
# By which power of the number of rows a value grows with it.
_DEGREES = {RowKind.COUNT: 1, RowKind.INVERSE_COUNT: -1, RowKind.ROWS_PER_COUNT: -1}
_OF_PLACES = frozenset({*FIXED, RowKind.PLACES, RowKind.COUNT, RowKind.INVERSE_COUNT})
_INVERSES = {RowKind.SAME: RowKind.SAME, RowKind.COUNT: RowKind.INVERSE_COUNT, RowKind.INVERSE_COUNT: RowKind.COUNT}
_PRODUCTS = {
    frozenset({RowKind.SUM, RowKind.INVERSE_COUNT}): RowKind.MEAN,
    frozenset({RowKind.MEAN, RowKind.COUNT}): RowKind.SUM,
    frozenset({RowKind.COUNT, RowKind.INVERSE_COUNT}): RowKind.SAME,
}
# What is a special case of what.
_WIDER = {
    frozenset({RowKind.SAME, RowKind.MEAN}): RowKind.MEAN,
    frozenset({RowKind.SAME, RowKind.REPLICA}): RowKind.REPLICA,
    frozenset({RowKind.COUNT, RowKind.SUM}): RowKind.SUM,
    frozenset({RowKind.SHARED, RowKind.ROWS}): RowKind.ROWS,
}


def constant(one: Any, twin: Any, ratio: Fraction) -> Value:
    """Tell what a constant is from the two that are in its place, where there are `ratio` times as many rows."""
    if one is twin:
        return Value(RowKind.SAME, known=_note_small(one, twin))
    if isinstance(one, Tracer) or isinstance(twin, Tracer):
        return Value(RowKind.OTHER)
    if isinstance(one, jax.Array) and is_key(one):
        with jax.ensure_compile_time_eval():
            data, twin_data = jax.random.key_data(one), jax.random.key_data(twin)
            is_same = np.array_equal(np.asarray(data), np.asarray(twin_data))
        return Value(RowKind.SAME if is_same else RowKind.OTHER)
    a, b = np.asarray(one), np.asarray(twin)
    if a.shape == b.shape:
        return Value(_constant_kind(a, b, ratio), known=_note_small(a, b))
    if a.size and b.size and (a == a.flat[0]).all() and (b == b.flat[0]).all():
        kind = _constant_kind(a.flat[0], b.flat[0], ratio)
        return Value({RowKind.INVERSE_COUNT: RowKind.ROWS_PER_COUNT, RowKind.SAME: RowKind.ROWS}.get(kind, kind))
    return Value(RowKind.PLACES, numbering=find_constant_numbering(a, b))


def _note_small(one: Any, twin: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return constants that are small enough to compute with, such as shapes."""
    is_number = jnp.issubdtype(jnp.result_type(one), jnp.number) or jnp.result_type(one) == jnp.bool_
    is_small = is_number and not isinstance(one, Tracer) and np.size(one) <= _MOST_KNOWN
    return (np.asarray(one), np.asarray(twin)) if is_small else None


def compute_constants(operation: Operation, operands: Sequence[Value]) -> Sequence[Value] | None:
    """Return the results of an operation on constants, of which some are numbers of rows; None of any other.

    What is computed of a shape, such as the product of its dimensions, is a number of rows as well.
    """
    known = [operand.known for operand in operands]
    found = {operand.kind for operand in operands}
    # Rows of which there are any are more than none, but only some numbers of them are more than three.
    is_sign = operation.name in _COMPARISONS and found in _SIGNS
    if not (is_sign or operation.name in _OF_CONSTANTS) or found <= FIXED:
        return None
    if any(each is None for each in known) or operation.largest_result() > _MOST_KNOWN:
        return None
    operands_of = [[each[i] for each in known if each is not None] for i in range(2)]
    if operation.name == "div" and not all(itertools.starmap(_divides, operands_of)):
        return None
    bind = operation.eqn.primitive.bind
    with jax.ensure_compile_time_eval():
        one, twin = (
            bind(*given, **eqn.params) for given, eqn in zip(operands_of, (operation.eqn, operation.twin), strict=True)
        )
        return [constant(one, twin, operation.ratio)]


def _divides(number: np.ndarray, divisor: np.ndarray) -> bool:
    """Whether a quotient is not rounded to a whole number: only then are quotients in proportion."""
    return number.dtype.kind not in "iu" or (bool(np.all(divisor)) and not np.any(number % divisor))


def choose_known(operation: Operation, operands: Sequence[Value]) -> Value | None:
    """Return which operand an operation chooses by a constant, such as where a number of rows is not zero; None of any other."""
    if operation.name != "select_n":
        return None
    if operands[0].kind is RowKind.ZERO:
        return operands[1]
    if operands[0].known is None:
        return None
    chosen = {int(choice) for each in operands[0].known for choice in each.flat}
    return operands[1 + chosen.pop()] if len(chosen) == 1 else None


def _constant_kind(one: np.ndarray, twin: np.ndarray, ratio: Fraction) -> RowKind:
    if one.dtype.kind not in "biufc":
        return RowKind.SAME if bool(np.all(one == twin)) else RowKind.OTHER
    if np.array_equal(one, twin, equal_nan=one.dtype.kind in "fc"):
        return RowKind.SAME if one.any() else RowKind.ZERO
    # Of floating numbers, each is rounded.
    is_equal = functools.partial(np.allclose, rtol=1e-6 if one.dtype.kind in "fc" else 0, atol=0)
    if is_equal(one * float(ratio), twin):
        return RowKind.COUNT
    return RowKind.INVERSE_COUNT if is_equal(twin * float(ratio), one) else RowKind.OTHER


def join(values: Sequence[Value], eqn: JaxprEqn) -> Value:
    """Return what a value is that may be any of these, or their sum, by an operation."""
    result = values[0]
    for value in values[1:]:
        one, other = result.kind, value.kind
        culprit, order = result.culprit or value.culprit, join_orders(result.order, value.order)
        if one is other or RowKind.ZERO in (one, other):
            kind = other if one is RowKind.ZERO else one
            result = result if result == value else Value(kind, culprit=culprit, order=order)
        else:
            kind = _WIDER.get(frozenset({one, other}), RowKind.OTHER)
            result = Value(kind, culprit=culprit or (eqn if kind is RowKind.OTHER else None), order=order)
    return result


def multiply(one: RowKind, other: RowKind) -> RowKind:
    """Return what the product of two values is."""
    if RowKind.ZERO in (one, other):
        return RowKind.ZERO
    if RowKind.SAME in (one, other):
        return other if one is RowKind.SAME else one
    return _PRODUCTS.get(frozenset({one, other}) if one is not other else frozenset(), RowKind.OTHER)


def combine(operation: Operation, operands: Sequence[Value]) -> Value:
    """Return what the result of an operation is whose operands have to do with the rows; of one with a dimension of rows, anything."""
    rule = _RULES.get(operation.name)
    result = rule(operation, operands) if rule is not None else None
    if result is None or (result.kind is RowKind.OTHER and result.culprit is None):
        culprit = next((operand.culprit for operand in operands if operand.culprit), operation.eqn)
        return Value(RowKind.OTHER, culprit=culprit)
    return result


def combine_rows(operation: Operation, operands: Sequence[Value]) -> RowKind | None:
    """Return what the result of an operation is that has rows; None if it depends on other rows, their number or their order."""
    if keeps_to_rows(operation, operands):
        operands = [operands[0], Value(RowKind.ROWS), *operands[2:]]
        is_relating = False
    else:
        is_relating = relates_rows(operation)
    given = {operand.kind for operand in operands}
    if given & OF_THE_BATCH or (given & WITH_ROWS and is_relating):
        return None
    if RowKind.PLACES in given:
        # Mixed with a row's integers, it may still become an index, which is judged by what it indexes.
        is_of_places = given <= _OF_PLACES or jnp.issubdtype(operation.result().dtype, jnp.integer)
        return RowKind.PLACES if is_of_places else None
    if given & _DEGREES.keys():
        degree = _degree(operation, [operand for operand in operands if operand.kind is not RowKind.ZERO])
        return {0: RowKind.ROWS, -1: RowKind.ROWS_PER_COUNT}.get(degree) if degree is not None else None
    if given <= FIXED:
        return RowKind.PLACES if _counts_places(operation) else RowKind.ROWS
    return RowKind.ROWS


def _counts_places(operation: Operation) -> bool:
    """Whether what is the same on all replicas becomes something for each place in a part: numbers, or as many entries of a table."""
    if operation.name == "iota":
        return operation.eqn.params["dimension"] in operation.grown_result()
    is_counted_off = operation.name in ("slice", "dynamic_slice", "pad")
    return is_counted_off or any(dimension in operation.grown(0) for dimension in _indexed_along(operation))


def may_relate_tokens(operation: Operation, operands: Sequence[Value]) -> bool:
    """Whether the result for a token may depend on others: of a kernel that cannot be seen into, or where places are indices of tokens."""
    if keeps_to_rows(operation, operands):
        return False
    if operation.name == "gather":
        dimensions = operation.eqn.params["dimension_numbers"]
        indexed = {*dimensions.start_index_map, *dimensions.collapsed_slice_dims}
        return operands[1].kind in WITH_ROWS and not indexed.isdisjoint(operation.grown(0))
    return operation.name in _KERNELS | _SCATTERING or "attention" in operation.name


def _degree(operation: Operation, operands: Sequence[Value]) -> int | None:
    """Return by which power of the number of rows a result grows that has rows, if it does by one."""
    degrees = [_DEGREES.get(operand.kind, 0) for operand in operands]
    match operation.name:
        case "mul" | "dot_general":
            return sum(degrees)
        case "div":
            return degrees[0] - degrees[1] if len(degrees) == 2 else None
        case "select_n":
            degrees = degrees[1:]
        case name if name not in _LINEAR:
            return None
        case name:
            end = _LINEAR[name] or len(degrees)
            if any(degrees[end:]):
                return None
            degrees = degrees[:end]
    return degrees[0] if len(set(degrees)) == 1 else None


def _summed(kinds: Sequence[RowKind]) -> Value | None:
    """Return what the sum over rows of a product of such values is."""
    if RowKind.PLACES in kinds:
        return None
    degree = sum(_DEGREES.get(kind, 0) for kind in kinds)
    return Value({0: RowKind.SUM, -1: RowKind.MEAN}.get(degree, RowKind.OTHER))


def _product(operation: Operation, operands: Sequence[Value]) -> Value | None:
    if any(operation.grown(i) for i in range(2)):
        return None
    return Value(multiply(operands[0].kind, operands[1].kind))


def _quotient(operation: Operation, operands: Sequence[Value]) -> Value | None:
    numerator, denominator = operands
    is_exact = jnp.issubdtype(operation.result().dtype, jnp.inexact)
    if any(operation.grown(i) for i in range(2)) or not is_exact or denominator.kind not in _INVERSES:
        return None
    return Value(multiply(numerator.kind, _INVERSES[denominator.kind]))


def _contraction(operation: Operation, operands: Sequence[Value]) -> Value | None:
    if not operation.grown(0) and not operation.grown(1):
        return _product(operation, operands)
    contracted, _ = operation.eqn.params["dimension_numbers"]
    of_rows = all(operation.has_rows(i) and operation.grown(i)[0] in contracted[i] for i in range(2))
    return _summed([operand.kind for operand in operands]) if of_rows else None


def _total(operation: Operation, operands: Sequence[Value]) -> Value | None:
    if not operation.grown(0):
        return dataclasses.replace(operands[0], source=None)
    return _summed([operands[0].kind]) if operation.has_rows(0) else None


def _conversion(operation: Operation, operands: Sequence[Value]) -> Value | None:
    given, made = operation.operand(0).dtype, operation.result().dtype
    is_rounding = jnp.issubdtype(given, jnp.inexact) and not jnp.issubdtype(made, jnp.inexact)
    return None if is_rounding or made == np.bool_ else dataclasses.replace(operands[0], source=None)


def _selection(operation: Operation, operands: Sequence[Value]) -> Value | None:
    return join(operands[1:], operation.eqn) if operands[0].kind in FIXED else None


def _scattering(operation: Operation, operands: Sequence[Value]) -> Value | None:
    first, indices, updates = operands
    if indices.kind in FIXED:
        return join([first, updates], operation.eqn)
    by_row = indices.kind is not RowKind.PLACES and operation.has_rows(2)
    adds_up_rows = by_row and operation.name == "scatter-add" and first.kind is RowKind.ZERO
    return _summed([updates.kind]) if adds_up_rows else None


def _linear(count: int | None) -> Callable[[Operation, Sequence[Value]], Value | None]:
    """Return the rule of what is linear in its first operands, where the others are the same for all rows."""

    def rule(operation: Operation, operands: Sequence[Value]) -> Value | None:
        end = count or len(operands)
        if {operand.kind for operand in operands[end:]} <= FIXED:
            return join([dataclasses.replace(operand, source=None) for operand in operands[:end]], operation.eqn)
        return None

    return rule


_OF_ONE = ("neg", "reshape", "squeeze", "transpose", "broadcast_in_dim", "slice", "rev", "copy", "real", "imag", "psum")
_OF_ALL = ("sharding_constraint", "optimization_barrier", "concatenate", "add", "sub", "add_any", "pad")
# How many operands an operation is linear in, the first ones; None for all.
_LINEAR: Mapping[str, int | None] = {
    **dict.fromkeys((*_OF_ONE, "reduce_precision", "cumsum", "dynamic_slice", "gather", "pvary", "pcast"), 1),
    **dict.fromkeys(_OF_ALL, None),
    **dict.fromkeys(("reduce_sum", "convert_element_type"), 1),
    "dynamic_update_slice": 2,
}
_KERNELS = frozenset({"pallas_call", "tpu_custom_call", "custom_call", "ffi_call", "custom_partitioning"})
_SCATTERING = frozenset({"scatter", "scatter-add"})
_RULES: Mapping[str, Callable[[Operation, Sequence[Value]], Value | None]] = {
    **{name: _linear(count) for name, count in _LINEAR.items()},
    "mul": _product,
    "div": _quotient,
    "dot_general": _contraction,
    "reduce_sum": _total,
    "convert_element_type": _conversion,
    "select_n": _selection,
    "scatter": _scattering,
    "scatter-add": _scattering,
}


def is_zero_preserving(operation: Operation) -> bool:
    """Whether the result is zero where all operands are."""
    return operation.name in _RULES


def relates_rows(operation: Operation) -> bool:
    """Whether the result for a row depends on other rows, or on which row it is, as with an order of rows or a matrix between them."""
    for i in range(len(operation.eqn.invars)):
        dimensions = operation.grown(i)
        if len(dimensions) > 1 and len(operation.grown_result()) == 1:
            return True
        if set(dimensions) & _moved_along(operation, i):
            return True
    return False


def _moved_along(operation: Operation, operand: int) -> set[int]:
    """Return the dimensions along which an operation takes things from other places than their own."""
    params, shape = operation.eqn.params, operation.operand(operand).shape
    match operation.name:
        case "sort":
            return {params["dimension"]}
        case "top_k" | "approx_top_k":
            return {params.get("axis", params.get("reduction_dimension", len(shape) - 1)) % max(len(shape), 1)}
        case "rev":
            return set(params["dimensions"])
        case "cumsum" | "cumprod" | "cummax" | "cummin" | "cumlogsumexp":
            return {params["axis"]}
        case "conv_general_dilated" if operand == 0:
            numbers, kernel = params["dimension_numbers"], operation.operand(1).shape
            pairs = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], strict=True)
            return {dimension for dimension, of_kernel in pairs if kernel[of_kernel] > 1}
        case "fft":
            return set(range(len(shape) - len(params["fft_lengths"]), len(shape)))
        case name if name.startswith("reduce_window"):
            return {dimension for dimension, size in enumerate(params["window_dimensions"]) if size > 1}
        case "slice" | "dynamic_slice":
            return {
                i for i, sizes in enumerate(zip(shape, operation.result().shape, strict=False)) if sizes[0] != sizes[1]
            }
    return _indexed_along(operation) if operand == 0 else set()


def _indexed_along(operation: Operation) -> set[int]:
    """Return the dimensions of the first operand along which an operation reads or writes only what indices point to.

    Where there are more rows: of one row, what an index points to is all of it.
    """
    params, shapes = operation.twin.params, operation.twin_operands()
    match operation.name:
        case "gather":
            numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
            return {d for d in numbers.start_index_map if sizes[d] != shapes[0][d]}
        case "dynamic_update_slice":
            return {d for d, sizes in enumerate(zip(shapes[0], shapes[1], strict=True)) if sizes[0] != sizes[1]}
        case name if name.startswith("scatter"):
            numbers = params["dimension_numbers"]
            left_out = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
            of_windows = (d for d in range(len(shapes[0])) if d not in left_out)
            sizes = dict(zip(of_windows, (shapes[2][d] for d in numbers.update_window_dims), strict=True))
            return {d for d in numbers.scatter_dims_to_operand_dims if sizes.get(d, 1) != shapes[0][d]}
    return set()
