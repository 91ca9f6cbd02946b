"""Stages of layers that are alike, in one loop; the first and the last one also have what lies before and behind the layers."""

from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._pipeline._chunks import bring_chunks
from tfdist_jax._pipeline._pullback import Pullback, SplitPullback, take_floats
from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._staged import Staged
from tfdist_jax._pipeline._stages import Finish, Last, Mode, SharedParams, used_inputs
from tfdist_jax._sharding._keys import fold_keys
from tfdist_jax._sharding._layout import leaf_paths
from tfdist_jax._sharding._mesh import STAGE


@final
class StackedModel:
    """A model of layers that are alike, as a device of a pipeline has it.

    Attributes:
        staged: Its stages.
        shared: The parameters that all devices have.
        num_layers: How many layers there are, on all devices.
        per_stage: How many a stage has.
    """

    def __init__(self, staged: Staged, schedule: Schedule, params: Any) -> None:
        """Divide the layers.

        Args:
            staged: The stages.
            schedule: How many there are, and over how many devices.
            params: Shapes of the parameters, whole but for layers, of which they are the device's own.

        Raises:
            ValueError: If the layers do not divide.
        """
        self.staged, self._schedule = staged, schedule
        self.shared = SharedParams(params, tuple(not is_layers for is_layers in staged.are_layers(params)))
        own = staged.count_layers(params)
        self.num_layers = own * schedule.num_devices
        if own % schedule.num_chunks:
            raise ValueError(
                f"{self.num_layers} layers at {staged.stack!r} do not divide into {schedule.num_stages} stages, {schedule.num_chunks} on "
                f"each of {schedule.num_devices} devices along {STAGE!r}. Change their number, `stages` or `chunks`."
            )
        self.per_stage = own // schedule.num_chunks

    def prepare(self, params: Any) -> tuple[list[Any], Any]:
        """Return the parameters that all devices have, and those of this device's stages, `[stages of it, layers of a stage, ...]`."""
        layers = self.staged.layers(params)
        return self.shared.take(params), bring_chunks(layers, self._schedule.num_devices, self._schedule.num_chunks)

    def make_stages(self, rows: Any, extra: Any, finish: Finish, mode: Mode) -> "StackedStages":
        """Trace the stages for microbatches of the shapes of `rows`."""
        return StackedStages(self, rows, extra, finish, mode)


