"""Plans of elements that the user's functions make or choose."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Generator, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import OpError
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _failures, _order, _plan_text
from tfdist_jax.compat.tensorflow.data._bindings import Bindings
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction, call_in_python
from tfdist_jax.compat.tensorflow.data._element_program import tuple_of
from tfdist_jax.compat.tensorflow.data._mapped_groups import MappedBatches, MappedGroups
from tfdist_jax.compat.tensorflow.data._plan import Part, Plan, Rows, Stream, Uncounted, made_once, rows_at_once
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource

_logger = logging.getLogger("tfdist_jax")


def mapped(plan: Plan, fn: Callable[..., Any], *, is_ahead: bool = False) -> Plan:
    """Apply `fn` to each element: to many rows at once where it can be compiled for them, and none of them can be an error.

    Of a stream, elements are taken before they are asked for only if `is_ahead`.
    """
    function = ElementFunction(fn)
    if isinstance(plan, Rows):
        example = _elements.example_of(plan.make_spec())
        if function.compiles(example) and not function.checks(example):
            spec = function.spec_of(example)
            at_once = 1 if function.reads_variables(example) else min(plan.at_once(), rows_at_once(spec))
            return MapRows(plan, function, example, spec, at_once, is_random=function.is_random(example))
    return Map(plan, function, is_ahead=is_ahead)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MapRows(Rows):
    """What a function makes of rows: it is compiled for rows like `example`, and `is_random` if it draws numbers."""

    parent: Rows
    map_func: ElementFunction
    example: Any = dataclasses.field(repr=False)
    spec: Any = dataclasses.field(repr=False)
    rows_at_once: int
    is_random: bool = False

    def get(self, positions: np.ndarray) -> Any:
        if not self.is_random:
            return self.map_func.call_rows(self.parent.get(positions), self.example)
        words = np.ascontiguousarray(positions[:, -2:]).view(np.uint32)
        return self.map_func.call_rows(self.parent.get(_order.without_numbers(positions)), self.example, words)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        if not self.is_random:
            return self.parent.order(seed_log)
        seed, first = self.map_func.words(seed_log).view(np.int64)
        return _order.numbered(self.parent.order(seed_log.part("mapped")), seed, first)

    def make_spec(self) -> Any:
        return self.spec

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def at_once(self) -> int:
        return self.rows_at_once


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Map(Stream):
    """What a function makes of each element."""

    parent: Plan
    map_func: ElementFunction
    is_ahead: bool = dataclasses.field(default=False, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        if not self.is_ahead:
            return map(self.map_func.caller(seed_log), self.parent.elements(seed_log.part("mapped")))
        first = self.map_func.words(seed_log)
        return _failures.flatten(MappedGroups(self.map_func, self.parent.elements(seed_log.part("mapped")), first))

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        first = self.map_func.words(seed_log)
        elements = self.parent.elements(seed_log.part("mapped"))
        return MappedBatches(
            self.map_func, elements, first, size, drop_remainder=drop_remainder, is_ahead=self.is_ahead
        )

    @made_once
    def make_spec(self) -> Any:
        return _mapped_spec(self.map_func, self.parent)

    def cardinality(self) -> int:
        return self.parent.cardinality()


# How many errors are passed over in a search for an element.
_MOST_ERRORS = 16


def first_of(plan: Plan) -> Any:
    """Return the first element that is no error; an example of what it would be if there is none."""
    return next(iter(_examples(plan, 1) or [_elements.example_of(plan.make_spec())]))


def _examples(plan: Plan, count: int) -> list[Any]:
    """Return up to `count` of the first elements.

    Raises:
        OpError: If the first elements are errors.
    """
    found: list[Any] = []
    failed: list[Exception] = []
    elements = _failures.guarded(plan.elements(SeedLog(is_example=True)))
    while len(found) < count and len(failed) < _MOST_ERRORS and (element := next(elements, _END)) is not _END:
        if type(element) is not _failures.Failure:
            found.append(element)
        elif isinstance(element.error, OpError):
            failed.append(element.error)
        else:
            raise element.error
    if failed and not found:
        raise failed[0]
    return found


_END = object()


def _mapped_spec(function: ElementFunction, plan: Plan) -> Any:
    """Find the results' types, and which sizes are open: those that follow the open sizes of the elements."""
    first, spec = first_of(plan), plan.make_spec()
    if not function.compiles(first):
        results = _examples(Map(plan, function), 2) or [function.example(first)]
        found = [_elements.spec_of(result) for result in results]
        found += [] if (fewer := _with_fewer_rows(first, spec)) is None else _spec_if_taken(function, fewer)
        return functools.reduce(_elements.common_spec, found)
    result = function.spec_of(first)
    if all(isinstance(s, TensorSpec) and s.shape.is_fully_defined() for s in _elements.leaves(spec)):
        return result
    larger = function.spec_of(_elements.map_structure(_doubled, first, spec))
    return _elements.common_spec(result, result if larger is None else larger)


