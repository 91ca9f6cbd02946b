"""In which order arrays have the rows of a batch, and whether blocks of rows are told apart.

The first quarter of a replica's rows is no part of the first quarter of all: `x.reshape(4, -1)` makes blocks that consist of other rows
on each replica than on one device. What is computed for each row, and sums over all blocks, are right; what tells blocks apart is not.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from jax.extend.core import Jaxpr, JaxprEqn, Literal

from tfdist_jax._global_batch._row_values import WITH_ROWS, Operation, Order, Value

Places = Mapping[int, int]
"""Dimensions of an operand, and where they lie in a result. Others are added up, or otherwise combined."""


def find_order(operation: Operation, operands: Sequence[Value], index: int) -> Order:
    """Return the order of the rows in one of the results of an operation."""
    if operation.name in _RANDOM:  # Which row, or block, gets which number does not matter.
        return Order(uniform=_all_dimensions(operation, index))
    if operation.name == "reshape":
        return _reshape(operation, operands[0])
    if operation.name in _SEPARATE:
        return _combine(operation, {index: operands[index]}, {index: _same_places(operation, index)}, index)
    given = dict(enumerate(operands))
    places = {i: _find_places(operation, i) for i in given}
    if operation.name in ("concatenate", "split", "tile"):
        return _join_or_split(operation, given, places, index)
    return _combine(operation, given, places, index)


def join_orders(one: Order, other: Order) -> Order:
    """Return the order of what may be either of two."""
    merged = _merge([one, other])
    return dataclasses.replace(
        merged,
        blocks=one.blocks | other.blocks,
        prefix=max(one.prefix, other.prefix),
        uniform=one.uniform & other.uniform,
        is_mixed=merged.is_mixed or 1 < min(one.prefix, other.prefix) < max(one.prefix, other.prefix),
    )


def enter_loop(value: Value, loop: JaxprEqn, *, of_rows: bool) -> Order:
    """Return the order of one entry, along the first dimension, of what a loop goes through, which may be that of rows."""
    order, entry = value.order, _shift(value.order, -1)
    if of_rows and order.prefix > 1:
        return dataclasses.replace(entry, prefix=1, is_mixed=True)
    if 0 in order.blocks:
        return dataclasses.replace(entry, turns=order.turns | {id(loop)})
    if value.kind not in WITH_ROWS and 0 not in order.uniform:
        return dataclasses.replace(entry, varies=order.varies | {id(loop)})
    return entry


def leave_loop(order: Order, loop: JaxprEqn) -> Order:
    """Return the order of what a loop has put together from an entry for each turn."""
    whole = _without_loop(_shift(order, 1), loop)
    return dataclasses.replace(whole, blocks=whole.blocks | {0}) if id(loop) in order.turns else whole


def carry_on(order: Order, loop: JaxprEqn, *, is_sum: bool) -> Order:
    """Return the order of what one turn of a loop hands to the next.

    Args:
        order: That of what the turn has made.
        loop: The loop.
        is_sum: Whether each turn adds to what it was handed, and uses it for nothing else: then all blocks are added up.
    """
    carried = _without_loop(order, loop)
    return carried if is_sum or id(loop) not in order.turns else dataclasses.replace(carried, is_mixed=True)


def adds_to(body: Jaxpr, given: int, made: int) -> bool:
    """Whether a body does nothing with one of its arguments but to add something to it, which gives one of its results."""
    names, result, is_added = {body.invars[given]}, body.outvars[made], False
    for eqn in body.eqns:
        used = [var for var in eqn.invars if not isinstance(var, Literal) and var in names]
        if not used:
            continue
        if eqn.primitive.name == "convert_element_type":
            names.add(eqn.outvars[0])
        elif eqn.primitive.name not in ("add", "add_any") or eqn.outvars[0] is not result or len(used) > 1:
            return False
        else:
            is_added = True
    return is_added and names.isdisjoint(var for var in body.outvars if not isinstance(var, Literal))


def _without_loop(order: Order, loop: JaxprEqn) -> Order:
    return dataclasses.replace(order, turns=order.turns - {id(loop)}, varies=order.varies - {id(loop)})


def _shift(order: Order, by: int) -> Order:
    move = lambda dimensions: frozenset(d + by for d in dimensions if d + by >= 0)
    return dataclasses.replace(order, blocks=move(order.blocks), uniform=move(order.uniform))


def _merge(orders: Sequence[Order]) -> Order:
    """Return what operands have in common, whatever their dimensions."""
    return Order(
        turns=frozenset[int]().union(*(order.turns for order in orders)),
        varies=frozenset[int]().union(*(order.varies for order in orders)),
        is_mixed=any(order.is_mixed for order in orders),
        origin=next((order.origin for order in orders if order.origin is not None), None),
    )


def _combine(
    operation: Operation, operands: Mapping[int, Value], places: Mapping[int, Places | None], index: int
) -> Order:
    """Return the order of a result in which the operands' dimensions lie at some places; None if nobody knows."""
    orders = {i: operand.order for i, operand in operands.items()}
    merged = dataclasses.replace(_merge([*orders.values()]), uniform=_find_uniform(operation, orders, places, index))
    if all(order.is_plain for order in orders.values()):
        return merged
    is_grown = bool(operation.grown_result(index))
    blocks = {place[b] for i, place in places.items() if place for b in orders[i].blocks if b in place}
    lost = [(i, b) for i, order in orders.items() for b in order.blocks if b not in (places[i] or ())]
    prefixes = {order.prefix for i, order in orders.items() if _has_ordered_rows(operation, operands[i], i)}
    return dataclasses.replace(
        merged,
        blocks=frozenset(blocks),
        prefix=max(prefixes, default=1) if is_grown else 1,
        is_mixed=merged.is_mixed
        or any(is_grown or not _adds_up(operation, operands, *each) for each in lost)
        or any(_tells_apart(operation, orders, places, i, blocks) for i in operands)
        or any({*merged.turns - order.turns} & order.varies for order in orders.values())
        or len(prefixes) > 1,
    )


