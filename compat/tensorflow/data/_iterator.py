"""Iterators over datasets."""

import abc
import contextlib
import heapq
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Self, final

import jax
import numpy as np

from tfdist_jax._coordinator import CURRENT_WORKER, fetch, run_freely
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._platform._errors import InaccessibleTensorError, OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._host_part import (
    TRACERS,
    EndOfDataError,
    NoElementError,
    Ticket,
    part_for_elements,
)
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer, TextTracer
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._optional import Optional
from tfdist_jax.compat.tensorflow.data._plan import Plan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.data._step_rows import require_same_rows, rows_of, skip_batches

# So many elements of the same kind in a row make a program of their own worth its compilation.
_ALIKE = 32

_to_device = jax.jit(lambda *arrays: arrays)


@final
class _Tensors:
    """Turns elements into tensors: those of one kind in one call, which costs a fraction of a call for each array.

    The arrays are copied later than the call, so they must stay what they are: no plan changes what it has handed out.
    """

    def __init__(self) -> None:
        self._kind: list[Any] = []
        self._alike = 0
        self._are_numbers = False

    def of(self, element: Any) -> Any:
        arrays = _elements.leaves(element)
        kind = [(array.shape, array.dtype) if isinstance(array, np.ndarray | np.generic) else None for array in arrays]
        if kind == self._kind:
            self._alike += 1
        else:
            self._kind, self._alike = kind, 0
            self._are_numbers = all(part is not None and part[1].kind not in "OSU" for part in kind)
        if self._alike < _ALIKE or not self._are_numbers:
            return _elements.as_tensors(element)
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            return _elements.rebuilt(element, _to_device(*arrays))


class Resumable(abc.ABC):
    """An iterator whose place can be saved, and which an exception like KeyboardInterrupt does not end.

    Such an exception ends Python's generators, which then look like data that is over: the next element is taken from an
    iteration that is begun anew and goes to the same place. Threads take one element after the other.
    """

    _is_at_rest = True
    _wanted: str | None = None

    def __init__(self) -> None:
        """Be at rest."""
        # Reentrant: a signal's handler that saves the place may come while its thread takes an element.
        self._lock = threading.RLock()

    def __iter__(self) -> Self:
        return self

    def state(self) -> str:
        """Return where the iterator is."""
        with self._lock:
            return self._wanted or self._state()

    def restore_state(self, state: str) -> None:
        """Go to where an iterator over an equal dataset was, in this process or another one.

        Raises:
            ValueError: If its steps have had more or fewer rows.
        """
        with self._lock:
            self._wanted = state
            self._run(lambda: self._go_to(state))
            self._wanted = None

    def _take(self, take_next: Callable[[], Any]) -> Any:
        """Return what `take_next` returns, which takes an element and then notes the new place."""
        with self._lock:
            if not self._is_at_rest:
                self._resume()
            return self._run(take_next)

    def _resume(self) -> None:
        """Go on after an exception in the middle of taking an element; an error stays one, since no other place is the right one."""
        place = self.state()
        try:
            self.restore_state(place)
        except Exception:
            self._is_at_rest, self._wanted = False, place
            raise

    def _run(self, action: Callable[[], Any]) -> Any:
        self._is_at_rest = False
        try:
            # Who traces may wait for the lock: who holds it must not wait for who traces.
            result = action() if CURRENT_WORKER.get() is None else run_freely(action)
        except Exception:
            self._is_at_rest, self._wanted = True, None
            raise
        self._is_at_rest = True
        return result

    @abc.abstractmethod
    def _state(self) -> str:
        """Return where the iterator is, if it is at rest."""

    @abc.abstractmethod
    def _go_to(self, state: str) -> None:
        """Do what `restore_state` is for."""


def raise_end() -> NoReturn:
    """Raise the error that ends Python's loops over data."""
    raise StopIteration from EndOfDataError("End of sequence")


