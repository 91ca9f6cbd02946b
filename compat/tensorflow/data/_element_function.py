"""Functions of elements, such as `Dataset.map`'s: traced once, as in TensorFlow, for single elements and for batches."""

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import OpError, OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _plan_text
from tfdist_jax.compat.tensorflow.data._element_scope import ElementScope
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource
from tfdist_jax.compat.tensorflow.random._random_state import drawing_for_function

_logger = logging.getLogger("tfdist_jax")

# What comes when a function needs values that a trace does not have; a mistake in it will come again when it runs.
_NEEDS_VALUES = (TypeError, ValueError, AttributeError, NotImplementedError, OpError, NotCompilableError)
_NO_WORDS = np.zeros(4, np.uint32)


@final
class ElementFunction:
    """Runs a function of one element, on the host.

    The function is traced once for each shape of elements, so that its Python side effects and NumPy random draws
    happen then, as TensorFlow's tracing has it. Functions of strings, or that need values, run in Python for each element.
    """

    def __init__(self, fn: Callable[..., Any], source: SeedSource | None = None) -> None:
        """Prepare `fn`, which starts its random numbers where functions do; nothing is traced yet.

        Raises:
            ValueError: If `fn` cannot be called.
        """
        if not callable(fn):
            raise ValueError(f"A dataset's function must be callable, got {fn!r}.")
        self._given = fn
        self._fn = converted(fn)
        self._device = jax.local_devices(backend="cpu")[0]
        self._programs: dict[Any, _Program | None] = {}
        self._source = SeedSource.of_function() if source is None else source

    def __repr__(self) -> str:
        return _plan_text.function(self._given)

    def __reduce__(self) -> Any:
        # Programs are of their process; the next one traces again.
        return ElementFunction, (self._given, self._source)

    def caller(self, seed_log: SeedLog) -> Callable[[Any], Any]:
        """Return the function for the elements of one iteration, in their order: from arrays to arrays."""
        first = self.words(seed_log)
        numbers = itertools.count()

        def call(element: Any) -> Any:
            number = next(numbers)
            return self._call(element, lambda: first + np.array([0, 0, number, 0], np.uint32))

        return call

    def example(self, element: Any) -> Any:
        """Return the result for an example of an element, outside of any iteration."""
        return self.caller(SeedLog(is_example=True))(element)

    def _call(self, element: Any, words: Callable[[], np.ndarray]) -> Any:
        program = self._program(element)
        if program is None:
            with drawing_for_function(), _state.entering(ElementScope(words, is_traced=False)):
                result = tuple_of(call_in_python(self._fn, element))
                _require_tensors(result)
                return _elements.as_arrays(result)
        with jax.enable_x64(True), jax.default_device(self._device):
            own = words() if program.is_random else _NO_WORDS
            return program.run(program.single, own, _elements.leaves(element))

    def words(self, seed_log: SeedLog) -> np.ndarray:
        """Return the words of an iteration's first element, for `call_rows`."""
        return seed_log.words(self._source)

    def compiles(self, element: Any) -> bool:
        """Tell whether the function has been compiled for elements such as this one."""
        return self._program(element) is not None

    def is_random(self, element: Any) -> bool:
        """Tell whether the function, compiled for elements such as this one, draws random numbers."""
        program = self._program(element)
        return program is not None and program.is_random

    def reads_variables(self, element: Any) -> bool:
        """Tell whether the function, compiled for elements such as this one, depends on variables."""
        program = self._program(element)
        return program is not None and bool(program.variables)

    def call_rows(self, batch: Any, example: Any, words: np.ndarray = _NO_WORDS) -> Any:
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
            return program.run(program.many, words, _elements.leaves(batch))

    def spec_of(self, element: Any) -> Any:
        """Return the spec of the result for an element of this kind, if it can be found without its values."""
        try:
            program = self._program(element)
        except (TypeError, ValueError, ArithmeticError, OpError) as error:
            _logger.info("map: %r does not take elements of other sizes: %s", self._fn, error)
            return None
        return None if program is None else program.spec

    def _program(self, element: Any) -> "_Program | None":
        arrays = _elements.leaves(element)
        if not all(isinstance(array, np.ndarray | np.generic) and array.dtype.kind not in "OSU" for array in arrays):
            return None
        signature = tuple((array.shape, array.dtype) for array in arrays)
        program = self._programs.get(signature)
        if signature not in self._programs or (program is not None and not program.is_current()):
            program = self._programs[signature] = self._trace(element)
        return program

    def _trace(self, element: Any) -> "_Program | None":
        template: Any = None
        scopes: list[ElementScope] = []

        def flat(words: jax.Array, arrays: list[jax.Array]) -> list[jax.Array]:
            nonlocal template
            inputs = _elements.rebuilt(element, arrays)
            scopes.append(ElementScope(lambda: words, is_traced=True))
            with drawing_for_function(), _state.entering(scopes[-1]):
                result = tuple_of(self._fn(*arguments(inputs)))
            _require_tensors(result)
            result = _elements.map_structure(jnp.asarray, result)
            outputs, template = jax.tree.flatten(in_order(result))
            return outputs

        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _elements.leaves(element)]
        try:
            with jax.enable_x64(True):
                traced = jax.make_jaxpr(flat)(_NO_WORDS, shapes)
        except UnsupportedResultError:
            raise
        except _NEEDS_VALUES as error:
            _logger.info("map: %r runs in Python for each element: %s", self._fn, error)
            return None
        (scope,) = scopes
        function, forwarded = jaxpr_as_fun(traced), _find_forwarded(traced)

        def run(words: Any, arrays: list[Any]) -> list[Any]:
            outputs = function(words, *arrays)
            return [output for output, place in zip(outputs, forwarded, strict=True) if place is None]

        return _Program(
            single=jax.jit(run),
            many=jax.jit(jax.vmap(run, in_axes=(0 if scope.has_drawn else None, 0))),
            template=template,
            forwarded=forwarded,
            only_forwards=None not in forwarded and not traced.effects,
            variables=scope.reads,
            checks=scope.checks,
            is_random=scope.has_drawn,
            spec=_elements.spec_of(restore_dict_order(jax.tree.unflatten(template, traced.out_avals))),
        )


