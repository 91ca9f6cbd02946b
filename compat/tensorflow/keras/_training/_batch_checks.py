"""Which entries of a batch end as ids and labels that must be in range: found in a step's program, looked at on the host.

The way of an entry to its mark (`_variables/_bounds`) is mostly reshaping, slicing and conversion. Those are done again with
NumPy, on the host's batch, before the step runs; where the way is another one, the entry is not looked at.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, final

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from tfdist_jax._stateful._capture import StatefulProgram
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow.keras._change import Hook
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
    """

    compute: Compute
    entries: Compute
    is_whole: bool


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


def find_checks(program: StatefulProgram, num_arrays: int) -> list[BatchCheck]:
    """Return what can be looked at in the first `num_arrays` arguments of a program, the batch's, before it runs."""
    closed = program.captured.jaxpr
    arrays = [(operator.itemgetter(i), closed.in_avals[i].dtype) for i in range(num_arrays)]
    given: Values = [Value(array, array, dtype.kind in "iu") for array, dtype in arrays]
    found: dict[BatchCheck, None] = {}
    _follow(closed, [*given, *[None] * (len(closed.jaxpr.invars) - num_arrays)], found)
    return list(found)


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


def _follow(closed: ClosedJaxpr, inputs: Values, found: dict[BatchCheck, None]) -> Values:
    """Note the marks in a program whose inputs are as given; return its outputs."""
    jaxpr = closed.jaxpr
    known: dict[Any, Value] = {v: value for v, value in zip(jaxpr.invars, inputs, strict=True) if value is not None}

    def read(variable: Any) -> Value | None:
        if isinstance(variable, Literal):
            constant = np.asarray(variable.val)
            return Value(lambda batch: constant, lambda batch: constant, constant.dtype.kind in "iu")
        return known.get(variable)

    for eqn in jaxpr.eqns:
        if not any(not isinstance(v, Literal) and v in known for v in eqn.invars):
            continue
        operands = [read(v) for v in eqn.invars]
        for variable, value in zip(eqn.outvars, _results(eqn, operands, found), strict=False):
            if value is not None:
                known[variable] = value
    return [read(v) for v in jaxpr.outvars]


def _results(eqn: Any, operands: Values, found: dict[BatchCheck, None]) -> Values:
    name = eqn.primitive.name
    if name == MARK:
        found[BatchCheck(cast(Value, operands[0]).entries, **eqn.params)] = None
        return operands
    if name in _ON_HOST:
        return [_computed(eqn, operands)]
    if name == "shard_map":
        return _follow_replicas(eqn, operands, found)
    outputs: Values = []
    for inner, skipped in _inner_programs(eqn):
        outputs = _follow(inner, operands[skipped:], found)
    # Which branch of several is taken is not known here.
    return outputs if name not in ("cond", "scan", "while") else []


def _inner_programs(eqn: Any) -> Iterator[tuple[ClosedJaxpr, int]]:
    """Yield the programs that an equation runs on its operands, with how many first operands they do not take."""
    name = eqn.primitive.name
    if name in ("scan", "while"):
        return  # What a loop's body takes changes from turn to turn.
    for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program):
        if _is_program(value):
            closed = value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
            skipped = 1 if name == "cond" else 0
            if len(closed.jaxpr.invars) == len(eqn.invars) - skipped:
                yield closed, skipped


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


def _follow_replicas(eqn: Any, operands: Values, found: dict[BatchCheck, None]) -> Values:
    """Follow the batch into the replicas, each of which has its block of rows; rows that fill a block up are zeros, in range."""
    inner = eqn.params["jaxpr"]
    closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    sizes = eqn.params["mesh"].shape
    axes = [_split_axis(spec) for spec in eqn.params["in_specs"]]
    num_blocks = max((int(np.prod([sizes[name] for name in names])) for _, names in filter(None, axes)), default=1)
    for block in range(num_blocks):
        own = [
            value if value is None or axis is None else _block_of(value, axis[0], block, num_blocks)
            for value, axis in zip(operands, axes, strict=True)
        ]
        _follow(closed, own, found)
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

    first = cast(Value, operands[0])
    if _keeps_entries(eqn, first):
        return Value(compute, first.entries, first.is_whole)
    return Value(compute, compute, dtype.kind in "iu")


def _keeps_entries(eqn: Any, first: Value) -> bool:
    """Whether the result has the same entries as the first operand."""
    name, operand = eqn.primitive.name, eqn.invars[0].aval
    if name == "convert_element_type":
        return first.is_whole
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


def _checking_ids(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: keras.layers.Embedding, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, keras.KerasTensor):
            ids = inputs if jnp.issubdtype(inputs.dtype, jnp.integer) else keras.ops.cast(inputs, "int32")
            # Negative ones count from the end, as in `take`.
            inputs = require_within(ids, self.input_dim, f"An id for {self.name!r}", least=-self.input_dim)
        return original(self, inputs, *args, **kwargs)

    return call


CHANGES = (
    Hook(
        keras.layers.Embedding, "call", _checking_ids, "self inputs", "ids out of range are an error, as in TensorFlow"
    ),
)
