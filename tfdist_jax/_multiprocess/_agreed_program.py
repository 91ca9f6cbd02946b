"""Compiled functions over the devices of several processes, which agree on each program before it runs for the first time.

Processes that run different programs wait for each other for ever, or compute nonsense.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
from jax.core import Tracer
from jax.sharding import Mesh

from tfdist_jax._cluster import agree, step_fields
from tfdist_jax._internals import forget_calls
from tfdist_jax._sharding._placement import spans_processes
from tfdist_jax._signals import deferring_signals, delivering_signals


def jit_with_agreement(fn: Callable[..., Any], mesh: Mesh | None, *, name: str | None = None, **options: Any) -> Any:
    """Return `jax.jit(fn)`; where `mesh` spans processes, they compare each of its programs before the first run.

    Later runs cost what `jax.jit` costs.

    Args:
        fn: A function of arrays.
        mesh: The devices on which it runs.
        name: What it is called in messages, equal in all processes; its own name if None.
        options: Of `jax.jit`.
    """
    if mesh is None or not spans_processes(mesh):
        return jax.jit(fn, **options)
    return _Agreed(fn, name or getattr(fn, "__name__", type(fn).__name__), options)


def compile_ahead(jitted: Any, *args: Any) -> None:
    """Compile what `jit_with_agreement` has returned, agreed on, so that a call with such arguments has only to run it."""
    with deferring_signals():  # JAX would make a RuntimeError of what a handler raises, or forget it.
        if isinstance(jitted, _Agreed):
            jitted.compile(*args)
        else:
            jitted.lower(*args).compile()


class _NewProgramError(Exception):
    """JAX has no program for a call and is about to trace the function."""


@final
class _Agreed:
    """A function that JAX compiles when all processes have agreed.

    JAX alone knows whether it has a program for a call: it traces the function if it has none. That is refused, the
    program is made and compared, and the call is made again, which finds the program: all is made once.
    """

    def __init__(self, fn: Callable[..., Any], name: str, options: dict[str, Any]) -> None:
        @functools.wraps(fn)
        def agreed(*args: Any) -> Any:
            if not self._may_trace:
                raise _NewProgramError
            return fn(*args)

        self._fn = fn
        self._name = name
        self._options = options
        self._may_trace = False
        self._agreed: set[int] = set()
        self._jitted: Any = jax.jit(agreed, **options)

    def __call__(self, *args: Any) -> Any:
        try:
            return self._jitted(*args)
        except _NewProgramError:
            pass
        with self._tracing():
            if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
                with delivering_signals():  # The others may never come.
                    self._agree(args)
            forget_calls(self._jitted)
            return self._jitted(*args)

    def compile(self, *args: Any) -> None:
        with self._tracing():
            with delivering_signals():
                self._agree(args)
            self._jitted.lower(*args).compile()

    def lower(self, *args: Any) -> Any:
        # Not the function that is called, which would be traced then without having been agreed on.
        return jax.jit(self._fn, **self._options).lower(*args)

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        self._may_trace = True
        try:
            yield
        finally:
            self._may_trace = False

    def _agree(self, args: Any) -> None:
        lowered = self._jitted.lower(*args)
        fields = step_fields(args, results=lowered.out_info, program=lowered.as_text())
        program = hash(frozenset(fields.items()))
        if program in self._agreed:
            return  # JAX has dropped it from its caches, which the other processes need not have done.
        try:
            agree(f"the step `{self._name}`", fields)
        except BaseException:
            self._jitted.clear_cache()  # So that another call does not pass.
            raise
        self._agreed.add(program)
