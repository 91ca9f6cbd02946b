"""Shards of parameters, gathered where a program uses them: inside of rematerialised functions and of the loops around these."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.sharding import PartitionSpec

from tfdist_jax._global_batch._programs import equations, open_program, scan_operands
from tfdist_jax._sharding._compression import Compression
from tfdist_jax._sharding._layout import Layout, axes_of, make_spec, names_of, restrict


@final
@dataclasses.dataclass(frozen=True)
class Gather:
    """How the part of an array that a replica holds becomes the whole, in a program of replicas.

    Attributes:
        spec: How the array lies over the mesh.
        axes: Over which of its axes it is gathered. Others are XLA's.
        wire: In which form the gradient is scattered back, as in `Layout`.
    """

    spec: PartitionSpec
    axes: tuple[str, ...]
    wire: Compression | None = None

    def __call__(self, part: jax.Array) -> jax.Array:
        """Return the whole array. Gradients are reduced and scattered back, those of less than 32 bits in float32."""
        # XLA would put together what else is divided before it gathers; inside of a program over those axes it cannot.
        rest = make_spec([() if set(names_of(entry)) & {*self.axes} else names_of(entry) for entry in self.spec])
        return run_on_parts(self._gather, part, rest)

    def _gather(self, part: jax.Array) -> jax.Array:
        for dimension, entry in enumerate(restrict(self.spec, self.axes)):
            for axis in reversed(names_of(entry)):
                part = _all_gather(part, dimension, axis, self.wire)
        return part

    @property
    def of_entries(self) -> "Gather | None":
        """How one entry of the array, along its first dimension, becomes whole; None if these are split."""
        if len(self.spec) and self.spec[0] is not None:
            return None
        return dataclasses.replace(self, spec=PartitionSpec(*self.spec[1:]))


def run_on_parts(fn: Callable[[Any], Any], arrays: Any, spec: PartitionSpec) -> Any:
    """Apply a function to the parts of an array, or of a tree of alike ones, along axes that are XLA's, in a program of replicas.

    What it returns lies as what it is given.
    """
    if not axes_of(spec):
        return fn(arrays)
    return jax.shard_map(fn, in_specs=(spec,), out_specs=spec, axis_names={*axes_of(spec)}, check_vma=False)(arrays)


def make_gather(layout: Layout, axes: Sequence[str]) -> Gather | None:
    """Return how an array is gathered over those of some axes that split it; None if there are none."""
    spec = layout.gathered
    split = tuple(axis for axis in axes_of(spec) if axis in axes)
    wire = layout.wire if isinstance(layout.wire, Compression) else None
    return Gather(spec, split, wire) if split else None


def _all_gather(part: jax.Array, dimension: int, axis: str, wire: Compression | None) -> jax.Array:
    is_short = jnp.issubdtype(part.dtype, jnp.floating) and jnp.finfo(part.dtype).bits < 32
    if is_short or wire is not None:
        return _all_gather_and_scatter(part, dimension, axis, wire)
    return jax.lax.all_gather(part, axis, axis=dimension, tiled=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _all_gather_and_scatter(part: jax.Array, dimension: int, axis: str, wire: Compression | None) -> jax.Array:
    del wire
    return jax.lax.all_gather(part, axis, axis=dimension, tiled=True)


def _scatter(dimension: int, axis: str, wire: Compression | None, _: None, whole: jax.Array) -> tuple[jax.Array]:
    if wire is not None:
        return (wire.scatter_sum(whole, axis, dimension),)
    total = jax.lax.psum_scatter(whole.astype(jnp.float32), axis, scatter_dimension=dimension, tiled=True)
    return (total.astype(whole.dtype),)


_all_gather_and_scatter.defvjp(lambda part, *static: (_all_gather_and_scatter(part, *static), None), _scatter)


def run_with_gathers(program: ClosedJaxpr, args: Sequence[Any], gathers: Sequence[Gather | None]) -> list[Any]:
    """Run a program whose arguments may be parts of arrays, which are gathered as late as is of use.

    What a rematerialised function (`jax.checkpoint`) alone uses is gathered in it, so that it need not be kept for its gradients;
    so is what a loop hands to such functions entry by entry. Of a parameter that the program casts to fewer bits, these are gathered.

    Args:
        program: A program of whole arrays.
        args: Its arguments.
        gathers: How each of them becomes whole; None for those that are.
    """
    given = [arg if gather is None else _Part(arg, gather) for arg, gather in zip(args, gathers, strict=True)]
    return _whole(_Run(program.jaxpr, program.consts).run(given))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    value: jax.Array
    gather: Gather

    @functools.cached_property
    def whole(self) -> jax.Array:
        return self.gather(self.value)


def _whole(values: Sequence[Any]) -> list[Any]:
    return [value.whole if isinstance(value, _Part) else value for value in values]


@final
class _Run:
    """One run of a program, whose equations are run many at a time, but for those that are given parts."""

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        self._jaxpr = jaxpr
        self._values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        self._used = {var for eqn in jaxpr.eqns for var in _variables(eqn.invars)} | {*_variables(jaxpr.outvars)}
        self._waiting: list[JaxprEqn] = []

    def run(self, args: Sequence[Any]) -> list[Any]:
        self._values.update(zip(self._jaxpr.invars, args, strict=True))
        for eqn in self._jaxpr.eqns:
            rule = _RULES.get(eqn.primitive.name)
            if rule is None or not any(isinstance(self._values.get(var), _Part) for var in _variables(eqn.invars)):
                self._waiting.append(eqn)
                continue
            self._flush()
            results = rule(eqn, [self._read(var) for var in eqn.invars])
            if results is None:
                self._waiting.append(eqn)
            else:
                self._values.update(zip(eqn.outvars, results, strict=True))
        self._flush()
        return [self._read(var) for var in self._jaxpr.outvars]

    def _read(self, var: Any) -> Any:
        return var.val if isinstance(var, Literal) else self._values[var]

    def _flush(self) -> None:
        """Run the equations that wait, with whole arrays."""
        if not self._waiting:
            return
        made = [var for eqn in self._waiting for var in eqn.outvars if var in self._used]
        used = dict.fromkeys(var for eqn in self._waiting for var in _variables(eqn.invars))
        given = [var for var in used if var not in {*made}]
        part = self._jaxpr.replace(
            constvars=[], invars=given, outvars=made, eqns=self._waiting, debug_info=self._jaxpr.debug_info
        )
        results = jaxpr_as_fun(ClosedJaxpr(part, ()))(*_whole([self._values[var] for var in given]))
        self._values.update(zip(made, results, strict=True))
        self._waiting = []


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _run_inside(program: Jaxpr | ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    return _Run(open_program(program), getattr(program, "consts", ())).run(operands)


def _cast(eqn: JaxprEqn, operands: Sequence[Any]) -> list[Any] | None:
    ((part,), dtype) = operands, eqn.params["new_dtype"]
    is_smaller = jnp.dtype(dtype).itemsize <= part.value.dtype.itemsize
    return [_Part(part.value.astype(dtype), part.gather)] if is_smaller else None


def _call(eqn: JaxprEqn, operands: Sequence[Any]) -> list[Any] | None:
    return _run_inside(eqn.params["jaxpr"], operands) if gathers_late(eqn.params["jaxpr"]) else None


def _rematerialise(eqn: JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    gathers = [operand.gather if isinstance(operand, _Part) else None for operand in operands]

    def compute(*values: Any) -> list[Any]:
        given = [
            value if gather is None else _Part(value, gather) for value, gather in zip(values, gathers, strict=True)
        ]
        return _whole(_run_inside(eqn.params["jaxpr"], given))

    again = jax.checkpoint(compute, prevent_cse=eqn.params["prevent_cse"], policy=eqn.params["policy"])
    return again(*(operand.value if isinstance(operand, _Part) else operand for operand in operands))


def _scan(eqn: JaxprEqn, operands: Sequence[Any]) -> list[Any] | None:
    if not gathers_late(eqn.params["jaxpr"]):
        return None
    consts, carry, xs = scan_operands(eqn, operands)
    consts, carry = _whole(consts), _whole(carry)
    gathers = [value.gather.of_entries if isinstance(value, _Part) else None for value in xs]
    given = [
        value.value if gather is not None else _whole([value])[0] for value, gather in zip(xs, gathers, strict=True)
    ]

    def body(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        entries = [value if gather is None else _Part(value, gather) for value, gather in zip(xs, gathers, strict=True)]
        results = _whole(_run_inside(eqn.params["jaxpr"], [*consts, *carry, *entries]))
        return results[: len(carry)], results[len(carry) :]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = jax.lax.scan(body, carry, given, **options)
    return [*carry, *ys]


def gathers_late(program: Jaxpr | ClosedJaxpr) -> bool:
    """Whether a program has rematerialised functions, in which parameters are gathered that only they use."""
    return any(eqn.primitive.name in _REMATERIALISING for eqn in equations(open_program(program)))


_REMATERIALISING = {"remat2", "remat", "checkpoint"}
_RULES: Mapping[str, Any] = {
    "convert_element_type": _cast,
    "jit": _call,
    "pjit": _call,
    "closed_call": _call,
    "scan": _scan,
    **dict.fromkeys(_REMATERIALISING, _rematerialise),
}
