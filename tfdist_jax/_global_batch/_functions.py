"""Gradients of a loss over the global batch, and its evaluation, made replica by replica."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tfdist_jax._global_batch._accumulation import accumulate_gradients
from tfdist_jax._global_batch._compression_memory import Compressed, put_memories, take_memories
from tfdist_jax._global_batch._gradient_sums import sum_gradients
from tfdist_jax._global_batch._pipelining import fit_microbatches, pipeline_gradients, run_pipeline
from tfdist_jax._global_batch._replica_function import ReplicaFunction, make_replica_function
from tfdist_jax._global_batch._results import How, Mean, unwrap
from tfdist_jax._global_batch._split import Split, split_arguments
from tfdist_jax._pipeline import PipelinePlan, Staged, StagedLoss
from tfdist_jax._sharding._layout import LayoutRule, axes_of, restrict
from tfdist_jax._sharding._mesh import STAGE


def value_and_grad_globally(  # noqa: PLR0913
    loss_fn: Callable[..., Any],
    mesh: Mesh,
    state_layout: LayoutRule,
    *,
    has_aux: bool = True,
    accumulate: int = 1,
    pipeline: PipelinePlan | None = None,
) -> Callable[..., Any]:
    """Differentiate a loss over a batch that is split over the replicas.

    Each replica computes its rows' loss with the whole parameters; sharded parameters are gathered for that and
    their gradients scattered back (a reduce-scatter), whole ones share one fused all-reduce.

    Args:
        loss_fn: As in `Strategy.value_and_grad`.
        mesh: The mesh of the strategy.
        state_layout: Layout of each parameter.
        has_aux: Whether `loss_fn` returns `(loss, aux)`.
        accumulate: In how many parts each replica computes its rows.
        pipeline: How a loss made of stages goes over those of the mesh, if it has some.

    Returns:
        A function of `(params, batch, *extra)` that gives `((loss, aux), grads)`, or `(loss, grads)` without aux, as
        `jax.value_and_grad` would on one device; `grads` are laid out like `params`. Given what replicas keep of compressed gradients
        as `compression`, it returns that behind them.
    """

    @functools.wraps(loss_fn)
    def named(*args: Any) -> Any:
        return loss_and_aux(loss_fn(*args), has_aux=has_aux)

    if pipeline is None and mesh.shape.get(STAGE, 1) > 1:
        raise ValueError(
            f"The mesh {dict(mesh.shape)} has an axis {STAGE!r}, over which only pipelines compute: use td.Pipeline, or give the axis "
            "another name. A strategy around a td.Pipeline has to hand on its `pipeline`."
        )
    staged = None if pipeline is None else _as_stages(loss_fn, pipeline, has_aux=has_aux, accumulate=accumulate)

    def value_and_grad(params: Any, batch: Any, *extra: Any, compression: Compressed | None = None) -> Any:
        _check_differentiable(params)
        split, arguments = split_arguments(mesh, state_layout, params, batch, extra, pipeline=staged)
        if staged is None:
            split = dataclasses.replace(split, accumulate=accumulate)
        function = _with_loss(make_replica_function(named, ("loss", "aux"), split, arguments))
        grad_specs = jax.tree.map(lambda layout: layout.gradient or layout.spec, split.layouts)
        per_replica = jax.tree.map(lambda spec: restrict(spec, split.axes), grad_specs)
        memories, kept = take_memories(compression, jax.tree.leaves(split.layouts), params, mesh)
        others = per_replica, PartitionSpec(split.axes)
        body = functools.partial(_differentiate, function, staged)
        merged, (grads, memories) = function.map(body, (*arguments, memories), others)
        loss, aux = function.finish(merged, arguments)
        grads = jax.tree.map(functools.partial(_laid_out, split), grads, grad_specs)
        memory = () if compression is None else (put_memories(memories, kept, params),)
        return ((loss, aux) if has_aux else loss), grads, *memory

    return value_and_grad


def evaluate_globally(
    fn: Callable[..., Any], mesh: Mesh, state_layout: LayoutRule, pipeline: PipelinePlan | None = None
) -> Callable[..., Any]:
    """Compute a function over a batch that is split over the replicas, as `Strategy.evaluate`; one made of stages goes over a mesh's."""
    staged = None
    if pipeline is not None and isinstance(fn, Staged):
        staged = StagedLoss(fn, pipeline, lambda returned: (returned,))

    def evaluate(state: Any, batch: Any, *extra: Any) -> Any:
        if staged is None:
            return _evaluate(fn, mesh, state_layout, None, state, batch, extra)
        try:
            return _evaluate(fn, mesh, state_layout, staged, state, batch, extra)
        except (TypeError, ValueError) as error:
            reason = error
        # If the function itself is wrong, it fails here as well.
        found = _evaluate(fn, mesh, state_layout, None, state, batch, extra)
        warnings.warn(
            f"A td.Staged is evaluated on each device of a replica with all layers, which are gathered there, as its stages cannot do it: "
            f"{reason}",
            stacklevel=2,
        )
        return found

    return evaluate


def _evaluate(  # noqa: PLR0913
    fn: Callable[..., Any],
    mesh: Mesh,
    state_layout: LayoutRule,
    staged: StagedLoss | None,
    state: Any,
    batch: Any,
    extra: Any,
) -> Any:
    """Compute a function over the replicas; if its stages are given, over those of the mesh."""
    split, arguments = split_arguments(mesh, state_layout, state, batch, extra, pipeline=staged)
    make = lambda split: make_replica_function(lambda *args: (fn(*args),), ("result",), split, arguments)
    function = make(split) if staged is None else fit_microbatches(make, split, extra)

    def replica(*arguments: Any) -> Any:
        parts = function.run(*arguments) if staged is None else run_pipeline(function, staged, *arguments)
        merged, _ = function.merge(parts)
        return function.without_arguments(merged), None

    merged, _ = function.map(replica, arguments)
    return function.finish(merged, arguments)[0]