@final
class DatasetIterator(Resumable):
    """What `iter(dataset)` gives: tensors, one element after the other.

    Attributes:
        is_of_program: Whether a function made it while it was traced: each run is to have one of its own.
        needs_python: Whether its elements are known to be no inputs of programs.
    """

    def __init__(self, plan: Plan) -> None:
        """Hand the elements of a plan out as tensors."""
        super().__init__()
        self._plan = plan
        self.is_of_program, self.needs_python = _is_traced(), False
        self._start(None)

    def _start(self, seeds: Mapping[str, list[int]] | None) -> None:
        self._tensors = _Tensors()
        self._draws = SeedLog(seeds)
        self._elements = self._plan.elements(self._draws)
        # By their numbers: threads may give them back in another order than they have taken them in.
        self._given_back: list[tuple[int, Any]] = []
        self._drawn = 0
        self._rows: int | None = None

    def __next__(self) -> Any:
        if _is_traced():
            return _take_before_run(self)
        _, element = self._take(self._take_next)
        if isinstance(element, _Failure):
            raise element.error
        return _elements.map_structure(fetch, element) if self._plan.is_elsewhere else element

    def take(self) -> tuple[Any, Ticket]:
        """Return the next element for the run of a program, and what it is given back with; its arrays may be a worker's, `HeldArray`.

        Raises:
            NoElementError: If there is none, or it could not be made: then that is still to come.
        """
        try:
            number, element = self._take(self._take_next)
        except Exception as error:
            raise NoElementError(_NO_ELEMENT) from error
        if isinstance(element, _Failure):
            self.give_back((element, Ticket(number)))
            raise NoElementError(_NO_ELEMENT) from element.error
        return element, Ticket(number)

    def give_back(self, taken: tuple[Any, Ticket]) -> None:
        """Let an element that was taken be taken again, before all that are behind it."""
        element, ticket = taken
        with self._lock:
            if ticket.number <= self._drawn:  # Else the iterator has gone back meanwhile, and makes it again.
                heapq.heappush(self._given_back, (ticket.number, element))

    def _take_next(self) -> tuple[int, Any]:
        """Return the number of the next element, from 1, and the element, or what stands for one that could not be made."""
        if self._given_back:
            return heapq.heappop(self._given_back)
        try:
            element = next(self._elements)
            rows = rows_of(element) if self._rows is None else self._rows
            element = self._tensors.of(element)
        except StopIteration:
            raise_end()
        except Exception as error:
            element, rows = _Failure(error), self._rows  # The next one is behind it.
        self._drawn, self._rows = self._drawn + 1, rows
        return self._drawn, element

    def as_numpy(self) -> Iterator[Any]:
        """Return an iterator over the elements that are left, with NumPy arrays, which this one does not count."""
        with self._lock:
            given_back, self._given_back = sorted(self._given_back, key=_number), []
        left = map(_value, (element for _, element in given_back))
        return map(_elements.as_device_arrays, itertools.chain(left, self._elements))

    def _state(self) -> str:
        """Return where the iterator is, as JSON.

        It says how many elements were handed out or have failed, how many rows the first one had, and the shuffles' seeds; and the
        numbers of those before that were given back and are still to come. It is small, whatever the shuffles' buffers hold.
        """
        left, position = sorted(map(_number, self._given_back)), self._drawn
        while left and left[-1] == position:
            position = left.pop() - 1
        before = {"left": left} if left else {}
        return json.dumps({"position": position, "rows": self._rows, "seeds": self._draws.seeds(), **before})

    def _go_to(self, state: str) -> None:
        """Go to where an iterator over an equal dataset was, in this process or another one.

        The elements before are made again and passed over, so that it takes as long as they took.

        Raises:
            ValueError: If the first of them has more or fewer rows than it had.
        """
        wanted = json.loads(state)
        self._start(wanted["seeds"])
        left = []
        for number in wanted.get("left", ()):
            self._skip_to(number - 1)
            with contextlib.suppress(StopIteration):  # Then the data ends before.
                left.append(self._take_next())
        self._skip_to(wanted["position"])
        self._given_back = left
        if self._drawn and self._rows is not None:
            require_same_rows(wanted.get("rows"), self._rows)

    def _skip_to(self, position: int) -> None:
        count = position - self._drawn
        if count:
            rows = skip_batches(self._elements, count)
            self._drawn, self._rows = position, rows if self._rows is None else self._rows

    def get_next(self) -> Any:
        """Return the next element.

        Raises:
            tf.errors.OutOfRangeError: At the end.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Optional:
        """Return the next element, or an empty optional at the end."""
        return Optional.of_next(self.__next__, self._plan.make_spec)

    @property
    def element_spec(self) -> Any:
        """Types and shapes of the elements."""
        return self._plan.make_spec()


@final
class _Failure:
    """Stands for an element that could not be made."""

    def __init__(self, error: Exception) -> None:
        self.error = error


_NO_ELEMENT = "There is no element for the run of a compiled function."


def _value(element: Any) -> Any:
    if isinstance(element, _Failure):
        raise element.error
    return element


def _number(numbered: tuple[int, Any]) -> int:
    return numbered[0]


@final
class IteratorTracer(HostTracer):
    """Stands for an iterator that a function gets, while it is traced: elements are taken before each run, in the order of the trace."""

    _what = "An iterator"

    def __init__(self, notes: Any, number: int, example: DatasetIterator) -> None:
        """Stand for an iterator like `example`."""
        super().__init__(notes, number, example)
        self.is_of_program = False

    @property
    def element_spec(self) -> Any:
        """Types and shapes of the elements: of iterators with others there is another program, if they are asked for."""
        return self.notes.note(getattr, (self, "element_spec"), {})

    def __next__(self) -> Any:
        """Return what stands for the next element."""
        return _take_before_run(self)

    get_next = __next__

    def __iter__(self) -> NoReturn:
        _refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self._kind, name):
            raise AttributeError(f"{self._kind.__name__!r} object has no attribute {name!r}")
        _refuse()


TRACERS[DatasetIterator] = IteratorTracer
DatasetIterator.register(IteratorTracer)


def _take_before_run(iterator: DatasetIterator | IteratorTracer) -> Any:
    """Let an element be taken before each run of the function that is being traced, and return what stands for it.

    Raises:
        NeedsHostError: If it is asked for in a conditional or a loop of the program, of an iterator that is the program's own, or is made
            of other things than tensors: the function has to run as Python.
    """
    part = None if iterator.is_of_program else part_for_elements()
    if part is None:
        _refuse()
    element, _ = part.note(DatasetIterator.take, (iterator,), {}, take_back=DatasetIterator.give_back)
    leaves = _elements.leaves(element)
    if not leaves or not all(isinstance(leaf, jax.Array | TextTracer) for leaf in leaves):
        taken = part.values[iterator.number] if isinstance(iterator, IteratorTracer) else iterator
        taken.needs_python = True
        _refuse()
    return element


def _is_traced() -> bool:
    scope = current_scope()
    return scope is not None and scope.is_traced


def _refuse() -> NoReturn:
    require_host()
    raise InaccessibleTensorError(
        "An iterator that a function got as an argument is out of scope: what stood for it did so only while the function was traced. "
        "Take elements in the function, and not in what it calls on the host, such as a `tf.py_function`."
    )


@final
class NumpyIterator(Iterator[Any]):
    """Drop-in for `tf.data.NumpyIterator`: the elements of a dataset with NumPy arrays.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/NumpyIterator
    """

    def __init__(self, dataset: Any) -> None:
        """Iterate over a dataset."""
        self._elements = dataset._plan.elements(SeedLog())

    def __next__(self) -> Any:
        return _elements.as_numpy(next(self._elements))
