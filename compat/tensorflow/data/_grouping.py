"""Plans that join elements to batches, padded batches and windows, and take batches apart."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._draws import Draws, Source
from tfdist_jax.compat.tensorflow.data._map import ElementFunction
from tfdist_jax.compat.tensorflow.data._mapping import first_of
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN, Plan, Rows, Stream, rows_in_each


def _grouped_count(count: int, size: int, *, drop_remainder: bool) -> int:
    if count < 0:
        return count
    return count // size if drop_remainder else -(-count // size)


def _groups(items: Iterator[Any], size: int, *, drop_remainder: bool) -> Iterator[list[Any]]:
    while group := list(itertools.islice(items, size)):
        if len(group) == size or not drop_remainder:
            yield group


def batched(plan: Plan, size: int, *, drop_remainder: bool) -> Stream:
    """Join `size` elements at a time."""
    found = grouped_by_count(plan, size, _elements.stack, plan.make_spec, drop_remainder=drop_remainder)
    if not isinstance(plan, Rows):
        return found
    batches = lambda draws: plan.batches(draws, size, drop_remainder=drop_remainder)
    return dataclasses.replace(found, elements=batches)


def grouped_by_count(
    plan: Plan, size: int, join: Callable[[list[Any]], Any], make_spec: Callable[[], Any], *, drop_remainder: bool
) -> Stream:
    """Apply `join` to `size` elements at a time; `make_spec` gives the spec of one row of what it returns."""
    groups = lambda draws: _groups(plan.elements(draws), size, drop_remainder=drop_remainder)
    spec = lambda: _elements.batched_spec(make_spec(), size if drop_remainder else None)
    count = _grouped_count(plan.count, size, drop_remainder=drop_remainder)
    return Stream(lambda draws: map(join, groups(draws)), spec, count, rows=size if drop_remainder else None)


def unbatched(plan: Plan) -> Stream:
    """Take batches apart."""
    rows = rows_in_each(plan) if plan.count >= 0 else None
    count = INFINITE if plan.count == INFINITE else UNKNOWN if rows is None else plan.count * rows
    elements = lambda draws: itertools.chain.from_iterable(map(_elements.rows, plan.elements(draws)))
    return Stream(elements, lambda: _elements.unbatched_spec(plan.make_spec()), count)


def rebatched(plan: Plan, sizes: Sequence[int], *, drop_remainder: bool) -> Stream:
    """Take batches apart and join the rows again, `sizes` of them in turn."""
    rows = unbatched(plan)

    def joined(items: Iterator[Any]) -> Iterator[Any]:
        for size in itertools.cycle(sizes):
            group = list(itertools.islice(items, size))
            if not group or (drop_remainder and len(group) < size):
                return
            yield _elements.stack(group)

    size = sizes[0] if drop_remainder and len(set(sizes)) == 1 else None
    spec = lambda: _elements.batched_spec(rows.make_spec(), size)
    return Stream(lambda draws: joined(rows.elements(draws)), spec, UNKNOWN)


def windows(items: Iterator[Any], size: int, shift: int, stride: int, *, drop_remainder: bool) -> Iterator[list[Any]]:
    """Yield windows of items: lists of up to `size`, `stride` apart, each window `shift` farther on."""
    span = (size - 1) * stride + 1
    waiting: collections.deque[Any] = collections.deque()
    while True:
        waiting.extend(itertools.islice(items, span - len(waiting)))
        if not waiting or (drop_remainder and len(waiting) < span):
            return
        yield list(itertools.islice(waiting, 0, None, stride))
        passed = min(shift, len(waiting))
        for _ in range(passed):
            waiting.popleft()
        for _ in itertools.islice(items, shift - passed):
            pass


def window_count(count: int, size: int, shift: int, stride: int, *, drop_remainder: bool) -> int:
    """Return how many windows `count` elements give."""
    if count < 0:
        return count
    if not drop_remainder:
        return -(-count // shift)
    span = (size - 1) * stride + 1
    return max(0, -(-(count - span + 1) // shift))


def collected(elements: Sequence[Any], spec: Callable[[], Any]) -> Stream:
    """Plan elements that are there already."""
    return Stream(lambda draws: iter(elements), spec, len(elements))


def grouped(
    plan: Plan,
    key_func: Callable[..., Any],
    plan_of: Callable[[np.int64, Stream], Plan],
    window_size: Callable[[np.int64], Any],
) -> Stream:
    """Collect elements with the same key; plan the elements of what is made of each full group, and of the rest."""
    key_of, source = ElementFunction(key_func), Source.of_function()

    def full_groups(call: Callable[[Any], Any], items: Iterator[Any]) -> Iterator[tuple[int, list[Any]]]:
        groups: dict[int, list[Any]] = {}
        for element in items:
            key = int(call(element))
            groups.setdefault(key, []).append(element)
            if len(groups[key]) >= int(window_size(np.int64(key))):
                yield key, groups.pop(key)
        yield from sorted(groups.items(), key=lambda group: group[0])

    def elements(draws: Draws) -> Iterator[Any]:
        found = enumerate(full_groups(key_of.caller(draws.part("key")), plan.elements(draws.part("outer"))))
        part = draws.parts(source)
        made = (
            plan_of(np.int64(key), collected(group, plan.make_spec)).elements(part(number))
            for number, (key, group) in found
        )
        return itertools.chain.from_iterable(made)

    def spec() -> Any:
        first = first_of(plan)
        return plan_of(np.int64(key_of.example(first)), collected([first], plan.make_spec)).make_spec()

    return Stream(elements, spec, UNKNOWN)
