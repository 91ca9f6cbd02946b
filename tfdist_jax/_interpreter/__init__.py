"""The first calls of small programs, by NumPy: a program that is called a few times is not worth its compilation.

Eager code makes a program of every operation and shape, and XLA takes some 20 ms to compile one. Code whose shapes change, such as
episodes and sentences of any length or the last batch of an epoch, would compile in every step. So NumPy runs small programs on CPU, one
operation after the other, until they have been called as often as their compilation is worth.
"""

import functools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tfdist_jax import _internals
from tfdist_jax._interpreter._compilations import CompilationLog
from tfdist_jax._interpreter._program import Program, make_program

_VARIABLE = "TFDIST_INTERPRETER"

# An operation costs a tenth to a quarter of a millisecond more than if it were compiled, and its compilation some 20 ms.
CALLS = 32
_MOST_DETOURS = 512

_detours = 0
_compilation_log = CompilationLog()
_undo: Callable[[], None] | None = None
_NOT_SEEN: Any = object()
_programs: weakref.WeakKeyDictionary[Any, Program | None] = weakref.WeakKeyDictionary()


def install() -> None:
    """Let NumPy run the first calls of small programs in this process, unless TFDIST_INTERPRETER is `off`.

    XLA compiles at once what is large, has a loop without an end that is known, donates or shards its arguments, or runs on an accelerator,
    and all programs where several processes train together, which must compute the same to the last bit.
    """
    global _undo
    if _undo is None and os.environ.get(_VARIABLE, "").lower() not in ("off", "0", "false"):
        _undo = _internals.wrap_first_calls(_interpret)


def uninstall() -> bool:
    """Let XLA compile every program at its first call again, so that all calls give the same to the last bit.

    Returns:
        Whether it was otherwise.
    """
    global _undo
    undo, _undo = _undo, None
    if undo is not None:
        undo()
    return undo is not None


def _interpret(by_xla: Callable[..., Any], *arguments: Any, jaxpr: Any, **options: Any) -> Any:
    """Run a program with NumPy, or as JAX does."""
    program = _programs.get(jaxpr, _NOT_SEEN)
    if program is _NOT_SEEN:
        is_plain = _internals.has_plain_options(options)
        program = _programs[jaxpr] = make_program(jaxpr) if is_plain else None
        if is_plain and program is None:
            run = functools.partial(by_xla, *arguments, jaxpr=jaxpr, **options)
            return _compilation_log.time(options["name"], jaxpr.in_avals, run)
    if program is not None and program.calls >= CALLS:
        _note_detour(program)
    elif program is not None:
        target = _find_target(arguments)
        if target is not None:
            values = [_as_numpy(value, aval.dtype) for value, aval in zip(arguments, jaxpr.in_avals, strict=True)]
            return _internals.results_without_executable(
                [_internals.make_array(aval, value, *target) for aval, value in program.run(values)]
            )
    return by_xla(*arguments, jaxpr=jaxpr, **options)


def _note_detour(program: Program) -> None:
    """Note a call that has come here although its program is compiled; when many have, let calls of all programs find their short way.

    Finding it costs each function about as much as two detours.
    """
    global _detours
    program.calls += 1
    if program.calls > CALLS + _MOST_DETOURS:
        return  # It has no short way.
    _detours += 1
    if _detours > 2 * _internals.kept_calls():
        _detours = 0
        _internals.forget_all_calls()


def _find_target(arguments: Sequence[Any]) -> tuple[Any, bool] | None:
    """Return the device of the results, and whether they are bound to it, as JAX chooses; None if this is left to XLA."""
    bound = None
    for array in arguments:
        if isinstance(array, jax.Array):
            own = _only_device(array.sharding)
            if own is None or (array.committed and bound not in (None, own)):
                return None
            bound = own if array.committed else bound
    device = _internals.default_device() if bound is None else bound
    if device is None or device.platform != "cpu" or jax.process_count() > 1 or _internals.watches_calls():
        return None
    return device, bound is not None


@functools.lru_cache(256)
def _only_device(sharding: jax.sharding.Sharding) -> Any:
    """Return the device that an array lies whole on, in its usual memory; None if there is no such."""
    if not isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return None
    (device,) = sharding.device_set
    return device if sharding.memory_kind in (None, device.default_memory().kind) else None


def _as_numpy(value: Any, dtype: np.dtype) -> np.ndarray:
    # What is not JAX's may change later, and a result may be an argument.
    return np.asarray(value) if isinstance(value, jax.Array) else np.array(value, dtype)
