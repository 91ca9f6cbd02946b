"""What a traced function does on the host: it is noted while the function is traced, and done before each run.

It computes what is of strings, and takes elements of iterators.
"""

import contextlib
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax._autodiff._tape_trace import below_tapes
from tfdist_jax._coordinator import HeldArray, fetch
from tfdist_jax._errors import ConcreteValueRequiredError, NotCompilableError
from tfdist_jax._internals import current_trace
from tfdist_jax._stateful._state import current_scope, leaving_programs, read
from tfdist_jax._stateful._storage import GIVEN
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._names._symbolic import note_with
from tfdist_jax.compat.tensorflow._platform._errors import InaccessibleTensorError
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._host_tracer import HostTracer, TextTracer
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order


class HostValueRequiredError(NotCompilableError):
    """What the host is to compute with is known by its type only."""


class NoElementError(NotCompilableError):
    """An iterator has no next element, for whatever reason: the function has to run as Python, and to meet it there."""


@final
class EndOfDataError(Exception):
    """Causes a `StopIteration` that is the end of a dataset, and not of another iterable."""


def is_end_of_data(error: StopIteration) -> bool:
    """Tell whether a dataset has ended, which is an `OutOfRangeError` of a function."""
    return isinstance(error.__cause__, EndOfDataError)


@final
@dataclasses.dataclass(frozen=True)
class Ticket:
    """Says which element of an iterator was taken: for the host alone, no program depends on it."""

    number: int


_part: ContextVar["HostPart | None"] = ContextVar("host_part", default=None)


def noting_host_part(part: "HostPart | None") -> AbstractContextManager[None]:
    """Let what the function that is being traced computes of strings be noted in `part`; None for nowhere."""
    return having(_part, part)


@final
class HostCell:
    """Stands for an array that the host part gives to each run of the program.

    Attributes:
        stored: The array that the function is traced with; its type when there is a program, which lives longer.
    """

    storage = GIVEN
    trainable = False

    def __init__(self, array: jax.Array) -> None:
        """Hold that array."""
        self.stored: Any = array

    def forget(self) -> None:
        """Hold the type alone."""
        self.stored = jax.ShapeDtypeStruct(self.stored.shape, self.stored.dtype)


@final
@dataclasses.dataclass(frozen=True)
class _Step:
    """An operation of the host part.

    Attributes:
        function: What computes.
        constants: The parts of its arguments that are the same in each run, None for the others.
        slots: Of these, their places among the parts, and among the values of the host part.
        tree: How the parts make up the arguments and those by name.
        has_effect: Whether it is called for what it does, and returns nothing.
        take_back: Gets the arguments and the result of a run that is not to count; None if that changes nothing.
    """

    function: Callable[..., Any]
    constants: Sequence[Any]
    slots: Sequence[tuple[int, int]]
    tree: Any
    has_effect: bool
    take_back: Callable[..., Any] | None = None

    def compute(self, values: Sequence[Any] | Mapping[int, Any]) -> tuple[list[Any], Any]:
        """Return the results as tensors, and how they make up what the function has returned."""
        leaves, tree = self.call(values)
        return [jnp.asarray(leaf) if _has_numbers(leaf) else leaf for leaf in leaves], tree

    def call(self, values: Sequence[Any] | Mapping[int, Any]) -> tuple[list[Any], Any]:
        """Return the parts of what the function returns, and how they make it up."""
        args, kwargs = self._arguments(values)
        return jax.tree.flatten(in_order(self.function(*args, **kwargs)), is_leaf=_is_whole)

    def undo(self, values: Sequence[Any], leaves: Sequence[Any], tree: Any) -> None:
        """Let a run not have been, which has returned these parts."""
        if self.take_back is not None:
            args, kwargs = self._arguments(values)
            self.take_back(*args, restore_dict_order(tree.unflatten(leaves)), **kwargs)

    def _arguments(self, values: Sequence[Any] | Mapping[int, Any]) -> tuple[Any, Any]:
        parts = list(self.constants)
        for place, number in self.slots:
            parts[place] = fetch(values[number])
        return restore_dict_order(self.tree.unflatten(parts))

    def compute_rows(self, columns: Sequence[Any], count: int, form: tuple[Any, ...]) -> list[Any] | None:
        """Return the results for so many elements, each `[count, ...]`; None if they have not all the form of a result.

        Args:
            columns: The values of the host part, for each element a row.
            count: How many elements there are.
            form: The structure of the results, and the form of each.
        """
        function = getattr(self.function, "__func__", self.function)
        if any(kind in TRACERS for kind, _ in form[1:]) or not _may_be_reordered(function):
            return None  # Ragged tensors of several elements are not one; and what has effects has them element by element.
        are_tensors = not any(isinstance(kind, type) for kind, _ in form[1:])
        if function in _row_functions and are_tensors and len({columns[number].shape for _, number in self.slots}) == 1:
            at_once = self._compute_at_once(_row_functions[function], columns, count, form)
            if at_once is not None:
                return at_once
        found = []
        for row in range(count):
            own = {number: _as_value(columns[number][row, ...]) for _, number in self.slots}
            leaves, tree = self.compute(own)
            if (tree, *map(_form, leaves)) != form:
                return None
            found.append(leaves)
        return [_stack(column) for column in zip(*found, strict=True)]

    def _compute_at_once(
        self, function: Callable[..., Any], columns: Sequence[Any], count: int, form: tuple[Any, ...]
    ) -> list[Any] | None:
        bound = functools.partial(function, self.function.__self__) if inspect.ismethod(self.function) else function
        step = dataclasses.replace(self, function=bound)
        leaves, tree = step.call({number: _as_value(columns[number]) for _, number in self.slots})
        wanted = (form[0], *((kind, (count, *shape)) for kind, shape in form[1:]))
        return [np.asarray(leaf) for leaf in leaves] if (tree, *map(_form, leaves)) == wanted else None


