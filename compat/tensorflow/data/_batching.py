"""Plans that join elements to batches, windows and groups, and take batches apart."""

import collections
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._mapping import first_of
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN, Batches, Plan, Stream, Uncounted, rows_in_each
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource
from tfdist_jax.compat.tensorflow.data._source_plans import Elements


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Batch(Batches):
    """`batch_size` elements at a time."""

    parent: Plan
    batch_size: int
    drop_remainder: bool = False

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return map(self._fitted, self.parent.batches(seed_log, self.batch_size, drop_remainder=self.drop_remainder))

    def _fitted(self, batch: Any) -> Any:
        """Return a batch, whose ragged tensors have rows of one length where the elements do."""
        if not any(isinstance(part, Composite) for part in _elements.leaves(batch)):
            return batch
        fitted = lambda spec, part: spec.fitted(part) if hasattr(spec, "fitted") else part
        return _elements.map_structure(fitted, self.make_spec(), batch)

    def make_spec(self) -> Any:
        return _elements.batched_spec(self.parent.make_spec(), self.rows_in_each())

    def cardinality(self) -> int:
        return batch_count(self.parent.cardinality(), self.batch_size, drop_remainder=self.drop_remainder)

    def rows_in_each(self) -> int | None:
        return self.batch_size if self.drop_remainder else None


def batch_count(count: int, size: int, *, drop_remainder: bool) -> int:
    """Return how many batches `count` elements give."""
    if count < 0:
        return count
    return count // size if drop_remainder else -(-count // size)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Unbatch(Stream):
    """The rows of batches."""

    parent: Plan

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return _failures.flatten(map(self._rows, self.parent.elements(seed_log)))

    def _rows(self, batch: Any) -> Iterator[Any]:
        _elements.check_rows(batch)
        return _elements.rows(batch)

    def make_spec(self) -> Any:
        return _elements.unbatched_spec(self.parent.make_spec())

    def cardinality(self) -> int:
        count = self.parent.cardinality()
        rows = rows_in_each(self.parent) if count >= 0 else None
        return INFINITE if count == INFINITE else UNKNOWN if rows is None else count * rows


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Rebatch(Uncounted):
    """The rows of batches, joined again: as many as `batch_size` says in turn."""

    parent: Plan
    batch_size: Sequence[int]
    drop_remainder: bool = False

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        rows = _failures.guarded(Unbatch(self.parent).elements(seed_log))
        return map(self._joined, _failures.raising(self._groups(rows)))

    def _groups(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Yield lists of rows; a failure takes the place of the rows that it comes behind."""
        for size in itertools.cycle(self.batch_size):
            group: list[Any] = []
            while len(group) < size and (row := next(rows, None)) is not None:
                if type(row) is _failures.Failure:
                    group.clear()
                    yield row
                else:
                    group.append(row)
            if (size and not group) or (self.drop_remainder and len(group) < size):
                return
            yield group

    def _joined(self, group: list[Any]) -> Any:
        if not group:  # TensorFlow has empty batches for a size of zero among others.
            example = _elements.example_of(Unbatch(self.parent).make_spec())
            return _elements.map_structure(lambda array: array[None][:0], example)
        return _elements.stack(group)

    def make_spec(self) -> Any:
        size = self.batch_size[0] if len(set(self.batch_size)) == 1 and self._is_even() else None
        return _elements.batched_spec(Unbatch(self.parent).make_spec(), size)

    def _is_even(self) -> bool:
        """Tell whether no batch can be smaller than the others."""
        if self.drop_remainder:
            return True
        shapes = [spec.shape for spec in _elements.leaves(self.parent.make_spec())]
        sizes = [shape[0] for shape in shapes if shape.rank and shape[0] is not None]
        return bool(sizes) and not any(size % self.batch_size[0] for size in sizes)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Window(Stream):
    """Datasets of `size` elements, `stride` apart, each starting `shift` farther on; `dataset_of` makes them of plans."""

    parent: Plan
    size: int
    shift: int
    stride: int
    drop_remainder: bool
    dataset_of: Callable[[Plan], Any] = dataclasses.field(repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        items = _failures.guarded(self.parent.elements(seed_log))
        found = windows(items, self.size, self.shift, self.stride, drop_remainder=self.drop_remainder)
        return map(self._datasets, found)

    def _datasets(self, elements: list[Any]) -> Any:
        found = list(_failures.raising(iter(elements)))
        return _elements.map_columns(self._dataset, found, self.parent.make_spec())

    def _dataset(self, column: list[Any], spec: Any) -> Any:
        return self.dataset_of(Elements(column, spec))

    def make_spec(self) -> Any:
        return _elements.map_structure(_elements.DatasetSpec, self.parent.make_spec())

    def cardinality(self) -> int:
        count = self.parent.cardinality()
        return window_count(count, self.size, self.shift, self.stride, drop_remainder=self.drop_remainder)


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


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GroupByWindow(Stream):
    """What `reduce_func` makes of every `window_size` elements with the same key, and of what is left.

    `window_size` may be a function of the key; `dataset_of` makes datasets of plans.
    """

    parent: Plan
    key_func: ElementFunction
    reduce_func: Callable[[Any, Any], Any]
    window_size: Any
    dataset_of: Callable[[Plan], Any] = dataclasses.field(repr=False)
    seed: SeedSource = dataclasses.field(default_factory=SeedSource.of_function, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        call = self.key_func.caller(seed_log.part("key"))
        with_key = lambda element: (int(call(element)), element)
        keyed = map(with_key, self.parent.elements(seed_log.part("outer")))
        part, numbers = seed_log.parts(self.seed), itertools.count()
        made = lambda group: self._reduced(*group).elements(part(next(numbers)))
        return _failures.flatten(map(made, _failures.raising(self._full_groups(_failures.guarded(keyed)))))

    def _full_groups(self, keyed: Iterator[Any]) -> Iterator[Any]:
        groups: dict[int, list[Any]] = {}
        for item in keyed:
            if isinstance(item, _failures.Failure):
                yield item
                continue
            key, element = item
            groups.setdefault(key, []).append(element)
            if len(groups[key]) >= self._size(np.int64(key)):
                yield key, groups.pop(key)
        yield from sorted(groups.items(), key=operator.itemgetter(0))

    def _size(self, key: np.int64) -> int:
        given: Any = self.window_size
        asked: Any = given(convert_to_tensor(key)) if callable(given) else given
        size = int(asked)
        if size < 1:
            raise invalid(f"Window size must be greater than zero, but got {size}.")
        return size

    def _reduced(self, key: int, group: list[Any]) -> Plan:
        dataset = self.dataset_of(Elements(group, self.parent))
        return self.reduce_func(convert_to_tensor(np.int64(key)), dataset)._plan

    def cardinality(self) -> int:
        return INFINITE if self.parent.cardinality() == INFINITE else UNKNOWN

    def make_spec(self) -> Any:
        first = first_of(self.parent)
        return self._reduced(self.key_func.example(first), [first]).make_spec()
