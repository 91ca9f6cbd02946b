"""How the results that replicas have for their own rows become those for the whole batch."""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._global_batch._row_values import RowKind, Value


@final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sum:
    """Says of a result that it is a sum over the rows of the batch, such as a count of hits.

    Attributes:
        value: Pytree of arrays: the sums over the rows that the function sees. Booleans count as int32.

    Example:
        >>> import jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> squares = td.Mirrored().evaluate(lambda scale, x: td.Sum(scale * (x**2).sum()))
        >>> float(squares(jnp.float32(2), td.Mirrored().put(np.ones(16, np.float32))))
        32.0
    """

    value: Any


@final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mean:
    """Says of a result that it is a mean over what counts in the batch: rows, or tokens that are no padding.

    Attributes:
        value: Pytree of arrays: the weighted sums over the rows that the function sees; without `weight`, the means over them.
        weight: The sum of the weights over the rows that the function sees, a scalar.

    Example:
        >>> import jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> weighed = td.Mirrored().evaluate(lambda scale, x: td.Mean(scale * (x * x).sum(), x.sum()))
        >>> float(weighed(jnp.float32(2), td.Mirrored().put(np.arange(3, dtype=np.float32))))
        3.3333332538604736
    """

    value: Any
    weight: Any = None


@final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """Says of a result that it has one entry for each row of the batch.

    Attributes:
        value: Pytree of arrays `[rows, ...]`, for the rows that the function sees.

    Example:
        >>> import jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> doubled = td.Mirrored().evaluate(lambda scale, x: td.Rows(scale * x))
        >>> np.asarray(doubled(jnp.float32(2), td.Mirrored().put(np.arange(3, dtype=np.float32))))
        array([0., 2., 4.], dtype=float32)
    """

    value: Any


class How(enum.Enum):
    """How an array of all replicas becomes one."""

    KEEP = enum.auto()
    """It is the same on all of them."""
    SUM = enum.auto()
    SHARE = enum.auto()
    """The sum, each replica's multiplied by its share of the rows."""
    WEIGHED = enum.auto()
    """The sum, divided by the sum of the weights."""
    ROWS = enum.auto()
    """One replica's rows behind another's."""


@final
@dataclasses.dataclass(frozen=True)
class Rule:
    """What becomes of an array that a function returns.

    Attributes:
        how: How it is put together.
        tokens: How that of all tokens becomes one, where these are split as well.
        weight: For `How.WEIGHED`, the position of the weight among the arrays.
        source: For `How.KEEP`, the argument that it is, unchanged: its position among their leaves.
    """

    how: How
    weight: int | None = None
    source: int | None = None
    tokens: How = How.KEEP

    @property
    def has_entries(self) -> bool:
        """Whether a replica has an entry for each of its rows, which a program returns."""
        return self.how is How.ROWS and self.source is None


_is_declared = lambda node: isinstance(node, Sum | Mean | Rows)
_KNOWN = {
    RowKind.ZERO: How.KEEP,
    RowKind.SAME: How.KEEP,
    RowKind.SHARED: How.KEEP,
    RowKind.COUNT: How.SUM,
    RowKind.SUM: How.SUM,
    RowKind.MEAN: How.SHARE,
}
_SUMS = {RowKind.ZERO, RowKind.COUNT, RowKind.SUM}
# What nothing is known of may be what the program says.
_MAYBE = {RowKind.OTHER, RowKind.BLOCKS, RowKind.REPLICA, RowKind.INVERSE_COUNT}


def unwrap(results: Any) -> Any:
    """Return results without what the program says of them."""
    inner = lambda node: unwrap(node.value) if _is_declared(node) else node
    return jax.tree.map(inner, results, is_leaf=_is_declared)