def _as_stages(loss_fn: Any, plan: PipelinePlan, *, has_aux: bool, accumulate: int) -> StagedLoss:
    if not isinstance(loss_fn, Staged):
        raise TypeError(
            f"A pipeline needs a loss made of stages, td.Staged(first, layer, last), got {loss_fn!r:.100}: of another function it is not "
            "known what belongs to which device. A td.Staged is a loss under other strategies, too."
        )
    if accumulate != 1:
        raise ValueError(
            f"A pipeline computes microbatches one after another as it is, {plan.schedule.num_microbatches} of them: give td.Pipeline "
            f"`microbatches`, and leave accumulate={accumulate} out."
        )
    if loss_fn.layer_aux and not has_aux:
        raise ValueError("td.Staged(..., layer_aux=True) returns `(loss, (aux, of_layers))`: pass has_aux=True.")
    return StagedLoss(loss_fn, plan, lambda returned: loss_and_aux(returned, has_aux=has_aux))


def _differentiate(  # noqa: PLR0913
    function: ReplicaFunction, staged: StagedLoss | None, params: Any, data: Any, extra: Any, memories: Any
) -> Any:
    """Return the merged results, and the gradients of the first with what is kept of them, in a program of replicas."""

    def own_loss(params: Any) -> Any:
        parts = function.run(params, data, extra)
        return function.pick_loss(parts), parts

    if staged is not None:
        own, pull_back, parts = pipeline_gradients(function, staged, params, data, extra)
    elif function.split.accumulate > 1:
        own, pull_back, parts = accumulate_gradients(function, params, data, extra)
    else:
        own, pull_back, parts = jax.vjp(own_loss, params, has_aux=True)
    axes = function.split.wide_axes
    if len(own) == 2:
        total, weight = jax.lax.psum(jnp.stack(own), axes) if axes else own
        (grads,) = pull_back([1 / weight, -total / weight**2])
    else:
        (grads,) = pull_back([jnp.ones_like(own[0])])
    merged, grads, memories = sum_gradients(function, parts, grads, [jax.tree.map(_own, one) for one in memories])
    return function.without_arguments(merged), (grads, jax.tree.map(lambda leaf: leaf[None], memories))


def _own(array: jax.Array) -> jax.Array:
    """Return what is a replica's own of an array `[replicas, ...]`, in a program of replicas."""
    return array[0]


def _laid_out(split: Split, grad: jax.Array, spec: PartitionSpec) -> jax.Array:
    if set(axes_of(spec)) <= {*split.axes}:
        return grad
    return jax.lax.with_sharding_constraint(grad, NamedSharding(split.mesh, spec))


def _with_loss(function: ReplicaFunction) -> ReplicaFunction:
    """Let the first result be one whose parts are added up, so that the gradients of the parts are."""
    loss, *others = function.rules
    if loss.how is How.SUM and function.is_scaled and not function.split.is_one:
        raise ValueError(
            "`loss` is a sum over the rows, and the function communicates between replicas: whether it is scaled for that already cannot "
            "be told. Return `(sum, weight)`, both for the rows that the function sees, without a collective."
        )
    if loss.how is How.KEEP:
        loss = dataclasses.replace(loss, how=How.SHARE, source=None)
    rules = [loss, *others]
    for i in (0, loss.weight):
        if i is not None and rules[i].tokens is How.KEEP:
            rules[i] = dataclasses.replace(rules[i], tokens=How.SHARE)
    return dataclasses.replace(function, rules=rules)


def loss_and_aux(returned: Any, *, has_aux: bool) -> tuple[Any, Any]:
    """Return the loss that a function has returned, a scalar or a `Mean` of `(sum, weight)`, and its aux; `()` without one.

    Raises:
        TypeError, ValueError: If it is no loss.
    """
    if not has_aux:
        return _loss(returned, "Return one, or `(sum, weight)`; with more beside it, pass has_aux=True."), ()
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(
            "The loss function must return (loss, aux), with aux any pytree such as {}, "
            f"but returned {type(returned).__name__}. Return a pair, or pass has_aux=False."
        )
    return _loss(returned[0], "Take its mean, or return `((sum, weight), aux)`."), returned[1]


def _loss(loss: Any, remedy: str) -> Any:
    if isinstance(loss, tuple | list) and len(loss) == 2:
        loss = Mean(*loss)
    for part in (loss.value, loss.weight) if isinstance(loss, Mean) else (loss,):
        array = unwrap(part)
        if array is None:
            continue
        if not jax.tree_util.all_leaves([array]) or (
            not hasattr(array, "dtype") and not isinstance(array, float | int)
        ):
            raise TypeError(f"The loss must be a scalar, but is {type(array).__name__}. {remedy}")
        if jnp.ndim(array):
            raise ValueError(
                f"The loss must be a scalar, the mean over the rows of its batch, but has shape {jnp.shape(array)}. {remedy}"
            )
    value = unwrap(loss)
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise TypeError(
            f"The loss must be a floating number, but has type {jnp.result_type(value)}: it has no gradient."
        )
    return loss


def _check_differentiable(params: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            raise TypeError(
                f"There are no gradients for the parameter {jax.tree_util.keystr(path)} of type {jnp.result_type(leaf)}. Pass it as "
                "another argument: of a Flax module, split parameters from what is none, such as `graph, params, rest = nnx.split(model, "
                "nnx.Param, ...)`."
            )
