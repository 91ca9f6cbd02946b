"""Which entries of a batch end as ids and labels that must be in range: found in a step's program, looked at on the host.

The way of an entry to its mark (`_variables/_bounds`) is mostly reshaping, slicing and conversion. Those are done again with
NumPy, on the host's batch, before the step runs; where the way is another one, the entry is not looked at.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tfdist_jax._autodiff._custom_pullback import take_rows
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._served_program import CellProgram
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import JaxVariable, get_stateless_scope
from tfdist_jax.compat.tensorflow.keras._variables._bounds import MARK, refuse_outside, require_within

Batch = Sequence[np.ndarray]
Compute = Callable[[Batch], np.ndarray]


@final
@dataclasses.dataclass(frozen=True)
class Value:
    """What a variable of the program holds.

    Attributes:
        compute: Computes it from the arrays of a batch.
        entries: Computes the same entries in some order and shape, with less work; over all replicas if there are several.
        is_whole: Whether they are whole numbers, of whatever type.
        is_constant: Whether they are the same for all batches.
    """

    compute: Compute
    entries: Compute
    is_whole: bool
    is_constant: bool = False


Values = list[Value | None]
"""None for what does not follow from the batch in known ways."""


@final
@dataclasses.dataclass(frozen=True)
class BatchCheck:
    """Entries of a batch that must be in a range.

    Attributes:
        entries: Gives the entries.
        least: The smallest.
        size: One more than the largest.
        what: What they are.
    """

    entries: Compute
    least: int
    size: int
    what: str


@final
@dataclasses.dataclass(frozen=True)
class _Search:
    """What is found in a program, of which one replica's part is being followed.

    Attributes:
        found: The checks, in their order.
        replica: Its index on each axis of the mesh that the batch is split over.
    """

    found: dict[BatchCheck, None]
    replica: Mapping[str, int]


def find_checks(program: CellProgram, num_arrays: int) -> list[BatchCheck]:
    """Return what can be looked at in the first `num_arrays` arguments of a program, the batch's, before it runs."""
    closed = program.captured.jaxpr
    arrays = [(operator.itemgetter(i), closed.in_avals[i].dtype) for i in range(num_arrays)]
    given: Values = [Value(array, array, dtype.kind in "iu") for array, dtype in arrays]
    search = _Search({}, {})
    _follow(closed, [*given, *[None] * (len(closed.jaxpr.invars) - num_arrays)], search)
    return list(search.found)


def check_batch(checks: Sequence[BatchCheck], arrays: Sequence[Any]) -> None:
    """Raise if an entry of a batch on this host is out of range.

    Raises:
        InvalidArgumentError: If one is.
    """
    if not checks:
        return
    host = [on_cpu(array) for array in arrays]
    known = [np.empty(0) if array is None else array for array in host]
    if len(known) == sum(array is not None for array in host):
        for check in checks:
            refuse_outside(check.entries(known), check.least, check.size, check.what)


def _follow(closed: ClosedJaxpr, inputs: Values, search: _Search) -> Values:
    """Note the marks in a program whose inputs are as given; return its outputs."""
    jaxpr = closed.jaxpr
    known: dict[Any, Value] = {v: value for v, value in zip(jaxpr.invars, inputs, strict=True) if value is not None}
    known |= {v: _constant(value) for v, value in zip(jaxpr.constvars, closed.consts, strict=False)}

    def read(variable: Any) -> Value | None:
        return _constant(variable.val) if isinstance(variable, Literal) else known.get(variable)

    for eqn in jaxpr.eqns:
        if eqn.invars and not any(not isinstance(v, Literal) and v in known for v in eqn.invars):
            continue
        operands = [read(v) for v in eqn.invars]
        for variable, value in zip(eqn.outvars, _results(eqn, operands, search), strict=False):
            if value is not None:
                known[variable] = value
    return [read(v) for v in jaxpr.outvars]


def _constant(value: Any) -> Value:
    # A program may hold large arrays on a device, of which few are looked at.
    compute = lambda batch: np.asarray(value)
    return Value(compute, compute, jnp.result_type(value).kind in "iu", is_constant=True)


def _results(eqn: Any, operands: Values, search: _Search) -> Values:
    name = eqn.primitive.name
    if name == MARK:
        search.found[BatchCheck(cast(Value, operands[0]).entries, **eqn.params)] = None
        return operands
    if name in _ON_HOST:
        return [_computed(eqn, operands)]
    if name == "axis_index":
        place = search.replica.get(eqn.params["axis_name"])
        return [] if place is None else [_constant(np.int32(place))]
    if name == "shard_map":
        return _follow_replicas(eqn, operands, search)
    if name == "cond":
        return _follow_branch(eqn, operands, search)
    outputs: Values = []
    for inner in _inner_programs(eqn):
        outputs = _follow(inner, operands, search)
    return outputs


def _follow_branch(eqn: Any, operands: Values, search: _Search) -> Values:
    """Follow the branch that is taken, such as that for a replica's number of rows; where the batch decides, none."""
    which = operands[0]
    if which is None or not which.is_constant:
        return []
    branches = eqn.params["branches"]
    return _follow(branches[int(np.clip(which.compute(()), 0, len(branches) - 1))], operands[1:], search)


def _inner_programs(eqn: Any) -> Iterator[ClosedJaxpr]:
    """Yield the programs that an equation runs on its operands."""
    if eqn.primitive.name in ("scan", "while"):
        return  # What a loop's body takes changes from turn to turn.
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program):
        if _is_program(value):
            closed = value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
            if len(closed.jaxpr.invars) == len(eqn.invars):
                yield closed


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