def plan_results(
    results: Any, labels: Sequence[str], values: Sequence[Value] | None, rows: int, why_not: str
) -> list[Rule]:
    """Decide what becomes of each array that a function returns on several replicas, in the order of `jax.tree.leaves`.

    Args:
        results: What the function returns: a tuple of pytrees of arrays, of which `Sum`, `Mean` and `Rows` say what they are.
        labels: What the parts of the tuple are called in messages.
        values: What is known of the arrays; None if nothing is.
        rows: How many rows the function sees.
        why_not: Why nothing is known.

    Raises:
        ValueError: If an array can not be put together, or not as it is asked for.
    """
    rules: list[Rule] = []
    for path, node in jax.tree_util.tree_leaves_with_path(results, is_leaf=_is_declared):
        label = _label(path, labels)
        first, leaves = len(rules), jax.tree.leaves(node)
        known = values[first : first + len(leaves)] if values is not None else [None] * len(leaves)
        if has_weights(node):
            rules += _weighed(node, known, label, first)
            continue
        for leaf, value in zip(leaves, known, strict=True):
            rules.append(
                _declared(node, leaf, value, rows, label)
                if _is_declared(node)
                else _bare(leaf, value, rows, label, why_not)
            )
    return rules


def plan_tokens(results: Any, labels: Sequence[str], values: Sequence[Value], rules: Sequence[Rule]) -> list[Rule]:
    """Decide what becomes of each array where each replica is several devices, which have some of the tokens of its rows.

    Args:
        results: What the function returns.
        labels: What the parts of the tuple are called in messages.
        values: What the arrays have to do with tokens.
        rules: What becomes of them over the replicas.

    Raises:
        ValueError: If an array can not be put together.
    """
    hows: list[How] = []
    for path, node in jax.tree_util.tree_leaves_with_path(results, is_leaf=_is_declared):
        is_mean = isinstance(node, Mean) and node.weight is None
        for part in jax.tree.leaves(node, is_leaf=_is_sum) if _is_declared(node) else [node]:
            said = How.SHARE if is_mean else How.SUM if _is_sum(part) or _is_sum(node) else None
            for leaf in jax.tree.leaves(part):
                hows.append(_how_over_tokens(leaf, values[len(hows)], said, _label(path, labels)))
    return [
        rule if rule.source is not None else dataclasses.replace(rule, tokens=how)
        for rule, how in zip(rules, hows, strict=True)
    ]


def _how_over_tokens(leaf: Any, value: Value, said: How | None, label: str) -> How:
    if value.kind is RowKind.ROWS and leaf.ndim > 1:
        return How.ROWS
    if value.kind in _KNOWN and (value.kind is not RowKind.MEAN or jnp.issubdtype(leaf.dtype, jnp.inexact)):
        return _KNOWN[value.kind]
    if value.kind in _MAYBE and said is not None:
        return said
    raise ValueError(
        f"{label} of whole rows does not follow from those of their parts, over which the mesh splits their tokens: it is "
        f"{value.kind.value.replace('row', 'token')}{_at(value)}. Return sums, means or what each token has."
    )


def plan_on_one(results: Any, labels: Sequence[str], values: Sequence[Value] | None) -> list[Rule]:
    """Decide what becomes of each array that a function returns which sees the whole batch, as `plan_results`.

    Raises:
        ValueError: If what is to be divided by a weight is no sum: then it would be wrong on one device as well.
    """
    rules: list[Rule] = []
    for path, node in jax.tree_util.tree_leaves_with_path(results, is_leaf=_is_declared):
        first, count = len(rules), len(jax.tree.leaves(node))
        if has_weights(node):
            known = values[first : first + count] if values is not None else [None] * count
            *weighed, _ = _weighed(node, known, _label(path, labels), first)
            rules += [*weighed, Rule(How.KEEP)]
        else:
            rules += [Rule(How.SUM if isinstance(node, Sum) else How.KEEP)] * count
    return rules


def has_weights(results: Any) -> bool:
    """Whether something among the results is to be divided by a weight."""
    return any(
        isinstance(node, Mean) and node.weight is not None for node in jax.tree.leaves(results, is_leaf=_is_declared)
    )


def is_all_declared(results: Any) -> bool:
    """Whether the function says of everything among the results what it is."""
    return all(map(_is_declared, jax.tree.leaves(results, is_leaf=_is_declared)))


