"""What a function makes of strings, computed for many elements at once.

Where that fails, as in a group with an element that is an error, the elements of the group are computed one after the other.
"""

import collections
import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._failures import Failure, groups, guarded, raising

_logger = logging.getLogger("tfdist_jax")

# The most rows of a group, and bytes of its strings and of what is made of them.
_MOST_ROWS, _MOST_BYTES, _MOST_MADE = 2048, 1 << 20, 1 << 23
# The most seconds to wait for the elements of a group.
_MOST_SECONDS = 0.05
# After so many groups in a row that could not be computed at once, it is not tried again.
_MOST_MISSES = 2


@final
class _Together:
    """Calls a function for elements in their order: for a group of them at once, if it can.

    Attributes:
        elements: The elements to come.
        pace: How many to take at once: twice as many each time, so that never many more are taken than are wanted, and fewer where
            that takes long.
    """

    def __init__(self, function: ElementFunction, elements: Iterator[Any], first: np.ndarray) -> None:
        self._function, self._first = function, first
        self._number = 0
        self.elements = guarded(elements)
        self.pace = 1

    def take(self, count: int) -> tuple[list[Any], Failure | None]:
        """Return the next elements, so many or those before the end; and the failure before which they ended."""
        group: list[Any] = []
        began = time.perf_counter()
        for element in itertools.islice(self.elements, count):
            if type(element) is Failure:
                return group, element
            group.append(element)
        is_fast = time.perf_counter() - began < _MOST_SECONDS
        self.pace = min(_MOST_ROWS, 2 * max(self.pace, len(group))) if is_fast else max(1, self.pace // 2)
        return group, None

    def compute(self, group: Sequence[Any], size: int | None) -> list[Any] | None:
        """Return the results, in batches of a size if that is given; None where each has to be computed on its own."""
        try:
            results = self._function.call_together(group, self._first, self._number, size)
        except Exception as error:  # It comes again, with its element.
            _logger.debug("map: elements are computed one by one from number %d on: %s", self._number, error)
            return None
        if results is not None:
            self._number += len(group)
        return results

    def compute_each(self, group: Sequence[Any]) -> Iterator[Any]:
        """Return an iterator over the results."""
        start = self._number
        self._number += len(group)
        return map(self._function.caller_from(self._first, start), group)

    def compute_rest(self, group: Sequence[Any], failure: Failure | None) -> Iterator[Any]:
        """Return an iterator over the results for a group, a failure and all elements to come."""
        # A failure is an iterator that raises.
        rest = itertools.chain(group, () if failure is None else failure, raising(self.elements))
        return map(self._function.caller_from(self._first, self._number), rest)

    def pass_over(self, count: int) -> None:
        """Leave so many elements out that have been taken."""
        self._number += count


def _worth_together(element: Any, result: Any) -> int:
    """Return how many elements such as this one are worth a group: one if it holds no strings, or becomes what is no tensor."""
    texts = [leaf for leaf in _elements.leaves(element) if isinstance(leaf, np.ndarray) and leaf.dtype == object]
    results = _elements.leaves(result)
    if not texts or not all(isinstance(leaf, np.ndarray | np.generic) for leaf in results):
        return 1
    rows = max(leaf.size for leaf in texts)
    given = sum(sum(map(len, leaf.ravel().tolist())) for leaf in texts)
    made = sum(leaf.nbytes for leaf in results)
    return max(1, min(_MOST_ROWS // max(1, rows), _MOST_BYTES // max(1, given), _MOST_MADE // max(1, made)))


@final
class MappedGroups(Iterator[Iterable[Any]]):
    """For each group of elements, the results in their order; they raise where an element is an error."""

    def __init__(self, function: ElementFunction, elements: Iterator[Any], first: np.ndarray) -> None:
        """Start at the first element, whose random numbers begin with the words `first`."""
        self._together = _Together(function, elements, first)
        self._most, self._misses = 1, 0

    def __next__(self) -> Iterable[Any]:
        group, failure = self._together.take(min(self._most, self._together.pace))
        if not group and failure is None:
            raise StopIteration
        return itertools.chain(self._results(group), () if failure is None else failure)

    def _results(self, group: list[Any]) -> Iterator[Any]:
        if self._misses >= _MOST_MISSES:
            self._most = 1
        elif len(group) < 2:
            return map(self._measured, group, self._together.compute_each(group))
        else:
            results = self._together.compute(group, None)
            self._misses = 0 if results is not None else self._misses + 1
            if results is not None:
                return iter(results)
        return self._together.compute_each(group)

    def _measured(self, element: Any, result: Any) -> Any:
        self._most = _worth_together(element, result)
        return result


@final
class MappedBatches(Iterator[Any]):
    """Batches of what a function makes of elements."""

    def __init__(
        self,
        function: ElementFunction,
        elements: Iterator[Any],
        first: np.ndarray,
        size: int,
        *,
        drop_remainder: bool,
        is_ahead: bool,
    ) -> None:
        """Start at the first element, whose random numbers begin with the words `first`.

        Args:
            function: What is called with elements.
            elements: The elements.
            first: The words of the first element.
            size: How many elements a batch has.
            drop_remainder: Whether a smaller one at the end is left out.
            is_ahead: Whether elements of several batches may be taken before the first of these is asked for.
        """
        self._together = _Together(function, elements, first)
        self._size, self._drops, self._is_ahead = size, drop_remainder, is_ahead
        self._most = 1
        self._ready: collections.deque[Any] = collections.deque()
        self._one_by_one: Iterator[list[Any]] | None = None

    def __next__(self) -> Any:
        if not self._ready:
            self._fill()
        batch = self._ready.popleft()
        if type(batch) is Failure:
            raise batch.error
        return batch

    def _fill(self) -> None:
        if self._one_by_one is None:
            several = max(1, min(self._most, self._together.pace) // self._size)
            group, failure = self._together.take(several * self._size)
            whole = len(group) // self._size * self._size
            computed = self._together.compute(group[:whole], self._size) if whole > 1 else None
            if computed is not None:
                self._add(group, computed, failure)
                return
            rest = self._together.compute_rest(group, failure)
            self._one_by_one = groups(rest, self._size, drop_remainder=self._drops)
        self._ready.append(_elements.stack(next(self._one_by_one)))

    def _add(self, group: list[Any], computed: list[Any], failure: Failure | None) -> None:
        self._ready.extend(computed)
        left = group[len(computed) * self._size :]
        if failure is not None:
            # An error drops the items that it comes behind.
            self._together.pass_over(len(left))
            self._ready.append(failure)
        elif left:
            self._one_by_one = groups(self._together.compute_each(left), self._size, drop_remainder=self._drops)
        elif self._is_ahead:
            self._most = _worth_together(group[0], next(_elements.rows(computed[0])))
