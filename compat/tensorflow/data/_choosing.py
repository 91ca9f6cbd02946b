"""Plans that draw from several datasets, or leave elements out."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._dtypes import int64
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._draws import Draws, Source
from tfdist_jax.compat.tensorflow.data._map import ElementFunction
from tfdist_jax.compat.tensorflow.data._mapping import first_of
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN, Plan, Stream

_INT64_MAX = np.iinfo(np.int64).max


def random_numbers(source: Source) -> Stream:
    """Plan random int64 numbers from 0 to the largest one, without end."""

    def elements(draws: Draws) -> Iterator[Any]:
        generator = draws.generator(source)
        return (generator.integers(_INT64_MAX, dtype=np.int64) for _ in itertools.count())

    return Stream(elements, lambda: TensorSpec(TensorShape([]), int64), INFINITE)


def counted(start: Any, step: Any, dtype: Any, spec: Any) -> Stream:
    """Plan the numbers from `start` on, `step` apart, without end."""
    numbers = lambda draws: (np.asarray(start + step * i, dtype)[()] for i in itertools.count())
    return Stream(numbers, lambda: spec, INFINITE)


def chosen(plans: Sequence[Plan], choices: Plan, *, stop_on_empty: bool) -> Stream:
    """Take the next element of the plan whose number is the next of `choices`."""

    def picked(sources: list[Iterator[Any]], numbers: Iterator[Any]) -> Iterator[Any]:
        left = set(range(len(plans)))
        for choice in numbers:
            number = _checked(int(choice), len(plans))
            # None stands for the end: no element is None.
            element = next(sources[number], None) if number in left else None
            if element is not None:
                yield element
                continue
            left.discard(number)
            if stop_on_empty or not left:
                return

    elements = lambda draws: picked(_iterations(plans, draws), choices.elements(draws.part("choices")))
    return Stream(elements, _spec_of(plans), UNKNOWN)


def _iterations(plans: Sequence[Plan], draws: Draws) -> list[Iterator[Any]]:
    return [plan.elements(draws.part(i)) for i, plan in enumerate(plans)]


def _checked(choice: int, count: int) -> int:
    if not 0 <= choice < count:
        raise invalid(f"Selector index out of range: {choice} >= {count}")
    return choice


def sampled(plans: Sequence[Plan], weights: Callable[[Draws], Iterator[Any]], source: Source, **options: Any) -> Stream:
    """Take each next element from a plan drawn by weights."""

    def elements(draws: Draws) -> Iterator[Any]:
        shares = weights(draws.part("weights"))
        return _sampled(_iterations(plans, draws), shares, draws.generator(source), **options)

    count = INFINITE if all(plan.count == INFINITE for plan in plans) else UNKNOWN
    return Stream(elements, _spec_of(plans), count)


def _sampled(
    sources: list[Iterator[Any]], weights: Iterator[Any], generator: np.random.Generator, *, stop_on_empty: bool
) -> Iterator[Any]:
    left = np.ones(len(sources), bool)
    for weight in weights:
        while (shares := np.where(left, np.asarray(weight, np.float64), 0)).sum() > 0:
            number = int(generator.choice(len(sources), p=shares / shares.sum()))
            element = next(sources[number], None)
            if element is not None:
                yield element
                break
            if stop_on_empty:
                return
            left[number] = False
        else:
            return


def _spec_of(plans: Sequence[Plan]) -> Callable[[], Any]:
    def spec() -> Any:
        common, *others = (plan.make_spec() for plan in plans)
        for other in others:
            common = _elements.common_spec(common, other)
        return common

    return spec


def without_repetitions(plan: Plan) -> Stream:
    """Keep the elements that have not been seen before."""

    def new(items: Iterator[Any]) -> Iterator[Any]:
        seen: set[str] = set()
        for element in items:
            if (value := str(np.asarray(element).tolist())) not in seen:
                seen.add(value)
                yield element

    return Stream(lambda draws: new(plan.elements(draws)), plan.make_spec, UNKNOWN)


def resampled(
    plan: Plan, class_of: ElementFunction, wanted: np.ndarray, given: np.ndarray | None, source: Source
) -> Stream:
    """Leave elements out so that their classes are as frequent as `wanted`; each element comes with its class.

    Without the classes' frequencies in `plan`, `given`, they are counted on the way.
    """

    def kept(call: Callable[[Any], Any], items: Iterator[Any], generator: np.random.Generator) -> Iterator[Any]:
        counts = np.zeros(len(wanted))
        for element in items:
            kind = np.asarray(call(element))
            counts[int(kind)] += 1
            share = counts / counts.sum() if given is None else given
            ratio = np.divide(wanted, share, out=np.zeros(len(wanted)), where=share > 0)
            if generator.random() < ratio[int(kind)] / ratio.max():
                yield kind, element

    def elements(draws: Draws) -> Iterator[Any]:
        items = plan.elements(draws.part("resampled"))
        return kept(class_of.caller(draws.part("class")), items, draws.generator(source))

    def spec() -> Any:
        return _elements.spec_of(np.asarray(class_of.example(first_of(plan)))), plan.make_spec()

    return Stream(elements, spec, UNKNOWN)