def _join_or_split(
    operation: Operation, operands: Mapping[int, Value], places: Mapping[int, Places | None], index: int
) -> Order:
    """Return the order of rows that are put behind one another, or repeated so, or of one of the parts into which they are split.

    Rows of two arrays behind one another are all rows of the first, then all of the second: as many of another dimension would be.
    """
    params = operation.eqn.params
    dimension = params.get("dimension", params.get("axis", max(operation.grown(0), default=-1)))
    if not all(dimension in operation.grown(i) for i in operands):
        return _combine(operation, operands, places, index)
    one_each = {i: dataclasses.replace(value, order=_with_prefix(value.order, 1)) for i, value in operands.items()}
    order = _combine(operation, one_each, places, index)
    # How many entries there are of all rows once.
    units = {Fraction(operation.operand(i).shape[dimension], value.order.prefix) for i, value in operands.items()}
    prefix = Fraction(operation.result(index).shape[dimension]) / max(units)
    if len(units) == 1 and prefix.denominator == 1:
        return _with_prefix(order, int(prefix))
    return dataclasses.replace(order, is_mixed=True)


def _with_prefix(order: Order, prefix: int) -> Order:
    return dataclasses.replace(order, prefix=prefix)


def _has_ordered_rows(operation: Operation, operand: Value, index: int) -> bool:
    return operand.kind in WITH_ROWS and not {*operation.grown(index)} <= operand.order.uniform


def _tells_apart(
    operation: Operation, orders: Mapping[int, Order], places: Mapping[int, Places | None], i: int, blocks: set[int]
) -> bool:
    """Whether an operand has something else for each block of another one."""
    sizes, order = operation.operand(i).shape, orders[i]
    pairs = (places[i] or {}).items()
    return any(to in blocks and d not in order.blocks | order.uniform and sizes[d] > 1 for d, to in pairs)


