"""Stages of functions that are not alike, each with its own parameters and shapes."""

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._pipeline._cuts import count_operations, cut_evenly
from tfdist_jax._pipeline._executor import send
from tfdist_jax._pipeline._packing import Packing
from tfdist_jax._pipeline._places import FlatKind, ParamLayout
from tfdist_jax._pipeline._pullback import Pullback, SplitPullback, take_floats
from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._staged import Staged
from tfdist_jax._pipeline._stages import Finish, Last, Mode, SharedParams, used_inputs
from tfdist_jax._sharding._mesh import STAGE

ON_DIVISION: ContextVar[Callable[[Sequence[range]], None]] = ContextVar("on_division", default=lambda stages: None)
"""Called with which functions each stage has, once they are divided: when a pipeline is traced."""


@final
class ListedModel:
    """A model of functions one after another, as a device of a pipeline has it.

    In the state, a parameter is split over all devices along `stage`. Before the first tick, each device gets those that its stages use:
    flat arrays, of one size on all of them, which one exchange fills. Where devices communicate while they compute, each computes all
    stages at each tick, with its own parameters, and only its own stage's results count.

    Attributes:
        staged: The functions.
        shared: The parameters that the last function uses, which all devices have.
        stages: Which functions each stage has; the first is `first`, the others are layers.
    """

    def __init__(  # noqa: PLR0913
        self,
        staged: Staged,
        schedule: Schedule,
        params: Any,
        layouts: Sequence[ParamLayout],
        rows: Any,
        extra: Any,
        *,
        in_order: bool,
    ) -> None:
        """Divide the functions, by what they compute.

        Args:
            staged: The functions.
            schedule: How many stages there are, and over how many devices.
            params: Shapes of the whole parameters.
            layouts: How each parameter lies over the devices.
            rows: Shapes of a microbatch.
            extra: Shapes of other arguments.
            in_order: Whether only one transfer may be under way at a time.

        Raises:
            ValueError: If there are fewer functions than stages.
        """
        self.staged, self._schedule, self._layouts, self._in_order = staged, schedule, layouts, in_order
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
        ON_DIVISION.get()(self.stages)
        self._used = [sorted(set[int]().union(*(used[i] for i in stage))) for stage in self.stages]
        run_last = lambda leaves, x, rows, extra: staged.last(self._tree.unflatten(leaves), x, rows, *extra)
        by_last = used_inputs(jax.make_jaxpr(run_last)(self._leaves, x, rows, extra), len(self._leaves))
        self.shared = SharedParams(params, tuple(i in by_last for i in range(len(self._leaves))))
        self._plan()

    def prepare(self, params: Any) -> tuple[list[Any], Any]:
        """Return the parameters that all devices have, and flat arrays of those that this device's stages use: `[stages of it, ...]`."""
        leaves = jax.tree.leaves(params)
        whole = lambda leaf, along: leaf if along is None else jax.lax.all_gather(leaf, STAGE, axis=along, tiled=True)
        gathered = [
            whole(leaf, layout.staged) if is_shared else leaf
            for leaf, layout, is_shared in zip(leaves, self._layouts, self.shared.are_shared, strict=True)
        ]
        shared = self.shared.take(self._tree.unflatten(gathered))
        return shared, {kind: self._exchange(leaves, kind) for kind in self._widths}

    def run_stage(self, mode: Mode, k: int, own: Mapping[Any, jax.Array], x: Any, others: Any) -> Any:
        """Return what stage `k` hands on, given its parameters, what it takes, and rows and other arguments."""
        rows, extra = others
        leaves = self._unpack(k, own)
        for number in self.stages[k]:
            x = mode.layer(functools.partial(self._run_function, number))(leaves, x, rows, extra)
        return x

    def make_stages(self, rows: Any, extra: Any, finish: Finish, mode: Mode) -> "ListedStages":
        """Trace the stages for microbatches of the shapes of `rows`."""
        if mode.is_uniform:
            count = len(self.stages)
            warnings.warn(
                "The devices of a stage communicate while they compute, and the functions of td.Staged are not alike: so each device "
                f"computes all {count} stages at each tick, {count} times as much as its own. Stack layers that are alike, as td.Staged "
                "takes them, or use the axes 'data' and 'fsdp' alone.",
                stacklevel=2,
            )
        return ListedStages(self, rows, extra, finish, mode)

    @property
    def own_shapes(self) -> Any:
        """Shapes of a stage's parameters, as it has them."""
        devices = self._schedule.num_devices
        shape = lambda kind, width: (*(devices,) * kind.is_split, *kind.blocks, width)
        return {kind: jax.ShapeDtypeStruct(shape(kind, width), kind.dtype) for kind, width in self._widths.items()}

    def _run_function(self, number: int, leaves: Sequence[Any], x: Any, rows: Any, extra: Any) -> Any:
        y = self.staged.apply_function(number, self._tree.unflatten(leaves), x, rows, extra)
        return jax.tree.map(jnp.asarray, y)

    def _plan(self) -> None:
        """Give each parameter its place in the flat arrays of the stages that use it."""
        self._places: list[dict[int, tuple[FlatKind, int, int]]] = []
        self._widths: dict[FlatKind, int] = {}
        for used in self._used:
            places, ends = {}, dict[FlatKind, int]()
            for i in used:
                kind = self._layouts[i].kind_of(self._leaves[i])
                parts = math.prod(kind.blocks) * (self._schedule.num_devices if kind.is_split else 1)
                size = self._leaves[i].size // parts
                places[i] = kind, ends.get(kind, 0), size
                ends[kind] = ends.get(kind, 0) + size
            self._places.append(places)
            self._widths |= {kind: max(end, self._widths.get(kind, 0)) for kind, end in ends.items()}

    def _exchange(self, leaves: Sequence[jax.Array], kind: FlatKind) -> jax.Array:
        """Return the flat arrays of one kind for this device's stages."""
        devices, chunks = self._schedule.num_devices, self._schedule.num_chunks
        rows = [
            [self._pack(leaves, chunk * devices + device, kind) for device in range(devices)] for chunk in range(chunks)
        ]
        stacked = jnp.stack([jnp.stack(row) for row in rows])
        if not kind.is_split:
            return stacked[:, jax.lax.axis_index(STAGE)]
        if not kind.axes:
            return jax.lax.all_to_all(stacked, STAGE, split_axis=1, concat_axis=1, tiled=True)
        return exchange_by_permutations(stacked, devices, in_order=self._in_order)

    def _pack(self, leaves: Sequence[jax.Array], k: int, kind: FlatKind) -> jax.Array:
        parts = [self._layouts[i].pack(leaves[i]) for i, (each, _, _) in self._places[k].items() if each == kind]
        missing = self._widths[kind] - sum(part.shape[-1] for part in parts)
        return jnp.concatenate([*parts, jnp.zeros((*kind.blocks, missing), kind.dtype)], axis=-1)

    def _unpack(self, k: int, own: Mapping[Any, jax.Array]) -> list[jax.Array]:
        """Return all parameters, of which those that stage `k` does not use are zeros."""
        leaves = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in self._leaves]
        for i, (kind, start, size) in self._places[k].items():
            leaves[i] = self._layouts[i].unpack(own[kind][..., start : start + size], self._leaves[i].shape)
        return leaves


def exchange_by_permutations(stacked: jax.Array, devices: int, *, in_order: bool) -> jax.Array:
    """Return what `all_to_all` along `stage` gives of arrays `[chunks, devices, ...]`, whose other axes stay split.

    XLA would gather these for an all-to-all, but not for permutations. `in_order` is as in `send`.
    """
    device = jax.lax.axis_index(STAGE)
    turns = [(stacked[:, (device + turn) % devices], turn) for turn in range(devices)]
    pairs = lambda turn: [(i, (i + turn) % devices) for i in range(devices)]
    got = [turns[0][0], *send([(part, pairs(turn)) for part, turn in turns[1:]], in_order=in_order)]
    return jnp.stack(got, axis=1)[:, (device - jnp.arange(devices)) % devices]


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
        branches = [branch(i) for i in range(len(self._model.stages))]
        if not self._mode.is_uniform:
            return jax.lax.switch(k, branches, *args)
        # Devices that communicate must not be in different branches.
        return jax.tree.map(lambda *each: jax.lax.select_n(k, *each), *(run(*args) for run in branches))
