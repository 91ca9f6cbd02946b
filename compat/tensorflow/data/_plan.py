"""Plans of datasets: what the elements are and how to get them. Planned first, run when iterated.

Two kinds: `Rows`, whose elements are rows of arrays picked by position, so that order and content are separate and
whole batches can be cut and mapped at once; and `Stream`, whose elements come one after the other.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements, _order
from tfdist_jax.compat.tensorflow.data._map import ElementFunction
from tfdist_jax.compat.tensorflow.data._prefetch import prefetched

INFINITE = -1
UNKNOWN = -2


@final
@dataclasses.dataclass(frozen=True)
class Rows:
    """Elements picked by position.

    Attributes:
        get: Positions `[k]` to a batch of `k` elements.
        order: Makes a fresh iteration over the positions, in chunks.
        make_spec: Gives the element's spec.
        count: Number of elements, or `INFINITE`.
    """

    get: Callable[[np.ndarray], Any]
    order: Callable[[], Iterator[np.ndarray]]
    make_spec: Callable[[], Any]
    count: int

    def elements(self) -> Iterator[Any]:
        """Yield the elements."""
        for chunk in self.order():
            yield from _elements.rows(self.get(chunk))


@final
@dataclasses.dataclass(frozen=True)
class Stream:
    """Elements that come one after the other.

    Attributes:
        elements: Makes a fresh iteration.
        make_spec: Gives the element's spec.
        count: Number of elements, `INFINITE` or `UNKNOWN`.
    """

    elements: Callable[[], Iterator[Any]]
    make_spec: Callable[[], Any]
    count: int


Plan = Rows | Stream


def _spec_of_first(elements: Callable[[], Iterator[Any]]) -> Callable[[], Any]:
    """Find the spec from the first element, once, when asked."""

    @functools.cache
    def spec() -> Any:
        for element in elements():
            return _elements.spec_of(element)
        raise ValueError("The type of the elements is not known: the dataset is empty.")

    return spec


def slices(arrays: Any) -> Rows:
    """Plan the rows of arrays."""
    columns = _elements.leaves(arrays)
    shapes = [column.shape for column in columns]
    lengths = {shape[0] for shape in shapes if shape}
    if len(lengths) != 1 or () in shapes:
        raise ValueError(f"Slices need arrays with the same first dimension, got the shapes {shapes}.")
    (count,) = lengths
    get = lambda positions: _elements.map_structure(lambda column: _pick(column, positions), arrays)
    spec = lambda: _elements.unbatched_spec(_elements.spec_of(arrays))
    return Rows(get, lambda: _order.in_order(count), spec, count)


def _pick(column: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Pick rows; a view where they lie next to each other."""
    if not len(positions):
        return column[:0]
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and np.array_equal(positions, np.arange(first, last + 1)):
        return column[first : last + 1]
    return column[positions]


def single(element: Any) -> Rows:
    """Plan one element."""
    return slices(_elements.map_structure(lambda array: array[None], element))


def generated(make: Callable[[], Iterator[Any]], spec: Any) -> Stream:
    """Plan the elements of a Python generator."""
    return Stream(make, lambda: spec, UNKNOWN)


def zipped(plans: Any) -> Stream:
    """Plan elements that hold one element of each plan, in the structure of `plans`."""
    parts = _elements.leaves(plans)

    def elements() -> Iterator[Any]:
        for together in zip(*(part.elements() for part in parts), strict=False):
            remaining = iter(together)
            yield _elements.map_structure(lambda _, source=remaining: next(source), plans)

    counts = [part.count for part in parts]
    finite = [count for count in counts if count >= 0]
    count = UNKNOWN if UNKNOWN in counts else min(finite, default=INFINITE)
    return Stream(elements, lambda: _elements.map_structure(lambda part: part.make_spec(), plans), count)


def mapped(plan: Plan, fn: Callable[..., Any]) -> Plan:
    """Apply `fn` to each element."""
    function = ElementFunction(fn)
    if isinstance(plan, Rows):
        first = lambda: _elements.map_structure(
            lambda s: np.zeros(tuple(s.shape), s.dtype.as_numpy_dtype), plan.make_spec()
        )
        get = lambda positions: function.call_rows(plan.get(positions), first)
        found = Rows(get, plan.order, lambda: None, plan.count)
        return dataclasses.replace(found, make_spec=_spec_of_first(found.elements))
    elements = lambda: map(function.call, plan.elements())
    return Stream(elements, _spec_of_first(elements), plan.count)


