"""What a device computes of a microbatch, whatever the stages are."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from tfdist_jax._pipeline._pullback import dependent, take_floats
from tfdist_jax._sharding._keys import fold_keys


class Finish(Protocol):
    """What becomes of the results of a microbatch."""

    def finish(self, returned: Any) -> tuple[jax.Array, Any]:
        """Return the loss, which is differentiated, and what is to be added up, from what the last function has returned."""
        ...

    def note(self, of_layers: Any) -> list[Any]:
        """Return what is to be added up of what layers return beside what they hand on, stacked."""
        ...


class Stages(Protocol):
    """The functions of a pipeline's stages, for microbatches of so many rows.

    `params` are those that all devices have, a list, and those of the device's stage. `k` says which of all stages it is.

    Attributes:
        x: Shapes of what one stage hands to the next.
        floats: Those of its floating numbers, whose cotangents come back.
        saved: Shapes of what a stage saves in its forward pass.
        kept: Of what the first half of a backward pass leaves to the second.
        results: Of what is to be added up of the last function's results.
        seen: Of what is to be added up of what layers return beside what they hand on.
        has_first: Whether what lies before the first stage is differentiated apart, by parameters that all devices have.
    """

    x: Any
    floats: list[Any]
    saved: Any
    kept: Any
    results: Any
    seen: list[Any]
    has_first: bool

    def forward(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, Any, list[Any]]:
        """Return what stage `k` hands on, what it saves, and what is to be added up of what its layers have seen.

        Args:
            params: The parameters.
            k: Which of all stages it is.
            x: What the stage before has handed on.
            rows: The microbatch.
            extra: Other arguments.
        """
        ...

    def compute(self, params: Any, x: Any, rows: Any, extra: Any) -> Any:
        """Return what is to be added up of the last function's results, from what the last stage has handed on."""
        ...

    def finish(self, params: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what `compute` does, and the gradients of the loss, by shared parameters and by floats of `x`."""
        ...

    def backward(  # noqa: PLR0913
        self, params: Any, k: Any, x: Any, saved: Any, cotangent: list[Any], rows: Any, extra: Any
    ) -> tuple[list[Any], Any]:
        """Return a stage's gradients: by floats of its input, and by its parameters, or what is kept for these.

        Args:
            params: As in the forward pass.
            k: As there.
            x: As there, if nothing was saved.
            saved: What it has saved.
            cotangent: The gradients by the floats of what it has handed on.
            rows: As there.
            extra: As there.
        """
        ...

    def backward_first(self, params: Any, cotangent: list[Any], rows: Any, extra: Any) -> list[Any]:
        """Return the gradients by shared parameters of what lies before the first stage."""
        ...

    def weight(self, params: Any, k: Any, kept: Any, rows: Any, extra: Any) -> Any:
        """Return a stage's gradients by its parameters, from what was kept for them."""
        ...

    def depends(self, pick: Callable[[Any], jax.Array]) -> bool:
        """Whether one of the results has gradients by the parameters."""
        ...


@final
@dataclasses.dataclass(frozen=True)
class Mode:
    """How stages are run.

    Attributes:
        saves: Whether forward passes save what backward passes need; else these begin with what stages take.
        remats_layers: Whether of a layer, that is what it takes.
        is_split: Whether backward passes are in two halves.
        is_uniform: Whether all devices compute the same at each tick, so that functions may communicate.
        differentiates: Whether there are backward passes at all.
    """

    saves: bool
    remats_layers: bool
    is_split: bool
    is_uniform: bool
    differentiates: bool = True

    def layer(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of a layer, for its derivative."""
        # Forward and backward passes are never the same round of the loop, so that XLA cannot join what they compute.
        return jax.checkpoint(fn, prevent_cse=False) if self.remats_layers else fn

    def choose(self, condition: Any, yes: Callable[..., Any], no: Callable[..., Any], *args: Any) -> Any:
        """Return what one of two functions returns; where devices communicate in them, all compute both."""
        if not self.is_uniform:
            return jax.lax.cond(condition, yes, no, *args)
        return jax.tree.map(lambda one, other: jnp.where(condition, one, other), yes(*args), no(*args))


@final
@dataclasses.dataclass(frozen=True)
class SharedParams:
    """Those parameters that all devices have.

    Attributes:
        params: Shapes of all parameters.
        are_shared: Of each, in the order of `jax.tree.leaves`, whether it is one of them.
    """

    params: Any
    are_shared: tuple[bool, ...]

    def take(self, params: Any) -> list[Any]:
        """Return them from all parameters."""
        pairs = zip(jax.tree.leaves(params), self.are_shared, strict=True)
        return [leaf for leaf, is_shared in pairs if is_shared]

    def join(self, shared: Sequence[Any], others: Sequence[Any] | None = None) -> Any:
        """Return all parameters, with zeros for others if they are not given: nothing uses them."""
        leaves, tree = jax.tree.flatten(self.params)
        of_all, rest = iter(shared), None if others is None else iter(others)
        other = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if rest is None else next(rest)
        pairs = zip(leaves, self.are_shared, strict=True)
        return tree.unflatten(next(of_all) if is_shared else other(leaf) for leaf, is_shared in pairs)


@final
@dataclasses.dataclass(frozen=True)
class Last:
    """What lies behind the layers, and what becomes of its results.

    Attributes:
        fn: From parameters, what the last stage has handed on, rows and other arguments to the results.
        shared: The parameters that it may use.
        number: By which random keys are folded.
        finish: What becomes of its results.
    """

    fn: Callable[..., Any]
    shared: SharedParams
    number: int
    finish: Finish

    def compute(self, shared: Sequence[Any], x: Any, rows: Any, extra: Any) -> tuple[jax.Array, Any]:
        """Return the loss, and what is to be added up."""
        return self.finish.finish(self.fn(self.shared.join(shared), x, rows, *fold_keys(extra, self.number)))

    def differentiate(self, shared: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what is to be added up, and the gradients of the loss, by shared parameters and by floats of `x`."""
        floats, join = take_floats(x)
        compute = lambda shared, floats: self.compute(shared, join(floats), rows, extra)
        loss, pull_back, results = jax.vjp(compute, shared, floats, has_aux=True)
        return results, *pull_back(jnp.ones_like(loss))

    def depends(self, pick: Callable[[Any], jax.Array], arguments: Any) -> bool:
        """Whether one of the results has gradients by the parameters, given the shapes of the arguments of `compute`."""

        def pull_back(shared: Any, x: Any, rows: Any, extra: Any, cotangent: Any) -> Any:
            floats, join = take_floats(x)
            compute = lambda shared, floats: pick(self.compute(shared, join(floats), rows, extra)[1])
            return jax.vjp(compute, shared, floats)[1](cotangent)

        results = jax.eval_shape(self.compute, *arguments)[1]
        program = jax.make_jaxpr(pull_back)(*arguments, pick(results)).jaxpr
        found = dependent(program.eqns, program.invars[-1:])
        return any(var in found for var in program.outvars if not isinstance(var, Literal))


def used_inputs(program: ClosedJaxpr, count: int) -> list[int]:
    """Return which of its first inputs a program uses."""
    jaxpr = program.jaxpr
    used: set[Any] = set()
    for atoms in [jaxpr.outvars, *(eqn.invars for eqn in jaxpr.eqns)]:
        used |= {atom for atom in atoms if not isinstance(atom, Literal)}
    return [i for i, var in enumerate(jaxpr.invars[:count]) if var in used]