def _spec_if_taken(function: ElementFunction, element: Any) -> list[Any]:
    """Return the spec of what a function makes of an element that may never come; none if it does not take it."""
    try:
        return [_elements.spec_of(function.example(element))]
    except (TypeError, ValueError, ArithmeticError, OpError) as error:
        _logger.info("map: %r does not take elements of other sizes: %s", function, error)
        return []


def _with_fewer_rows(element: Any, spec: Any) -> Any:
    """Return a batch with a row less, if batches may have other numbers of rows than the first; else None."""
    columns = list(zip(_elements.leaves(element), _elements.leaves(spec), strict=True))
    # What is not expected to be ragged may be so all the same: see `ragged_batch`.
    is_tensor = lambda value, s: isinstance(s, TensorSpec) and not _elements.is_whole(value)
    is_open = lambda value, s: is_tensor(value, s) and np.ndim(value) and s.shape.rank and s.shape[0] is None
    if not columns or not all(is_open(*column) for column in columns) or len({len(array) for array, _ in columns}) > 1:
        return None
    return _elements.map_structure(lambda array: array[:-1], element) if len(columns[0][0]) > 1 else None


def _doubled(array: Any, spec: Any) -> Any:
    """Return an array whose open sizes are twice as large."""
    if not isinstance(spec, TensorSpec) or spec.shape.rank is None:
        return array
    return np.zeros(
        [2 * n if size is None else n for n, size in zip(array.shape, spec.shape, strict=True)], array.dtype
    )


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Filter(Part):
    """The elements for which `predicate` is true."""

    parent: Plan
    predicate: ElementFunction

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return filter(_test(self.predicate, seed_log), self.parent.elements(seed_log.part("filtered")))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TakeWhile(Part):
    """The elements until `predicate` is false."""

    parent: Plan
    predicate: ElementFunction

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return itertools.takewhile(_test(self.predicate, seed_log), self.parent.elements(seed_log.part("taken")))


