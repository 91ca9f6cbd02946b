"""Plans whose elements are kept in memory once they have all been seen, in their order."""

import dataclasses
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements, _failures, _order
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan, Rows, rows_in_each
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard, SeedLog


def cached(plan: Plan) -> Plan:
    """Keep the elements, in their order, once an iteration has come to its end."""
    return CacheRows(plan, _RowCache(plan)) if isinstance(plan, Rows) else Cache(plan)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CacheRows(Rows):
    """Rows in the order of the first whole iteration, joined to whole arrays before the second one."""

    parent: Rows
    cache: "_RowCache" = dataclasses.field(repr=False)

    def get(self, positions: np.ndarray) -> Any:
        return self.cache.get(positions)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return self.cache.order(seed_log)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def at_once(self) -> int:
        return self.parent.at_once()


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Cache(Batches):
    """Elements that are kept, for each part of the data, with the seeds that they were drawn with."""

    parent: Plan
    kept: dict[DataShard | None, tuple[list[Any], dict[str, list[int]]]] = dataclasses.field(
        default_factory=dict, repr=False
    )

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        if seed_log.share in self.kept:
            seen, seeds = self.kept[seed_log.share]
            # As if they had been drawn now: it is what brings the same order back.
            seed_log.take(seeds)
            return iter(seen)

        def keep(seen: list[Any]) -> None:
            self.kept[seed_log.share] = seen, seed_log.taken()

        made = _failures.remember(self.parent.elements(seed_log.part("cached")), keep, self.parent.cardinality())
        # Another iteration may come to its end before the first element of this one is wanted, as in a concatenation with itself.
        return _failures.flatten(self._latest(seed_log.share, made) for _ in range(1))

    def _latest(self, share: DataShard | None, made: Iterator[Any]) -> Iterator[Any]:
        return iter(self.kept[share][0]) if share in self.kept else made

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)


@final
class _RowCache:
    """The order of the first whole iteration, and its rows, joined to whole arrays before the second one."""

    def __init__(self, plan: Rows) -> None:
        self._plan = plan
        self._share: DataShard | None = None
        self._forget()

    def _forget(self) -> None:
        self._order: list[np.ndarray] | None = None
        self._seeds: dict[str, list[int]] = {}
        self._pieces: list[tuple[np.ndarray, Any]] = []
        self._failed: list[np.ndarray] = []
        self._joined: tuple[np.ndarray, Any] | None = None

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        if seed_log.share != self._share:
            self._forget()
            self._share = seed_log.share
        if self._order is not None:
            if self._joined is None and self._order:
                self._join(np.concatenate(self._order))
            seed_log.take(self._seeds)
            return iter(self._order)

        def keep(order: list[np.ndarray]) -> None:
            if order and seed_log.share == self._share:
                self._order, self._seeds = order, seed_log.taken()

        self._pieces.clear()
        self._failed.clear()
        count = self._plan.cardinality()
        chunks = _order.with_last_alone(self._plan.order(seed_log.part("cached")), count)
        return _failures.remember(chunks, keep, count, len)

    def get(self, positions: np.ndarray) -> Any:
        if self._joined is not None:
            keys, rows = self._joined
            wanted = _order.keys(positions)
            places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            # An iteration over another part of the data may not have ended yet.
            return _elements.pick(rows, places) if (keys[places] == wanted).all() else self._plan.get(positions)
        try:
            rows = self._plan.get(positions)
        except Exception:
            if len(positions) == 1:
                self._failed.append(positions)
            raise
        self._pieces.append((positions, rows))
        return rows

    def _join(self, positions: np.ndarray) -> None:
        """Join the rows that have been got, and those that nobody has asked for so far, but not those that have failed."""
        known = [_order.keys(part) for part in (*(part for part, _ in self._pieces), *self._failed)]
        missing = ~np.isin(_order.keys(positions), np.concatenate(known)) if known else np.ones(len(positions), bool)
        if missing.any():
            self.get(positions[missing])
        pieces, self._pieces = self._pieces, []
        if not pieces:
            self._order = []
            return
        keys, first = np.unique(_order.keys(np.concatenate([part for part, _ in pieces])), return_index=True)
        rows = _elements.map_structure(lambda *parts: np.concatenate(parts), *(rows for _, rows in pieces))
        self._joined = keys, _elements.pick(rows, first)
        self._order = list(_order.cut(positions[np.isin(_order.keys(positions), keys)]))
