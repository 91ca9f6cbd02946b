"""Compiled calls of Python functions on tensors: traced once per signature, kept in a cache."""

import collections
import contextlib
import functools
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.core import ShapedArray, Tracer

from tfdist_jax._autodiff._tape import is_recording
from tfdist_jax._coordinator import fetch, tracing_alone
from tfdist_jax._device_scope import current_device
from tfdist_jax._errors import ChangeInBodyError, ConcreteValueRequiredError, NotCompilableError
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._handed_over import running_to_the_end
from tfdist_jax._stateful._served_program import CellProgram, make_program
from tfdist_jax._stateful._state import CLOSURE_KIND
from tfdist_jax._stateful._traffic_explanation import tell_traffic
from tfdist_jax.compat.tensorflow._functions._closure_guard import ById
from tfdist_jax.compat.tensorflow._functions._execution_plan import Way, make_uncompiled_plan, warn_not_compiled
from tfdist_jax.compat.tensorflow._functions._results import (
    SCALARS,
    as_results,
    fill_host_values,
    has_host_values,
    restore_constants,
)
from tfdist_jax.compat.tensorflow._functions._trace_types import TracingContext
from tfdist_jax.compat.tensorflow._platform._context import current_strategy
from tfdist_jax.compat.tensorflow._platform._errors import OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._host_part import (
    HostPart,
    NoElementError,
    is_end_of_data,
    is_stood_for,
    noting_host_part,
)
from tfdist_jax.compat.tensorflow._tensors._meeting import brought_together, is_of_devices
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, leaves_of, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import PerReplicaStrings
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable_creators import noting_creations
from tfdist_jax.compat.tensorflow.random._random_state import drawing_for_function

_log = logging.getLogger("tfdist_jax")


def is_input(leaf: Any) -> bool:
    """Tell whether an argument is an input of the compiled function, and no constant."""
    return isinstance(leaf, jax.Array) or (
        isinstance(leaf, (np.ndarray, np.generic, jax.ShapeDtypeStruct)) and getattr(leaf.dtype, "kind", None) != "O"
    )


def is_traced(args: Any) -> bool:
    """Tell whether a call with `args` is part of a program that is being traced already."""
    return _state.current_scope() is not None or any(isinstance(x, Tracer) for x in leaves_of(args))


class _ElementChangedError(NotCompilableError):
    """A call has another element than its program was made for: it alone has to run as Python."""


