"""Finds out what the results of a function have to do with the rows of its batch.

The function is traced twice, with a replica's rows and with all rows, as one device would run it. Dimensions that have grown are those of
rows, constants that have grown are numbers of rows, and each value in its program gets a kind from those that it is made of.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any, final

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from tfdist_jax._global_batch import _row_kinds as kinds, _row_order as orders, _row_places as places
from tfdist_jax._global_batch._programs import INLINED, equations, is_program, open_program, scan_operands
from tfdist_jax._global_batch._row_values import (
    FIXED,
    WITH_ROWS,
    Operation,
    RowKind,
    UnlikeError,
    Value,
    grown_shape,
)
from tfdist_jax._sharding._exact import is_assumed_exact


@final
@dataclasses.dataclass(frozen=True)
class Direction:
    """Along what a batch is split: its rows, or their tokens, of which all that is said of rows holds.

    Attributes:
        axes: The mesh axes over which it is, on which a function may communicate.
        ratio: How many times as many there are in what a function is compared with.
        dimension: Which dimension of the batch's arrays it is: 0 for rows, 1 for tokens. What goes on within a kernel is taken
            to be the same for each row, but not for each token.
    """

    axes: tuple[str, ...]
    ratio: Fraction
    dimension: int = 0


@final
@dataclasses.dataclass(frozen=True)
class RowKinds:
    """What a function's results have to do with the rows of its batch.

    Attributes:
        values: For each leaf of the results; None if the function is another one for all rows.
        collectives: The operations by which it communicates over axes of the batch; functions of `assume_exact` that do.
        scaling: Those of them that are not of `assume_exact`: sums may be those of all replicas already.
        relating: Operations that give a row what depends on others, as statistics of a batch do.
        repeated: Operations that draw random numbers for each row from a key that is the same on all replicas.
        parted: Operations that compute with rows and with the part that a replica has of an array.
        why_not: Why `values` is None.
    """

    values: Sequence[Value] | None
    collectives: Sequence[JaxprEqn]
    scaling: Sequence[JaxprEqn] = ()
    relating: Sequence[JaxprEqn] = ()
    repeated: Sequence[JaxprEqn] = ()
    parted: Sequence[JaxprEqn] = ()
    why_not: str = ""


def find_row_kinds(
    jaxpr: ClosedJaxpr,
    trace_grown: Callable[[], ClosedJaxpr],
    direction: Direction,
    known: Sequence[RowKind] = (),
) -> RowKinds:
    """Find out what the results of a function have to do with rows.

    Args:
        jaxpr: The function.
        trace_grown: Traces it with more rows. Arguments that have grown then are those with rows; others are the same on all
            replicas.
        direction: Along what it is split.
        known: What each of the arguments is that has no rows; if it is empty, the same on all replicas.
    """
    axes, ratio = direction.axes, direction.ratio
    outer = list(equations(jaxpr.jaxpr, is_leaf=is_assumed_exact))
    scaling = [eqn for eqn in outer if communicates(eqn, axes)]
    inside = lambda eqn: equations(open_program(eqn.params["jaxpr"]))
    exact = [eqn for eqn in outer if is_assumed_exact(eqn) and any(communicates(inner, axes) for inner in inside(eqn))]
    collectives = [*scaling, *exact]
    known = known or [RowKind.SAME] * len(jaxpr.in_avals)
    try:
        twin = trace_grown()
        walk = _Walk(direction)
        consts = [kinds.constant(*pair, ratio) for pair in zip(jaxpr.consts, twin.consts, strict=True)]
        given = [_argument(i, *each) for i, each in enumerate(zip(jaxpr.in_avals, twin.in_avals, known, strict=True))]
        values = walk.run(jaxpr.jaxpr, twin.jaxpr, [*consts, *given])
        pairs = zip(values, jaxpr.out_avals, twin.out_avals, strict=True)
        values = [_result(value, grown_shape(one.shape, other.shape), direction) for value, one, other in pairs]
    except (UnlikeError, ValueError) as error:
        return RowKinds(None, collectives, scaling, why_not=str(error))
    except Exception as error:  # Whatever a user's function raises for sizes that it was not made for.
        return RowKinds(
            None,
            collectives,
            scaling,
            why_not=f"with the rows of all replicas it raises {type(error).__name__}: {error}",
        )
    relating, repeated, parted = (list(notes.values()) for notes in (walk.relating, walk.repeated, walk.parted))
    return RowKinds(values, collectives, scaling, relating, repeated, parted)


def communicates(eqn: JaxprEqn, axes: Sequence[str]) -> bool:
    """Whether an operation waits for other devices along one of some mesh axes."""
    return eqn.primitive.name not in _WITHOUT_OTHERS and not _named_axes(eqn).isdisjoint(axes)


def draws_together(eqn: JaxprEqn) -> bool:
    """Whether an operation draws random numbers for several keys at a time, of a kind with which each one's depend on the others."""
    if eqn.primitive.name != "random_bits":
        return False
    keys: Any = eqn.invars[0].aval
    return bool(keys.shape) and str(keys.dtype) in ("key<rbg>", "key<urbg>")


