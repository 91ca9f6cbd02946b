"""What a device computes of a microbatch: some of the layers, and of the first and last stage what lies before and behind these."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from tfdist_jax._pipeline._pullback import Pullback, SplitPullback, dependent, take_floats
from tfdist_jax._pipeline._staged import Staged
from tfdist_jax._sharding._keys import fold_keys
from tfdist_jax._sharding._layout import tree_paths

Finish = Callable[[Any], tuple[jax.Array, Any]]
"""From what the last stage returns to the loss, which is differentiated, and what is to be added up of all microbatches."""


@final
@dataclasses.dataclass(frozen=True)
class Model:
    """A model as a pipeline has it on one device.

    Attributes:
        staged: Its stages.
        num_layers: How many layers there are, on all devices.
        num_stages: Into how many stages they are divided.
        params: Shapes of the parameters as this device has them, whole but for the layers.
    """

    staged: Staged
    num_layers: int
    num_stages: int
    params: Any

    @property
    def are_layers(self) -> list[bool]:
        """Of each parameter, whether it belongs to the layers."""
        return self.staged.are_layers(self.params)

    def take(self, params: Any) -> tuple[list[Any], Any]:
        """Return the parameters that all stages have, and those of layers."""
        leaves = jax.tree.leaves(params)
        shared = [leaf for leaf, is_layers in zip(leaves, self.are_layers, strict=True) if not is_layers]
        return shared, self.staged.layers(params)

    def join(self, shared: Sequence[Any], layers: Any = None) -> Any:
        """Return parameters from those that all stages have and those of layers; of these zeros, if they are not used."""
        leaves, tree = jax.tree.flatten(self.params)
        of_layers, of_all = None if layers is None else iter(jax.tree.leaves(layers)), iter(shared)
        take = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if of_layers is None else next(of_layers)
        pairs = zip(leaves, self.are_layers, strict=True)
        return tree.unflatten(take(leaf) if is_layers else next(of_all) for leaf, is_layers in pairs)


@final
class Stages:
    """The functions of a pipeline's stages, for microbatches of so many rows.

    Attributes:
        x: Shapes of what one stage hands to the next.
        floats: Those of its floating numbers, whose cotangents come back.
        saved: Shapes of what a stage saves in its forward pass, `[layers of a stage, ...]`.
        kept: Of what the first half of a backward pass leaves to the second.
    """

    def __init__(  # noqa: PLR0913
        self, model: Model, rows: Any, extra: Any, finish: Finish, *, saves: bool, is_split: bool, is_uniform: bool
    ) -> None:
        """Trace the functions.

        Args:
            model: The model.
            rows: Shapes of a microbatch.
            extra: Shapes of other arguments.
            finish: What becomes of the results of the last stage.
            saves: Whether forward passes save what backward passes need; else these compute them again.
            is_split: Whether backward passes are in two halves.
            is_uniform: Whether all devices compute the same, so that functions may communicate.

        Raises:
            ValueError: If the functions do not fit together.
        """
        self._model, self._saves, self._is_uniform, self._finish = model, saves, is_uniform, finish
        shared, layers = model.take(model.params)
        self.x = jax.eval_shape(self._first, shared, rows, extra)
        self.floats = take_floats(self.x)[0]
        entry = lambda tree: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)
        own = entry(model.staged.own_extra(extra))
        number = jax.ShapeDtypeStruct((), jnp.int32)
        self._check_unused(shared, rows, extra)
        self._pullback = Pullback(self._layer, entry(layers), self.x, (rows, extra, own, number))
        self._split: SplitPullback | None = self._pullback.split() if is_split else None
        per_stage = model.num_layers // model.num_stages
        stacked = lambda shapes: [jax.ShapeDtypeStruct((per_stage, *leaf.shape), leaf.dtype) for leaf in shapes]
        self.saved = stacked(self._pullback.saved) if saves else []
        self.kept = stacked(self._split.kept) if self._split is not None else []
        self._arguments = shared, self.x, rows, extra
        self.results = jax.eval_shape(lambda *args: self._finished(*args)[1], *self._arguments)

    def forward(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any]]:
        """Return what stage `k` hands on, and what it saves.

        Args:
            params: The parameters that all stages have, and those of the stage's layers `[layers of a stage, ...]`.
            k: Which of all stages it is.
            x: What the stage before has handed on.
            rows: The microbatch.
            extra: Other arguments.
        """
        x = self._input(params, k, x, rows, extra)
        if self._saves:
            return self._run_saving(params, k, x, rows, extra)

        def turn(x: Any, entry: Any) -> tuple[Any, None]:
            layer, own, number = entry
            return self._layer(layer, x, (rows, extra, own, number)), None

        return jax.lax.scan(turn, x, self._entries(params, k, extra))[0], []

    def finish(self, params: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what is to be added up of the results, and the gradients of the loss, by shared parameters and by floats of `x`."""
        floats, join = take_floats(x)
        compute = lambda shared, floats: self._finished(shared, join(floats), rows, extra)
        loss, pull_back, results = jax.vjp(compute, params[0], floats, has_aux=True)
        return results, *pull_back(jnp.ones_like(loss))

    def backward(  # noqa: PLR0913
        self, params: Any, k: Any, x: Any, saved: Any, cotangent: Any, rows: Any, extra: Any
    ) -> tuple[list[Any], Any]:
        """Return a stage's gradients: by floats of its input, and by its layers, or what is kept for these.

        Args:
            params: As in the forward pass.
            k: As there.
            x: As there, if nothing was saved.
            saved: What it has saved.
            cotangent: The gradients by the floats of what it has handed on.
            rows: As there.
            extra: As there.
        """
        if not self._saves:
            _, saved = self._run_saving(params, k, self._input(params, k, x, rows, extra), rows, extra)

        def turn(cotangent: Any, entry: Any) -> tuple[Any, Any]:
            (layer, own, number), saved = entry
            others = rows, extra, own, number
            if self._split is not None:
                return self._split.pull_back_input(layer, others, saved, cotangent)
            of_layer, of_x = self._pullback.pull_back(layer, others, saved, cotangent)
            return of_x, of_layer

        return jax.lax.scan(turn, cotangent, (self._entries(params, k, extra), saved), reverse=True)

    def backward_first(self, params: Any, cotangent: Any, rows: Any, extra: Any) -> list[Any]:
        """Return the gradients by shared parameters of what lies before the layers."""
        compute = lambda shared: take_floats(self._first(shared, rows, extra))[0]
        return jax.vjp(compute, params[0])[1](cotangent)[0]

    def weight(self, params: Any, k: Any, kept: Any, rows: Any, extra: Any) -> Any:
        """Return a stage's gradients by its layers, from what was kept for them."""
        split = self._split
        assert split is not None  # noqa: S101

        def turn(_: None, entry: Any) -> tuple[None, Any]:
            (layer, own, number), kept = entry
            return None, split.pull_back_params(layer, (rows, extra, own, number), kept)

        return jax.lax.scan(turn, None, (self._entries(params, k, extra), kept))[1]

    def depends(self, pick: Callable[[Any], jax.Array]) -> bool:
        """Whether one of the results has gradients by the parameters."""

        def pull_back(shared: Any, x: Any, rows: Any, extra: Any, cotangent: Any) -> Any:
            floats, join = take_floats(x)
            compute = lambda shared, floats: pick(self._finished(shared, join(floats), rows, extra)[1])
            return jax.vjp(compute, shared, floats)[1](cotangent)

        program = jax.make_jaxpr(pull_back)(*self._arguments, pick(self.results)).jaxpr
        found = dependent(program.eqns, program.invars[-1:])
        return any(var in found for var in program.outvars if not isinstance(var, Literal))

    def choose(self, condition: Any, yes: Callable[..., Any], no: Callable[..., Any], *args: Any) -> Any:
        """Return what one of two functions returns; where devices communicate in them, all compute both."""
        if not self._is_uniform:
            return jax.lax.cond(condition, yes, no, *args)
        return jax.tree.map(lambda one, other: jnp.where(condition, one, other), yes(*args), no(*args))

    def _input(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> Any:
        return self.choose(k == 0, lambda x: self._first(params[0], rows, extra), lambda x: x, x)

    def _run_saving(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any]]:
        def turn(x: Any, entry: Any) -> tuple[Any, list[Any]]:
            layer, own, number = entry
            return self._pullback.run(layer, x, (rows, extra, own, number))

        return jax.lax.scan(turn, x, self._entries(params, k, extra))

    def _entries(self, params: Any, k: Any, extra: Any) -> tuple[Any, Any, Any]:
        """Return, of each of a stage's layers, the parameters, what it has of other arguments, and its number."""
        per_stage = self._model.num_layers // self._model.num_stages
        start = k * per_stage
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, per_stage)
        own = jax.tree.map(cut, self._model.staged.own_extra(extra))
        return params[1], own, start + jnp.arange(per_stage, dtype=jnp.int32)

    def _first(self, shared: Any, rows: Any, extra: Any) -> Any:
        return jax.tree.map(jnp.asarray, self._model.staged.first(self._model.join(shared), rows, *fold_keys(extra, 0)))

    def _layer(self, layer: Any, x: Any, others: Any) -> Any:
        rows, extra, own, number = others
        return self._model.staged.apply_layer(layer, x, rows, extra, own, number)

    def _finished(self, shared: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, Any]:
        extra = fold_keys(extra, self._model.num_layers + 1)
        return self._finish(self._model.staged.last(self._model.join(shared), x, rows, *extra))

    def _check_unused(self, shared: Any, rows: Any, extra: Any) -> None:
        """Refuse a first or last function that uses layers, of which a device has only its own."""
        model, staged = self._model, self._model.staged
        layers = jax.tree.leaves(staged.layers(model.params))
        functions: dict[str, Callable[..., Any]] = {
            "first": lambda layers, shared, x, *args: staged.first(model.join(shared, layers), *args),
            "last": lambda layers, shared, x, *args: staged.last(model.join(shared, layers), x, *args),
        }
        for name, run in functions.items():
            if used := _used(run, layers, shared, self.x, rows, *extra):
                paths = [
                    path
                    for path, is_layers in zip(tree_paths(model.params), model.are_layers, strict=True)
                    if is_layers
                ]
                raise ValueError(
                    f"`{name}` of td.Staged uses {paths[used[0]]}, which belongs to the layers at {staged.stack!r}: a device has only its "
                    "own of these. Put what `first` and `last` use elsewhere among the parameters."
                )


def _used(fn: Callable[..., Any], arrays: Sequence[Any], *args: Any) -> list[int]:
    """Return which of some arrays a function uses."""
    jaxpr = jax.make_jaxpr(fn)(arrays, *args).jaxpr
    used: set[Any] = set()
    for atoms in [jaxpr.outvars, *(eqn.invars for eqn in jaxpr.eqns)]:
        used |= {atom for atom in atoms if not isinstance(atom, Literal)}
    return [i for i, var in enumerate(jaxpr.invars[: len(arrays)]) if var in used]
