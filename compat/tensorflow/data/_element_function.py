"""Functions of elements, such as `Dataset.map`'s: traced once, as in TensorFlow, for single elements and for batches."""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import OpError, OutOfRangeError
from tfdist_jax.compat.tensorflow.data import _elements, _plan_text
from tfdist_jax.compat.tensorflow.data._bindings import Bindings
from tfdist_jax.compat.tensorflow.data._element_program import (
    NO_WORDS,
    ElementProgram,
    UnsupportedResultError,
    arguments,
    is_text,
    require_tensors,
    trace_for_element,
    tuple_of,
)
from tfdist_jax.compat.tensorflow.data._element_scope import ElementScope
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource
from tfdist_jax.compat.tensorflow.random._random_state import drawing_for_function

_logger = logging.getLogger("tfdist_jax")

# What comes when a function needs values that a trace does not have; a mistake in it will come again when it runs.
_NEEDS_VALUES = (TypeError, ValueError, AttributeError, NotImplementedError, OpError, NotCompilableError)
_MOST_SIZES = 4
_MANY_SIZES = "strings give tensors of many sizes, each of which would need a program"


@final
class ElementFunction:
    """Runs a function of one element, on the host.

    The function is traced once for each shape of elements, so that its Python side effects and NumPy random draws
    happen then, as TensorFlow's tracing has it. What it computes of strings the host does before. Functions that need values run in Python
    for each element.
    """

    def __init__(self, fn: Callable[..., Any], source: SeedSource | None = None) -> None:
        """Prepare `fn`, which starts its random numbers where functions do; nothing is traced yet.

        Raises:
            ValueError: If `fn` cannot be called.
        """
        if not callable(fn):
            raise ValueError(f"A dataset's function must be callable, got {fn!r}.")
        self._given = fn
        self._bindings = Bindings(fn)
        self._converted = fn, converted(fn)
        self._device = jax.local_devices(backend="cpu")[0]
        # Several for elements of one shape, where strings give tensors of several sizes; None where there can be none.
        self._programs: dict[Any, list[ElementProgram] | None] = {}
        self._reasons: dict[Any, str] = {}
        self._source = SeedSource.of_function() if source is None else source

    def __repr__(self) -> str:
        return _plan_text.function(self._given)

    @property
    def given(self) -> Callable[..., Any]:
        """The function as it was given."""
        return self._given

    @property
    def _fn(self) -> Callable[..., Any]:
        """The function as it was given, with its control flow converted."""
        function = self._bindings.function()
        if function is not self._converted[0]:
            self._converted = function, converted(function)
        return self._converted[1]

    def __reduce__(self) -> Any:
        # Programs are of their process; the next one traces again, with what names meant when the dataset was made.
        return ElementFunction, (self._bindings.function(), self._source)

    def caller(self, seed_log: SeedLog) -> Callable[[Any], Any]:
        """Return the function for the elements of one iteration, in their order: from arrays to arrays."""
        return self.caller_from(self.words(seed_log), 0)

    def caller_from(self, first: np.ndarray, start: int) -> Callable[[Any], Any]:
        """Return the function for elements from a number on, of an iteration whose first element has such words."""
        numbers = itertools.count(start)

        def call(element: Any) -> Any:
            number = next(numbers)
            return self._call(element, lambda: first + np.array([0, 0, number, 0], np.uint32))

        return call

    def example(self, element: Any) -> Any:
        """Return the result for an example of an element, outside of any iteration."""
        return self.caller(SeedLog(is_example=True))(element)

    def _call(self, element: Any, words: Callable[[], np.ndarray]) -> Any:
        leaves = _elements.leaves(element)
        program, values = self._find(element, leaves)
        if program is None:
            with drawing_for_function(), _state.entering(ElementScope(words, is_traced=False)):
                result = tuple_of(call_in_python(self._fn, element))
                require_tensors(result)
                return _elements.as_arrays(result)
        with jax.enable_x64(True), jax.default_device(self._device):
            return program.call(words() if program.is_random else NO_WORDS, leaves, values)

    def explain(self, element: Any, *, is_ahead: bool = False) -> str:
        """Return how the function runs for elements such as this one, and why; `is_ahead` if they may be taken before they are wanted."""
        leaves = _elements.leaves(element)
        for program in self._candidates(element, leaves):
            return program.explain(is_ahead=is_ahead)
        whole = next((leaf for leaf in leaves if not isinstance(leaf, np.ndarray | np.generic)), None)
        if whole is not None:
            return f"in Python for each element: it takes a {type(whole).__name__}, which XLA has not"
        return f"in Python for each element: {self._reasons.get(_kind(leaves), _MANY_SIZES)}"

    def words(self, seed_log: SeedLog) -> np.ndarray:
        """Return the words of an iteration's first element, for `call_rows`."""
        return seed_log.words(self._source)

    def compiles(self, element: Any) -> bool:
        """Tell whether the function has been compiled for elements such as this one."""
        return self._program(element) is not None

    def checks(self, element: Any) -> bool:
        """Tell whether the function, compiled for elements such as this one, asserts what may not hold."""
        program = self._program(element)
        return program is not None and bool(program.checks)

    def is_random(self, element: Any) -> bool:
        """Tell whether the function, compiled for elements such as this one, draws random numbers."""
        program = self._program(element)
        return program is not None and program.is_random

    def reads_variables(self, element: Any) -> bool:
        """Tell whether the function, compiled for elements such as this one, depends on variables."""
        program = self._program(element)
        return program is not None and bool(program.variables)

    def call_rows(self, batch: Any, example: Any, words: np.ndarray = NO_WORDS) -> Any:
        """Return the results for all rows of `batch`, as arrays; the function compiles for them, as for `example`.

        Args:
            batch: Arrays with a first axis for the rows.
            example: An element.
            words: The words of each row, `[rows, 4]`, for a function that draws.
        """
        program = self._program(example)
        if program is None:
            raise RuntimeError(f"{self._fn!r} could be compiled before, and cannot be now.")
        with jax.enable_x64(True), jax.default_device(self._device):
            return program.call_rows(words, _elements.leaves(batch))

    def call_together(
        self, elements: Sequence[Any], first: np.ndarray, start: int, size: int | None
    ) -> list[Any] | None:
        """Return the results for elements that follow each other, where strings are computed for all at once.

        Args:
            elements: The elements.
            first: The words of the iteration's first element.
            start: The number of the first of these.
            size: How many results make a batch; None for each result on its own.

        Returns:
            The batches, or the results; None where each has to be computed on its own.
        """
        program = next(iter(self._candidates(elements[0], _elements.leaves(elements[0]))), None)
        if program is None or program.host_part.is_empty:
            return None
        words = first + np.array([[0, 0, start + row, 0] for row in range(len(elements))], np.uint32)
        columns = _elements.leaves(_elements.stack(elements))
        with jax.enable_x64(True), jax.default_device(self._device):
            return program.call_together(words, columns, size)

    def spec_of(self, element: Any) -> Any:
        """Return the spec of the result for an element of this kind, if it can be found without its values."""
        try:
            program = self._program(element)
        except (TypeError, ValueError, ArithmeticError, OpError) as error:
            _logger.info("map: %r does not take elements of other sizes: %s", self._fn, error)
            return None
        return None if program is None else program.spec

    def _program(self, element: Any) -> ElementProgram | None:
        """Return the program for elements of one shape, whatever they hold; None if there is none, or if the host has a part in it."""
        leaves = _elements.leaves(element)
        if any(not isinstance(leaf, np.ndarray | np.generic) or is_text(leaf) for leaf in leaves):
            return None
        program = next(iter(self._candidates(element, leaves)), None)
        return program if program is not None and program.host_part.is_empty else None

    def _candidates(self, element: Any, leaves: Sequence[Any]) -> list[ElementProgram]:
        """Return the programs for elements of one kind, traced if there is none yet; none at all if they run in Python."""
        if not all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
            return []
        key = _kind(leaves)
        known = self._programs.get(key, [])
        if known is None:
            return []
        current = [program for program in known if program.is_current()]
        return current or self._add(key, element, [])

    def _add(self, key: Any, element: Any, known: list[ElementProgram]) -> list[ElementProgram]:
        program = self._trace(element) if len(known) < _MOST_SIZES else None
        self._programs[key] = None if program is None else [program, *known]
        return [] if program is None else [program]

    def _find(self, element: Any, leaves: Sequence[Any]) -> tuple[ElementProgram | None, Sequence[Any]]:
        """Return the program for an element, and the values that its host part has computed; None if it runs in Python."""
        candidates = self._candidates(element, leaves)
        for program in candidates:
            values = program.compute_on_host(leaves)
            if values is not None:
                return program, values
        for program in self._add(_kind(leaves), element, candidates) if candidates else ():
            values = program.compute_on_host(leaves)
            if values is not None:
                return program, values
            self._programs[_kind(leaves)] = None  # It has another size each time.
        return None, ()

    def _trace(self, element: Any) -> ElementProgram | None:
        try:
            return trace_for_element(self._fn, element)
        except UnsupportedResultError:
            raise
        except _NEEDS_VALUES as error:
            _logger.info("map: %r runs in Python for each element: %s", self._fn, error)
            self._reasons[_kind(_elements.leaves(element))] = f"{type(error).__name__}: {error}".splitlines()[0]
            return None


def _kind(leaves: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def call_in_python(fn: Callable[..., Any], element: Any) -> Any:
    """Call `fn` on one element's tensors, eagerly.

    Raises:
        InvalidArgumentError: If it raises what would mean that the dataset is over.
    """
    try:
        return fn(*arguments(_elements.as_tensors(element)))
    except (StopIteration, OutOfRangeError) as error:
        raise invalid(f"Function invocation produced {type(error).__name__}: {error}") from error