def _find_uniform(
    operation: Operation, orders: Mapping[int, Order], places: Mapping[int, Places | None], index: int
) -> frozenset[int]:
    """Return the dimensions along which a result is the same, such as those over which an operand is repeated."""
    if operation.name != "broadcast_in_dim" and operation.name not in _ELEMENTWISE:
        return frozenset()
    made, varying = operation.result(index).shape, set[int]()
    for i, order in orders.items():
        sizes = operation.operand(i).shape
        pairs = (places[i] or {}).items()
        varying |= {to for d, to in pairs if d not in order.uniform and not sizes[d] == 1 < made[to]}
    return _all_dimensions(operation, index) - varying


def _all_dimensions(operation: Operation, index: int) -> frozenset[int]:
    return frozenset(range(len(operation.result(index).shape)))


def _adds_up(operation: Operation, operands: Mapping[int, Value], operand: int, block: int) -> bool:
    """Whether an operation adds up over all blocks alike."""
    if operation.name == "reduce_sum":
        return block in operation.eqn.params["axes"]
    if operation.name != "dot_general":
        return False
    contracted, other = operation.eqn.params["dimension_numbers"][0], operands[1 - operand].order
    pairs = zip(contracted[operand], contracted[1 - operand], strict=True)
    return any(mine == block and theirs in other.blocks | other.uniform for mine, theirs in pairs)


def _find_places(operation: Operation, operand: int) -> Places | None:
    """Return where the dimensions of an operand lie in the results of an operation."""
    params, shape = operation.eqn.params, operation.operand(operand).shape
    match operation.name:
        case name if name in _ELEMENTWISE:
            return _same_places(operation, operand)
        case "broadcast_in_dim":
            return dict(enumerate(params["broadcast_dimensions"]))
        case "transpose":
            return {source: place for place, source in enumerate(params["permutation"])}
        case "squeeze":
            return _remaining(len(shape), params["dimensions"])
        case "dot_general":
            return _places_in_product(operation, operand)
        case "gather":
            return _places_in_gathered(operation, operand)
        case "sort" | "cumsum" | "cumprod" | "cummax" | "cummin" | "cumlogsumexp" | "rev" | "split":
            moved = {params.get("dimension", params.get("axis")), *params.get("dimensions", ())}
            return {d: d for d in range(len(shape)) if d not in moved}
        case "slice" | "dynamic_slice" | "dynamic_update_slice" | "pad" | "concatenate" | "tile":
            return {d: d for d, size in enumerate(operation.result().shape) if d < len(shape) and shape[d] == size}
        case name if name.startswith(("reduce_", "arg")) and "axes" in params:
            return _remaining(len(shape), params["axes"])
    return None


def _same_places(operation: Operation, operand: int) -> Places:
    return {d: d for d in range(len(operation.operand(operand).shape))}


def _remaining(count: int, removed: Sequence[int]) -> Places:
    return {d: place for place, d in enumerate(d for d in range(count) if d not in removed)}


def _places_in_product(operation: Operation, operand: int) -> Places:
    contracted, batch = operation.eqn.params["dimension_numbers"]
    count = [len(operation.operand(i).shape) for i in range(2)]
    free = [[d for d in range(count[i]) if d not in {*contracted[i], *batch[i]}] for i in range(2)]
    kept = [*batch[operand], *([None] * len(free[0]) if operand else []), *free[operand]]
    return {d: place for place, d in enumerate(kept) if d is not None}


def _places_in_gathered(operation: Operation, operand: int) -> Places:
    """Return where dimensions lie in gathered slices: those of indices but the last, and those of which slices have all entries."""
    numbers, sizes = operation.eqn.params["dimension_numbers"], operation.eqn.params["slice_sizes"]
    of_indices = [d for d in range(len(operation.result().shape)) if d not in numbers.offset_dims]
    if operand:
        return dict(enumerate(of_indices))
    kept = _remaining(len(sizes), [*numbers.collapsed_slice_dims, *numbers.operand_batching_dims])
    shape, offsets = operation.operand(0).shape, numbers.offset_dims
    pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    return {d: offsets[i] for d, i in kept.items() if sizes[d] == shape[d]} | {d: of_indices[i] for d, i in pairs}