@final
class _Compiled:
    """A program whose results are what the function returns, Python's values among them; and what the host does before it."""

    def __init__(self, program: CellProgram, host_part: HostPart, *, returns_host_values: bool) -> None:
        self.program = program
        self._host_part = host_part
        self._returns_host_values = returns_host_values
        self._returns_tensors: bool | None = None
        numbers = {id(cell): number for cell, number in host_part.cells}
        self._given = [numbers[id(cell)] for cell in program.captured.given]

    def compute_on_host(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """Return the values of the host part for a call's inputs; None if the program does not fit them."""
        return inputs if self._host_part.is_empty else self._host_part.compute(inputs)

    def undo(self, values: Sequence[Any]) -> None:
        """Let what the host has done for a call not have been."""
        self._host_part.undo(values)

    @property
    def takes_elements(self) -> bool:
        """Whether the host takes elements of iterators."""
        return self._host_part.has_to_undo

    def arguments(self, tensors: Sequence[jax.Array], values: Sequence[Any]) -> Sequence[jax.Array]:
        """Return what the program is called with: a call's tensors, and what the host part gives it."""
        if not self._given:
            return tensors
        given = (values[number] for number in self._given)
        return [*tensors, *(given if self.program.takes_held_arrays else map(fetch, given))]

    def __call__(self, tensors: Sequence[jax.Array], values: Sequence[Any]) -> Any:
        """Run the program on a call's tensors, and on the values of the host part."""
        results = self._run(self.arguments(tensors, values))
        restored = self._restored(results)
        return fill_host_values(restored, values) if self._returns_host_values else restored

    def _run(self, tensors: Sequence[jax.Array]) -> Any:
        try:
            return self.program(tensors)
        except ValueError as error:
            if not is_of_devices(error):
                raise
            return self.program(brought_together(tensors))

    def _restored(self, results: Any) -> Any:
        if self._returns_tensors:
            return results
        restored = restore_constants(results)
        if self._returns_tensors is None:  # The structure of the results is the same each time.
            holds_dicts = in_order(restored) is not restored
            self._returns_tensors = not holds_dicts and jax.tree.structure(restored) == jax.tree.structure(results)
        return restored


@final
class CallCache:
    """The compiled programs of one function, one for each signature it was called with."""

    def __init__(
        self,
        *,
        own_random: bool = False,
        makes_variables: bool = False,
        takes_elements: bool = True,
        limit: int = 128,
        run: Callable[..., Any] | None = None,
    ) -> None:
        """Have no programs yet.

        Args:
            own_random: Give each program random numbers of its own.
            makes_variables: Let each call of the function make variables; they are refused in later calls else.
            takes_elements: Let programs have elements of iterators as inputs, which are taken before each run.
            limit: How many programs to keep, forgetting the oldest.
            run: Calls a function, its arguments and those by name, while it is traced; None for nothing but that.
        """
        self._limit = limit
        self._run = run or (lambda fn, args, kwargs: fn(*args, **kwargs))
        self._own_random = own_random
        self._makes_variables = makes_variables
        self._takes_elements = takes_elements
        # Several for one signature where strings give tensors of several sizes; None where there can be none.
        self._programs: dict[tuple[Any, ...], list[_Compiled] | None] = {}
        self._told = False
        self._numbers: collections.Counter[Hashable] | None = collections.Counter()
        self.traces = 0

    def __len__(self) -> int:
        return len(self._programs)

    def call(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], guard: Hashable = None
    ) -> Any:
        """Run `fn(*args, **kwargs)` as a compiled program.

        Args:
            fn: The function; traced when no program fits.
            args: Positional arguments: tensors are inputs, everything else is a constant of the program.
            kwargs: Keyword arguments, likewise.
            guard: What else the program depends on.
        """
        compiled, tensors, values = None, [], ()
        try:
            compiled, tensors, values = self._find(fn, args, kwargs, guard)
        except NoElementError:
            with running_to_the_end():
                return _run_as_python(fn, args, kwargs)
        except NotCompilableError as error:
            if isinstance(error, ConcreteValueRequiredError | ChangeInBodyError) and not self._told:
                self._told = True
                warn_not_compiled(fn, make_uncompiled_plan(Way.PYTHON, error))
        # A tape sees a compiled function as one operation, in which it cannot follow a `while` loop.
        if compiled is not None and is_recording() and compiled.program.has_float_loop:
            compiled.undo(values)
            compiled = None
        if compiled is None:
            return _run_as_python(fn, args, kwargs)
        return compiled(tensors, values)

    def bind(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the compiled call of `fn(*args, **kwargs)`.

        Raises:
            NotCompilableError: If the function takes data or values from the host and so cannot be one program.
        """
        compiled, tensors, values = self._find(fn, args, kwargs)
        return functools.partial(compiled, tensors, values)

    def find(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], guard: Hashable = None
    ) -> tuple[CellProgram, Sequence[jax.Array]]:
        """Return the program for this call, traced if need be, and what it is called with.

        Raises:
            NotCompilableError: If the function takes data or values from the host and so cannot be one program.
        """
        compiled, tensors, values = self._find(fn, args, kwargs, guard)
        compiled.undo(values)
        return compiled.program, compiled.arguments(tensors, values)

    def _find(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], guard: Hashable = None
    ) -> tuple[_Compiled, list[jax.Array], Sequence[Any]]:
        """Return the program for a call, the call's tensors, and the values that the host has computed for it."""
        named = {name: in_order(value) for name, value in kwargs.items()}
        leaves, tree = jax.tree.flatten((in_order(tuple(args)), named))
        leaves = list(map(_as_argument, leaves))
        inputs = [_input(leaf) for leaf in leaves if is_input(leaf) or is_stood_for(leaf)]
        tensors: list[Any] = [leaf for leaf in inputs if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct))]
        key = (tree, tuple(map(signature, leaves)), guard, current_strategy(), current_device(), CLOSURE_KIND.get())
        found = self._find_known(key, inputs)
        if found is not None:
            return found[0], tensors, found[1]
        with tracing_alone():
            # Another worker may have traced it meanwhile.
            compiled, values = self._find_known(key, inputs) or self._trace_new(key, fn, leaves, inputs)
        return compiled, tensors, values

    def _find_known(self, key: tuple[Any, ...], inputs: Sequence[Any]) -> tuple[_Compiled, Sequence[Any]] | None:
        """Return a program that there is, and what the host has computed for it; None if none fits."""
        known = self._programs.get(key, [])
        if known is None:
            raise NotCompilableError(_NOT_ONE)
        for compiled in known:
            values = compiled.compute_on_host(inputs)
            if values is not None:
                return compiled, values
        return None

    def _trace_new(
        self, key: tuple[Any, ...], fn: Callable[..., Any], leaves: list[Any], inputs: list[Any]
    ) -> tuple[_Compiled, Sequence[Any]]:
        """Return a new program, which is kept, and what the host has computed for it."""
        known, (tree, *_) = self._programs.get(key, []) or [], key
        self._count_numbers(fn, leaves, key)
        try:
            compiled, is_for_all_calls = self._trace(fn, leaves, tree, inputs)
            values = compiled.compute_on_host(inputs)
            is_missed = values is None
            if is_missed and not compiled.takes_elements:
                raise NotCompilableError(_CHANGING)
            if is_for_all_calls:
                if len(known) >= _MOST_SIZES and not compiled.takes_elements:
                    raise NotCompilableError(_MANY_SIZES)
                # Those of the sizes that came last are tried first.
                self._programs[key] = [compiled, *known[: self._limit - 1]]
            if is_missed:
                raise _ElementChangedError(_CHANGED)
        except (NoElementError, _ElementChangedError):
            raise  # Another call may find one.
        except NotCompilableError:
            # If an iterator's elements are the reason, its signature is another one by now, and other iterators keep theirs.
            self._programs[tree, tuple(map(signature, leaves)), *key[2:]] = None
            raise
        finally:
            if len(self._programs) > self._limit:
                del self._programs[next(iter(self._programs))]
        return compiled, values

    def _count_numbers(self, fn: Callable[..., Any], leaves: Sequence[Any], key: tuple[Any, ...]) -> None:
        """Tell once if programs are made again and again for Python numbers that change."""
        numbers = [leaf for leaf in leaves if type(leaf) in (int, float)]
        if not numbers or self._numbers is None:
            return
        tree, signatures, *rest = key
        same = (tree, tuple(_without_number(kind) for kind in signatures), *rest)
        self._numbers[same] += 1
        if self._numbers[same] == _TELL_AFTER:
            self._numbers = None
            name = getattr(fn, "__name__", "The function").removeprefix("ag__")
            _log.warning(
                "%s is compiled for the %dth time, each time for other Python numbers among its arguments, now %s. Pass numbers that "
                "change as tensors, such as tf.constant(%s): a Python number is a constant of its program.",
                name,
                _TELL_AFTER,
                numbers,
                numbers[0],
            )

    def _trace(self, fn: Callable[..., Any], leaves: list[Any], tree: Any, inputs: list[Any]) -> tuple[_Compiled, bool]:
        self.traces += 1
        host_part, returns_host_values = HostPart(()), False

        def program(*tensors: jax.Array) -> Any:
            nonlocal host_part, returns_host_values
            host_part = HostPart(inputs)  # It may be traced twice.
            filled, given = list(leaves), iter(tensors)
            for number, place in enumerate(i for i, leaf in enumerate(leaves) if is_input(leaf) or is_stood_for(leaf)):
                is_known = not is_stood_for(leaves[place])
                filled[place] = host_part.know(next(given), number) if is_known else host_part.stand_for(number)
            args, kwargs = tree.unflatten(filled)
            args, kwargs = restore_dict_order(args), {name: restore_dict_order(value) for name, value in kwargs.items()}
            with host_part.noting_elements() if self._takes_elements else noting_host_part(host_part):
                results = as_results(self._run(fn, args, kwargs))
            returns_host_values = has_host_values(results)
            return results

        name = getattr(fn, "__name__", "function").removeprefix("ag__")
        tensors = [leaf for leaf in inputs if not is_stood_for(leaf)]
        traced, is_for_all_calls = self._checked(functools.partial(make_program, program, tensors, name=name))
        tell_traffic(traced, name, current_strategy())
        host_part.finish()
        traced.is_whole = host_part.is_empty
        return _Compiled(traced, host_part, returns_host_values=returns_host_values), is_for_all_calls

    def _checked(self, trace: Callable[[], CellProgram]) -> tuple[CellProgram, bool]:
        """Trace a program, and return whether it is one for later calls too.

        Where variables are made once, it is traced again if it has made some, which it must not do the second time.
        """
        random = drawing_for_function if self._own_random else contextlib.nullcontext
        with random(), noting_creations() as created:
            traced = trace()
        if not created or self._makes_variables:
            return traced, not created
        with random(), noting_creations() as created_again:
            # Whoever keeps the variables makes none the second time.
            traced = None if self._programs else trace()
        if traced is None or created_again:
            raise ValueError(_CREATED_AGAIN)
        return traced, True