@final
class StackedStages:
    """The functions of these stages, as `Stages`; what they save is `[layers of a stage, ...]`."""

    has_first = True

    def __init__(self, model: StackedModel, rows: Any, extra: Any, finish: Finish, mode: Mode) -> None:
        """Trace the functions.

        Args:
            model: The model.
            rows: Shapes of a microbatch.
            extra: Shapes of other arguments.
            finish: What becomes of the results of the last stage.
            mode: How stages are run.

        Raises:
            ValueError: If the functions do not fit together.
        """
        self._model, self._mode = model, mode
        staged, params = model.staged, model.shared.params
        shared, layers = model.shared.take(params), staged.layers(params)
        self._last = Last(staged.last, model.shared, model.num_layers + 1, finish)
        self.x = jax.eval_shape(self._first, shared, rows, extra)
        self.floats = take_floats(self.x)[0]
        self._check_unused(shared, rows, extra)
        entry = lambda tree: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)
        others = rows, extra, entry(staged.own_extra(extra)), jax.ShapeDtypeStruct((), jnp.int32)
        given = entry(layers), self.x, others
        self._pullbacks = [Pullback(mode.layer(self._layer), *given)] if mode.differentiates else []
        self._splits: list[SplitPullback] = [one.split() for one in self._pullbacks if mode.is_split]
        stacked = lambda tree: jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((model.per_stage, *leaf.shape), leaf.dtype), tree
        )
        self.saved = stacked(self._pullbacks[0].saved) if mode.saves else []
        self.kept = stacked(self._splits[0].kept) if self._splits else []
        self._arguments = shared, self.x, rows, extra
        self.results = jax.eval_shape(self._last.compute, *self._arguments)[1]
        self.seen = jax.eval_shape(finish.note, stacked(jax.eval_shape(self._layer, *given)[1]))

    def forward(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what stage `k` hands on, what it saves, and what is to be added up of what its layers have seen."""
        x = self._input(params, k, x, rows, extra)
        if self._mode.saves:
            x, aux, saved = self._run_saving(params, k, x, rows, extra)
            return x, saved, self._last.finish.note(aux)

        def turn(x: Any, entry: Any) -> tuple[Any, Any]:
            layer, own, number = entry
            return self._layer(layer, x, (rows, extra, own, number))

        x, aux = jax.lax.scan(turn, x, self._entries(params, k, extra))
        return x, [], self._last.finish.note(aux)

    def compute(self, params: Any, x: Any, rows: Any, extra: Any) -> Any:
        """Return what is to be added up of the results."""
        return self._last.compute(params[0], x, rows, extra)[1]

    def finish(self, params: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what is to be added up of the results, and the gradients of the loss, by shared parameters and by floats of `x`."""
        return self._last.differentiate(params[0], x, rows, extra)

    def backward(  # noqa: PLR0913
        self, params: Any, k: Any, x: Any, saved: Any, cotangent: list[Any], rows: Any, extra: Any
    ) -> tuple[list[Any], Any]:
        """Return the gradients by floats of the input, and by the layers, or what is kept for these."""
        if not self._mode.saves:
            x = self._input(params, k, x, rows, extra)
            _, _, saved = self._run_saving(params, k, x, rows, extra, has_effects=False)

        def turn(cotangent: Any, entry: Any) -> tuple[Any, Any]:
            (layer, own, number), saved = entry
            others = rows, extra, own, number
            if self._splits:
                return self._splits[0].pull_back_input(layer, others, saved, cotangent)
            of_layer, of_x = self._pullbacks[0].pull_back(layer, others, saved, cotangent)
            return of_x, of_layer

        return jax.lax.scan(turn, cotangent, (self._entries(params, k, extra), saved), reverse=True)

    def backward_first(self, params: Any, cotangent: list[Any], rows: Any, extra: Any) -> list[Any]:
        """Return the gradients by shared parameters of what lies before the layers."""
        compute = lambda shared: take_floats(self._first(shared, rows, extra))[0]
        return jax.vjp(compute, params[0])[1](cotangent)[0]

    def weight(self, params: Any, k: Any, kept: Any, rows: Any, extra: Any) -> Any:
        """Return the gradients by the layers, from what was kept for them."""
        (split,) = self._splits

        def turn(_: None, entry: Any) -> tuple[None, Any]:
            (layer, own, number), kept = entry
            return None, split.pull_back_params(layer, (rows, extra, own, number), kept)

        return jax.lax.scan(turn, None, (self._entries(params, k, extra), kept))[1]

    def depends(self, pick: Any) -> bool:
        """Whether one of the results has gradients by the parameters."""
        return self._last.depends(pick, self._arguments)

    def _input(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> Any:
        return self._mode.choose(k == 0, lambda x: self._first(params[0], rows, extra), lambda x: x, x)

    def _run_saving(  # noqa: PLR0913
        self, params: Any, k: Any, x: Any, rows: Any, extra: Any, *, has_effects: bool = True
    ) -> tuple[Any, Any, list[Any]]:
        def turn(x: Any, entry: Any) -> tuple[Any, Any]:
            layer, own, number = entry
            (x, aux), saved = self._pullbacks[0].run(layer, x, (rows, extra, own, number), has_effects=has_effects)
            return x, (aux, saved)

        x, (aux, saved) = jax.lax.scan(turn, x, self._entries(params, k, extra))
        return x, aux, saved

    def _entries(self, params: Any, k: Any, extra: Any) -> tuple[Any, Any, Any]:
        """Return, of each of a stage's layers, the parameters, what it has of other arguments, and its number."""
        per_stage = self._model.per_stage
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, k * per_stage, per_stage)
        own = jax.tree.map(cut, self._model.staged.own_extra(extra))
        return params[1], own, k * per_stage + jnp.arange(per_stage, dtype=jnp.int32)

    def _first(self, shared: Any, rows: Any, extra: Any) -> Any:
        params = self._model.shared.join(shared)
        return jax.tree.map(jnp.asarray, self._model.staged.first(params, rows, *fold_keys(extra, 0)))

    def _layer(self, layer: Any, x: Any, others: Any) -> tuple[Any, Any]:
        rows, extra, own, number = others
        return self._model.staged.apply_layer(layer, x, rows, extra, own, number)

    def _check_unused(self, shared: Any, rows: Any, extra: Any) -> None:
        """Refuse a first or last function that uses layers, of which a device has only its own."""
        staged, join = self._model.staged, self._model.shared.join
        params = self._model.shared.params
        layers = jax.tree.leaves(staged.layers(params))
        paths = [
            path for path, is_layers in zip(leaf_paths(params), staged.are_layers(params), strict=True) if is_layers
        ]
        functions = {
            "first": lambda layers, shared, x, *args: staged.first(join(shared, layers), *args),
            "last": lambda layers, shared, x, *args: staged.last(join(shared, layers), x, *args),
        }
        for name, run in functions.items():
            if used := used_inputs(jax.make_jaxpr(run)(layers, shared, self.x, rows, *extra), len(layers)):
                raise ValueError(
                    f"`{name}` of td.Staged uses {paths[used[0]]}, which belongs to the layers at {staged.stack!r}: a device has only its "
                    "own of these. Put what `first` and `last` use elsewhere among the parameters."
                )
