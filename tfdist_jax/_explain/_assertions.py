"""Assertions about the collectives of a step, for tests of users' own."""

from collections.abc import Mapping

from jax.sharding import Mesh

from tfdist_jax._explain._collectives import KINDS, Collective
from tfdist_jax._explain._explanation import Explanation
from tfdist_jax._explain._sections import describe_collective

Expected = Mapping[str | tuple[str, ...], int | range]
"""A kind of collectives, or a kind and axes, to how many of them a step runs."""


def assert_collectives(explanation: Explanation, expected: Expected) -> None:
    """Require that a step runs these collectives and no others.

    Args:
        explanation: What `strategy.explain` says of the step.
        expected: What XLA calls a collective, such as "all-reduce", or that and the mesh's axes that it goes over, such as
            `("all-gather", "fsdp")`, to how many of them a step runs: those in a loop of 12 rounds count 12 times. A `range` allows any
            number in it. A kind alone stands for what no entry names with its axes.

    Raises:
        AssertionError: If the step runs others; it says which there are, with their axes, bytes and lines.
        ValueError: If there is no such kind of collectives, or no such axis.

    Example:
        >>> import jax, numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> compute = strategy.value_and_grad(lambda w, x: (x @ w).mean(), has_aux=False)
        >>> w, x = strategy.init(lambda: jax.numpy.ones(4)), strategy.put(np.ones((16, 4), np.float32))
        >>> td.assert_collectives(strategy.explain(compute, w, x), {"all-reduce": 1})
    """
    wanted = {_check_key(key, explanation.mesh): count for key, count in expected.items()}
    runs: dict[tuple[str, ...], int | None] = dict.fromkeys(wanted, 0)
    for one in explanation.collectives:
        key = (one.kind,) if (one.kind,) in wanted and (one.kind, *one.axes) not in wanted else (one.kind, *one.axes)
        known = runs.get(key, 0)
        runs[key] = None if known is None or one.runs is None or one.is_branch else known + one.runs
    wrong = [
        f"{_name(key)}: {_name_number(wanted.get(key, 0))} expected, "
        f"{'a number that depends on values' if count is None else count} found"
        for key, count in runs.items()
        if count is None or not _allows(wanted.get(key, 0), count)
    ]
    if wrong:
        found = [_describe(one, explanation.mesh) for one in explanation.collectives] or ["none"]
        raise AssertionError(
            f"A step of `{explanation.name}` runs other collectives than expected.\n  "
            + "\n  ".join(wrong)
            + "\nFound are:\n  "
            + "\n  ".join(found)
        )


def _check_key(key: str | tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """Return a kind and axes in the mesh's order."""
    kind, *axes = (key,) if isinstance(key, str) else key
    if kind not in KINDS:
        raise ValueError(f"A kind of collectives is one of {', '.join(KINDS)}, got {kind!r}.")
    if unknown := [axis for axis in axes if axis not in mesh.shape]:
        raise ValueError(f"The mesh has no axis {unknown[0]!r}, only {dict(mesh.shape)}.")
    return (kind, *sorted(axes, key=mesh.axis_names.index))


def _allows(expected: int | range, count: int) -> bool:
    return count in expected if isinstance(expected, range) else count == expected


def _name(key: tuple[str, ...]) -> str:
    kind, *axes = key
    return f"{kind} over {' x '.join(axes)}" if axes else kind


def _name_number(expected: int | range) -> str:
    return f"{expected.start} to {expected[-1]}" if isinstance(expected, range) and expected else str(expected)


def _describe(one: Collective, mesh: Mesh) -> str:
    kind, axes, times, each, _, line = describe_collective(one, mesh)
    return f"{times} {kind} over {axes}, {each} MiB{f', for {line}' if line else ''}"
