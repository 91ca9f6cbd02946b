"""Compiled functions whose programs are checked before they first run: they fit into memory, and all processes have agreed on them.

Processes that run different programs wait for each other for ever, or compute nonsense.
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, final

import jax
from jax.core import Tracer
from jax.sharding import Mesh

from tfdist_jax._cluster import agree, step_fields
from tfdist_jax._garbage_collection import pausing_garbage_collection
from tfdist_jax._internals import forget_calls
from tfdist_jax._memory import require_memory
from tfdist_jax._sharding._placement import spans_processes
from tfdist_jax._signals import deferring_signals, delivering_signals
from tfdist_jax._thread_state import having, restoring_thread_state


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
    return CheckedJit(fn, mesh, name=name, **options)


class NewProgramError(Exception):
    """JAX has no program for a call and is about to trace the function."""


# The function whose program is made, and which may be traced for that.
_traced: ContextVar["CheckedJit | None"] = ContextVar("traced", default=None)


@final
class CheckedJit:
    """A function that JAX compiles, and that first runs when it is known to fit into memory and all processes have agreed.

    JAX alone knows whether it has a program for a call: it traces the function if it has none. That is refused, the
    program is made and compared, and the call is made again, which finds the program: all is made once.

    Attributes:
        jitted: Runs the function, if there is a program for the call; if not, it raises `NewProgramError`, and `run_new` is to be called.
    """

    def __init__(self, fn: Callable[..., Any], mesh: Mesh | None, *, name: str | None = None, **options: Any) -> None:
        """Prepare it, see `jit_with_agreement`."""

        @functools.wraps(fn)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if _traced.get() is not self:
                raise NewProgramError
            return fn(*args, **kwargs)

        self._fn = fn
        self._is_shared = mesh is not None and spans_processes(mesh)
        self._name = name or getattr(fn, "__name__", type(fn).__name__)
        self._options = options
        self._agreed: set[int] = set()
        self.jitted: Any = jax.jit(checked, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function.

        Raises:
            OutOfMemoryError: If it needs more memory than there is.
        """
        try:
            return self.jitted(*args, **kwargs)
        except NewProgramError:
            pass
        return self.run_new(*args, **kwargs)

    def run_new(self, *args: Any, **kwargs: Any) -> Any:
        """Make a program, and run it.

        Raises:
            OutOfMemoryError: If it needs more memory than there is.
        """
        with restoring_thread_state(), having(_traced, self):
            if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
                self._make_program(args, kwargs)
            forget_calls(self.jitted)
            return self.jitted(*args, **kwargs)

    def compile(self, *args: Any) -> None:
        """Do all of it but run the function, so that a call with such arguments has only to do that.

        Raises:
            OutOfMemoryError: If it needs more memory than there is.
        """
        # JAX would make a RuntimeError of what a handler raises, or forget it.
        with restoring_thread_state(), having(_traced, self), deferring_signals():
            self._make_program(args, {})

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower it, as `jax.jit(fn).lower` does."""
        if not self._is_shared:
            with restoring_thread_state(), having(_traced, self):
                return self.jitted.lower(*args, **kwargs)
        # Not the function that is called, which would be traced then without having been agreed on.
        return jax.jit(self._fn, **self._options).lower(*args, **kwargs)

    def _make_program(self, args: Any, kwargs: Any) -> None:
        with pausing_garbage_collection():
            lowered = self.jitted.lower(*args, **kwargs)
        try:
            if self._is_shared:
                with delivering_signals():  # The others may never come.
                    self._agree((*args, *kwargs.values()), lowered)
            require_memory(lowered.compile(), self._name)
        except BaseException:
            self.jitted.clear_cache()  # So that another call does not pass.
            raise

    def _agree(self, args: Any, lowered: Any) -> None:
        fields = step_fields(args, results=lowered.out_info, program=lowered.as_text())
        program = hash(frozenset(fields.items()))
        if program in self._agreed:
            return  # JAX has dropped it from its caches, which the other processes need not have done.
        agree(f"the step `{self._name}`", fields)
        self._agreed.add(program)