_WITHOUT_OTHERS = {"axis_index", "pvary", "pcast"}
_GATHERING = {"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"}


def _find_inner(operation: Operation) -> tuple[Any, Any] | None:
    """Return the program that an operation calls with its operands, and its twin; None if there is none, or several."""
    if is_assumed_exact(operation.eqn):
        return None
    twins = operation.twin.params
    inner = [(value, twins[key]) for key, value in operation.eqn.params.items() if is_program(value)]
    takes_operands = len(inner) == 1 and len(open_program(inner[0][0]).invars) == len(operation.eqn.invars)
    return inner[0] if takes_operands else None


def _forget(value: Value) -> Value:
    return dataclasses.replace(value, known=None, numbering=None)


def _result(value: Value, grown: tuple[int, ...], direction: Direction) -> Value:
    """Return what a result is; entries of rows lie along their dimension alone, in order, and no blocks of them are told apart."""
    if not value.order.is_plain:
        return Value(RowKind.BLOCKS, culprit=value.order.origin or value.culprit)
    if value.kind is RowKind.ZERO and grown:
        value = Value(RowKind.ROWS)
    lies_elsewhere = value.kind is RowKind.ROWS and grown != (direction.dimension,)
    is_repeated = value.kind is RowKind.COUNT and grown
    return Value(RowKind.OTHER) if lies_elsewhere or is_repeated else value


def _is_of_row(value: Value) -> bool:
    return value.kind in {*FIXED, RowKind.ROWS} and value.order.is_plain


def _argument(index: int, given: Any, twin: Any, known: RowKind) -> Value:
    return Value(RowKind.ROWS if given.shape != twin.shape else known, source=index)


def _named_axes(eqn: JaxprEqn) -> frozenset[str]:
    names = [eqn.params.get(key, ()) for key in ("axes", "axis_name")]
    return frozenset(
        name
        for each in names
        for name in (each if isinstance(each, tuple | list) else (each,))
        if isinstance(name, str)
    )


