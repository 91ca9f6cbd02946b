"""Functions made of stages, which lie on different devices and compute one microbatch after another; and their gradients."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._global_batch._loops import find_loop
from tfdist_jax._global_batch._programs import equations, equations_inside
from tfdist_jax._global_batch._replica_function import ReplicaFunction, zeros_like
from tfdist_jax._global_batch._results import How, Rule
from tfdist_jax._global_batch._row_analysis import communicates
from tfdist_jax._global_batch._row_values import line_of
from tfdist_jax._global_batch._split import Split
from tfdist_jax._pipeline import StagedLoss
from tfdist_jax._pipeline._executor import Executor
from tfdist_jax._pipeline._forward import ForwardExecutor
from tfdist_jax._pipeline._listed import ListedModel
from tfdist_jax._pipeline._microbatches import Microbatches
from tfdist_jax._pipeline._slots import make_slot_table
from tfdist_jax._pipeline._stacked import StackedModel
from tfdist_jax._pipeline._staged import Staged
from tfdist_jax._pipeline._stages import Mode, Stages
from tfdist_jax._sharding._entries import take
from tfdist_jax._sharding._keys import is_key
from tfdist_jax._sharding._layout import leaf_paths, names_of
from tfdist_jax._sharding._mesh import STAGE

Results = tuple[list[Any], list[Any]]
"""The loss, if it is differentiated, with its weight if it has one; the part of each result, None for arguments."""


def pipeline_gradients(
    function: ReplicaFunction, loss: StagedLoss, params: Any, data: Any, extra: Any
) -> tuple[list[Any], Callable[..., Any], list[Any]]:
    """Differentiate a loss that is made of stages, in a program of replicas.

    Args:
        function: The loss as a function of the whole, which tells what becomes of its results.
        loss: The same as stages.
        params: What the device has of the parameters.
        data: The replica's rows.
        extra: The other arguments.

    Returns:
        As `accumulate_gradients`; of results, what this device has.
    """
    split, plan = function.split, loss.plan
    mode = Mode(
        saves=plan.remat != "stage",
        remats_layers=plan.remat == "layer",
        is_split=plan.schedule.is_split,
        is_uniform=_is_uniform(function),
    )
    model, microbatches = _make_microbatches(function, loss, mode, params, data, extra)
    _check_weight(microbatches.largest)
    table = make_slot_table(plan.schedule, saves=mode.saves)
    executor = Executor(plan.schedule, table, microbatches, in_order=_is_on_cpu(split))
    (shared, own_params), scatter = jax.vjp(lambda params: model.prepare(split.gather_params(params)), params)
    _check_loops(microbatches, shared, own_params)
    (own, parts), seen, grads = executor.run(shared, own_params)

    def pull_back(cotangents: Sequence[jax.Array]) -> tuple[Any]:
        scale = lambda param, grad: (cotangents[0] * grad).astype(param.dtype)
        return scatter(jax.tree.map(scale, (shared, own_params), grads))

    return own, pull_back, [*_join_rows(function, parts), *seen]


def fit_microbatches(make: Callable[[Split], ReplicaFunction], split: Split, extra: Any) -> ReplicaFunction:
    """Return an evaluation's function, with fewer microbatches where those of the strategy would not do.

    Args:
        make: Traces the function.
        split: How its arguments lie over the replicas.
        extra: Arguments beside the batch: microbatches would have random keys of their own, unlike one device.
    """
    if any(map(is_key, jax.tree.leaves(extra))):
        return make(dataclasses.replace(split, accumulate=1))
    function = make(split)
    if split.is_even and split.sizes[0] % split.accumulate and _is_uniform(function):
        count = next(count for count in range(split.accumulate, 0, -1) if split.sizes[0] % count == 0)
        return make(dataclasses.replace(split, accumulate=count))
    return function


def run_pipeline(function: ReplicaFunction, loss: StagedLoss, params: Any, data: Any, extra: Any) -> list[Any]:
    """Compute a function that is made of stages, in a program of replicas; returns what this device has of each result."""
    split, schedule = function.split, loss.plan.schedule
    mode = Mode(
        saves=False, remats_layers=False, is_split=False, is_uniform=_is_uniform(function), differentiates=False
    )
    model, microbatches = _make_microbatches(function, loss, mode, params, data, extra)
    executor = ForwardExecutor(schedule.num_devices, schedule.num_chunks, microbatches, in_order=_is_on_cpu(split))
    prepared = model.prepare(split.gather_params(params))
    _check_loops(microbatches, *prepared)
    (_, parts), seen = executor.run(*prepared)
    return [*_join_rows(function, parts), *seen]


def _join_rows(function: ReplicaFunction, parts: Sequence[Any]) -> list[Any]:
    """Return results with the rows of microbatches, `[microbatches, rows, ...]`, behind one another, without what fills them up."""
    join = lambda part: part.reshape(part.shape[0] * part.shape[1], *part.shape[2:])[: max(function.split.sizes)]
    pairs = zip(function.rules, parts, strict=False)
    return [join(part) if rule.has_entries else part for rule, part in pairs]


def _make_model(function: ReplicaFunction, loss: StagedLoss, params: Any, rows: Any, extra: Any) -> Any:
    """Divide a model over the devices, given what one of them has of the parameters, and the largest microbatch."""
    split, schedule = function.split, loss.plan.schedule
    own = jax.eval_shape(split.gather_params, params)
    if loss.staged.is_listed:
        layouts = [split.lay_over_stages(layout) for layout in jax.tree.leaves(split.layouts)]
        whole = split.whole_shapes(own)
        return ListedModel(loss.staged, schedule, whole, layouts, rows, extra, in_order=_is_on_cpu(split))
    _check_layouts(function, loss.staged, params)
    return StackedModel(loss.staged, schedule, own)


def _make_microbatches(  # noqa: PLR0913
    function: ReplicaFunction, loss: StagedLoss, mode: Mode, params: Any, data: Any, extra: Any
) -> tuple[Any, Microbatches]:
    """Return the model, and what is computed of each microbatch."""
    split, extra = function.split, function.own_keys(extra)
    sizes = np.array([split.part_sizes(size) for size in split.sizes])
    if mode.is_uniform and len({*sizes.flat}) > 1:
        raise ValueError(
            f"The devices of a stage communicate while they compute, but microbatches have different numbers of rows, {sizes.tolist()}: "
            f"some would wait for ever. Give each of {len(split.sizes)} replicas a number of rows that {sizes.shape[1]} microbatches "
            "divide."
        )
    of_size = lambda size: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), data)
    model = _make_model(function, loss, params, of_size(int(sizes.max())), extra)
    stages: dict[int, Stages] = {
        size: model.make_stages(of_size(size), extra, _Finish(function, loss, size, mode.differentiates), mode)
        for size in sorted({*map(int, sizes.flat)} - {0})
    }
    rows = jax.tree.map(lambda leaf: _cut(leaf, sizes.shape[1], int(sizes.max())), data)
    sums = _Sums(function, sizes.shape[1])
    return model, Microbatches(stages, sizes, split.row_axes, sums, mode, rows, extra)


def _is_on_cpu(split: Split) -> bool:
    """Whether the devices share a few threads, so that of transfers one may wait for another for ever."""
    return split.mesh.devices.flat[0].platform == "cpu"


@final
@dataclasses.dataclass(frozen=True)
class _Finish:
    """What becomes of the results of a microbatch of so many rows, of which the first may be a loss; those of layers are the last ones."""

    function: ReplicaFunction
    loss: StagedLoss
    size: int
    has_loss: bool

    def finish(self, returned: Any) -> tuple[jax.Array, Results]:
        results = jax.tree.leaves(self.loss.read(returned))
        rules = self.function.rules[: len(results)]
        parts = self._parts_of(results, rules)
        own = self.function.pick_loss(parts) if self.has_loss else []
        return own[0] if own else jnp.zeros(()), (own, parts)

    def note(self, of_layers: Any) -> list[Any]:
        results = jax.tree.leaves(of_layers)
        rules = self.function.rules[len(self.function.rules) - len(results) :]
        if any(rule.has_entries for rule in rules):
            raise ValueError(
                "What layers of td.Staged return beside what they hand on has entries of rows. Return sums or means over rows, and let `x` "
                "carry what each row has to `last`."
            )
        return self._parts_of(results, rules)

    def _parts_of(self, results: Sequence[Any], rules: Sequence[Rule]) -> list[Any]:
        parts = self.function.parts_of(results, self.size, rules)
        if any(part is not None and is_key(part) for part in parts):
            raise TypeError(
                "Among what `last` or the layers of td.Staged return are random keys, which cannot be brought from one stage to the others "
                "as numbers are. Return `jax.random.key_data(key)`."
            )
        return parts


@final
@dataclasses.dataclass(frozen=True)
class _Sums:
    """How results of microbatches are put together: added up, and rows behind one another."""

    function: ReplicaFunction
    num_microbatches: int

    @property
    def keeps(self) -> bool:
        return any(rule.how is How.KEEP and rule.source is None for rule in self.function.rules)

    def start(self, results: Results) -> Results:
        own, parts = results
        rows = lambda part: jnp.zeros((self.num_microbatches, *part.shape), part.dtype)
        none = [
            None if part is None else rows(part) if rule.has_entries else zeros_like(part)
            for rule, part in zip(self.function.rules, parts, strict=False)
        ]
        return [*map(zeros_like, own)], none

    def add(self, total: Results, results: Results, number: Any) -> Results:
        (own, parts), (more, others) = total, results

        def one(rule: Rule, part: Any, other: Any) -> Any:
            if rule.has_entries:
                return jax.lax.dynamic_update_index_in_dim(part, other, number, 0)
            return _add_one(rule, part, other)

        added = [one(*each) for each in zip(self.function.rules, parts, others, strict=False)]
        return [*map(jnp.add, own, more)], added

    def of_none(self, results: Results) -> Results:
        own, parts = results
        pairs = zip(self.function.rules, parts, strict=False)
        return [*map(zeros_like, own)], [_of_none(*pair) for pair in pairs]

    def seen_by_none(self, seen: list[Any]) -> list[Any]:
        return [_of_none(*pair) for pair in zip(self._rules_of(seen), seen, strict=True)]

    def add_seen(self, total: list[Any], seen: list[Any]) -> list[Any]:
        return [_add_one(*each) for each in zip(self._rules_of(seen), total, seen, strict=True)]

    def _rules_of(self, seen: list[Any]) -> Sequence[Rule]:
        return self.function.rules[len(self.function.rules) - len(seen) :]


def _of_none(rule: Rule, part: Any) -> Any:
    return part if part is None or rule.how is How.KEEP else zeros_like(part)


def _add_one(rule: Rule, part: Any, other: Any) -> Any:
    return other if other is None or rule.how is How.KEEP else part + other


def _is_uniform(function: ReplicaFunction) -> bool:
    """Whether devices of a stage communicate while they compute: then those of others must do the same at that time."""
    split = function.split
    names = tuple(split.mesh.axis_names)
    eqns = [eqn for program in function.programs.values() for eqn in equations(program.jaxpr)]
    for eqn in eqns:
        inside = equations_inside(eqn) if eqn.primitive.name in _BRANCHING else ()
        if found := next((one for one in inside if communicates(one, names)), None):
            raise ValueError(
                f"At {line_of(found) or 'a place that is not known'}, the function communicates in a branch, or in a loop whose rounds "
                "depend on values. Stages compute with values that do not count while they wait, so that some devices might take it and "
                "others not. Communicate outside of it."
            )
    is_divided = any(split.mesh.shape[name] > 1 for name in names if name not in split.axes)
    return is_divided or any(communicates(eqn, names) for eqn in eqns)


_BRANCHING = {"cond", "while"}


def _check_loops(given: Microbatches, shared: Any, own: Any) -> None:
    """Refuse loops that might have no end with numbers that are not those of the batch.

    Such numbers are what devices compute with while they wait, where all compute at the same time; and the rows of a replica that has
    none, which computes results that are the same whatever the rows.

    Args:
        given: What is computed of microbatches.
        shared: Parameters that all devices have.
        own: Those of this device's stages, `[stages of it, ...]`.

    Raises:
        ValueError: If there is one.
    """
    stages, mode = given.largest, given.mode
    has_none = given.sums.keeps and bool((given.sizes[:, 0] == 0).any())
    if not mode.is_uniform and not has_none:
        return
    rows, k, own = take(given.data, 0), jnp.int32(0), take(own, 0)
    functions = {"forward": (stages.x,), "finish" if mode.differentiates else "compute": (stages.x,)}
    if mode.differentiates and mode.is_uniform:
        functions |= {"backward": (stages.x, stages.saved, stages.floats)}
        functions |= {"backward_first": (stages.floats,)} if stages.has_first else {}
        functions |= {"weight": (stages.kept,)} if mode.is_split else {}
    for name, args in functions.items():
        of_stage = (k,) * (name in _OF_STAGES)

        def run(own: Any, args: Any, rows: Any, name: str = name, of_stage: tuple[Any, ...] = of_stage) -> Any:
            return getattr(stages, name)((shared, own), *of_stage, *args, rows, given.extra)

        # Stages that are alike have real parameters while they wait; of others each device computes all, with its own.
        are_others = mode.is_uniform and not stages.has_first, True, has_none
        trees = own, args, rows
        depends = [each for each, tree in zip(are_others, trees, strict=True) for _ in jax.tree.leaves(tree)]
        if loop := find_loop(jax.make_jaxpr(run)(*trees), depends):
            where = f"At {line_of(loop) or 'a place that is not known'} is a loop whose rounds depend on values, without a limit."
            raise ValueError(f"{where} {_WAITING if mode.is_uniform else _WITHOUT_ROWS}")


_OF_STAGES = {"forward", "backward", "weight"}
"""Functions that are told which stage it is."""
_WAITING = (
    "The devices of a stage communicate while they compute, so that all devices compute at each tick, also with numbers that are not of "
    "your batch, for which the loop might have no end. Give it a largest number of rounds, let it go on while `(count < 100) & ...`, or "
    "use the axes 'data' and 'fsdp' alone."
)
_WITHOUT_ROWS = (
    "A replica has no rows, but computes what is the same for all rows: with rows that are not of your batch, for which the loop might "
    "have no end. Give it a largest number of rounds, let it go on while `(count < 100) & ...`; or give each replica as many rows, with "
    "`strategy.put(batch, mask='mask')`, or leave the batch out."
)


def _check_weight(stages: Stages) -> None:
    """Refuse a weight that has gradients: those of the loss are added up before the sum of all weights is known."""
    own, _ = stages.results
    if len(own) > 1 and stages.depends(lambda results: results[0][1]):
        raise ValueError(
            "The weight of a loss (sum, weight) depends on the parameters, but a pipeline begins with gradients before it knows the sum of "
            "all weights. Let the weight be one of the batch alone, such as a mask's sum."
        )


def _check_layouts(function: ReplicaFunction, staged: Staged, params: Any) -> None:
    layouts = jax.tree.leaves(function.split.layouts)
    for path, layout, is_layers in zip(leaf_paths(params), layouts, staged.are_layers(params), strict=True):
        is_staged = STAGE in (names_of(layout.spec[0])[:1] if len(layout.spec) else ())
        if is_layers and not is_staged:
            raise ValueError(
                f"{path} belongs to the layers at {staged.stack!r}, but is laid out {layout.spec}: a pipeline splits layers over {STAGE!r} "
                f"along their first dimension. Say where they are, td.Pipeline(..., stack={staged.stack!r}), as td.Staged does."
            )
        if not is_layers and STAGE in layout.local_axes:
            raise ValueError(
                f"{path} is laid out {layout.spec}, as layers are, but td.Staged has its layers at {staged.stack!r}. Give td.Pipeline the "
                "same `stack`."
            )


def _cut(leaf: jax.Array, count: int, length: int) -> jax.Array:
    """Return rows in parts, `[count, length, ...]`, filled up with zeros."""
    missing = count * length - len(leaf)
    if missing:
        leaf = jnp.concatenate([leaf, jnp.zeros((missing, *leaf.shape[1:]), leaf.dtype)])
    return leaf.reshape(count, length, *leaf.shape[1:])