def batched(plan: Plan, size: int, *, drop_remainder: bool) -> Stream:
    """Join `size` elements at a time."""

    def groups() -> Iterator[Any]:
        if isinstance(plan, Rows):
            cut = _order.regroup(plan.order(), size, drop_remainder=drop_remainder)
            yield from map(plan.get, cut)
            return
        source = plan.elements()
        while group := list(itertools.islice(source, size)):
            if len(group) == size or not drop_remainder:
                yield _elements.stack(group)

    spec = lambda: _elements.batched_spec(plan.make_spec(), size if drop_remainder else None)
    count = plan.count if plan.count < 0 else (plan.count // size if drop_remainder else -(-plan.count // size))
    return Stream(groups, spec, count)


def unbatched(plan: Plan) -> Stream:
    """Take batches apart."""
    elements = lambda: itertools.chain.from_iterable(map(_elements.rows, plan.elements()))
    return Stream(elements, lambda: _elements.unbatched_spec(plan.make_spec()), UNKNOWN)


def shuffled(plan: Plan, buffer_size: int, make_rng: Callable[[], np.random.Generator]) -> Plan:
    """Shuffle through a buffer; `make_rng` is called for each iteration."""
    if isinstance(plan, Rows):
        order = lambda: _order.shuffled_chunks(plan.order(), buffer_size, make_rng())
        return dataclasses.replace(plan, order=order)
    return dataclasses.replace(plan, elements=lambda: _order.shuffled(plan.elements(), buffer_size, make_rng()))


def repeated(plan: Plan, times: int) -> Plan:
    """Go over the elements `times` times; for ever if negative."""
    again = lambda make: itertools.chain.from_iterable(_repeat(make, times))
    count = _repeated_count(plan.count, times)
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda: again(plan.order), count=count)
    return dataclasses.replace(plan, elements=lambda: again(plan.elements), count=count)


def _repeat(make: Callable[[], Iterator[Any]], times: int) -> Iterator[Iterator[Any]]:
    for _ in itertools.count() if times < 0 else range(times):
        items = make()
        first = next(items, None)
        if first is None:  # Repeating nothing for ever would never come back.
            return
        yield itertools.chain([first], items)


def _repeated_count(count: int, times: int) -> int:
    if count == 0 or times == 0:
        return 0
    if count == UNKNOWN:
        return INFINITE if times < 0 else UNKNOWN
    return INFINITE if times < 0 or count == INFINITE else count * times


def taken(plan: Plan, count: int) -> Plan:
    """Keep the first `count` elements; all if negative."""
    kept = plan.count if count < 0 else _least(plan.count, count)
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda: _order.take(plan.order(), count), count=kept)
    if count < 0:
        return plan
    return dataclasses.replace(plan, elements=lambda: itertools.islice(plan.elements(), count), count=kept)


def _least(count: int, limit: int) -> int:
    return limit if count == INFINITE else (count if count == UNKNOWN else min(count, limit))


def skipped(plan: Plan, count: int) -> Plan:
    """Leave the first `count` elements out; all if negative."""
    if count < 0:
        return taken(plan, 0)
    left = plan.count if plan.count < 0 else max(0, plan.count - count)
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda: _order.skip(plan.order(), count), count=left)
    return dataclasses.replace(plan, elements=lambda: itertools.islice(plan.elements(), count, None), count=left)


def sharded(plan: Plan, num_shards: int, index: int) -> Plan:
    """Keep each `num_shards`-th element, from number `index` on."""
    count = plan.count if plan.count < 0 else len(range(index, plan.count, num_shards))
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda: _order.every(plan.order(), num_shards, index), count=count)
    pick = lambda: itertools.islice(plan.elements(), index, None, num_shards)
    return dataclasses.replace(plan, elements=pick, count=count)


def cached(plan: Plan) -> Plan:
    """Keep the elements, in their order, once they have all been seen."""
    return _cached_rows(plan) if isinstance(plan, Rows) else _cached_stream(plan)


def _cached_stream(plan: Stream) -> Stream:
    kept: list[list[Any]] = []

    def elements() -> Iterator[Any]:
        if kept:
            yield from kept[0]
            return
        seen = []
        for element in plan.elements():
            seen.append(element)
            yield element
        kept[:] = [seen]

    return dataclasses.replace(plan, elements=elements)


def _cached_rows(plan: Rows) -> Rows:
    kept: list[tuple[list[np.ndarray], np.ndarray, Any]] = []

    def order() -> Iterator[np.ndarray]:
        if kept:
            yield from kept[0][0]
            return
        chunks = []
        for chunk in plan.order():
            chunks.append(chunk)
            yield chunk
        if chunks:
            positions = np.unique(np.concatenate(chunks))
            kept[:] = [(chunks, positions, plan.get(positions))]

    def get(positions: np.ndarray) -> Any:
        if not kept:
            return plan.get(positions)
        _, known, values = kept[0]
        where = np.searchsorted(known, positions)
        return _elements.map_structure(lambda array: _pick(array, where), values)

    return dataclasses.replace(plan, order=order, get=get)


def filtered(plan: Plan, predicate: Callable[..., Any]) -> Stream:
    """Keep the elements for which `predicate` is true."""
    function = ElementFunction(predicate)
    return Stream(lambda: (e for e in plan.elements() if bool(function.call(e))), plan.make_spec, UNKNOWN)


def joined(first: Plan, second: Plan) -> Stream:
    """Plan the elements of one plan, then those of another."""
    if UNKNOWN in (first.count, second.count):
        count = UNKNOWN
    else:
        count = INFINITE if INFINITE in (first.count, second.count) else first.count + second.count
    return Stream(lambda: itertools.chain(first.elements(), second.elements()), first.make_spec, count)


def ahead(plan: Plan, depth: int) -> Stream:
    """Prepare elements in a thread."""
    return Stream(lambda: prefetched(plan.elements, depth), plan.make_spec, plan.count)