@final
class _Walk:
    """Goes through a program and the one for more rows, side by side.

    Attributes:
        relating: As in `RowKinds`, by identity.
        repeated: As in `RowKinds`, by identity.
        parted: As in `RowKinds`, by identity.
    """

    def __init__(self, direction: Direction) -> None:
        self.relating: dict[int, JaxprEqn] = {}
        self.repeated: dict[int, JaxprEqn] = {}
        self.parted: dict[int, JaxprEqn] = {}
        self._axes = frozenset(direction.axes)
        self._ratio = direction.ratio
        self._of_tokens = direction.dimension > 0
        # The operation that calls the library's function, if we are in one: inside, lines are those of its first trace.
        self._calling: JaxprEqn | None = None

    def run(self, one: Jaxpr, twin: Jaxpr, given: Sequence[Value]) -> list[Value]:
        if [eqn.primitive for eqn in one.eqns] != [eqn.primitive for eqn in twin.eqns]:
            raise UnlikeError("with the rows of all replicas it does other operations")
        known: dict[Any, Value] = dict(zip([*one.constvars, *one.invars], given, strict=True))

        def read(var: Any, twin: Any) -> Value:
            if not isinstance(var, Literal):
                return known[var]
            return kinds.constant(var.val, twin.val, self._ratio) if isinstance(twin, Literal) else Value(RowKind.OTHER)

        for eqn, twin_eqn in zip(one.eqns, twin.eqns, strict=True):
            operation = Operation(eqn, twin_eqn, self._ratio)
            operands = [read(*pair) for pair in zip(operation.eqn.invars, operation.twin.invars, strict=True)]
            results = self._apply(operation, operands)
            for i, (var, value) in enumerate(zip(operation.eqn.outvars, results, strict=True)):
                shaped = self._shaped(operation, value, is_grown=bool(operation.grown_result(i)))
                known[var] = dataclasses.replace(shaped, order=value.order)
        return [read(*pair) for pair in zip(one.outvars, twin.outvars, strict=True)]

    def _shaped(self, operation: Operation, value: Value, *, is_grown: bool) -> Value:
        """Let the kind of a value agree with whether it has rows."""
        if not is_grown:
            return self._other(operation) if value.kind in (RowKind.ROWS, RowKind.ROWS_PER_COUNT) else value
        if value.kind in {*WITH_ROWS, RowKind.ZERO, RowKind.SHARED, RowKind.PART}:
            return value
        self._note(self.relating, operation)
        return Value(RowKind.ROWS)

    def _note(self, notes: dict[int, JaxprEqn], operation: Operation) -> None:
        eqn = self._calling or operation.eqn
        notes.setdefault(id(eqn), eqn)

    def _other(self, operation: Operation) -> Value:
        return Value(RowKind.OTHER, culprit=self._calling or operation.eqn)

    def _apply(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        computed = kinds.compute_constants(operation, operands)
        if computed is not None:
            return computed
        if places.asks_for_negative(operation, operands):
            return [Value(RowKind.ZERO)]
        chosen = kinds.choose_known(operation, operands)
        if chosen is not None:
            return [chosen]
        inner = _find_inner(operation)
        if inner is not None and operation.name in INLINED:
            return self._call(operation, *inner, operands)
        results = [_forget(result) for result in self._find_results(operation, inner, operands)]
        numbering = places.find_numbering(operation, operands)
        return [dataclasses.replace(results[0], numbering=numbering)] if numbering else results

    def _find_results(
        self, operation: Operation, inner: tuple[Any, Any] | None, operands: Sequence[Value]
    ) -> Sequence[Value]:
        if is_assumed_exact(operation.eqn):
            return self._ordered(operation, operands, self._assume_exact(operation, operands))
        loops = {"scan": self._scan, "while": self._while, "cond": self._cond}
        # What enters a loop or a branch is known no more.
        entering = [_forget(operand) for operand in operands]
        if operation.name in loops:
            return loops[operation.name](operation, entering)
        if inner is not None and operation.name != "pallas_call":
            return self._call(operation, *inner, entering)
        if places.has_other_number(operation.eqn, operation.twin):
            return [self._other(operation)]
        return self._ordered(operation, operands, self._compute(operation, operands))

    def _ordered(self, operation: Operation, operands: Sequence[Value], results: Sequence[Value]) -> Sequence[Value]:
        """Return the results of an operation with the order of their rows, and with the user's line that made blocks of them."""
        ordered: list[Value] = []
        for i, value in enumerate(results):
            order = orders.find_order(operation, operands, i)
            if not order.is_plain and order.origin in (None, operation.eqn):
                order = dataclasses.replace(order, origin=self._calling or operation.eqn)
            ordered.append(dataclasses.replace(value, order=order))
        return ordered

    def _assume_exact(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        count, given = len(operation.eqn.outvars), {operand.kind for operand in operands}
        if given <= {*FIXED, RowKind.ROWS, RowKind.SHARED, RowKind.REPLICA, RowKind.PART}:
            return [Value(RowKind.ROWS if operation.grown_result(i) else RowKind.SAME) for i in range(count)]
        return [self._other(operation)] * count

    def _compute(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        count, given = len(operation.eqn.outvars), {operand.kind for operand in operands}
        over = _named_axes(operation.eqn) & self._axes
        depends_on_places = RowKind.PLACES in given or any(operation.grown_result(i) for i in range(count))
        if operation.name in places.DRAWING and given <= {*FIXED, RowKind.PLACES} and depends_on_places:
            self._note(self.repeated, operation)
        if draws_together(operation.eqn) and operation.grown(0):
            self._note(self.relating, operation)
        shared = [Value(RowKind.SHARED if operation.grown_result(i) else RowKind.SAME) for i in range(count)]
        if operation.name == "axis_index":
            return [Value(RowKind.REPLICA if over else RowKind.SAME)]
        if over:
            return shared if operation.name in _GATHERING and over == self._axes else [self._other(operation)] * count
        if given == {RowKind.ZERO} and kinds.is_zero_preserving(operation):
            return [Value(RowKind.ZERO)] * count
        if RowKind.SHARED in given <= {*FIXED, RowKind.SHARED}:
            return shared
        if RowKind.PART in given:
            return self._with_parts(operation, given)
        if given <= {*FIXED, RowKind.REPLICA}:
            same = Value(RowKind.REPLICA if RowKind.REPLICA in given else RowKind.SAME)
            return [self._with_rows(operation, operands) if operation.grown_result(i) else same for i in range(count)]
        if RowKind.PLACES in given <= {*FIXED, RowKind.PLACES} and not any(map(operation.grown, range(len(operands)))):
            return [Value(RowKind.PLACES)] * count  # Of one place, inside of a loop over them.
        result = kinds.combine(operation, operands)
        result = self._other(operation) if result.culprit is operation.eqn else result
        return [self._with_rows(operation, operands) if operation.grown_result(i) else result for i in range(count)]

    def _with_parts(self, operation: Operation, given: Collection[RowKind]) -> Sequence[Value]:
        if not {*given} <= {*FIXED, RowKind.PART}:
            self._note(self.parted, operation)
        return [Value(RowKind.PART)] * len(operation.eqn.outvars)

    def _with_rows(self, operation: Operation, operands: Sequence[Value]) -> Value:
        kind = kinds.combine_rows(operation, operands)
        if kind is None or (self._of_tokens and kinds.may_relate_tokens(operation, operands)):
            self._note(self.relating, operation)
        return Value(kind or RowKind.ROWS)

    def _call(self, operation: Operation, one: Any, twin: Any, operands: Sequence[Value]) -> list[Value]:
        pairs = zip(getattr(one, "consts", ()), getattr(twin, "consts", ()), strict=True)
        consts = [kinds.constant(*pair, self._ratio) for pair in pairs]
        one, twin = open_program(one), open_program(twin)
        outer = self._calling
        if operation.name in ("pjit", "jit") and outer is None:
            self._calling = operation.eqn
        try:
            return self.run(one, twin, [*consts, *operands])
        finally:
            self._calling = outer

    def _scan(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        params, twins = operation.eqn.params, operation.twin.params
        bodies = params["jaxpr"], twins["jaxpr"]
        body = open_program(bodies[0])
        consts, carry, xs = scan_operands(operation.eqn, operands)
        # Of values for each row, the body may see one row: no sum over rows comes of it.
        of_rows = params["length"] != twins["length"]
        if of_rows:
            changes = [body.outvars[i] is not body.invars[len(consts) + i] for i in range(len(carry))]
            # What changes from turn to turn, such as a counter, tells the places of rows.
            carry = [
                Value(RowKind.PLACES) if is_other and value.kind in FIXED else value
                for value, is_other in zip(carry, changes, strict=True)
            ]
        enter = lambda value: orders.enter_loop(value, operation.eqn, of_rows=of_rows)
        xs = [dataclasses.replace(value, source=None, order=enter(value)) for value in xs]
        are_sums = [
            not operation.grown_result(i) and orders.adds_to(body, len(consts) + i, i) for i in range(len(carry))
        ]

        def turn(carry: Sequence[Value]) -> list[Value]:
            results = self._call(operation, *bodies, [*consts, *carry, *xs])
            carry_on = lambda value, is_sum: orders.carry_on(value.order, operation.eqn, is_sum=is_sum)
            carried = [
                dataclasses.replace(value, order=carry_on(value, is_sum))
                for value, is_sum in zip(results, are_sums, strict=False)
            ]
            return [*carried, *results[len(carried) :]]

        carry, ys = self._repeat(operation, carry, turn)
        ys = [dataclasses.replace(value, order=orders.leave_loop(value.order, operation.eqn)) for value in ys]
        return self._turn_over_rows(operation, [*consts, *carry, *xs], ys) if of_rows else [*carry, *ys]

    def _turn_over_rows(self, operation: Operation, given: Sequence[Value], ys: Sequence[Value]) -> Sequence[Value]:
        """Return the results of a loop each turn of which sees its row, and what else there is: other rows, in a row of pairs."""
        consts, carry, _ = scan_operands(operation.eqn, given)
        begin, first = len(consts), len(consts) + len(carry)
        depends, beside = list[frozenset[RowKind]](), set[RowKind]()
        for i, value in enumerate(given):
            is_of_turn = value.kind is RowKind.PLACES and i >= begin and not operation.grown(i)
            if is_of_turn or (i >= first and value.kind in (RowKind.ROWS, RowKind.PLACES)):
                depends.append(frozenset({value.kind}))
            else:
                beside.add(value.kind)
                depends.append(frozenset({RowKind.ROWS} if value.kind not in FIXED else ()))
        sees_pairs = any(len(operation.grown(i)) > 1 for i in range(first, len(given)))
        bodies = operation.eqn.params["jaxpr"], operation.twin.params["jaxpr"]
        dependence = places.Dependence()
        found = dependence.find(*bodies, depends)[len(carry) :]
        for eqn in dependence.drawn:
            self.repeated.setdefault(id(self._calling or eqn), self._calling or eqn)
        relates = any(len(on) > 1 or RowKind.COUNT in on for on in found)
        if relates or sees_pairs or not beside <= {*FIXED, RowKind.REPLICA, RowKind.SHARED}:
            self._note(self.relating, operation)
        kind_of = lambda on: RowKind.PLACES if on == {RowKind.PLACES} else RowKind.ROWS
        ys = [
            value if value.kind is RowKind.ZERO else Value(kind_of(on), order=value.order)
            for value, on in zip(ys, found, strict=True)
        ]
        return [*(value if value.kind is RowKind.ZERO else self._other(operation) for value in carry), *ys]

    def _while(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        params, twins = operation.eqn.params, operation.twin.params
        of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
        consts, carry = operands[of_cond : of_cond + of_body], operands[of_cond + of_body :]
        bodies = params["body_jaxpr"], twins["body_jaxpr"]
        conditions = params["cond_jaxpr"], twins["cond_jaxpr"]
        carry, _ = self._repeat(operation, carry, lambda carry: self._call(operation, *bodies, [*consts, *carry]))
        (goes_on,) = self._call(operation, *conditions, [*operands[:of_cond], *carry])
        if goes_on.kind in FIXED:
            return carry
        # Under `jax.vmap` over rows, each row has its own number of rounds, after which it stays as it is.
        is_of_row = goes_on.kind is RowKind.ROWS and goes_on.order.is_plain
        goes_alone = lambda i, value: is_of_row and operation.grown_result(i) == (0,) and _is_of_row(value)
        return [
            Value(RowKind.ROWS) if goes_alone(i, value) else self._other(operation) for i, value in enumerate(carry)
        ]

    def _repeat(
        self, operation: Operation, carry: Sequence[Value], body: Callable[[Sequence[Value]], list[Value]]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """Return what is carried, whatever number of times the body runs, and what else it gives."""
        while True:
            results = body(carry)
            joined = [kinds.join(pair, operation.eqn) for pair in zip(carry, results, strict=False)]
            if [(value.kind, value.order) for value in joined] == [(value.kind, value.order) for value in carry]:
                return joined, results[len(carry) :]
            carry = joined

    def _cond(self, operation: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        pairs = zip(operation.eqn.params["branches"], operation.twin.params["branches"], strict=True)
        branches = [self._call(operation, one, twin, operands[1:]) for one, twin in pairs]
        if operands[0].kind not in FIXED:
            return [self._other(operation)] * len(operation.eqn.outvars)
        return [kinds.join(values, operation.eqn) for values in zip(*branches, strict=True)]
