"""Plans of elements that the user's functions make or choose."""

import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements, _order
from tfdist_jax.compat.tensorflow.data._draws import Draws, Source
from tfdist_jax.compat.tensorflow.data._map import ElementFunction, call_in_python, tuple_of
from tfdist_jax.compat.tensorflow.data._plan import UNKNOWN, Plan, Rows, Stream, rows_at_once


def mapped(plan: Plan, fn: Callable[..., Any]) -> Plan:
    """Apply `fn` to each element."""
    function = ElementFunction(fn)
    spec_of = functools.cache(lambda: _mapped_spec(function, plan))
    if isinstance(plan, Rows):
        example = _elements.example_of(plan.make_spec())
        if function.compiles(example):
            return _mapped_rows(function, plan, example)
    elements = lambda draws: map(function.caller(draws), plan.elements(draws.part("mapped")))
    return Stream(elements, spec_of, plan.count)


def _mapped_rows(function: ElementFunction, plan: Rows, example: Any) -> Rows:
    spec = function.spec_of(example)
    at_once = 1 if function.reads_variables(example) else min(plan.at_once, rows_at_once(spec))
    if not function.draws(example):
        get = lambda positions: function.call_rows(plan.get(positions), example)
        return Rows(get, plan.order, lambda: spec, plan.count, at_once)

    def order(draws: Draws) -> Iterator[np.ndarray]:
        seed, first = function.words(draws).view(np.int64)
        return _order.numbered(plan.order(draws.part("mapped")), seed, first)

    def get_drawn(positions: np.ndarray) -> Any:
        words = np.ascontiguousarray(positions[:, -2:]).view(np.uint32)
        return function.call_rows(plan.get(_order.without_numbers(positions)), example, words)

    return Rows(get_drawn, order, lambda: spec, plan.count, at_once)


def first_of(plan: Plan) -> Any:
    """Return the first element; an example of what it would be if there is none."""
    for element in plan.elements(Draws(is_example=True)):
        return element
    return _elements.example_of(plan.make_spec())


def _mapped_spec(function: ElementFunction, plan: Plan) -> Any:
    """Find the results' types, and which sizes are open: those that follow the open sizes of the elements."""
    first, spec = first_of(plan), plan.make_spec()
    if not function.compiles(first):
        examples = list(itertools.islice(plan.elements(Draws(is_example=True)), 2)) or [first]
        return functools.reduce(_elements.common_spec, (_elements.spec_of(function.example(e)) for e in examples))
    result = _elements.spec_of(function.example(first))
    if all(isinstance(s, TensorSpec) and s.shape.is_fully_defined() for s in _elements.leaves(spec)):
        return result
    larger = function.spec_of(_elements.map_structure(_doubled, first, spec))
    return _elements.common_spec(result, result if larger is None else larger)


def _doubled(array: Any, spec: Any) -> Any:
    """Return an array whose open sizes are twice as large."""
    if not isinstance(spec, TensorSpec) or spec.shape.rank is None:
        return array
    return np.zeros(
        [2 * n if size is None else n for n, size in zip(array.shape, spec.shape, strict=True)], array.dtype
    )


def filtered(plan: Plan, predicate: Callable[..., Any]) -> Stream:
    """Keep the elements for which `predicate` is true."""
    is_chosen = _truth_of(predicate)
    chosen = lambda draws: filter(is_chosen(draws), plan.elements(draws.part("filtered")))
    return Stream(chosen, plan.make_spec, UNKNOWN)


def _truth_of(predicate: Callable[..., Any]) -> Callable[[Draws], Callable[[Any], bool]]:
    function = ElementFunction(predicate)

    def truth(value: Any) -> bool:
        if not isinstance(value, np.ndarray | np.generic) or value.dtype != bool or value.shape != ():
            raise ValueError(f"Invalid `predicate`: it must return a `tf.bool` scalar, got {value!r}.")
        return bool(value)

    def in_iteration(draws: Draws) -> Callable[[Any], bool]:
        call = function.caller(draws)
        return lambda element: truth(call(element))

    return in_iteration