_row_functions: dict[Callable[..., Any], Callable[..., Any]] = {}

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def computes_rows(function: AnyFunction, many: Callable[..., Any] | None = None) -> AnyFunction:
    """Note that a function computes each string on its own, so that it takes the strings of many elements at once.

    Args:
        function: The function, or a method.
        many: What to call with the strings of several elements, `[n, ...]`, in place of those of one; the function itself if None. It may
            return NumPy's arrays of numbers.
    """
    _row_functions[function] = many or function
    return function


# What computes and does nothing else.
_PURE = tuple(
    f"tfdist_jax.compat.tensorflow.{module}"
    for module in (
        *(
            "strings.",
            "io._decoding",
            "io._csv",
            "io._parsing",
            "io._sequence_parsing",
            "io._tensor_messages",
            "io._wave",
        ),
        *(
            "image.",
            "_ops._shapes",
            "_ops._concat",
            "_ops._selection",
            "_ops._binary",
            "_ops._creation",
            "_tensors._tensor",
        ),
    )
)


def _may_be_reordered(function: Callable[..., Any]) -> bool:
    """Whether it does not matter that a function is called for all elements before the next operation is."""
    return function in _row_functions or function.__module__.startswith(_PURE) or function.__name__ == "read_file"


for _operator in (operator.eq, operator.ne, operator.add):
    computes_rows(_operator)


