"""A step whose parts run on several devices: a compiled program for each stage, and transfers between them."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import jaxpr_as_fun

from tfdist_jax._device_scope import Device, on_device, only_device
from tfdist_jax._internals import released_from_device
from tfdist_jax._program import CompiledStep
from tfdist_jax._stateful._stages import Stage, Stages, Value


@final
class StagedStep:
    """A step `(state, *args) -> (state, out)` that is run as a `CompiledStep` is, stage by stage.

    The stages' programs are started one after the other and none is waited for, so that devices work side by side where one does not
    need the other's results; those that call the host, as to print, do wait for each other. `out` lies where the step is called. What
    a stage replaces of the state gives its memory to what takes its place, unless another device reads it.

    Attributes:
        gives_away: Whether a call takes memory of the state that it is given.
        is_compiled: Whether `compile` has been called.
        devices: The devices of the stages, in order.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        stages: Stages,
        args: Sequence[Sequence[Value]],
        places: Sequence[Device],
        *,
        name: str,
    ) -> None:
        """Prepare a step.

        Args:
            step: The same as one function.
            stages: Its stages: the last results are the new state, the others `out`.
            args: Which of the stages' inputs the state and the step's other arguments are, each a list of arrays.
            places: Where each array of the state stays.
            name: What it is called in messages.
        """
        self.is_compiled = False
        self.devices = tuple(stage.device for stage in stages.stages)
        self._step, self._args, self._home = step, args, stages.home
        split = len(stages.results) - len(args[0])
        self._out, self._state = stages.results[:split], stages.results[split:]
        given = _replaced_in_place(stages, args[0], self._state, places)
        self.gives_away = any(given)
        self._called_host: jax.Array = jnp.zeros((), jnp.int32)
        self._programs = [
            _StageProgram(stage, taken, f"{name}_{i}")
            for i, (stage, taken) in enumerate(zip(stages.stages, given, strict=True))
        ]

    def __call__(self, state: Any, *args: Any, keep: bool = False) -> tuple[list[Any], list[Any]]:
        """Run the step; `state` must not be used afterwards, unless it is to `keep` its memory, as where tapes record."""
        values = _Values(keep)
        for variables, arrays in zip(self._args, (state, *args), strict=True):
            values.add(variables, arrays)
        for program in self._programs:
            self._called_host = program.run(values, self._called_host)
        return list(map(values.get, self._state)), [values.get(variable, self._home) for variable in self._out]

    def turn(self) -> AbstractContextManager[None]:
        """Do nothing, either."""
        return contextlib.nullcontext()

    def wait(self) -> None:
        """Return at once: any number of steps may be under way where none communicates."""

    def compile(self, *args: Any) -> None:
        """Do what the first call would do before it runs, while handlers of signals still run and nobody waits."""
        for program in self._programs:
            program.compile()
        self.is_compiled = True

    def lower(self, *args: Any) -> Any:
        """Lower the step as a whole, for one device, without running it."""
        return jax.jit(self._step).lower(*args)


@final
class _StageProgram:
    """A stage, compiled."""

    def __init__(self, stage: Stage, taken: Sequence[Value], name: str) -> None:
        """Prepare a stage that takes the memory of `taken`."""
        self._stage, self._taken = stage, taken
        self._others = [variable for variable in stage.inputs if variable not in taken]
        self._calls_host = bool(stage.program.effects)
        self._compiled = CompiledStep(
            self._compute, None, donate=bool(taken), layout=None, name=name, keep_unused=self._calls_host
        )

    def _compute(self, taken: list[Any], others: list[Any], before: list[Any]) -> tuple[None, list[Any]]:
        values = dict(zip((*self._taken, *self._others), (*taken, *others), strict=True))
        results = jaxpr_as_fun(self._stage.program)(*(values[variable] for variable in self._stage.inputs))
        return None, [*results, *map(jnp.zeros_like, before)]

    def run(self, values: "_Values", called_host: jax.Array) -> jax.Array:
        """Take what the stage needs of `values`, and add what it gives; what nobody needs any more goes.

        Args:
            values: What there is.
            called_host: There when those before have called the host; waited for if this one calls it.

        Returns:
            The same for those that come.
        """
        device, outputs = self._stage.device, self._stage.outputs
        taken, others = ([values.get(variable, device) for variable in some] for some in (self._taken, self._others))
        values.remove(self._stage.done)
        with on_device(device):
            before = [called_host] if self._calls_host else []
            _, results = self._compiled(taken, others, before, keep=values.are_kept)
        values.add(outputs, results[: len(outputs)])
        return results[-1] if before else called_host

    def compile(self) -> None:
        """Compile the stage."""
        # A `ShapeDtypeStruct` of 64 bits would be taken for one of 32.
        taken, others = ([variable.aval for variable in some] for some in (self._taken, self._others))
        before = [ShapedArray((), jnp.int32)] if self._calls_host else []
        with on_device(self._stage.device):
            self._compiled.compile(taken, others, before)


@final
class _Values:
    """What the stages of one call hand each other.

    Attributes:
        are_kept: Whether nothing gives its memory away, and tapes follow the arrays.
    """

    def __init__(self, are_kept: bool) -> None:
        """Hold nothing."""
        self.are_kept = are_kept
        self._arrays: dict[Value, Any] = {}
        self._copies: dict[Value, dict[Device, Any]] = {}

    def add(self, variables: Sequence[Value], arrays: Sequence[Any]) -> None:
        """Hold the values of variables."""
        self._arrays.update(zip(variables, arrays, strict=True))

    def get(self, variable: Value, device: Device | None = None) -> Any:
        """Return a value, on a device if one is given; what tapes follow, and what the host has, as it is: JAX brings these."""
        array = self._arrays[variable]
        if device is None or self.are_kept or not isinstance(array, jax.Array):
            return array
        if only_device(array) == device and not array.committed:
            return array
        copies = self._copies.setdefault(variable, {})
        if device not in copies:
            copies[device] = released_from_device(jax.device_put(array, device))
        return copies[device]

    def remove(self, variables: Sequence[Value]) -> None:
        """Hold values no more."""
        for variable in variables:
            del self._arrays[variable]
            self._copies.pop(variable, None)


def _replaced_in_place(
    stages: Stages, old: Sequence[Value], new: Sequence[Value], places: Sequence[Device]
) -> list[list[Value]]:
    """Return for each stage which arrays of the state give their memory to the new ones, which it makes."""
    given: list[list[Value]] = [[] for _ in stages.stages]
    kept = set(map(id, stages.results))
    replaced: set[Value] = set()
    for before, after, place in zip(old, new, places, strict=True):
        users = [i for i, stage in enumerate(stages.stages) if before in stage.inputs]
        if {stages.stages[i].device for i in users} != {place} or id(before) in kept or id(after) in replaced:
            continue
        if any(after is output for output in stages.stages[users[-1]].outputs) and before.aval == after.aval:
            given[users[-1]].append(before)
            replaced.add(id(after))
    return given
