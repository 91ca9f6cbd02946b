"""A training step and a strategy, as one compiled program."""

import functools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._multiprocess._agreed_program import jit_with_agreement
from tfdist_jax._runtime import InFlight, reuses_memory


@final
class Program:
    """A step `(state, *args) -> (state, out)`, compiled once per structure of the state.

    The state keeps its layout, and its memory is reused where that is faster (`_runtime.reuses_memory`).
    """

    def __init__(self, step: Callable[..., Any], mesh: Mesh) -> None:
        """Make a program of `step` over `mesh`."""
        functools.update_wrapper(self, step)
        self._step = step
        self._mesh = mesh
        self._in_flight = InFlight(mesh)
        self._compiled: dict[Any, Any] = {}

    def __call__(self, state: Any, *args: Any) -> tuple[Any, Any]:
        """Run one step; returns before it has finished. `state` must not be used afterwards."""
        state, out, token = self._for(state)(state, *args)
        self._in_flight.add(token)
        return state, out

    def lower(self, state: Any, *args: Any) -> Any:
        """Lower the step without running it, as `jax.jit(step).lower` does."""
        return self._for(state).lower(state, *args)

    def _for(self, state: Any) -> Any:
        tree = jax.tree.structure(state)
        if tree not in self._compiled:
            layout = jax.tree_util.tree_map_with_path(_sharding, state)
            donated = (0,) if reuses_memory(self._mesh, state) else ()
            options = {"donate_argnums": donated, "out_shardings": (layout, None, None)}
            name = getattr(self._step, "__name__", None)
            self._compiled[tree] = jit_with_agreement(self._with_token, self._mesh, name=name, **options)
        return self._compiled[tree]

    def _with_token(self, state: Any, *args: Any) -> tuple[Any, Any, jax.Array]:
        state, out = self._step(state, *args)
        # The state may be donated to the next step and `out` be empty: something must tell when the step is done.
        return state, out, jnp.zeros((), jnp.int32)


def _sharding(path: Any, leaf: Any) -> jax.sharding.Sharding:
    try:
        return leaf.sharding
    except AttributeError:
        raise TypeError(
            f"The state needs arrays laid out over devices, but {jax.tree_util.keystr(path) or 'it'} is {leaf!r}. "
            "Make the state with `strategy.init(make_state)`."
        ) from None
