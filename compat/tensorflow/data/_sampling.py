"""Plans that are made of several, or draw from them, or leave elements out."""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._mapping import first_of
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN, Part, Plan, Stream, Uncounted
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Zip(Stream):
    """Elements that hold one element of each plan, in the structure of `datasets`."""

    datasets: Any

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        iterations = _iterations(_elements.leaves(self.datasets), seed_log)
        return map(functools.partial(_elements.rebuilt, self.datasets), _failures.together(iterations))

    def make_spec(self) -> Any:
        return _elements.map_structure(operator.methodcaller("make_spec"), self.datasets)

    def cardinality(self) -> int:
        counts = [plan.cardinality() for plan in _elements.leaves(self.datasets)]
        finite = [count for count in counts if count >= 0]
        return UNKNOWN if UNKNOWN in counts else min(finite, default=INFINITE)


def _iterations(plans: Sequence[Plan], seed_log: SeedLog) -> list[Iterator[Any]]:
    return [plan.elements(seed_log.part(i)) for i, plan in enumerate(plans)]


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Concatenate(Stream):
    """The elements of one plan, then those of another."""

    parent: Plan
    dataset: Plan

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return itertools.chain.from_iterable(_iterations([self.parent, self.dataset], seed_log))

    def make_spec(self) -> Any:
        return _elements.common_spec(self.parent.make_spec(), self.dataset.make_spec())

    def cardinality(self) -> int:
        counts = self.parent.cardinality(), self.dataset.cardinality()
        return INFINITE if INFINITE in counts else UNKNOWN if UNKNOWN in counts else sum(counts)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ChooseFromDatasets(Uncounted):
    """The next element of the plan whose number is the next of `choice_dataset`."""

    datasets: Sequence[Plan]
    choice_dataset: Plan
    stop_on_empty_dataset: bool

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        sources = list(map(_failures.guarded, _iterations(self.datasets, seed_log)))
        return _failures.raising(self._chosen(sources, self.choice_dataset.elements(seed_log.part("choices"))))

    def _chosen(self, sources: Sequence[Iterator[Any]], numbers: Iterator[Any]) -> Iterator[Any]:
        left = set(range(len(sources)))
        for choice in numbers:
            number = _checked(int(choice), len(sources))
            # None stands for the end: no element is None.
            element = next(sources[number], None) if number in left else None
            if element is not None:
                yield element
                continue
            left.discard(number)
            if self.stop_on_empty_dataset or not left:
                return

    def make_spec(self) -> Any:
        return _spec_of_each(self.datasets)


def _checked(choice: int, count: int) -> int:
    if not 0 <= choice < count:
        raise invalid(f"Selector index out of range: {choice} >= {count}")
    return choice


def _spec_of_each(plans: Sequence[Plan]) -> Any:
    return functools.reduce(_elements.common_spec, [plan.make_spec() for plan in plans])


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SampleFromDatasets(Stream):
    """Each next element from a plan drawn by `weights`: a list, or a plan of lists."""

    datasets: Sequence[Plan]
    weights: np.ndarray | Plan
    seed: SeedSource
    stop_on_empty_dataset: bool

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        part = seed_log.part("weights")
        weights = self.weights.elements(part) if isinstance(self.weights, Plan) else itertools.repeat(self.weights)
        sources = list(map(_failures.guarded, _iterations(self.datasets, seed_log)))
        return _failures.raising(self._sampled(sources, weights, seed_log.generator(self.seed)))

    def _sampled(
        self, sources: Sequence[Iterator[Any]], weights: Iterator[Any], generator: np.random.Generator
    ) -> Iterator[Any]:
        left = np.ones(len(sources), bool)
        for weight in weights:
            while (shares := np.where(left, np.asarray(weight, np.float64), 0)).sum() > 0:
                number = int(generator.choice(len(sources), p=shares / shares.sum()))
                element = next(sources[number], None)
                if element is not None:
                    yield element
                    break
                if self.stop_on_empty_dataset:
                    return
                left[number] = False
            else:
                return

    def make_spec(self) -> Any:
        return _spec_of_each(self.datasets)

    def cardinality(self) -> int:
        return INFINITE if all(plan.cardinality() == INFINITE for plan in self.datasets) else UNKNOWN


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Unique(Part):
    """The elements that have not been seen before."""

    parent: Plan

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        seen: set[str] = set()

        def is_new(element: Any) -> bool:
            value = str(np.asarray(element).tolist())
            is_first = value not in seen
            seen.add(value)
            return is_first

        return filter(is_new, self.parent.elements(seed_log))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RejectionResample(Uncounted):
    """Elements, some left out so that their classes are as frequent as `target_dist`; each comes with its class.

    Without the classes' frequencies in `parent`, `initial_dist`, they are counted on the way.
    """

    parent: Plan
    class_func: ElementFunction
    target_dist: np.ndarray
    initial_dist: np.ndarray | None
    seed: SeedSource

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        call = self.class_func.caller(seed_log.part("class"))
        with_class = lambda element: (np.asarray(call(element)), element)
        items = map(with_class, self.parent.elements(seed_log.part("resampled")))
        return _failures.raising(self._kept(_failures.guarded(items), seed_log.generator(self.seed)))

    def _kept(self, items: Iterator[Any], generator: np.random.Generator) -> Iterator[Any]:
        wanted, given = self.target_dist, self.initial_dist
        counts = np.zeros(len(wanted))
        for item in items:
            if isinstance(item, _failures.Failure):
                yield item
                continue
            kind, element = item
            counts[int(kind)] += 1
            share = counts / counts.sum() if given is None else given
            ratio = np.divide(wanted, share, out=np.zeros(len(wanted)), where=share > 0)
            if generator.random() < ratio[int(kind)] / ratio.max():
                yield kind, element

    def make_spec(self) -> Any:
        example = self.class_func.example(first_of(self.parent))
        return _elements.spec_of(np.asarray(example)), self.parent.make_spec()
