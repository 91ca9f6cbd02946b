"""Steps as compiled programs: of what replaces a state, memory is reused and no more than a few are under way."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from tfdist_jax._internals import replace_array
from tfdist_jax._multiprocess._agreed_program import CheckedJit, NewProgramError
from tfdist_jax._runtime import InFlight, reuses_memory
from tfdist_jax._sharding._layout import bring_to_devices
from tfdist_jax._signals import deferring_signals, delivering_signals

BEFORE_RUN: ContextVar[Callable[[Any, Mesh | None, tuple[Any, ...]], None] | None] = ContextVar(
    "before_run", default=None
)
"""Who is told of each run of a training step: called with the step, which has `lower`, its mesh and its arguments, the state first. A
step asks for it when it is made, so that it may run in any thread."""

BEFORE_GRADIENTS: ContextVar[Callable[[Any, Callable[..., Any], bool, tuple[Any, ...]], None] | None] = ContextVar(
    "before_gradients", default=None
)
"""Who is told of each loss that is differentiated, while the step around it is traced: called with the strategy, the loss, whether it has
aux, and its arguments, the parameters first."""


@final
class CompiledStep:
    """A function `(state, *args) -> (state, out)`, compiled. A call returns before the step has finished.

    Attributes:
        gives_away: Whether a call takes the memory of the state that it is given.
        is_compiled: Whether `compile` has been called.
        turn: A context to call it in, before signals are deferred or anything is held: other threads' steps have finished then.
        wait: Waits until no more steps are under way than may be; to be called after each, where nothing is deferred or held.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        mesh: Mesh | None,
        *,
        donate: bool,
        layout: Any,
        name: str | None,
        **options: Any,
    ) -> None:
        """Prepare `step`, which is traced when it is first called.

        Args:
            step: The function.
            mesh: The devices that it runs on; None for one device.
            donate: Whether a call takes the memory of the state that it is given.
            layout: Shardings of the new state.
            name: What it is called in messages; its own name if None.
            options: Of `jax.jit`.
        """
        self._in_flight = InFlight(mesh)
        self.turn, self.wait = self._in_flight.turn, self._in_flight.wait
        self._step = step
        make = functools.partial(
            CheckedJit,
            self._with_token,
            mesh,
            name=name or getattr(step, "__name__", None),
            out_shardings=(layout, None, None),
            **options,
        )
        self.gives_away = donate
        self.is_compiled = False
        self._keeping = make()
        self._donating = make(donate_argnums=0) if self.gives_away else self._keeping

    def __call__(self, state: Any, *args: Any, keep: bool = False) -> tuple[Any, Any]:
        """Run the step; `state` must not be used afterwards, unless it is to `keep` its memory.

        To be called where signals are deferred until the new state is somewhere, and followed by `wait`.
        """
        step = self._keeping if keep else self._donating
        try:
            results = step.jitted(state, *args)
        except NewProgramError:
            results = None  # Not run here: errors of the step have nothing to do with this one.
        state, out, token = results or step.run_new(state, *args)
        self._in_flight.add(token)
        return state, out

    def compile(self, state: Any, *args: Any) -> None:
        """Do what the first call would do before it runs, while handlers of signals still run and nobody waits."""
        self._donating.compile(state, *args)
        self.is_compiled = True

    def lower(self, state: Any, *args: Any) -> Any:
        """Lower the step without running it, as `jax.jit(step).lower` does."""
        return self._donating.lower(state, *args)

    def _with_token(self, state: Any, *args: Any) -> tuple[Any, Any, jax.Array]:
        with delivering_signals():  # It is traced, so nothing has been given away yet.
            state, out = self._step(state, *args)
        # The state may be donated to the next step and `out` be empty: something must tell when the step is done.
        return state, out, jnp.zeros((), jnp.int32)


class Program(Protocol):
    """A step `(state, *args) -> (state, out)` of a training, compiled once per structure of the state, which keeps its layout."""

    def __call__(self, state: Any, /, *args: Any) -> tuple[Any, Any]:
        """Run one step; returns before it has finished.

        `state` must not be used afterwards, unless an exception comes in place of the new state, such as a KeyboardInterrupt: then
        `state` has its old values, or the new ones if the step had begun.
        """
        ...

    def lower(self, state: Any, /, *args: Any) -> Any:
        """Lower the step without running it, as `jax.jit(step).lower` does."""
        ...