@final
class HostPart:
    """The operations of strings in a traced function, and of iterators, and the values that they have for one call.

    Sizes are part of a program, and may follow from strings or elements: values of other sizes need another program.

    Attributes:
        values: What the function is traced with: its inputs, then the results of each operation.
        cells: What stands for the numbers that the program takes from the host part, with their places among the values.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        """Note nothing yet.

        Args:
            inputs: The function's tensors: those of strings, and the numbers that the host has; and its iterators.
        """
        self.values: list[Any] = list(inputs)
        self._num_inputs = len(inputs)
        self._place: Any = None
        self._error: BaseException | None = None
        self.cells: list[tuple[HostCell, int]] = []
        self._steps: list[tuple[_Step, tuple[Any, ...]]] = []
        self._known: dict[int, tuple[Any, int]] = {}

    def finish(self) -> None:
        """Keep the values that the function was traced with no longer."""
        self.values, self._known = [], {}
        for cell, _ in self.cells:
            cell.forget()

    @contextlib.contextmanager
    def noting_elements(self) -> Iterator[None]:
        """Let elements be taken, too, by the function that is traced inside.

        They do not count as taken, unless it ends by an error of the host's: that is one of the run.

        Raises:
            ConcreteValueRequiredError: If it has caught such an error: what it does then is not what it does in other calls.
        """
        self._place = (current_scope(), below_tapes(current_trace()))
        try:
            with noting_host_part(self):
                yield
            if self._error is not None:
                raise ConcreteValueRequiredError(_CAUGHT) from self._error
        except BaseException as error:
            if error is not self._error:
                self.undo(self.values)
            raise
        else:
            self.undo(self.values)
        finally:
            self._place = self._error = None

    @property
    def takes_elements(self) -> bool:
        """Whether elements are taken where it is noted, and it has called nothing for its effect, which could not be undone."""
        if self._place is None or any(step.has_effect for step, _ in self._steps):
            return False
        scope, trace = self._place
        return current_scope() is scope and below_tapes(current_trace()) is trace

    @property
    def has_to_undo(self) -> bool:
        """Whether there is something to undo where a call is not to count."""
        return any(step.take_back is not None for step, _ in self._steps)

    def undo(self, values: Sequence[Any]) -> None:
        """Let what has been done for a call not have been; these are its values as far as they are known."""
        number, done = self._num_inputs, []
        for step, (tree, *forms) in self._steps:
            first, number = number, number + len(forms)
            if number <= len(values):
                done.append((step, values[first:number], tree))
        for step, leaves, tree in reversed(done):
            step.undo(values, leaves, tree)

    def stand_for(self, number: int) -> HostTracer:
        """Return what stands for an input of strings, or an iterator, by its number."""
        value = self.values[number]
        return (TextTracer if holds_texts(value) else TRACERS[type(value)])(self, number, value)

    def know(self, tracer: Any, number: int) -> Any:
        """Note that a traced array is a value of the host part, and return it."""
        self._known[id(tracer)] = (tracer, number)
        return tracer

    def knows(self, leaf: Any) -> bool:
        """Tell whether a traced array is a value of the host part."""
        return id(leaf) in self._known

    @property
    def is_empty(self) -> bool:
        """Whether the function computes nothing on the host."""
        return not self._steps

    def names(self) -> list[str]:
        """Return what the host calls, by name and once each."""
        return list(dict.fromkeys(step.function.__name__ for step, _ in self._steps))

    def note(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        *,
        has_effect: bool = False,
        take_back: Callable[..., Any] | None = None,
    ) -> Any:
        """Let the host call a function before each run, and return what stands for its results.

        One that `has_effect` is called in runs alone: what is traced may not come to run. What one changes that returns something is
        changed back by `take_back(*args, result, **kwargs)` where the call is not to count.

        Raises:
            ConcreteValueRequiredError: If an argument is a number that the program computes.
            HostValueRequiredError: If one is known by its type only.
        """
        parts, tree = jax.tree.flatten(in_order((tuple(args), dict(kwargs))))
        numbers = list(map(self._find, parts))
        constants = [part if number is None else None for part, number in zip(parts, numbers, strict=True)]
        slots = [(place, number) for place, number in enumerate(numbers) if number is not None]
        if any(isinstance(self.values[number], jax.ShapeDtypeStruct) for _, number in slots):
            raise HostValueRequiredError(
                "An operation of strings runs on the host, before the compiled program, and takes a number of which only the type is known "
                "where a function is traced for a TensorSpec."
            )
        step = _Step(function, constants, slots, tree, has_effect, take_back)
        if has_effect:
            self._steps.append((step, (jax.tree.structure(None),)))
            return None
        try:
            with leaving_programs(), noting_host_part(None):
                leaves, tree = step.compute(self.values)
                leaves = list(map(fetch, leaves))  # The function is traced with their values.
        except BaseException as error:
            self._error = error if _stays_done(error) else None
            raise
        self._steps.append((step, (tree, *map(_form, leaves))))
        first = len(self.values)
        self.values += leaves
        known = [self._unknown(number) for number in range(first, len(self.values))]
        return restore_dict_order(tree.unflatten(known))

    def _find(self, part: Any) -> int | None:
        """Return which value of the host part something is; None if it is the same in each run."""
        if isinstance(part, HostTracer):
            if part.notes is not self:
                raise InaccessibleTensorError(
                    "A tensor of strings of another function is out of scope: it had no value but there. Return it from that "
                    "function instead of keeping it in a variable, list or attribute."
                )
            return part.number
        if not isinstance(part, Tracer):
            return None
        if id(part) not in self._known:
            raise ConcreteValueRequiredError(
                "An operation of strings runs on the host, before the compiled program, and takes a number that the program "
                "computes. Compute it outside of the function, or from strings and the function's arguments alone."
            )
        return self._known[id(part)][1]

    def _unknown(self, number: int) -> Any:
        value = self.values[number]
        if holds_texts(value) or isinstance(value, Composite):
            return self.stand_for(number)
        if not isinstance(value, jax.Array):
            return value
        cell = HostCell(value)
        self.cells.append((cell, number))
        tracer = read(cell)  # pyright: ignore[reportArgumentType]
        self.know(tracer, number)
        return tracer

    def compute(self, inputs: Sequence[Any]) -> list[Any] | None:
        """Return the values for a call with other inputs; None if a program that was traced does not fit them."""
        values, effects = list(inputs), []
        for step, form in self._steps:
            try:
                leaves, tree = step.compute(values)
            except BaseException as error:
                if not _stays_done(error):
                    self.undo(values)
                raise
            if (tree, *map(_form, leaves)) != form:
                step.undo(values, leaves, tree)
                self.undo(values)
                if not effects:
                    return None
                raise RuntimeError(
                    f"{effects[0]} has been called, and behind it {step.function.__name__} gives a tensor of another size than before, "
                    "so that the compiled function does not fit. Call it in a function of its own, or behind what gives tensors of "
                    "changing sizes."
                )
            values += leaves
            effects += [step.function.__name__] * step.has_effect
        return values

    def compute_rows(self, inputs: Sequence[np.ndarray], count: int) -> list[Any] | None:
        """Return the values for several elements, each `[count, ...]`; None if the program does not fit one of them."""
        columns: list[Any] = list(inputs)
        for step, form in self._steps:
            found = step.compute_rows(columns, count, form)
            if found is None:
                return None
            columns += found
        return columns


def _as_value(array: np.ndarray) -> Any:
    return HostTensor.of(array) if array.dtype == object else array


def _stack(leaves: Sequence[Any]) -> Any:
    """Return the results of elements side by side; what is no tensor is the same for all."""
    if holds_texts(leaves[0]):
        column = np.empty((len(leaves), *np.shape(leaves[0])), object)
        for row, leaf in enumerate(leaves):
            column[row, ...] = np.asarray(leaf)  # A string's own array has no axes, and would be put in as an object.
        return column
    return np.stack(leaves) if isinstance(leaves[0], jax.Array) else leaves[0]


TRACERS: dict[type, type[HostTracer]] = {}
"""What stands for values that have parts which are no tensors, by their classes: of these a program would know too much."""


def is_stood_for(value: Any) -> bool:
    """Tell whether a traced function gets something that stands for an argument, of which its program knows little."""
    return holds_texts(value) or type(value) in TRACERS


def part_for_elements() -> HostPart | None:
    """Return the host part of the function that is being traced, if elements can be taken where it is; else None."""
    part = _part.get()
    return part if part is not None and part.takes_elements else None


def _stays_done(error: BaseException) -> bool:
    """Tell whether what the host has done before an error counts, as that of a graph's operations which fails."""
    return isinstance(error, Exception) and not isinstance(error, NotCompilableError)


