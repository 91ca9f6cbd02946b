"""Programs of datasets' functions: traced for elements of one shape, run for one of them or for rows of them."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfdist_jax._stateful import _state
from tfdist_jax._stateful._capture import reads_to_inputs
from tfdist_jax.compat.tensorflow._tensors._host_part import HostPart, note_on_host, noting_host_part
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._element_scope import ElementScope
from tfdist_jax.compat.tensorflow.random._random_state import drawing_for_function

NO_WORDS = np.zeros(4, np.uint32)
"""The words of an element, for a function that does not draw."""


@final
@dataclasses.dataclass(frozen=True)
class ElementProgram:
    """A traced function of elements of one shape: for one of them, and for rows of them; and its result's structure.

    Attributes:
        single: Computes the outputs that are not forwarded, from words and arrays: the element's, then the host part's.
        many: The same for rows.
        template: The structure of the outputs.
        forwarded: Which of the arrays, and of the host part's values behind them, each output is; None for those that are computed.
        only_forwards: Whether nothing is computed, and nothing else happens.
        host_part: What is computed of strings before.
        host_arrays: Which of its values are arrays of the program.
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
    host_part: HostPart
    host_arrays: list[int]
    variables: list[tuple[Any, Any]]
    checks: list[Callable[[], None]]
    is_random: bool
    spec: Any
    checking: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def is_current(self) -> bool:
        """Tell whether the variables hold what they held when the function was traced."""
        return all(cell.stored is array for cell, array in self.variables)

    def explain(self, *, is_ahead: bool = False) -> str:
        """Return how it runs; `is_ahead` if elements may be taken before they are asked for."""
        if not self.host_part.is_empty:
            compiled = "" if self.only_forwards else ", the rest compiled"
            each = "several elements at once" if is_ahead else "for each element"
            return f"{each}: {', '.join(self.host_part.names())} on the host{compiled}"
        return "nothing is computed" if self.only_forwards else "compiled, for each element"

    def compute_on_host(self, leaves: Sequence[Any]) -> Sequence[Any] | None:
        """Return the values of the host part for an element's tensors; None if they do not fit the program."""
        inputs = [convert_to_tensor(leaf) if is_text(leaf) else leaf for leaf in leaves]
        return inputs if self.host_part.is_empty else self.host_part.compute(inputs)

    def call(self, words: np.ndarray, leaves: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return the result for an element's tensors, and what the host part has computed of them."""
        arrays = [leaf for leaf in leaves if not is_text(leaf)] + [values[number] for number in self.host_arrays]
        return self._run(self.single, words, arrays, values)

    def call_together(self, words: np.ndarray, columns: Sequence[np.ndarray], size: int | None) -> list[Any] | None:
        """Return the results for elements, for which the host computes its part at once; None if the program does not fit one of them.

        The rest is computed for `size` elements at a time, whatever their number: so results do not depend on how many are taken.

        Args:
            words: The words of each element, `[n, 4]`.
            columns: The elements' tensors, `[n, ...]`.
            size: How many results are side by side; None for each on its own.
        """
        count = len(words)
        values = self.host_part.compute_rows(columns, count)
        if values is None:
            return None
        places: list[Any] = list(range(count)) if size is None else [slice(i, i + size) for i in range(0, count, size)]
        function = self.single if size is None else self.many
        return [
            self._run(function, words[place] if self.is_random else NO_WORDS, *self._at(place, columns, values))
            for place in places
        ]

    def _at(self, place: Any, columns: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the arrays and the host's values of some elements, or of one."""
        part = lambda column: column[place, ...] if isinstance(column, np.ndarray) else column
        own = [part(value) for value in values]
        arrays = [part(column) for column in columns if not is_text(column)]
        return [*arrays, *(own[number] for number in self.host_arrays)], own

    def call_rows(self, words: np.ndarray, arrays: list[Any]) -> Any:
        """Return the results for rows of arrays."""
        return self._run(self.many, words, arrays, ())

    def _run(
        self, function: Callable[[Any, list[Any]], Any], words: np.ndarray, arrays: list[Any], values: Sequence[Any]
    ) -> Any:
        if self.only_forwards:
            return self._result((), [*arrays, *values])
        if not self.checks:
            return self._result(function(words, arrays), [*arrays, *values])
        with self.checking:  # Another thread's failures are another iteration's.
            result = self._result(function(words, arrays), [*arrays, *values])
            jax.effects_barrier()
            for check in self.checks:
                check()
        return result

    def _result(self, computed: Iterable[Any], given: Sequence[Any]) -> Any:
        rest = iter(computed)
        outputs = [np.asarray(next(rest) if place is None else given[place]) for place in self.forwarded]
        return restore_dict_order(jax.tree.unflatten(self.template, outputs))


def is_text(array: Any) -> bool:
    """Tell whether an element's array holds strings."""
    return array.dtype.kind in "OSU"


def trace_for_element(fn: Callable[..., Any], element: Any) -> ElementProgram:
    """Trace a function for elements like this one."""
    leaves = _elements.leaves(element)
    inputs = [convert_to_tensor(leaf) if is_text(leaf) else leaf for leaf in leaves]
    host_part = HostPart(inputs)
    result: list[Any] = []
    template: Any = None
    scope: Any = None

    def flat(words: jax.Array, arrays: list[jax.Array]) -> list[jax.Array]:
        nonlocal template, scope
        given = iter(arrays)
        filled = [
            host_part.stand_for(i) if is_text(leaf) else host_part.know(next(given), i) for i, leaf in enumerate(leaves)
        ]
        scope = ElementScope(lambda: words, is_traced=True)
        with drawing_for_function(), _state.entering(scope), noting_host_part(host_part):
            returned = tuple_of(fn(*arguments(_elements.rebuilt(element, filled))))
            require_tensors(returned)
            result[:], template = jax.tree.flatten(in_order(_elements.map_structure(_as_output, returned)))
        return [output for output in result if not isinstance(output, HostTracer)]

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves if not is_text(leaf)]
    with jax.enable_x64(True):
        traced, host_arrays = reads_to_inputs(jax.make_jaxpr(flat)(NO_WORDS, shapes))
    function, forwarded = jaxpr_as_fun(traced), _find_forwarded(traced, result)

    def run(words: Any, arrays: list[Any]) -> list[Any]:
        outputs = iter(function(words, *arrays))
        places = [place for place, output in zip(forwarded, result, strict=True) if not isinstance(output, HostTracer)]
        return [output for output, place in zip(outputs, places, strict=True) if place is None]

    types = iter(traced.out_avals)
    specs = [output if isinstance(output, HostTracer) else next(types) for output in result]
    program = ElementProgram(
        single=jax.jit(run),
        many=jax.jit(jax.vmap(run, in_axes=(0 if scope.has_drawn else None, 0))),
        template=template,
        forwarded=forwarded,
        only_forwards=None not in forwarded and not traced.effects,
        host_part=host_part,
        host_arrays=[host_part.cells[index][1] for index in host_arrays],
        variables=scope.reads,
        checks=scope.checks,
        is_random=scope.has_drawn,
        spec=_elements.spec_of(restore_dict_order(jax.tree.unflatten(template, specs))),
    )
    host_part.finish()
    return program


def _as_output(part: Any) -> Any:
    is_of_texts = isinstance(part, list) and any(isinstance(leaf, HostTracer) for leaf in jax.tree.leaves(part))
    tensor = note_on_host(convert_to_tensor, (part,), {}) if is_of_texts else convert_to_tensor(part)
    return tensor if isinstance(tensor, HostTracer) else jnp.asarray(tensor)


def _find_forwarded(traced: ClosedJaxpr, result: Sequence[Any]) -> list[int | None]:
    """Return for each output which of the arrays, or of the host part's values behind them, it is; None for what is computed."""
    arrays = traced.jaxpr.invars[1:]
    places = {id(var): place for place, var in enumerate(arrays)}
    outputs = iter(traced.jaxpr.outvars)
    is_of_host = lambda output: isinstance(output, HostTracer)
    return [len(arrays) + part.number if is_of_host(part) else places.get(id(next(outputs))) for part in result]


class UnsupportedResultError(TypeError):
    """A dataset's function has returned what cannot be an element."""


_VALUES = (bool, int, float, complex, str, bytes, list, tuple, np.ndarray, np.generic)


def require_tensors(result: Any) -> None:
    """Check that a function's result can be an element.

    Raises:
        UnsupportedResultError: If a part of it is no tensor, nor what can become one.
    """
    for part in _elements.leaves(result):
        if not (isinstance(part, _VALUES) or is_tensor(part) or hasattr(part, "__array__") or _elements.is_whole(part)):
            raise UnsupportedResultError(f"Unsupported return value from function passed to Dataset.map(): {part!r}.")


def arguments(element: Any) -> tuple[Any, ...]:
    """TensorFlow hands a tuple's parts over as separate arguments, anything else as one."""
    return element if isinstance(element, tuple) and not hasattr(element, "_fields") else (element,)


def tuple_of(result: Any) -> Any:
    """Lists of results are tuples to TensorFlow."""
    return tuple(result) if isinstance(result, list) else result