def _find_forwarded(traced: ClosedJaxpr) -> list[int | None]:
    """Return for each output which of the element's arrays it forwards; None for what is computed."""
    places = {id(var): place for place, var in enumerate(traced.jaxpr.invars[1:])}
    return [places.get(id(var)) for var in traced.jaxpr.outvars]


@final
@dataclasses.dataclass(frozen=True)
class _Program:
    """A traced function of elements of one shape: for one of them, and for rows of them; and its result's structure.

    Attributes:
        single: Computes the outputs that are not forwarded, from words and an element's arrays.
        many: The same for rows.
        template: The structure of the outputs.
        forwarded: Which array of the element each output is; None for those that are computed.
        only_forwards: Whether nothing is computed, and nothing else happens.
        variables: Cells that it reads, with what they held.
        checks: To be called after each run; they raise if an assertion has failed.
        is_random: Whether it draws.
        spec: Of the outputs.
    """

    single: Callable[[Any, list[Any]], Any]
    many: Callable[[Any, list[Any]], Any]
    template: Any
    forwarded: list[int | None]
    only_forwards: bool
    variables: list[tuple[Any, Any]]
    checks: list[Callable[[], None]]
    is_random: bool
    spec: Any
    checking: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def is_current(self) -> bool:
        return all(cell.stored is array for cell, array in self.variables)

    def run(self, function: Callable[[Any, list[Any]], Any], words: np.ndarray, arrays: list[Any]) -> Any:
        """Return the result of `function`, one of this program's; raise if an assertion in it fails."""
        if self.only_forwards:
            return self._result((), arrays)
        if not self.checks:
            return self._result(function(words, arrays), arrays)
        with self.checking:  # Another thread's failures are another iteration's.
            result = self._result(function(words, arrays), arrays)
            jax.effects_barrier()
            for check in self.checks:
                check()
        return result

    def _result(self, computed: Iterable[Any], arrays: list[Any]) -> Any:
        rest = iter(computed)
        outputs = [np.asarray(next(rest) if place is None else arrays[place]) for place in self.forwarded]
        return restore_dict_order(jax.tree.unflatten(self.template, outputs))


class UnsupportedResultError(TypeError):
    """A dataset's function has returned what cannot be an element."""


_VALUES = (bool, int, float, complex, str, bytes, list, tuple, np.ndarray, np.generic)


def _require_tensors(result: Any) -> None:
    for part in _elements.leaves(result):
        if not (isinstance(part, _VALUES) or is_tensor(part) or hasattr(part, "__array__") or _elements.is_whole(part)):
            raise UnsupportedResultError(f"Unsupported return value from function passed to Dataset.map(): {part!r}.")


def arguments(element: Any) -> tuple[Any, ...]:
    """TensorFlow hands a tuple's parts over as separate arguments, anything else as one."""
    return element if isinstance(element, tuple) and not hasattr(element, "_fields") else (element,)


def tuple_of(result: Any) -> Any:
    """Lists of results are tuples to TensorFlow."""
    return tuple(result) if isinstance(result, list) else result


def call_in_python(fn: Callable[..., Any], element: Any) -> Any:
    """Call `fn` on one element's tensors, eagerly.

    Raises:
        InvalidArgumentError: If it raises what would mean that the dataset is over.
    """
    try:
        return fn(*arguments(_elements.as_tensors(element)))
    except (StopIteration, OutOfRangeError) as error:
        raise invalid(f"Function invocation produced {type(error).__name__}: {error}") from error