def _label(path: Any, labels: Sequence[str]) -> str:
    return f"`{labels[path[0].idx]}{jax.tree_util.keystr(path[1:])}`"


def _weighed(node: Mean, values: Sequence[Value | None], label: str, first: int) -> list[Rule]:
    if jnp.ndim(node.weight):
        raise ValueError(
            f"The weight of {label} has to be a scalar, but has shape {jnp.shape(node.weight)}. Sum it over its rows. What "
            "layers of td.Staged return has an entry for each layer: let them return td.Sum(sum) and td.Sum(weight), and divide these "
            "outside."
        )
    are_sums = [_is_sum(part) for part in jax.tree.leaves(node, is_leaf=_is_sum) for _ in jax.tree.leaves(part)]
    for value, is_said in zip(values, are_sums, strict=True):
        if value is not None and not is_said and value.kind not in _SUMS:
            raise ValueError(
                f"{label} is to be a sum over the rows, divided by the sum of their weights, but one of these is {value.kind.value}"
                f"{_at(value)}. Return both as they are before anything else is done to them, or, if it is a sum all the same, "
                "in td.Sum(...)."
            )
    return [Rule(How.WEIGHED, weight=first + len(values) - 1)] * (len(values) - 1) + [Rule(How.SUM)]


def _is_sum(node: Any) -> bool:
    return isinstance(node, Sum)


def _declared(node: Any, leaf: Any, value: Value | None, rows: int, label: str) -> Rule:
    kind = value.kind if value is not None else None
    if isinstance(node, Rows):
        if leaf.shape[:1] != (rows,) or (kind is not None and kind is not RowKind.ROWS):
            raise ValueError(
                f"{label} is to have an entry for each row, but what the function returned for {rows} rows has the shape {leaf.shape} and "
                f"is {kind.value if kind is not None else 'not known'}{_at(value)}."
            )
        return Rule(How.ROWS)
    if isinstance(node, Sum):
        if kind is not None and kind not in _SUMS | _MAYBE:
            raise ValueError(
                f"{label} is to be a sum over the rows, but is {kind.value}{_at(value)}. Return it without td.Sum."
            )
        return Rule(How.SUM)
    if kind is not None and kind not in {RowKind.ZERO, RowKind.SAME, RowKind.MEAN} | _MAYBE:
        raise ValueError(
            f"{label} is to be a mean over the rows, but is {kind.value}{_at(value)}. Take its mean, or return td.Mean(sum, weight)."
        )
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        raise ValueError(
            f"{label} is to be a mean over the rows, but has type {leaf.dtype}. Return td.Mean(sum, weight)."
        )
    return Rule(How.SHARE)


def _bare(leaf: Any, value: Value | None, rows: int, label: str, why_not: str) -> Rule:
    if value is None:
        raise ValueError(
            f"Whether {label} is a sum or a mean over the rows is not known: {why_not}. Say it: return td.Sum(x), td.Mean(x), "
            "td.Mean(sum, weight) or td.Rows(x)."
        )
    if value.source is not None and value.kind is not RowKind.ROWS:
        return Rule(How.KEEP, source=value.source)
    if value.kind is RowKind.ROWS and leaf.shape[:1] == (rows,):
        return Rule(How.ROWS)
    if value.kind in _KNOWN and (value.kind is not RowKind.MEAN or jnp.issubdtype(leaf.dtype, jnp.inexact)):
        return Rule(_KNOWN[value.kind])
    if value.kind is RowKind.REPLICA:
        raise ValueError(
            f"{label} differs between replicas, whatever their rows{_at(value)}. Compute it outside of the function."
        )
    raise ValueError(
        f"{label} of the whole batch does not follow from those of its parts: it is {value.kind.value}{_at(value)}. Return the sum "
        "and the sum of its weights as td.Mean(sum, weight), or what it is made of and do the rest with the results; td.Sum(x) or "
        "td.Mean(x) add up or average the replicas' all the same."
    )


def _at(value: Value | None) -> str:
    return f", at {value.where}" if value is not None and value.where else ""
