"""Plans of datasets: what the elements are and how to get them. Planned first, run when iterated.

Two kinds: `Rows`, whose elements are rows of arrays picked by position, so that order and content are separate and
whole batches can be cut and mapped at once; and `Stream`, whose elements come one after the other.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow.data import _elements, _order
from tfdist_jax.compat.tensorflow.data._draws import Draws, Share, Source
from tfdist_jax.compat.tensorflow.data._prefetch import prefetched

INFINITE = -1
UNKNOWN = -2

# Bytes that are got together.
_AT_ONCE = 1 << 22


@final
@dataclasses.dataclass(frozen=True)
class Rows:
    """Elements picked by position.

    As for all plans, an iteration takes its random seeds when it is made, not when its first element is asked for: so
    its state can be saved at any moment, and threads do not race for seeds.

    Attributes:
        get: Positions `[k]` to a batch of `k` elements. Functions that draw random numbers see numbers beside each
            position, `[k, n]`: which draws are meant.
        order: Makes an iteration over the positions, in chunks; random choices come from the `Draws`.
        make_spec: Gives the element's spec.
        count: Number of elements, or `INFINITE`.
        at_once: How many rows may be got together, before they are asked for; 1 where each is work of its own, or where
            a position may give something else later, since variables are read.
    """

    get: Callable[[np.ndarray], Any]
    order: Callable[[Draws], Iterator[np.ndarray]]
    make_spec: Callable[[], Any]
    count: int
    at_once: int

    def elements(self, draws: Draws) -> Iterator[Any]:
        """Return an iterator over the elements."""
        pieces = (
            self.get(chunk[start : start + self.at_once])
            for chunk in self.order(draws)
            for start in range(0, len(chunk), self.at_once)
        )
        return itertools.chain.from_iterable(map(_elements.rows, pieces))

    def batches(self, draws: Draws, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        """Return an iterator over batches of `size` elements, the last one smaller unless it is dropped."""
        cut = _order.regroup(self.order(draws), size, drop_remainder=drop_remainder)
        return self._together(cut, self.at_once // size) if self.at_once >= 2 * size else map(self.get, cut)

    def _together(self, cut: Iterator[np.ndarray], batches: int) -> Iterator[Any]:
        while several := list(itertools.islice(cut, batches)):
            rows = self.get(np.concatenate(several))
            yield from _elements.split(rows, [len(positions) for positions in several])


def rows_at_once(spec: Any) -> int:
    """Return how many rows of a spec are worth getting together: a power of two, so that few programs are compiled."""
    rows = _AT_ONCE // max(1, sum(map(_bytes, _elements.leaves(spec))))
    return min(1 << max(0, rows.bit_length() - 1), _order.CHUNK)


def _bytes(spec: Any) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype.as_numpy_dtype).itemsize


@final
@dataclasses.dataclass(frozen=True)
class Stream:
    """Elements that come one after the other.

    Attributes:
        elements: Makes an iteration; random choices come from the `Draws`.
        make_spec: Gives the element's spec.
        count: Number of elements, `INFINITE` or `UNKNOWN`.
        rows: How many rows each element has, where that is certain: a spec may be that of examples.
    """

    elements: Callable[[Draws], Iterator[Any]]
    make_spec: Callable[[], Any]
    count: int
    rows: int | None = None


Plan = Rows | Stream


def rows_in_each(plan: Plan) -> int | None:
    """Return how many rows each element has, where that is certain."""
    if isinstance(plan, Stream):
        return plan.rows
    return next((spec.shape[0] for spec in _elements.leaves(plan.make_spec()) if spec.shape.rank), None)


def slices(arrays: Any) -> Rows:
    """Plan the rows of arrays."""
    columns = _elements.leaves(arrays)
    shapes = [column.shape for column in columns]
    lengths = {shape[0] for shape in shapes if shape}
    if len(lengths) != 1 or () in shapes:
        raise ValueError(f"Slices need arrays with the same first dimension, got the shapes {shapes}.")
    (count,) = lengths
    get = lambda positions: _elements.pick(arrays, positions)
    spec = _elements.unbatched_spec(_elements.spec_of(arrays))
    return Rows(get, lambda draws: _order.in_order(count), lambda: spec, count, rows_at_once(spec))


def single(element: Any) -> Stream:
    """Plan one element."""
    return Stream(lambda draws: iter([element]), lambda: _elements.spec_of(element), 1)


def generated(make: Callable[[], Iterator[Any]], spec: Any, count: int = UNKNOWN) -> Stream:
    """Plan the elements of a Python generator."""
    return Stream(lambda draws: make(), lambda: spec, count)


def zipped(plans: Any) -> Stream:
    """Plan elements that hold one element of each plan, in the structure of `plans`."""
    parts = _elements.leaves(plans)

    def elements(draws: Draws) -> Iterator[Any]:
        iterations = [part.elements(draws.part(i)) for i, part in enumerate(parts)]
        return (_elements.rebuilt(plans, together) for together in zip(*iterations, strict=False))

    counts = [part.count for part in parts]
    finite = [count for count in counts if count >= 0]
    count = UNKNOWN if UNKNOWN in counts else min(finite, default=INFINITE)
    return Stream(elements, lambda: _elements.map_structure(lambda part: part.make_spec(), plans), count)


def shuffled(plan: Plan, buffer_size: int, source: Source) -> Plan:
    """Shuffle through a buffer; each iteration has its own seed from `source`."""
    if isinstance(plan, Rows):
        mix = lambda draws: _order.shuffled_chunks(
            plan.order(draws.part("shuffled")), buffer_size, draws.generator(source)
        )
        return dataclasses.replace(plan, order=mix)
    elements = lambda draws: _order.shuffled(
        plan.elements(draws.part("shuffled")), buffer_size, draws.generator(source)
    )
    return dataclasses.replace(plan, elements=elements)


def repeated(plan: Plan, times: int) -> Plan:
    """Go over the elements `times` times; for ever if negative."""
    count = _repeated_count(plan.count, times)
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda draws: _again(plan.order, times, draws), count=count)
    return dataclasses.replace(plan, elements=lambda draws: _again(plan.elements, times, draws), count=count)


def _again(make: Callable[[Draws], Iterator[Any]], times: int, draws: Draws) -> Iterator[Any]:
    return _repeat(make, times, draws, make(draws.again(0))) if times else iter(())


def _repeat(make: Callable[[Draws], Iterator[Any]], times: int, draws: Draws, items: Iterator[Any]) -> Iterator[Any]:
    for number in itertools.count(1) if times < 0 else range(1, times + 1):
        first = next(items, None)
        if first is None:  # Repeating nothing for ever would never come back.
            return
        yield first
        yield from items
        if number != times:
            items = make(draws.again(number))


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
        return dataclasses.replace(plan, order=lambda draws: _order.take(plan.order(draws), count), count=kept)
    if count < 0:
        return plan
    first = lambda draws: itertools.islice(plan.elements(draws), count)
    return dataclasses.replace(plan, elements=first, count=kept)


def _least(count: int, limit: int) -> int:
    return limit if count == INFINITE else (count if count == UNKNOWN else min(count, limit))


def skipped(plan: Plan, count: int) -> Plan:
    """Leave the first `count` elements out; all if negative."""
    if count < 0:
        return taken(plan, 0)
    left = plan.count if plan.count < 0 else max(0, plan.count - count)
    if isinstance(plan, Rows):
        return dataclasses.replace(plan, order=lambda draws: _order.skip(plan.order(draws), count), count=left)
    rest = lambda draws: itertools.islice(plan.elements(draws), count, None)
    return dataclasses.replace(plan, elements=rest, count=left)


def sharded(plan: Plan, num_shards: int, index: int) -> Plan:
    """Keep each `num_shards`-th element, from number `index` on."""
    count = plan.count if plan.count < 0 else len(range(index, plan.count, num_shards))
    if isinstance(plan, Rows):
        pick_rows = lambda draws: _order.every(plan.order(draws), num_shards, index)
        return dataclasses.replace(plan, order=pick_rows, count=count)
    pick = lambda draws: itertools.islice(plan.elements(draws), index, None, num_shards)
    return dataclasses.replace(plan, elements=pick, count=count)


def of_files(plan: Rows) -> Rows:
    """Plan files, of which an iteration may be given a part."""
    numbers = np.arange(plan.count)
    return dataclasses.replace(plan, order=lambda draws: _order.cut(draws.own_files(numbers)))


def shared(plan: Plan, share: Share) -> Stream:
    """Plan what is made of one part of the data."""
    return Stream(lambda draws: plan.elements(draws.sharing(share)), plan.make_spec, UNKNOWN)


def hinted(plan: Plan) -> Stream:
    """Keep the elements of the part that an iteration is given, which must be given one."""

    def elements(draws: Draws) -> Iterator[Any]:
        share = draws.share
        if share is None or share.by != "hint":
            raise FailedPreconditionError(
                None,
                None,
                "`tf.data.Dataset.shard(SHARD_HINT, ...)` needs `Strategy.experimental_distribute_dataset` and "
                "`AutoShardPolicy.HINT` in the dataset's options: they say what to put in its place.",
            )
        return sharded(plan, share.count, share.index).elements(draws)

    return Stream(elements, plan.make_spec, UNKNOWN)


def joined(first: Plan, second: Plan) -> Stream:
    """Plan the elements of one plan, then those of another."""
    if UNKNOWN in (first.count, second.count):
        count = UNKNOWN
    else:
        count = INFINITE if INFINITE in (first.count, second.count) else first.count + second.count
    both = lambda draws: itertools.chain(first.elements(draws.part(0)), second.elements(draws.part(1)))
    return Stream(both, lambda: _elements.common_spec(first.make_spec(), second.make_spec()), count)


def counted(plan: Plan, count: int) -> Stream:
    """Say how many elements there are; an iteration with another number fails."""

    def checked(elements: Iterator[Any]) -> Iterator[Any]:
        found = 0
        for element in elements:
            found += 1
            if count >= 0 and found > count:
                break
            yield element
        if found != count and count != UNKNOWN:
            raise FailedPreconditionError(
                None, None, f"Expected {count} elements, the dataset has {_words(found, count)}."
            )

    return Stream(lambda draws: checked(plan.elements(draws)), plan.make_spec, count)


def _words(found: int, count: int) -> str:
    return "more" if 0 <= count < found else str(found)


def ahead(plan: Plan, depth: int) -> Stream:
    """Prepare elements in a thread."""
    return Stream(lambda draws: prefetched(plan.elements(draws), depth), plan.make_spec, plan.count, rows_in_each(plan))
