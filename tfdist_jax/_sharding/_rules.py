"""Rules: from the ends of paths, or from what Flax calls dimensions, to layouts."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._sharding._layout import StateLeaf, make_spec, names_of

PathRules = Mapping[str, PartitionSpec] | Sequence[tuple[str, PartitionSpec]]
"""Ends of paths, as regular expressions, to layouts; the first that matches holds."""

AxisRules = Mapping[str, Any] | Sequence[tuple[str, Any]]
"""Names of dimensions to an axis of the mesh, a tuple of axes, or None."""


def make_path_rules(rules: PathRules) -> tuple[tuple[str, PartitionSpec], ...]:
    """Return rules as pairs.

    Raises:
        TypeError: If a layout is no `PartitionSpec`.
        ValueError: If a pattern is no regular expression.
    """
    pairs = _pairs(rules)
    for pattern, spec in pairs:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"The rule for {pattern!r} needs a jax.sharding.PartitionSpec, such as P(None, 'tensor'), got {spec!r}."
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"The rule {pattern!r} is no regular expression: {error}. Escape what is meant as it is."
            ) from None
    return pairs


def make_axis_rules(rules: AxisRules) -> tuple[tuple[str, Any], ...]:
    """Return rules as pairs."""
    return tuple((name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in _pairs(rules))


def _pairs(rules: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in (rules.items() if isinstance(rules, Mapping) else rules))


def spec_by_rules(leaf: StateLeaf, mesh: Mesh, rules: PathRules, axis_rules: AxisRules) -> PartitionSpec:
    """Return how an array is laid out: by the first rule that matches the end of its path, else by the names of its dimensions.

    An optimizer's array of another shape than its parameter's, such as statistics of rows, is whole.
    """
    spec = next((spec for pattern, spec in _pairs(rules) if _matches(pattern, leaf.path)), None)
    if spec is None:
        spec = _spec_by_names(leaf.axis_names or (), mesh, dict(_pairs(axis_rules)))
    return PartitionSpec() if leaf.is_optimizer_state and not _fits(spec, leaf.shape, mesh) else spec


def find_unmatched(rules: PathRules, paths: Iterable[str]) -> list[str]:
    """Return the patterns that match the end of no path."""
    paths = list(paths)
    return [pattern for pattern, _ in _pairs(rules) if not any(_matches(pattern, path) for path in paths)]


def _matches(pattern: str, path: str) -> bool:
    return re.search(rf"(?:^|/)(?:{pattern})$", path) is not None


def _spec_by_names(names: Sequence[Any], mesh: Mesh, rules: Mapping[str, Any]) -> PartitionSpec:
    """Return the layout of dimensions with names; an axis that two have splits the first."""
    entries: list[tuple[str, ...]] = []
    for name in names:
        axes = names_of(rules.get(name, name if name in mesh.shape else None))
        used = {axis for entry in entries for axis in entry}
        entries.append(tuple(axis for axis in axes if axis not in used))
    return make_spec(entries)


def _fits(spec: PartitionSpec, shape: tuple[int, ...], mesh: Mesh) -> bool:
    parts = [math.prod(mesh.shape.get(axis, 1) for axis in names_of(entry)) for entry in spec]
    return len(parts) <= len(shape) and all(size % count == 0 for size, count in zip(shape, parts, strict=False))