def make_program(step: Callable[..., Any], mesh: Mesh) -> Program:
    """Make a program of `step` over `mesh`."""
    compiled: dict[Any, CompiledStep] = {}

    def find(state: Any, tree: Any) -> CompiledStep:
        if tree not in compiled:
            layout = jax.tree_util.tree_map_with_path(_sharding, state)

            @functools.wraps(step)
            def checked(state: Any, *args: Any) -> tuple[Any, Any]:
                state = bring_to_devices(state, layout)
                return _state_and_out(step(state, *args), state)

            donate = reuses_memory(mesh, state)
            compiled[tree] = CompiledStep(checked, mesh, donate=donate, layout=layout, name=None)
        return compiled[tree]

    # A function, as Python runs no handlers of signals between its last call and where its caller keeps what it returns.
    @functools.wraps(step)
    def program(state: Any, /, *args: Any) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(state)
        found, results = find(state, tree), None
        try:
            with deferring_signals() as signals:
                results = found(state, *args)
                if signals.waiting:
                    _keep_alive(leaves, results[0])
            found.wait()
        except BaseException as error:
            if results is not None:
                with deferring_signals():
                    _keep_alive(leaves, results[0])
            elif isinstance(error, RuntimeError | ValueError) and "has been deleted" in str(error):
                raise _reused_state(state) from error
            raise
        return results

    def lower(state: Any, /, *args: Any) -> Any:
        return find(state, jax.tree.structure(state)).lower(state, *args)

    program.lower = lower  # pyright: ignore[reportAttributeAccessIssue]
    return _telling(program, mesh)


def _telling(program: Any, mesh: Mesh) -> Program:
    """Let who asks for it know of each run; where nobody does, a program stays what it is."""
    tell = BEFORE_RUN.get()
    if tell is None:
        return program

    @functools.wraps(program)
    def telling(state: Any, /, *args: Any) -> tuple[Any, Any]:
        tell(telling, mesh, (state, *args))
        return program(state, *args)

    return telling  # pyright: ignore[reportReturnType]


def _keep_alive(given: list[Any], state: Any) -> None:
    """Let the arrays that a step was given hold what has become of them, those whose memory it took."""
    for old, new in zip(given, jax.tree.leaves(state), strict=True):
        if old.is_deleted() and old.aval == new.aval:
            replace_array(old, new)


def _sharding(path: Any, leaf: Any) -> jax.sharding.Sharding:
    try:
        return leaf.sharding
    except AttributeError:
        raise TypeError(
            f"The state needs arrays laid out over devices, but {jax.tree_util.keystr(path) or 'it'} is {leaf!r}. "
            "Make the state with `strategy.init(make_state)`."
        ) from None


def _state_and_out(returned: Any, state: Any) -> tuple[Any, Any]:
    """Return what a step has returned, if it is a state like the one that it was given, and something else."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(
            f"A step returns a tuple of two, the new state and what else there is, but this one returned {type(returned).__name__}"
            f"{f' of {len(returned)}' if isinstance(returned, tuple) else ''}. Return `state, None` if there is nothing else."
        )
    if jax.tree.structure(returned[0]) != jax.tree.structure(state):
        given, made = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (state, returned[0]))
        names = lambda some, others: [jax.tree_util.keystr(path) or "it" for path in some if path not in others][:3]
        raise TypeError(
            "A step returns a state of the structure that it was given, and what else there is, but the structures differ: missing are "
            f"{names(given, made)}, new are {names(made, given)}; given was {jax.tree.structure(state)!s:.200}, returned "
            f"{jax.tree.structure(returned[0])!s:.200}."
        )
    return returned


def _reused_state(state: Any) -> RuntimeError:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    gone = [jax.tree_util.keystr(path) or "the state" for path, leaf in leaves if leaf.is_deleted()][:3]
    where = f"Of the state, {gone} are" if gone else "One of the arguments is"
    return RuntimeError(
        f"{where} gone: the step that was given it has reused its memory. Go on with the state that a step returns, as in "
        "`state, out = step(state, batch)`; what is to be kept, copy before: `jax.tree.map(jnp.copy, state)`."
    )
