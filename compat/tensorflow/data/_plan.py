"""Plans of datasets: what the elements are and how to get them. Planned first, run when iterated.

Two kinds: `Rows`, whose elements are rows of arrays picked by position, so that order and content are separate and
whole batches can be cut and mapped at once; and `Stream`, whose elements come one after the other.

Each transformation is a class. Its fields are `parent`, the plan that it transforms, and its parameters, by TensorFlow's
names; what is no parameter has `repr=False`. So a plan prints as the calls that made it.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeVar, final

import jax
import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements, _failures, _order, _plan_text
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

INFINITE = -1
UNKNOWN = -2

# Bytes that are got together.
_AT_ONCE = 1 << 22

AnyPlan = TypeVar("AnyPlan", bound="Plan")


class Plan(abc.ABC):
    """What a dataset is made of.

    An iteration takes its random seeds when it is made, not when its first element is asked for: so its state can be
    saved at any moment, and threads do not race for seeds.

    Attributes:
        is_elsewhere: Whether elements have parts that another process holds.
    """

    is_elsewhere: ClassVar[bool] = False

    @abc.abstractmethod
    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        """Return an iterator over the elements; random choices come from `seed_log`."""

    @abc.abstractmethod
    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        """Return an iterator over batches of `size` elements, the last one smaller unless it is dropped."""

    @abc.abstractmethod
    def make_spec(self) -> Any:
        """Return the element's spec."""

    @abc.abstractmethod
    def cardinality(self) -> int:
        """Return the number of elements, `INFINITE` or `UNKNOWN`."""

    def reading_ahead(self) -> "Plan":
        """Return a plan of the same elements whose files are read by threads, ahead of their use."""
        parent = getattr(self, "parent", None)
        ahead = parent.reading_ahead() if isinstance(parent, Plan) else parent
        return self if ahead is parent else dataclasses.replace(self, parent=ahead)  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        return "\n".join(_calls(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copied dataset goes on in the same seeds, caches and arrays.
        return self


class Rows(Plan):
    """Elements picked by position."""

    @abc.abstractmethod
    def get(self, positions: np.ndarray) -> Any:
        """Return the batch of `k` elements at positions `[k]`.

        Functions that draw random numbers see numbers beside each position, `[k, n]`: which draws are meant.
        """

    @abc.abstractmethod
    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        """Return an iterator over the positions, in chunks; random choices come from `seed_log`."""

    @abc.abstractmethod
    def at_once(self) -> int:
        """Return how many rows may be got together, before they are asked for.

        1 where each is work of its own, or where a position may give something else later, since variables are read.
        """

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        at_once = self.at_once()
        pieces = (
            chunk[start : start + at_once] for chunk in self.order(seed_log) for start in range(0, len(chunk), at_once)
        )
        return _failures.flatten(map(self._rows, pieces))

    def _rows(self, positions: np.ndarray) -> Iterator[Any]:
        """Return an iterator over rows that are got together, or, where one cannot be got, each on its own."""
        try:
            return _elements.rows(self.get(positions))
        except Exception:
            if len(positions) == 1:
                raise
            return map(self._row, np.split(positions, len(positions)))

    def _row(self, position: np.ndarray) -> Any:
        return next(_elements.rows(self.get(position)))

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        cut = _order.regroup(self.order(seed_log), size, drop_remainder=drop_remainder)
        several = self.at_once() // size
        if several < 2:
            return map(self.get, cut)
        return _failures.flatten(map(self._together, _failures.groups(cut, several, drop_remainder=False)))

    def _together(self, batches: list[np.ndarray]) -> Iterator[Any]:
        """Return an iterator over batches whose rows are got together, or, where that fails, those of one batch."""
        try:
            rows = self.get(np.concatenate(batches))
        except Exception:
            return map(self.get, batches)
        return _elements.split(rows, [len(positions) for positions in batches])


def rows_at_once(spec: Any) -> int:
    """Return how many rows of a spec are worth getting together: a power of two, so that few programs are compiled."""
    rows = _AT_ONCE // max(1, sum(map(_bytes, _elements.leaves(spec))))
    return min(1 << max(0, rows.bit_length() - 1), _order.CHUNK)


def _bytes(spec: Any) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype.as_numpy_dtype).itemsize


class Stream(Plan):
    """Elements that come one after the other."""

    def batches(self, seed_log: SeedLog, size: int, *, drop_remainder: bool = False) -> Iterator[Any]:
        grouped = _failures.groups(self.elements(seed_log), size, drop_remainder=drop_remainder)
        return map(_elements.stack, grouped)


class Uncounted(Stream):
    """A stream of nobody knows how many elements before they come."""

    def cardinality(self) -> int:
        return UNKNOWN


class Part(Uncounted):
    """Some of the elements of `parent`."""

    parent: Plan

    def make_spec(self) -> Any:
        return self.parent.make_spec()


class Batches(Stream):
    """A stream whose elements may certainly have so many rows each: a spec may be that of examples."""

    @abc.abstractmethod
    def rows_in_each(self) -> int | None:
        """Return how many rows each element has, where that is certain."""


def rows_in_each(plan: Plan) -> int | None:
    """Return how many rows each element has, where that is certain."""
    if isinstance(plan, Batches):
        return plan.rows_in_each()
    if not isinstance(plan, Rows):
        return None
    return next((spec.shape[0] for spec in _elements.leaves(plan.make_spec()) if spec.shape.rank), None)


def made_once(make_spec: Callable[[AnyPlan], Any]) -> Callable[[AnyPlan], Any]:
    """Keep what `make_spec` of a plan returns, since it may run the user's functions.

    `functools.cached_property` holds a lock meanwhile, for which a thread that prefetches would wait, and it for that.
    """

    @functools.wraps(make_spec)
    def make_spec_once(plan: AnyPlan) -> Any:
        if "_spec" not in vars(plan):
            vars(plan)["_spec"] = make_spec(plan)
        return vars(plan)["_spec"]

    return make_spec_once


class Selection(abc.ABC):
    """Which elements of a plan come, and in which order: the same for positions of rows as for elements of streams."""

    @abc.abstractmethod
    def positions(self, rows: Rows, seed_log: SeedLog) -> Iterator[np.ndarray]:
        """Return an iterator over the positions of `rows`, in chunks."""

    @abc.abstractmethod
    def elements(self, plan: Plan, seed_log: SeedLog) -> Iterator[Any]:
        """Return an iterator over elements of `plan`."""

    @abc.abstractmethod
    def cardinality(self, count: int) -> int:
        """Return how many of `count` elements there will be."""


def select(plan: Plan, selection: Selection) -> Plan:
    """Plan what is selected, of the same kind as what it is selected from."""
    return SelectRows(plan, selection) if isinstance(plan, Rows) else Select(plan, selection)


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SelectRows(Rows):
    """Rows in the order of a selection."""

    parent: Rows
    selection: Selection

    def get(self, positions: np.ndarray) -> Any:
        return self.parent.get(positions)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return self.selection.positions(self.parent, seed_log)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.selection.cardinality(self.parent.cardinality())

    def at_once(self) -> int:
        return self.parent.at_once()


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Select(Batches):
    """Elements in the order of a selection."""

    parent: Plan
    selection: Selection

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return self.selection.elements(self.parent, seed_log)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.selection.cardinality(self.parent.cardinality())

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)


