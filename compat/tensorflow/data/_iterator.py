"""Iterators over datasets."""

import abc
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, final

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._platform._errors import OutOfRangeError
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

    def of(self, element: Any) -> Any:
        arrays = _elements.leaves(element)
        kind = [(array.shape, array.dtype) if isinstance(array, np.ndarray | np.generic) else None for array in arrays]
        self._alike = self._alike + 1 if kind == self._kind else 0
        self._kind = kind
        if self._alike < _ALIKE or any(part is None or part[1].kind in "OSU" for part in kind):
            return _elements.as_tensors(element)
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            return _elements.rebuilt(element, _to_device(*arrays))


class Resumable(abc.ABC):
    """An iterator whose place can be saved, and which an exception like KeyboardInterrupt does not end.

    Such an exception ends Python's generators, which then look like data that is over: the next element is taken from an
    iteration that is begun anew and goes to the same place.
    """

    _is_at_rest = True
    _wanted: str | None = None

    def __iter__(self) -> Self:
        return self

    def state(self) -> str:
        """Return where the iterator is."""
        return self._wanted or self._state()

    def restore_state(self, state: str) -> None:
        """Go to where an iterator over an equal dataset was, in this process or another one.

        Raises:
            ValueError: If its steps have had more or fewer rows.
        """
        self._wanted = state
        self._run(lambda: self._go_to(state))
        self._wanted = None

    def _take(self, take_next: Callable[[], Any]) -> Any:
        """Return what `take_next` returns, which takes an element and then notes the new place."""
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
            result = action()
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


@final
class DatasetIterator(Resumable):
    """What `iter(dataset)` gives: tensors, one element after the other."""

    def __init__(self, plan: Plan) -> None:
        """Hand the elements of a plan out as tensors."""
        self._plan = plan
        self._start(None)

    def _start(self, seeds: Mapping[str, list[int]] | None) -> None:
        self._tensors = _Tensors()
        self._draws = SeedLog(seeds)
        self._elements = self._plan.elements(self._draws)
        self._position = 0
        self._rows: int | None = None

    def __next__(self) -> Any:
        require_host()
        return self._take(self._take_next)

    def _take_next(self) -> Any:
        try:
            element = next(self._elements)
        except StopIteration:
            raise
        except Exception:
            self._position += 1  # The next one is behind what could not be made.
            raise
        rows = rows_of(element) if self._rows is None else self._rows
        tensors = self._tensors.of(element)
        self._position, self._rows = self._position + 1, rows
        return tensors

    def as_numpy(self) -> Iterator[Any]:
        """Return an iterator over the elements that are left, with NumPy arrays, which this one does not count."""
        return map(_elements.as_device_arrays, self._elements)

    def _state(self) -> str:
        """Return where the iterator is, as JSON.

        It says how many elements were handed out or have failed, how many rows the first one had, and the shuffles' seeds. It is small,
        whatever the shuffles' buffers hold.
        """
        return json.dumps({"position": self._position, "rows": self._rows, "seeds": self._draws.seeds()})

    def _go_to(self, state: str) -> None:
        """Go to where an iterator over an equal dataset was, in this process or another one.

        The elements before are made again and passed over, so that it takes as long as they took.

        Raises:
            ValueError: If the first of them has more or fewer rows than it had.
        """
        wanted = json.loads(state)
        self._start(wanted["seeds"])
        self._position = wanted["position"]
        if self._position:
            self._rows = skip_batches(self._elements, self._position)
            if self._rows is not None:
                require_same_rows(wanted.get("rows"), self._rows)

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
class NumpyIterator(Iterator[Any]):
    """Drop-in for `tf.data.NumpyIterator`: the elements of a dataset with NumPy arrays.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/NumpyIterator
    """

    def __init__(self, dataset: Any) -> None:
        """Iterate over a dataset."""
        self._elements = dataset._plan.elements(SeedLog())

    def __next__(self) -> Any:
        return _elements.as_numpy(next(self._elements))
