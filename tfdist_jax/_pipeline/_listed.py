"""Stages of functions that are not alike, each with its own parameters and shapes."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._pipeline._cuts import count_operations, cut_evenly
from tfdist_jax._pipeline._packing import Packing
from tfdist_jax._pipeline._pullback import Pullback, SplitPullback, take_floats
from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._staged import Staged
from tfdist_jax._pipeline._stages import Finish, Last, Mode, SharedParams, used_inputs
from tfdist_jax._sharding._mesh import STAGE

_PARTS, _WHOLE = "parts", "whole"


@final
class ListedModel:
    """A model of functions one after another, as a device of a pipeline has it.

    In the state, a parameter is split over all devices along `stage`. Before the first tick, each device gets those that its stages use:
    flat arrays, of one size on all of them, which one exchange fills.

    Attributes:
        staged: The functions.
        shared: The parameters that the last function uses, which all devices have.
        stages: Which functions each stage has; the first is `first`, the others are layers.
    """

    def __init__(  # noqa: PLR0913
        self, staged: Staged, schedule: Schedule, params: Any, dimensions: Sequence[int | None], rows: Any, extra: Any
    ) -> None:
        """Divide the functions, by what they compute.

        Args:
            staged: The functions.
            schedule: How many stages there are, and over how many devices.
            params: Shapes of the whole parameters.
            dimensions: Along which dimension each parameter is split over `stage`, None for those that all devices have.
            rows: Shapes of a microbatch.
            extra: Shapes of other arguments.

        Raises:
            ValueError: If there are fewer functions than stages.
        """
        self.staged, self._schedule, self._dimensions = staged, schedule, dimensions
        self._leaves, self._tree = jax.tree.flatten(params)
        functions = staged.count_functions()
        if functions < schedule.num_stages:
            raise ValueError(
                f"td.Staged has {functions} functions with `first`, which cannot be divided into {schedule.num_stages} stages over "
                f"{schedule.num_devices} devices along {STAGE!r}. Take fewer, or divide the functions."
            )
        costs, used, x = [], [], ()
        for number in range(functions):
            run = functools.partial(self._run_function, number)
            program, y = jax.make_jaxpr(run, return_shape=True)(self._leaves, x, rows, extra)
            costs.append(count_operations(program))
            used.append({*used_inputs(program, len(self._leaves))})
            x = y
        self.stages = cut_evenly(costs, schedule.num_stages)
        self._used = [sorted(set[int]().union(*(used[i] for i in stage))) for stage in self.stages]
        run_last = lambda leaves, x, rows, extra: staged.last(self._tree.unflatten(leaves), x, rows, *extra)
        by_last = used_inputs(jax.make_jaxpr(run_last)(self._leaves, x, rows, extra), len(self._leaves))
        self.shared = SharedParams(params, tuple(i in by_last for i in range(len(self._leaves))))
        self._plan()

    def prepare(self, params: Any) -> tuple[list[Any], Any]:
        """Return the parameters that all devices have, and flat arrays of those that this device's stages use: `[stages of it, ...]`."""
        leaves = jax.tree.leaves(params)
        gathered = [
            leaf if dimension is None or not is_shared else jax.lax.all_gather(leaf, STAGE, axis=dimension, tiled=True)
            for leaf, dimension, is_shared in zip(leaves, self._dimensions, self.shared.are_shared, strict=True)
        ]
        shared = self.shared.take(self._tree.unflatten(gathered))
        return shared, {key: self._exchange(leaves, key) for key in self._widths}

    def run_stage(self, mode: Mode, k: int, own: Mapping[Any, jax.Array], x: Any, others: Any) -> Any:
        """Return what stage `k` hands on, given its parameters, what it takes, and rows and other arguments."""
        rows, extra = others
        leaves = self._unpack(k, own)
        for number in self.stages[k]:
            x = mode.layer(functools.partial(self._run_function, number))(leaves, x, rows, extra)
        return x

    def make_stages(self, rows: Any, extra: Any, finish: Finish, mode: Mode) -> "ListedStages":
        """Trace the stages for microbatches of the shapes of `rows`.

        Raises:
            ValueError: If they communicate: they are branches that only one device takes.
        """
        if mode.is_uniform:
            raise ValueError(
                "The devices of a stage communicate while they compute, which functions that are not alike cannot: each is a branch that "
                "other devices do not take. Stack layers that are alike, as td.Staged takes them, or use the axes 'data' and 'fsdp'."
            )
        return ListedStages(self, rows, extra, finish, mode)

    @property
    def own_shapes(self) -> Any:
        """Shapes of a stage's parameters, as it has them."""
        devices = self._schedule.num_devices
        shape = lambda key, width: (devices, width) if key[0] == _PARTS else (width,)
        return {key: jax.ShapeDtypeStruct(shape(key, width), key[1]) for key, width in self._widths.items()}

    def _run_function(self, number: int, leaves: Sequence[Any], x: Any, rows: Any, extra: Any) -> Any:
        y = self.staged.apply_function(number, self._tree.unflatten(leaves), x, rows, extra)
        return jax.tree.map(jnp.asarray, y)

    def _plan(self) -> None:
        """Give each parameter its place in the flat arrays of the stages that use it."""
        self._places: list[dict[int, tuple[tuple[str, str], int, int]]] = []
        self._widths: dict[tuple[str, str], int] = {}
        for used in self._used:
            places, ends = {}, {}
            for i in used:
                leaf, is_split = self._leaves[i], self._dimensions[i] is not None
                key = (_PARTS if is_split else _WHOLE, str(leaf.dtype))
                size = leaf.size // (self._schedule.num_devices if is_split else 1)
                places[i] = key, ends.get(key, 0), size
                ends[key] = ends.get(key, 0) + size
            self._places.append(places)
            self._widths |= {key: max(end, self._widths.get(key, 0)) for key, end in ends.items()}

    def _exchange(self, leaves: Sequence[jax.Array], key: tuple[str, str]) -> jax.Array:
        """Return the flat arrays of one kind for this device's stages."""
        devices, chunks = self._schedule.num_devices, self._schedule.num_chunks
        rows = [
            [self._pack(leaves, chunk * devices + device, key) for device in range(devices)] for chunk in range(chunks)
        ]
        stacked = jnp.stack([jnp.stack(row) for row in rows])
        if key[0] == _PARTS:
            return jax.lax.all_to_all(stacked, STAGE, split_axis=1, concat_axis=1, tiled=True)
        return stacked[:, jax.lax.axis_index(STAGE)]

    def _pack(self, leaves: Sequence[jax.Array], k: int, key: tuple[str, str]) -> jax.Array:
        parts = [jnp.ravel(leaves[i]) for i, (kind, _, _) in self._places[k].items() if kind == key]
        missing = self._widths[key] - sum(part.size for part in parts)
        return jnp.concatenate([*parts, jnp.zeros(missing, key[1])])

    def _unpack(self, k: int, own: Mapping[Any, jax.Array]) -> list[jax.Array]:
        """Return all parameters, of which those that stage `k` does not use are zeros."""
        leaves = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in self._leaves]
        for i, (key, start, size) in self._places[k].items():
            shape, dimension = self._leaves[i].shape, self._dimensions[i]
            flat = own[key][..., start : start + size]
            if dimension is None:
                leaves[i] = flat.reshape(shape)
                continue
            devices = self._schedule.num_devices
            part = [*shape[:dimension], shape[dimension] // devices, *shape[dimension + 1 :]]
            leaves[i] = jnp.moveaxis(flat.reshape(devices, *part), 0, dimension).reshape(shape)
        return leaves


@final
class ListedStages:
    """The functions of these stages, as `Stages`; what they hand on, save and keep lies in flat arrays."""

    has_first = False

    def __init__(self, model: ListedModel, rows: Any, extra: Any, finish: Finish, mode: Mode) -> None:
        """Trace the functions; arguments as of `StackedStages`."""
        self._model, self._mode, self.seen = model, mode, []
        staged, num_stages = model.staged, len(model.stages)
        self._pullbacks: list[Pullback] = []
        inputs: list[Any] = [()]
        for k in range(num_stages):
            run = functools.partial(model.run_stage, mode, k)
            inputs.append(jax.eval_shape(run, model.own_shapes, inputs[-1], (rows, extra)))
            with_aux = lambda *args, run=run: (run(*args), ())
            if mode.differentiates:
                self._pullbacks.append(Pullback(with_aux, model.own_shapes, inputs[-2], (rows, extra)))
        self._splits: list[SplitPullback] = [one.split() for one in self._pullbacks] if mode.is_split else []
        self._inputs = Packing(inputs)
        self._floats = Packing([take_floats(one)[0] for one in inputs])
        self._saved = Packing([one.saved for one in self._pullbacks])
        self._kept = Packing([one.kept for one in self._splits])
        self.x = self._inputs.shapes
        self.floats = [*self._floats.shapes.values()]
        self.saved = self._saved.shapes if mode.saves else {}
        self.kept = self._kept.shapes
        of_last = lambda params, x, rows, *extra: staged.last(params, self._inputs.unpack(x, num_stages), rows, *extra)
        self._last = Last(of_last, model.shared, staged.count_functions(), finish)
        self._arguments = model.shared.take(model.shared.params), self.x, rows, extra
        self.results = jax.eval_shape(self._last.compute, *self._arguments)[1]

    def forward(self, params: Any, k: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, Any, list[Any]]:
        """Return what stage `k` hands on, and what it saves."""

        def branch(k: int) -> Callable[..., Any]:
            def run(own: Any, x: Any) -> tuple[Any, Any, list[Any]]:
                x = self._inputs.unpack(x, k)
                if not self._mode.saves:
                    return self._inputs.pack(self._model.run_stage(self._mode, k, own, x, (rows, extra))), {}, []
                (y, _), saved = self._pullbacks[k].run(own, x, (rows, extra))
                return self._inputs.pack(y), self._saved.pack(saved), []

            return run

        return self._switch(k, branch, params[1], x)

    def compute(self, params: Any, x: Any, rows: Any, extra: Any) -> Any:
        """Return what is to be added up of the results."""
        return self._last.compute(params[0], x, rows, extra)[1]

    def finish(self, params: Any, x: Any, rows: Any, extra: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return what is to be added up of the results, and the gradients of the loss, by shared parameters and by floats of `x`."""
        return self._last.differentiate(params[0], x, rows, extra)

    def backward(  # noqa: PLR0913
        self, params: Any, k: Any, x: Any, saved: Any, cotangent: list[Any], rows: Any, extra: Any
    ) -> tuple[list[Any], Any]:
        """Return the gradients by floats of the input, and by the stage's parameters, or what is kept for these."""

        def branch(k: int) -> Callable[..., Any]:
            def run(own: Any, x: Any, saved: Any, cotangent: Any) -> tuple[list[Any], Any]:
                others = rows, extra
                if self._mode.saves:
                    saved = self._saved.unpack(saved, k)
                else:
                    _, saved = self._pullbacks[k].run(own, self._inputs.unpack(x, k), others, has_effects=False)
                given = self._floats.unpack(dict(zip(self._floats.shapes, cotangent, strict=True)), k + 1)
                if self._splits:
                    of_x, made = self._splits[k].pull_back_input(own, others, saved, given)
                    made = self._kept.pack(made)
                else:
                    made, of_x = self._pullbacks[k].pull_back(own, others, saved, given)
                return [*self._floats.pack(of_x).values()], made

            return run

        return self._switch(k, branch, params[1], x, saved, cotangent)

    def backward_first(self, params: Any, cotangent: list[Any], rows: Any, extra: Any) -> list[Any]:
        """Refuse: the first function belongs to the first stage."""
        raise NotImplementedError

    def weight(self, params: Any, k: Any, kept: Any, rows: Any, extra: Any) -> Any:
        """Return the gradients by the stage's parameters, from what was kept for them."""
        branch = lambda k: (
            lambda own, kept: self._splits[k].pull_back_params(own, (rows, extra), self._kept.unpack(kept, k))
        )
        return self._switch(k, branch, params[1], kept)

    def depends(self, pick: Any) -> bool:
        """Whether one of the results has gradients by the parameters."""
        return self._last.depends(pick, self._arguments)

    def _switch(self, k: Any, branch: Callable[[int], Callable[..., Any]], *args: Any) -> Any:
        return jax.lax.switch(k, [branch(i) for i in range(len(self._model.stages))], *args)