def _follow_replicas(eqn: Any, operands: Values, search: _Search) -> Values:
    """Follow the batch into the replicas, each of which has its block of rows."""
    inner = eqn.params["jaxpr"]
    closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    sizes = eqn.params["mesh"].shape
    splits = [
        None if value is None else _split_axis(spec)
        for value, spec in zip(operands, eqn.params["in_specs"], strict=True)
    ]
    names = next((names for _, names in filter(None, splits)), ())
    places = list(np.ndindex(*(sizes[name] for name in names)))
    for block, place in enumerate(places):
        own = [
            value if value is None or split is None else _block_of(value, split[0], block, len(places))
            for value, split in zip(operands, splits, strict=True)
        ]
        _follow(closed, own, _Search(search.found, dict(zip(names, place, strict=True))))
    return []


def _split_axis(spec: Any) -> tuple[int, tuple[str, ...]] | None:
    for axis, names in enumerate(spec):
        if names:
            return axis, names if isinstance(names, tuple) else (names,)
    return None


def _block_of(value: Value, axis: int, block: int, num_blocks: int) -> Value:
    def compute(batch: Batch) -> np.ndarray:
        whole = value.compute(batch)
        length = whole.shape[axis] // num_blocks
        return whole[(slice(None),) * axis + (slice(block * length, (block + 1) * length),)]

    return Value(compute, value.entries, value.is_whole)


def _computed(eqn: Any, operands: Values) -> Value | None:
    known = [operand.compute for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    on_host, params, dtype = _ON_HOST[eqn.primitive.name], eqn.params, eqn.outvars[0].aval.dtype

    def compute(batch: Batch) -> np.ndarray:
        return np.asarray(on_host(params, *(operand(batch) for operand in known)), dtype)

    first, is_constant = cast(Value, operands[0]), all(cast(Value, operand).is_constant for operand in operands)
    if _keeps_entries(eqn, first):
        return Value(compute, first.entries, first.is_whole, is_constant)
    return Value(compute, compute, dtype.kind in "iu", is_constant)


def _keeps_entries(eqn: Any, first: Value) -> bool:
    """Whether the result has the same entries as the first operand."""
    name, operand = eqn.primitive.name, eqn.invars[0].aval
    if name == "convert_element_type":
        wide = eqn.outvars[0].aval.dtype
        return first.is_whole and wide.kind in "if" and wide.itemsize >= operand.dtype.itemsize
    return name in _REARRANGING or (name in _CUTTING and eqn.outvars[0].aval.shape == operand.shape)


def _slice(params: Any, x: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return x[tuple(slice(*each) for each in bounds)]


def _dynamic_slice(params: Any, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes = params["slice_sizes"]
    first = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))]


def _broadcast(params: Any, x: np.ndarray) -> np.ndarray:
    shape = params["shape"]
    kept = [1] * len(shape)
    for size, place in zip(x.shape, params["broadcast_dimensions"], strict=True):
        kept[place] = size
    return np.broadcast_to(x.reshape(kept), shape)


def _elementwise(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params, *operands: fn(*operands)


_REARRANGING = ("reshape", "squeeze", "transpose", "broadcast_in_dim", "copy")
_CUTTING = ("slice", "dynamic_slice")
_ON_HOST: dict[str, Callable[..., Any]] = {
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "convert_element_type": _elementwise(lambda x: x),
    "copy": _elementwise(lambda x: x),
    "clamp": _elementwise(lambda least, x, most: np.clip(x, least, most)),
    "select_n": _elementwise(lambda which, *cases: np.where(which, cases[1], cases[0])),
    **{
        name: _elementwise(fn)
        for name, fn in (
            ("add", np.add),
            ("sub", np.subtract),
            ("mul", np.multiply),
            ("max", np.maximum),
            ("min", np.minimum),
            ("eq", np.equal),
            ("ne", np.not_equal),
            ("lt", np.less),
            ("le", np.less_equal),
            ("gt", np.greater),
            ("ge", np.greater_equal),
            ("and", np.bitwise_and),
            ("or", np.bitwise_or),
            ("not", np.invert),
            ("floor", np.floor),
        )
    },
}


def _is_served(table: Any) -> bool:
    return isinstance(table, JaxVariable) and cast(Any, table).storage.is_served


def _checking_ids(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: keras.layers.Embedding, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, keras.KerasTensor):
            ids = inputs if jnp.issubdtype(inputs.dtype, jnp.integer) else keras.ops.cast(inputs, "int32")
            # Negative ones count from the end, as in `take`.
            inputs = require_within(ids, self.input_dim, f"An id for {self.name!r}", least=-self.input_dim)
            table: Any = self.embeddings
            if _is_served(table) and get_stateless_scope() is None:
                # Of a value in its own type: then the gradient is rows, too, and all that has to go to the server.
                rows = jnp.where(inputs < 0, inputs + self.input_dim, inputs)
                found = take_rows(_state.read(table), rows, functools.partial(jnp.take, axis=0))
                return keras.ops.cast(found, self.compute_dtype)
        return original(self, inputs, *args, **kwargs)

    return call


CHANGES = (
    Hook(
        keras.layers.Embedding,
        "call",
        _checking_ids,
        "self inputs",
        "ids out of range are an error, as in TensorFlow, and gradients of a table on a server are rows",
    ),
)