_CAUGHT = (
    "It catches an error of what runs on the host, before the compiled program, so that what it does follows from the error. Let the error "
    "leave the function, or check beforehand."
)


def _is_whole(value: Any) -> bool:
    return type(value) in TRACERS or isinstance(value, Ticket)


def _has_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and not holds_texts(value)


def _form(value: Any) -> Any:
    """Return what a program knows of a result of the host part: a tensor's type; of anything else the value."""
    if holds_texts(value):
        return "string", np.shape(value)
    if isinstance(value, jax.Array | np.ndarray | HeldArray):
        kind = value.aval if isinstance(value, jax.Array) else value
        return kind.dtype, kind.shape
    return (type(value), None) if _is_whole(value) else (type(value), value)


# What computes on the host, with numbers too.
_ON_HOST = tuple(f"tfdist_jax.compat.tensorflow.{room}." for room in ("strings", "io", "lookup"))


# What programs call for what it does; and what may do anything, and returns something.
_EFFECTS = ("print", "write_file")
_CALLBACKS = ("py_function", "numpy_function")


def note_on_host(
    function: Callable[..., Any], args: Any, kwargs: Any, *, always: bool = False, has_effect: bool = False
) -> Any:
    """Note a call on the host part of the function that is being traced, if it belongs there.

    Args:
        function: What is called.
        args: Its arguments.
        kwargs: Those by name.
        always: Whether it belongs there whatever its arguments are, since what it returns changes.
        has_effect: Whether it changes something, and returns nothing.

    Returns:
        What stands for its results; NotImplemented if it is no operation of strings, or no argument is known on the host.

    Raises:
        ConcreteValueRequiredError: If it calls a function of the program's with strings: its results are not known before.
    """
    part = _part.get()
    if part is None:
        return NotImplemented
    leaves = jax.tree.leaves(in_order((tuple(args), dict(kwargs))))
    is_of_host = any(isinstance(leaf, HostTracer) for leaf in leaves)
    if is_of_host and function.__name__ in _CALLBACKS:
        raise ConcreteValueRequiredError(
            f"tf.{function.__name__} gets strings, and what it returns is known when it has run."
        )
    if has_effect or (is_of_host and function.__name__ in _EFFECTS):
        return part.note(function, args, kwargs, has_effect=True)
    if always or is_of_host or (function.__module__.startswith(_ON_HOST) and any(map(part.knows, leaves))):
        return part.note(function, args, kwargs)
    return NotImplemented


def install() -> None:
    """Let operations that cannot be traced, since they are of strings, be noted."""
    note_with(note_on_host)
