"""Steps as compiled programs: of what replaces a state, memory is reused and no more than a few are under way."""

import functools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._multiprocess._agreed_program import compile_ahead, jit_with_agreement
from tfdist_jax._runtime import InFlight, reuses_memory
from tfdist_jax._signals import deferring_signals, delivering_signals


@final
class CompiledStep:
    """A function `(state, *args) -> (state, out)`, compiled. A call returns before the step has finished.

    Attributes:
        gives_away: Whether a call takes the memory of the state that it is given (`_runtime.reuses_memory`).
    """

    def __init__(
        self, step: Callable[..., Any], mesh: Mesh | None, state: Any, *, layout: Any, name: str | None, donate: bool = True, **options: Any
    ) -> None:
        """Prepare `step`, which is traced when it is first called.

        Args:
            step: The function.
            mesh: The devices that it runs on; None for one device.
            state: A state like those that it will be called with.
            layout: Shardings of the new state.
            name: What it is called in messages.
            donate: Whether a call may take the memory of the state.
            options: Of `jax.jit`.
        """
        self._in_flight = InFlight(mesh)
        self._step = step
        make = functools.partial(
            jit_with_agreement, self._with_token, mesh, name=name, out_shardings=(layout, None, None), **options
        )
        self.gives_away = donate and reuses_memory(mesh, state)
        self._keeping = make()
        self._donating = make(donate_argnums=0) if self.gives_away else self._keeping

    def __call__(self, state: Any, *args: Any, keep: bool = False) -> tuple[Any, Any]:
        """Run the step; `state` must not be used afterwards, unless it is to `keep` its memory.

        To be called where signals are deferred until the new state is somewhere, and followed by `wait`.
        """
        state, out, token = (self._keeping if keep else self._donating)(state, *args)
        self._in_flight.add(token)
        return state, out

    def wait(self) -> None:
        """Wait until no more steps are under way than may be."""
        self._in_flight.wait()

    def compile(self, state: Any, *args: Any) -> None:
        """Do what a call would do before it runs."""
        compile_ahead(self._donating, state, *args)

    def lower(self, state: Any, *args: Any) -> Any:
        """Lower the step without running it, as `jax.jit(step).lower` does."""
        return self._donating.lower(state, *args)

    def _with_token(self, state: Any, *args: Any) -> tuple[Any, Any, jax.Array]:
        with delivering_signals():  # It is traced, so nothing has been given away yet.
            state, out = self._step(state, *args)
        # The state may be donated to the next step and `out` be empty: something must tell when the step is done.
        return state, out, jnp.zeros((), jnp.int32)


@final
class Program:
    """A step `(state, *args) -> (state, out)` of a training, compiled once per structure of the state, which keeps its layout."""

    def __init__(self, step: Callable[..., Any], mesh: Mesh) -> None:
        """Make a program of `step` over `mesh`."""
        functools.update_wrapper(self, step)
        self._step = step
        self._mesh = mesh
        self._compiled: dict[Any, CompiledStep] = {}

    def __call__(self, state: Any, *args: Any) -> tuple[Any, Any]:
        """Run one step; returns before it has finished. `state` must not be used afterwards."""
        return self._for(state)(state, *args)

    def lower(self, state: Any, *args: Any) -> Any:
        """Lower the step without running it, as `jax.jit(step).lower` does."""
        return self._for(state).lower(state, *args)

    def _for(self, state: Any) -> CompiledStep:
        tree = jax.tree.structure(state)
        if tree not in self._compiled:
            layout = jax.tree_util.tree_map_with_path(_sharding, state)
            name = getattr(self._step, "__name__", None)
            self._compiled[tree] = CompiledStep(self._step, self._mesh, state, layout=layout, name=name)
        return self._compiled[tree]


def _sharding(path: Any, leaf: Any) -> jax.sharding.Sharding:
    try:
        return leaf.sharding
    except AttributeError:
        raise TypeError(
            f"The state needs arrays laid out over devices, but {jax.tree_util.keystr(path) or 'it'} is {leaf!r}. "
            "Make the state with `strategy.init(make_state)`."
        ) from None
