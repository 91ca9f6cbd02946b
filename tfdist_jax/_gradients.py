"""Gradients of a loss over the global batch, made replica by replica."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tfdist_jax._sharding._collectives import fused_sum, map_replicas, switch_on_size
from tfdist_jax._sharding._input import PaddedBatch
from tfdist_jax._sharding._layout import SpecRule, data_spec, sharded_dimension, tree_specs
from tfdist_jax._sharding._mesh import DATA

LossFn = Callable[..., Any]


def global_value_and_grad(
    loss_fn: LossFn, mesh: Mesh, state_spec: SpecRule, *, has_aux: bool = True
) -> Callable[..., Any]:
    """Differentiate the mean of `loss_fn` over a batch that is split over the data axis.

    Each replica computes its rows' loss with the whole parameters; sharded parameters are gathered for that and
    their gradients scattered back (a reduce-scatter), whole ones share one fused all-reduce.

    Args:
        loss_fn: `loss_fn(params, batch, *extra)` giving the mean loss over the rows it sees, and with `has_aux`
            a pytree beside it.
        mesh: Mesh with a `DATA` axis.
        state_spec: Layout of each parameter.
        has_aux: Whether `loss_fn` returns `(loss, aux)`.

    Returns:
        A function of `(params, batch, *extra)` that gives `((loss, aux), grads)`, or `(loss, grads)` without aux:
        the mean over all rows, however unevenly they are split; `grads` are laid out like `params`. Floating
        leaves of `aux` are averaged the same way, integer ones are replica 0's.
    """
    with_aux = loss_fn if has_aux else lambda *args: (loss_fn(*args), ())

    def value_and_grad(params: Any, batch: Any, *extra: Any) -> Any:
        sizes = batch.sizes if isinstance(batch, PaddedBatch) else None
        data = batch.data if isinstance(batch, PaddedBatch) else batch
        specs = jax.tree.map(data_spec, tree_specs(state_spec, params))

        def replica(params: Any, data: Any, extra: Any) -> Any:
            loss_of = lambda p: _replica_loss(with_aux, _gathered(p, specs), data, extra, sizes)
            (loss, aux), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
            return _reduced(loss, aux, grads, specs)

        whole = PartitionSpec()
        in_specs, out_specs = (specs, PartitionSpec(DATA), whole), ((whole, whole), specs)
        program = map_replicas(replica, mesh, in_specs=in_specs, out_specs=out_specs)
        (loss, aux), grads = program(params, data, extra)
        return ((loss, aux), grads) if has_aux else (loss, grads)

    return value_and_grad


def _gathered(params: Any, specs: Any) -> Any:
    def gather(param: jax.Array, spec: PartitionSpec) -> jax.Array:
        dimension = sharded_dimension(spec)
        return param if dimension is None else jax.lax.all_gather(param, DATA, axis=dimension, tiled=True)

    return jax.tree.map(gather, params, specs)


def _replica_loss(loss_fn: LossFn, params: Any, data: Any, extra: Any, sizes: tuple[int, ...] | None) -> Any:
    """Return this replica's share of the global mean: summed over replicas it is the mean over all rows."""
    if sizes is None:
        return _weighted(loss_fn(params, data, *extra), 1 / jax.lax.axis_size(DATA))
    total = sum(sizes)

    def branch(size: int) -> Callable[[Any], Any]:
        rows = lambda data: jax.tree.map(lambda leaf: leaf[:size], data)
        return lambda data: _weighted(loss_fn(params, rows(data), *extra), size / total)

    def empty(data: Any) -> Any:
        shapes = jax.eval_shape(branch(max(sizes)), data)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return switch_on_size(sizes, lambda size: branch(size) if size else empty, data)


def _weighted(loss_and_aux: Any, weight: float) -> Any:
    if not isinstance(loss_and_aux, tuple) or len(loss_and_aux) != 2:
        raise TypeError(
            "The loss function must return (loss, aux), with aux any pytree such as {}, "
            f"but returned {type(loss_and_aux).__name__}. Return a pair, or pass has_aux=False."
        )
    loss, aux = loss_and_aux
    if jnp.ndim(loss):
        raise ValueError(
            f"The loss must be a scalar, the mean over the rows of its batch, but has shape {jnp.shape(loss)}. "
            "Take its mean."
        )
    scale = lambda leaf: leaf * weight if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else jnp.asarray(leaf)
    return loss * weight, jax.tree.map(scale, aux)


def _reduced(loss: jax.Array, aux: Any, grads: Any, specs: Any) -> Any:
    """Sum loss, aux and the whole gradients over replicas in one fused all-reduce."""
    aux_leaves, aux_tree = jax.tree.flatten(aux)
    grad_leaves, grad_tree = jax.tree.flatten(grads)
    # A sharded parameter's gradient is summed already: the transpose of its all-gather is a reduce-scatter.
    whole = [sharded_dimension(spec) is None for spec in grad_tree.flatten_up_to(specs)]
    floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in aux_leaves]
    sums = fused_sum(
        [
            loss,
            *[leaf if is_float else None for leaf, is_float in zip(aux_leaves, floating, strict=True)],
            *[leaf if is_whole else None for leaf, is_whole in zip(grad_leaves, whole, strict=True)],
        ]
    )
    merged = [
        own if total is None else total for own, total in zip([loss, *aux_leaves, *grad_leaves], sums, strict=True)
    ]
    split = 1 + len(aux_leaves)
    return (merged[0], aux_tree.unflatten(merged[1:split])), grad_tree.unflatten(merged[split:])