def _test(predicate: ElementFunction, seed_log: SeedLog) -> Callable[[Any], bool]:
    """Return the predicate for the elements of one iteration, in their order."""
    call = predicate.caller(seed_log)

    def is_true(element: Any) -> bool:
        value = call(element)
        if not isinstance(value, np.ndarray | np.generic) or value.dtype != bool or value.shape != ():
            raise ValueError(f"Invalid `predicate`: it must return a `tf.bool` scalar, got {value!r}.")
        return bool(value)

    return is_true


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scan(Stream):
    """What `scan_func` makes of a state and each element; it gives the next state and the new element."""

    parent: Plan
    initial_state: Any
    scan_func: ElementFunction

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        call, state = self.scan_func.caller(seed_log), self.initial_state

        def step(element: Any) -> Any:
            nonlocal state
            state, result = call((state, element))
            return result

        return map(step, self.parent.elements(seed_log.part("scanned")))

    @made_once
    def make_spec(self) -> Any:
        return _elements.spec_of(self.scan_func.example((self.initial_state, first_of(self.parent)))[1])

    def cardinality(self) -> int:
        return self.parent.cardinality()


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DatasetFunction:
    """A function that makes a dataset of each element; it runs in Python: what it returns is not made of tensors."""

    fn: Callable[..., Any]
    seed: SeedSource = dataclasses.field(default_factory=SeedSource.of_function)

    @functools.cached_property
    def _bindings(self) -> Bindings:
        return Bindings(self.fn)

    def __post_init__(self) -> None:
        _ = self._bindings  # Of the moment when the dataset is made.

    def __repr__(self) -> str:
        return _plan_text.function(self.fn)

    def plan_of(self, element: Any) -> Plan:
        """Return the plan of the dataset that is made of an element."""
        dataset = tuple_of(call_in_python(self._bindings.function(), element))
        if not hasattr(dataset, "_plan"):
            got = "a tensor" if is_tensor(dataset) else repr(dataset)
            raise TypeError(f"`map_func` must return a `Dataset` object. Got {got}.")
        return dataset._plan

    def iterations(self, plan: Plan, seed_log: SeedLog, *, is_ahead: bool = False) -> Iterator[Iterator[Any]]:
        """Return an iteration over each dataset that is made of the elements of `plan`; threads read its files if `is_ahead`."""
        part, numbers = seed_log.parts(self.seed), itertools.count()

        def iteration(element: Any) -> Iterator[Any]:
            made = self.plan_of(element)
            return (made.reading_ahead() if is_ahead else made).elements(part(next(numbers)))

        return map(iteration, plan.elements(seed_log.part("outer")))

    def spec_for(self, plan: Plan) -> Any:
        """Find the type of the datasets' elements; sizes in which the first two datasets differ are open."""
        elements = _examples(plan, 2) or [first_of(plan)]
        return functools.reduce(_elements.common_spec, (self.plan_of(element).make_spec() for element in elements))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FlatMap(Uncounted):
    """The elements of the datasets that are made from each element, one dataset after the other."""

    parent: Plan
    map_func: DatasetFunction

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return _failures.flatten(self.map_func.iterations(self.parent, seed_log))

    @made_once
    def make_spec(self) -> Any:
        return self.map_func.spec_for(self.parent)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Interleave(Uncounted):
    """`block_length` elements in turn from `cycle_length` of the datasets that are made from the elements.

    With `is_ahead`, files that these read are read each in a thread of its own.
    """

    parent: Plan
    map_func: DatasetFunction
    cycle_length: int
    block_length: int
    is_ahead: bool = dataclasses.field(default=False, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        iterations = _failures.guarded(self.map_func.iterations(self.parent, seed_log, is_ahead=self.is_ahead))
        return _failures.raising(in_turn(iterations, self.cycle_length, self.block_length))

    @made_once
    def make_spec(self) -> Any:
        return self.map_func.spec_for(self.parent)


def in_turn(iterations: Iterator[Iterator[Any]], cycle_length: int, block_length: int) -> Iterator[Any]:
    """Yield `block_length` items of each of `cycle_length` iterations in turn; others take the places of those at their end.

    An iteration that is a `Failure`, and items that are, come and take no place.
    """
    cycle: list[Iterator[Any] | None] = [None] * cycle_length
    idle = 0
    for slot in itertools.cycle(range(cycle_length)):
        items = cycle[slot] or (yield from _opened(iterations))
        idle = 0 if items else idle + 1
        if idle == cycle_length:
            return
        is_whole = yield from _block(items or iter(()), block_length)
        cycle[slot] = items if is_whole else None


def _opened(iterations: Iterator[Iterator[Any]]) -> Generator[Any, None, Iterator[Any] | None]:
    """Yield the failures before the next iteration, and return that; None at the end."""
    for items in iterations:
        if type(items) is not _failures.Failure:
            return _failures.guarded(items)
        yield items
    return None


def _block(items: Iterator[Any], length: int) -> Generator[Any, None, bool]:
    """Yield up to `length` items, and the failures between them; return whether there were so many."""
    left = length
    while left:
        item = next(items, None)
        if item is None:
            return False
        yield item
        left -= type(item) is not _failures.Failure
    return True