def taken_while(plan: Plan, predicate: Callable[..., Any]) -> Stream:
    """Keep the elements until `predicate` is false."""
    is_kept = _truth_of(predicate)
    kept = lambda draws: itertools.takewhile(is_kept(draws), plan.elements(draws.part("taken")))
    return Stream(kept, plan.make_spec, UNKNOWN)


def scanned(plan: Plan, initial_state: Any, fn: Callable[[Any, Any], Any]) -> Stream:
    """Apply `fn` to a state and each element; it gives the next state and the new element."""
    function = ElementFunction(fn)

    def scan(call: Callable[[Any], Any], source: Iterator[Any]) -> Iterator[Any]:
        state = initial_state
        for element in source:
            state, result = call((state, element))
            yield result

    def elements(draws: Draws) -> Iterator[Any]:
        return scan(function.caller(draws), plan.elements(draws.part("scanned")))

    spec = lambda: _elements.spec_of(function.example((initial_state, first_of(plan)))[1])
    return Stream(elements, functools.cache(spec), plan.count)


def made(fn: Callable[..., Any]) -> Callable[[Any], Plan]:
    """Return the function that gives the plan of the dataset that `fn` makes from an element.

    It runs in Python for each element: what it returns is not made of tensors.
    """

    def plan_of(element: Any) -> Plan:
        dataset = tuple_of(call_in_python(fn, element))
        if not hasattr(dataset, "_plan"):
            raise TypeError(f"`map_func` must return a `Dataset` object. Got {type(dataset)}.")
        return dataset._plan

    return plan_of


def flat_mapped(plan: Plan, plan_of: Callable[[Any], Plan]) -> Stream:
    """Plan the elements of the datasets that are made from each element, one dataset after the other."""
    iterations = _made_iterations(plan, plan_of)
    joined = lambda draws: itertools.chain.from_iterable(iterations(draws))
    return Stream(joined, _made_spec(plan, plan_of), UNKNOWN)


def _made_iterations(plan: Plan, plan_of: Callable[[Any], Plan]) -> Callable[[Draws], Iterator[Iterator[Any]]]:
    source = Source.of_function()

    def iterations(draws: Draws) -> Iterator[Iterator[Any]]:
        part, outer = draws.parts(source), enumerate(plan.elements(draws.part("outer")))
        return (plan_of(element).elements(part(number)) for number, element in outer)

    return iterations


def interleaved(plan: Plan, plan_of: Callable[[Any], Plan], cycle_length: int, block_length: int) -> Stream:
    """Take `block_length` elements in turn from `cycle_length` of the datasets that are made from the elements."""
    iterations = _made_iterations(plan, plan_of)
    elements = lambda draws: in_turn(iterations(draws), cycle_length, block_length)
    return Stream(elements, _made_spec(plan, plan_of), UNKNOWN)


def in_turn(iterations: Iterator[Iterator[Any]], cycle_length: int, block_length: int) -> Iterator[Any]:
    """Yield `block_length` items of each of `cycle_length` iterations in turn; others take the places of those at their end."""
    cycle: list[Iterator[Any] | None] = [None] * cycle_length
    idle = 0
    for slot in itertools.cycle(range(cycle_length)):
        items = cycle[slot] or next(iterations, None)
        idle = 0 if items else idle + 1
        if idle == cycle_length:
            return
        is_whole = yield from _block(items or iter(()), block_length)
        cycle[slot] = items if is_whole else None


def _block(items: Iterator[Any], length: int) -> Generator[Any, None, bool]:
    """Yield up to `length` items; return whether there were so many."""
    for _ in range(length):
        item = next(items, None)
        if item is None:
            return False
        yield item
    return True


def _made_spec(plan: Plan, plan_of: Callable[[Any], Plan]) -> Callable[[], Any]:
    """Find the type of the elements; sizes in which the first two datasets differ are open."""

    def spec() -> Any:
        elements = list(itertools.islice(plan.elements(Draws(is_example=True)), 2)) or [first_of(plan)]
        return functools.reduce(_elements.common_spec, (plan_of(element).make_spec() for element in elements))

    return functools.cache(spec)