def _reshape(operation: Operation, operand: Value) -> Order:
    """Return the order of rows in another shape: dimensions before the one of rows, if they come of it, tell blocks apart."""
    order, grown, grown_result = operand.order, operation.grown(0), operation.grown_result()
    if len(grown) > 1 or len(grown_result) > 1:
        return order if order.is_plain else dataclasses.replace(order, is_mixed=True)
    rows, new_rows = max(grown, default=-1), max(grown_result, default=-1)
    blocks, uniform, prefix = set[int](), set[int](), order.prefix
    shape, made = operation.twin_shapes()
    for given, results in _pair_dimensions(shape, made):
        if rows in given and operand.kind in WITH_ROWS:
            sizes = {d: made[d] for d in results}
            found, prefix = _reshape_rows(order, {d: shape[d] for d in given}, rows, sizes, new_rows)
            blocks |= found
        elif order.blocks & {*given}:
            blocks |= {*results}
        elif order.uniform >= {*given}:
            uniform |= {*results}
    origin = order.origin or (operation.eqn if blocks else None)
    return dataclasses.replace(
        order, blocks=frozenset(blocks), uniform=frozenset(uniform), prefix=prefix, origin=origin
    )


def _reshape_rows(
    order: Order, given: Mapping[int, int], rows: int, results: Mapping[int, int], new_rows: int
) -> tuple[set[int], int]:
    """Return which dimensions tell blocks apart, and the new prefix, where dimensions of these sizes become others."""
    before, after = {d for d in given if d < rows}, {d for d in given if d > rows}
    are_blocks = bool(before & order.blocks)
    if order.blocks & {*after, rows} or (are_blocks and (before - order.blocks or order.prefix > 1)):
        return {*results}, order.prefix  # Out of order.
    left = order.prefix
    for d in before - order.blocks:
        left *= given[d]
    blocks = set[int]()
    for d, size in results.items():
        if d >= new_rows:
            break
        if left == 1:
            blocks.add(d)
        elif left % size:
            return {*results}, left
        else:
            left //= size
    return blocks, left


def _pair_dimensions(shape: Sequence[int], made: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield which dimensions become which in a reshape, few at a time; those of size one are left out."""
    pending = [(d, size) for d, size in enumerate(made) if size != 1]
    given, results, one, other = list[int](), list[int](), 1, 1
    for dimension, size in enumerate(shape):
        if size == 1:
            continue
        given.append(dimension)
        one *= size
        while pending and other < one:
            d, part = pending.pop(0)
            results.append(d)
            other *= part
        if one == other:
            yield given, results
            given, results, one, other = [], [], 1, 1


_RANDOM = frozenset({"random_bits", "threefry2x32"})
# Each result is made of one operand.
_SEPARATE = frozenset({"optimization_barrier", "psum", "pmax", "pmin", "psum_invariant", "ppermute", "pvary", "pcast"})
_ELEMENTWISE = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e",
    "cbrt", "ceil", "clamp", "clz", "complex", "conj", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div",
    "eq", "eq_to", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma", "igamma_grad_a", "igammac",
    "imag", "integer_pow", "is_finite", "le", "le_to", "lgamma", "log", "log1p", "logistic", "lt", "lt_to", "max", "min", "mul",
    "name", "ne", "neg", "nextafter", "not", "or", "polygamma", "population_count", "pow", "real", "reduce_precision",
    "regularized_incomplete_beta", "rem", "round", "rsqrt", "select_n", "sharding_constraint", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan",
    "tanh", "xor", "zeta",
})  # fmt: skip