_LARGEST_KEY = 32
_MOST_SIZES = 16
_CHANGING = "What it computes of strings has another size each time that it is computed."
_CHANGED = "Another thread has taken the element that it was traced with, and the next one has another size."
_MANY_SIZES = (
    f"Its strings give tensors of new sizes again and again, and each needs a program: there have been {_MOST_SIZES}. Fill them up "
    "to one size, or to a few, in the dataset."
)
_TELL_AFTER = 5
_NOT_ONE = (
    "The function takes data or tensors' values from the host, or runs replicas on different devices, and so cannot be one "
    "program."
)
_CREATED_AGAIN = (
    "tf.function only supports singleton tf.Variables created on the first call. Make sure the tf.Variable is only "
    "created once, such as by `if self.w is None: self.w = tf.Variable(...)`, or create it outside of the function."
)


def _run_as_python(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a function as Python, up to where an iterator has no element: what comes before has its effects."""
    try:
        return restore_constants(as_results(fn(*args, **kwargs)))
    except StopIteration as error:
        if not is_end_of_data(error):
            raise
        raise OutOfRangeError(None, None, "End of sequence") from error


def _as_argument(leaf: Any) -> Any:
    if isinstance(leaf, PerReplicaStrings):
        return leaf.unknown()
    return convert_to_tensor(leaf) if _is_array_of_texts(leaf) else leaf


def _is_array_of_texts(leaf: Any) -> bool:
    if not isinstance(leaf, np.ndarray | np.generic) or isinstance(leaf, HostTensor):
        return False
    return leaf.dtype.kind in "SU" or (
        leaf.dtype.kind == "O" and leaf.size > 0 and isinstance(leaf.flat[0], str | bytes)
    )


def _input(leaf: Any) -> Any:
    is_one = isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, HostTensor)) or is_stood_for(leaf)
    return leaf if is_one else convert_to_tensor(leaf)


def _without_number(kind: Hashable) -> Hashable:
    """Return what `signature` says of an argument, of a Python number its type only."""
    return kind[0] if isinstance(kind, tuple) and len(kind) == 2 and kind[0] in (int, float) else kind


def signature(leaf: Any) -> Hashable:
    """Return what a compiled function knows of an argument: an input's type, a constant itself."""
    if isinstance(leaf, jax.Array):
        leaf = leaf.aval  # A user's code sees another `shape` and `dtype` of the array: asking who asks takes time.
    if is_input(leaf) or isinstance(leaf, ShapedArray):
        return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    if isinstance(leaf, SCALARS):
        return (type(leaf), leaf)
    if isinstance(leaf, PerReplicaStrings):
        return PerReplicaStrings, len(leaf)  # A program does not know them.
    if holds_texts(leaf):
        return HostTensor, np.shape(leaf)  # Not the strings: the host computes with them.
    if is_stood_for(leaf):
        # Which program fits an iterator, its elements tell; and whether there can be one, when one of them is known.
        return type(leaf), getattr(leaf, "needs_python", False)
    if isinstance(leaf, HostTensor) and leaf.size <= _LARGEST_KEY:
        return (HostTensor, leaf.shape, *leaf.ravel().tolist())
    tracing_type = getattr(type(leaf), "__tf_tracing_type__", None)
    return ById(leaf) if tracing_type is None else tracing_type(leaf, TracingContext())
