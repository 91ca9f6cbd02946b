"""Which elements of a plan come, and in which order; and plans of a part of the data."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow.data import _failures, _order
from tfdist_jax.compat.tensorflow.data._plan import INFINITE, UNKNOWN, Part, Plan, Rows, Selection, select
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard, SeedLog, SeedSource

_logger = logging.getLogger("tfdist_jax")


@final
@dataclasses.dataclass(frozen=True)
class Shuffle(Selection):
    """Through a buffer; each iteration has its own seed from `seed`."""

    buffer_size: int
    seed: SeedSource

    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return _order.shuffled_chunks(
            rows.order(seed_log.part("shuffled")), self.buffer_size, seed_log.generator(self.seed)
        )

    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        return _order.shuffled(
            plan.elements(seed_log.part("shuffled")), self.buffer_size, seed_log.generator(self.seed)
        )

    def cardinality(self, count: int) -> int:
        return count


@final
@dataclasses.dataclass(frozen=True)
class Repeat(Selection):
    """All elements, `count` times; for ever if negative."""

    count: int

    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return self._epochs(rows.order, seed_log)

    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        return self._epochs(plan.elements, seed_log)

    def _epochs(self, make: Callable[[SeedLog], Iterator[Any]], seed_log: SeedLog) -> Iterator[Any]:
        if not self.count:
            return iter(())
        first = make(seed_log.for_repetition(0))
        numbers = itertools.count(1) if self.count < 0 else range(1, self.count)
        epochs = itertools.chain([first], (make(seed_log.for_repetition(number)) for number in numbers))
        return _failures.flatten(epochs if self.count >= 0 else _until_empty(epochs))

    def cardinality(self, count: int) -> int:
        if count == 0 or self.count == 0:
            return 0
        if count == UNKNOWN:
            return INFINITE if self.count < 0 else UNKNOWN
        return INFINITE if self.count < 0 or count == INFINITE else count * self.count


def _until_empty(epochs: Iterator[Iterator[Any]]) -> Iterator[Iterator[Any]]:
    """Yield epochs until one has no elements: repeating nothing for ever would never come back.

    As in TensorFlow, one of errors alone is the last one, too, unless an element has come before.
    """
    has_elements = is_empty = False

    def note(epoch: Iterator[Any]) -> Iterator[Any]:
        nonlocal has_elements, is_empty
        is_empty = True
        for item in epoch:
            is_empty = False
            has_elements = has_elements or type(item) is not _failures.Failure
            yield item
            if has_elements:
                break
        yield from epoch

    for epoch in map(_failures.guarded, epochs):
        yield _failures.raising(note(epoch))
        if is_empty or not has_elements:
            return


@final
@dataclasses.dataclass(frozen=True)
class Take(Selection):
    """The first `count` elements; all if negative."""

    count: int

    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return _order.take(rows.order(seed_log), self.count)

    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        elements = plan.elements(seed_log)
        return elements if self.count < 0 else _failures.first(elements, self.count)

    def cardinality(self, count: int) -> int:
        if self.count < 0 or count == UNKNOWN:
            return count
        return self.count if count == INFINITE else min(count, self.count)


@final
@dataclasses.dataclass(frozen=True)
class Skip(Selection):
    """All but the first `count` elements; none if negative."""

    count: int

    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        order = rows.order(seed_log)
        return _order.take(order, 0) if self.count < 0 else _order.skip(order, self.count)

    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        elements = plan.elements(seed_log)
        return _failures.first(elements, 0) if self.count < 0 else _failures.every(elements, self.count)

    def cardinality(self, count: int) -> int:
        if self.count < 0:
            return count if count == UNKNOWN else 0
        return count if count < 0 else max(0, count - self.count)


@final
@dataclasses.dataclass(frozen=True)
class Shard(Selection):
    """Each `num_shards`-th element, from number `index` on."""

    num_shards: int
    index: int

    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return _order.every(rows.order(seed_log), self.num_shards, self.index)

    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        return _failures.every(plan.elements(seed_log), self.index, self.num_shards)

    def cardinality(self, count: int) -> int:
        return count if count < 0 else len(range(self.index, count, self.num_shards))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class IgnoreErrors(Part):
    """The elements that can be made; the others are left out, with a line in the log if it is wanted, or if all of them are."""

    parent: Plan
    log_warning: bool

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        log = _logger.warning if self.log_warning else _logger.debug
        return _failures.without_failures(
            self.parent.elements(seed_log),
            lambda error: log("ignore_errors: an element is left out, for an error: %s", error),
            lambda error: _logger.warning("ignore_errors: no element at all could be made: %s", error),
        )


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AutoShard(Part):
    """What is made of one part of the data."""

    parent: Plan
    share: DataShard

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return self.parent.elements(seed_log.sharing(self.share))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ShardHint(Part):
    """The elements of the part that an iteration is given, which must be given one."""

    parent: Plan

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        share = seed_log.share
        if share is None or share.by != "hint":
            raise FailedPreconditionError(
                None,
                None,
                "`tf.data.Dataset.shard(SHARD_HINT, ...)` needs `Strategy.experimental_distribute_dataset` and "
                "`AutoShardPolicy.HINT` in the dataset's options: they say what to put in its place.",
            )
        return select(self.parent, Shard(share.count, share.index)).elements(seed_log)