def _calls(plan: Plan) -> list[str]:
    """Return the lines of the calls that make a plan, first those that make its parent; other plans are arguments."""
    parent = getattr(plan, "parent", None)
    first, *rest = call_lines(plan)
    return [first, *rest] if parent is None else [*_calls(parent), f"  .{first}", *(f"  {line}" for line in rest)]


def call_lines(plan: Plan) -> list[str]:
    """Return the lines of the call that makes a plan of its parent."""
    step = plan.selection if isinstance(plan, SelectRows | Select) else plan
    simple, nested = [], []
    for name, value in _plan_text.parameters(step):
        parts = jax.tree_util.tree_leaves_with_path(value)
        plans = [(f"{name}{jax.tree_util.keystr(path)}", part) for path, part in parts if isinstance(part, Plan)]
        simple += [] if plans else [f"{name}={_plan_text.text(value)}"]
        nested += plans
    lines = [f"{_plan_text.method(step)}({', '.join(simple)})"]
    if nested:
        inner = [f"    {line}" for argument in nested for line in _argument(*argument)]
        lines = [lines[0].removesuffix(")") + "," * bool(simple), *inner, ")"]
    return lines


def _argument(name: str, plan: Plan) -> list[str]:
    first, *rest = _calls(plan)
    return [f"{name}={first}", *rest[:-1], *(f"{line}," for line in rest[-1:])] if rest else [f"{name}={first},"]
