"""A function of a batch as replicas run it, each on its rows: its programs, and how what they return is put together."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import NamedSharding, PartitionSpec

from tfdist_jax._global_batch._checks import check_accumulation, check_rows, check_sizes, check_tokens
from tfdist_jax._global_batch._gathers import Gather, gathers_late, run_with_gathers
from tfdist_jax._global_batch._results import (
    How,
    Rule,
    has_weights,
    is_all_declared,
    plan_on_one,
    plan_results,
    plan_tokens,
    unwrap,
)
from tfdist_jax._global_batch._row_analysis import Direction, RowKinds, find_row_kinds
from tfdist_jax._global_batch._row_proportions import Compared
from tfdist_jax._global_batch._row_values import RowKind
from tfdist_jax._global_batch._split import Split
from tfdist_jax._sharding._collectives import at_least_float32, fused_sum, switch_on_size
from tfdist_jax._sharding._keys import is_key, make_own_keys
from tfdist_jax._sharding._mesh import SEQUENCE, STAGE, batch_spec

_LARGE_BYTES = 1 << 20
_ADDED = (How.SUM, How.SHARE, How.WEIGHED)


@final
@dataclasses.dataclass(frozen=True)
class ReplicaFunction:
    """A function `(params, batch, *extra)` that each replica runs on its own rows with whole parameters.

    Attributes:
        split: How its arguments lie over the replicas.
        programs: What is to be run for each number of rows.
        results: What it returns, as shapes: a tuple of pytrees.
        rules: What becomes of each array of them.
        is_scaled: Whether it communicates, so that what looks like a sum over its rows may be one over those of all replicas.
    """

    split: Split
    programs: Mapping[int, ClosedJaxpr]
    results: Any
    rules: Sequence[Rule]
    is_scaled: bool

    def run(self, params: Any, data: Any, extra: Any) -> list[Any]:
        """Return this replica's part of each result, in a program of replicas: what has to be added up, its rows, or what all have.

        Of an argument that is returned unchanged it is None.
        """
        sizes, gathers = self.split.sizes, self.split.gathers
        if not self.split.is_even:
            # Replicas in different branches would wait for each other.
            self.warn_of_gathering(params)
            params, gathers = self.split.gather_params(params), [None] * len(gathers)

        def branch(size: int) -> Callable[[Any], list[Any]]:
            if not size:
                return lambda data: self.without_rows(jax.lax.stop_gradient(branch(max(sizes))(data)))

            def compute(data: Any) -> list[Any]:
                rows = jax.tree.map(lambda leaf: leaf[:size], data)
                parts = self.run_rows(params, rows, self.own_keys(extra), size, gathers)
                pairs = zip(self.rules, parts, strict=True)
                return [self.pad_rows(part) if rule.has_entries else part for rule, part in pairs]

            return compute

        return switch_on_size(sizes, branch, data, self.split.row_axes)

    def own_keys(self, extra: Any) -> Any:
        """Return other arguments with the random keys of this replica."""
        return extra if self.split.is_one else make_own_keys(extra, self.split.key_axes)

    def run_rows(self, params: Any, rows: Any, extra: Any, size: int, gathers: Sequence[Gather | None]) -> list[Any]:
        """Return a part of each result: what so many rows have of it.

        Args:
            params: The parameters.
            rows: The rows.
            extra: The other arguments, with keys that are these rows' own.
            size: How many rows there are.
            gathers: How parameters become whole, None for those that are.
        """
        rest = jax.tree.leaves((rows, extra))
        args = [*jax.tree.leaves(params), *rest]
        return self.parts_of(run_with_gathers(self.programs[size], args, [*gathers, *[None] * len(rest)]), size)

    def parts_of(self, results: Sequence[Any], size: int, rules: Sequence[Rule] | None = None) -> list[Any]:
        """Return a part of each result, or of those of some rules, from what the function returns for so many rows."""
        rules = self.rules if rules is None else rules
        return [self._part(*each, size) for each in zip(rules, results, strict=True)]

    def without_rows(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts of a replica without rows, from those for any rows: what is the same on all replicas has to be so here, too."""
        pairs = zip(self.rules, parts, strict=True)
        return [part if part is None or rule.how is How.KEEP else zeros_like(part) for rule, part in pairs]

    def pad_rows(self, part: jax.Array) -> jax.Array:
        """Fill entries of rows up to as many as the replica with the most rows has."""
        missing = max(self.split.sizes) - len(part)
        return jnp.concatenate([part, jnp.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part

    def pick_loss(self, parts: Sequence[Any]) -> list[jax.Array]:
        """Return the loss among the parts of results, which is the first, and its weight if it has one."""
        # The weight lies behind it, and may depend on the parameters.
        is_weighed = self.rules[0].how is How.WEIGHED
        return [part.astype(parts[0].dtype) for part in parts[: 1 + is_weighed]]

    @property
    def gathers_late(self) -> bool:
        """Whether the function has layers, which gather their parameters themselves."""
        return gathers_late(next(iter(self.programs.values())))

    def warn_of_gathering(self, params: Any) -> None:
        """Warn if parameters are gathered before the function, though it has layers that would gather them, and are large."""
        pairs = zip(jax.tree.leaves(params), self.split.gathers, strict=True)
        parts = sum(leaf.size * leaf.dtype.itemsize for leaf, gather in pairs if gather is not None)
        if parts >= _LARGE_BYTES and self.gathers_late:
            warnings.warn(
                f"Replicas have different numbers of rows, {self.split.sizes}: for such a batch, the parameters of all layers are gathered "
                "at once. `strategy.put(batch, mask='mask')` and `strategy.prefetch(batches, mask='mask')` give all as many, with a "
                "mask of the real ones.",
                stacklevel=2,
            )

    def merge(self, parts: Sequence[Any], others: Sequence[Any] = ()) -> tuple[list[Any], list[Any]]:
        """Add up what has to be added up, in few transfers, in a program of replicas.

        Args:
            parts: What `run` has returned.
            others: Arrays to be added up as well, or None.

        Returns:
            The results, of which those that are rows are the replica's; and the sums of the others.
        """
        over = [self._summed_over(rule) for rule in self.rules]
        pick = lambda axes: [part if each == axes else None for part, each in zip(parts, over, strict=True)]
        sums = fused_sum([*pick(self.split.axes), *others], self.split.axes)
        merged, sums = _replace(parts, sums[: len(parts)]), sums[len(parts) :]
        for axes in dict.fromkeys(over):
            if axes not in ((), self.split.axes):
                merged = _replace(merged, fused_sum(pick(axes), axes))
        return [self._finished(i, merged) for i in range(len(merged))], sums

    def _summed_over(self, rule: Rule) -> tuple[str, ...]:
        """Return the axes over which the parts of a result are added up."""
        rows = self.split.row_axes if rule.how in _ADDED else ()
        # All devices but those of the last stage have zeros.
        over = (*rows, *(SEQUENCE,) * (rule.tokens in _ADDED), *(STAGE,) * self.split.is_staged)
        return tuple(axis for axis in self.split.axes if axis in over)

    def finish(self, merged: Sequence[Any], arguments: Any) -> Any:
        """Return the results of the whole batch, outside of the program of replicas.

        Args:
            merged: What `map` gave.
            arguments: What the function was given.
        """
        given, rest = jax.tree.leaves(arguments), iter(merged)
        leaves = [given[rule.source] if rule.source is not None else self._cut(rule, next(rest)) for rule in self.rules]
        return unwrap(jax.tree.unflatten(jax.tree.structure(self.results), leaves))

    def map(self, body: Callable[..., Any], arguments: Any, others: Any = None) -> Any:
        """Run a program of replicas that returns merged results, without those that are arguments, and others that lie as `others` says."""
        kept = [rule for rule in self.rules if rule.source is None]
        return self.split.map(body, arguments, ([self._spec(rule) for rule in kept], others))

    def _spec(self, rule: Rule) -> PartitionSpec:
        """Return how a result lies over the devices."""
        rows = (batch_spec(self.split.mesh)[0],) if rule.how is How.ROWS else ()
        return PartitionSpec(*(rows or (None,)), SEQUENCE) if rule.tokens is How.ROWS else PartitionSpec(*rows)

    def without_arguments(self, merged: Sequence[Any]) -> list[Any]:
        """Return merged results without those that are arguments."""
        return [result for rule, result in zip(self.rules, merged, strict=True) if rule.source is None]

    def _part(self, rule: Rule, result: Any, size: int) -> Any:
        if rule.source is not None:
            return None
        result = jnp.asarray(result)
        if self._summed_over(rule):
            result = result.astype(jnp.int32) if result.dtype == bool else at_least_float32(result)
        if rule.how is How.SHARE:
            result = _times(result, size / sum(self.split.sizes))
        if rule.tokens is How.SHARE:
            result = _times(result, 1 / self.split.token_parts)
        return result

    def _finished(self, i: int, merged: Sequence[Any]) -> Any:
        rule, result = self.rules[i], merged[i]
        if result is None:
            return None
        if rule.weight is not None:
            result = result / merged[rule.weight]
        given = jax.tree.leaves(self.results)[i].dtype
        # The sum of booleans is a number; those that have come from the last stage as numbers are booleans.
        is_sum = rule.how in _ADDED or rule.tokens in _ADDED
        is_cast = jnp.issubdtype(given, jnp.inexact) or (jnp.issubdtype(given, jnp.bool_) and not is_sum)
        return result.astype(given) if is_cast else result

    def _cut(self, rule: Rule, result: Any) -> Any:
        """Leave out the rows that are padding, of which there may be some on each replica."""
        if rule.how is not How.ROWS or self.split.is_even:
            return result
        length = max(self.split.sizes)
        real = np.concatenate([replica * length + np.arange(size) for replica, size in enumerate(self.split.sizes)])
        # Arrays that devices do not share evenly are none that a program can return in parts.
        return jax.lax.with_sharding_constraint(result[real], NamedSharding(self.split.mesh, PartitionSpec()))


def make_replica_function(
    fn: Callable[..., Any], labels: Sequence[str], split: Split, arguments: Any
) -> ReplicaFunction:
    """Trace a function as replicas see it, and decide what becomes of what it returns.

    Args:
        fn: The function, which returns a tuple of pytrees.
        labels: What the parts of the tuple are called in messages.
        split: How the arguments lie over the replicas.
        arguments: The parameters, the batch filled up to equal parts, and a tuple of others.

    Raises:
        ValueError: If the results of the whole batch do not follow from those of its parts.
    """
    traced: dict[int, tuple[ClosedJaxpr, Any]] = {}
    along_rows: list[RowKinds] = []
    along_tokens: list[RowKinds] = []
    compared: list[Compared] = []

    def probe(params: Any, data: Any, extra: Any) -> tuple[()]:
        params = split.whole_shapes(split.gather_params(params))

        @functools.cache
        def trace(rows: int, times: int = 1) -> tuple[ClosedJaxpr, Any]:
            return jax.make_jaxpr(fn, return_shape=True)(params, _with_rows(data, rows, times), *extra)

        traced.update((size, trace(size)) for size in sorted(sizes))
        own = [*(RowKind.SAME for _ in jax.tree.leaves(data)), *map(_extra_kind, jax.tree.leaves(extra))]
        if split.num_parts > 1 or has_weights(traced[largest][1]):
            # With one row, programs leave out what they do for several.
            rows, total = (largest, sum(split.sizes)) if largest > 1 else (2, 2 * split.num_parts)
            total = total if total > rows else 2 * rows
            direction = Direction(split.row_axes, Fraction(total, rows))
            known = [*split.param_kinds, *own]
            along_rows.append(find_row_kinds(trace(rows)[0], lambda: trace(total)[0], direction, known))
            if along_rows[0].values is not None and split.num_parts > 1 and {*sizes} != {rows}:
                compared.append(Compared(rows, trace(rows)[0], total, trace(total)[0]))
        if split.token_parts > 1:
            times = 2 if any(leaf.shape[1] == 1 for leaf in jax.tree.leaves(data) if leaf.ndim > 1) else 1
            direction = Direction((SEQUENCE,), Fraction(split.token_parts), dimension=1)
            known = [*(RowKind.SAME for _ in jax.tree.leaves(params)), *own]
            trace_whole = lambda: trace(largest, times * split.token_parts)[0]
            along_tokens.append(find_row_kinds(trace(largest, times)[0], trace_whole, direction, known))
        return ()

    sizes = {part for size in split.sizes for part in split.part_sizes(size)} - {0}
    largest = max(sizes)
    jax.eval_shape(lambda *arguments: split.map(probe, arguments, PartitionSpec()), *arguments)
    results, kinds = traced[largest][1], along_rows[0] if along_rows else RowKinds(None, ())
    check_accumulation(kinds, split)
    for found in along_tokens:
        check_tokens(found)
        kinds = dataclasses.replace(
            kinds,
            collectives=[*kinds.collectives, *found.collectives],
            scaling=[*kinds.scaling, *found.scaling],
        )
    if split.num_parts == 1:
        rules = plan_on_one(results, labels, kinds.values)
    else:
        check_rows(kinds, split)
        rules = plan_results(results, labels, kinds.values, largest, kinds.why_not)
    for found in along_tokens:
        rules = plan_tokens(results, labels, found.values or (), rules)
    programs = {size: jaxpr for size, (jaxpr, _) in traced.items()}
    check_sizes(programs, rules, split, compared[0] if compared else None, is_all_declared(results))
    return ReplicaFunction(split, programs, results, rules, is_scaled=bool(kinds.scaling))


def _with_rows(data: Any, rows: int, times: int = 1) -> Any:
    """Return the types of a batch of so many rows, each with so many times as many tokens."""
    tokens = lambda shape: (times * shape[1], *shape[2:]) if len(shape) > 1 else ()
    of_rows = lambda leaf: (*leaf.shape[1:],) if times == 1 else tokens(leaf.shape)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *of_rows(leaf)), leaf.dtype), data)


def _extra_kind(leaf: Any) -> RowKind:
    return RowKind.REPLICA if is_key(leaf) else RowKind.SAME


def zeros_like(part: Any) -> jax.Array:
    """Return zeros of the shape and type of an array."""
    return jnp.zeros(part.shape, part.dtype)


def _replace(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return [value if other is None else other for value, other in zip(values, others, strict=True)]


def _times(array: jax.Array, share: float) -> jax.Array:
    return array * share if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float) * share
