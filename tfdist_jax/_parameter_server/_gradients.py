"""Gradients of a loss on one batch, and what an optimizer makes of gradients."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import jax
import jax.numpy as jnp

from tfdist_jax._global_batch import Mean, Rows, Sum, loss_and_aux, unwrap
from tfdist_jax._stateful._served_assignments import needed_for

if TYPE_CHECKING:
    import optax


class StepResult(NamedTuple):
    """What has come of training on one batch.

    Attributes:
        loss: The loss, a scalar of NumPy; of `(sum, weight)` the quotient.
        aux: What the loss function has returned beside it, NumPy arrays; `()` if nothing.
        is_dropped: Whether the gradients have come too late for their round, and were not applied: `td.Synchronous`.

    Example:
        >>> import tfdist_jax as td
        >>> result = td.StepResult(0.5, {"hits": 3}, is_dropped=False)
        >>> result.loss, result.aux["hits"]
        (0.5, 3)
    """

    loss: Any
    aux: Any
    is_dropped: bool


def make_result(loss: Any, aux: Any, *, is_dropped: bool = False) -> StepResult:
    """Wait for what a worker has computed: results of several workers meet on the host."""
    loss, aux = jax.device_get((loss, aux))
    return StepResult(loss, aux, is_dropped)


def split_frozen(params: Any) -> tuple[Any, Any]:
    """Return the parameters that have gradients, and the others; each tree has None in the places of the other one's."""
    has_gradient = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
    trained = jax.tree.map(lambda leaf: leaf if has_gradient(leaf) else None, params)
    frozen = jax.tree.map(lambda leaf: None if has_gradient(leaf) else leaf, params)
    return trained, frozen


def join_frozen(trained: Any, frozen: Any) -> Any:
    """Return the parameters of the parts that `split_frozen` makes."""
    pick = lambda one, other: other if one is None else one
    return jax.tree.map(pick, trained, frozen, is_leaf=lambda leaf: leaf is None)


class Sums(NamedTuple):
    """What a batch adds to the gradient of a mean over several batches.

    Attributes:
        total: The loss, or the sum of `(sum, weight)`.
        weight: What it is divided by: 1, or the weight.
        grads: Gradients of `total`.
        weight_grads: Gradients of `weight`; None if it does not depend on the parameters.
    """

    total: jax.Array
    weight: jax.Array
    grads: Any
    weight_grads: Any


@final
@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss function of parameters and a batch.

    Attributes:
        fn: It returns `(loss, aux)`, where the loss is a scalar or `(sum, weight)`.
        has_aux: False if it returns the loss alone.
    """

    fn: Callable[[Any, Any], Any]
    has_aux: bool

    def mean_and_grads(self, trained: Any, frozen: Any, batch: Any) -> tuple[Any, Any, Any]:
        """Return the loss of a batch, its aux, and its gradients."""

        def mean(trained: Any) -> tuple[Any, Any]:
            total, weight, aux = self._parts(trained, frozen, batch)
            return total if weight is None else total / weight, aux

        (loss, aux), grads = jax.value_and_grad(mean, has_aux=True)(trained)
        return loss, aux, grads

    def sums(self, trained: Any, frozen: Any, batch: Any) -> tuple[Sums, Any, Any]:
        """Return what a batch adds to the gradient of a mean over several, its own loss, and its aux."""

        def parts(trained: Any) -> tuple[tuple[Any, Any], Any]:
            total, weight, aux = self._parts(trained, frozen, batch)
            weight = jnp.ones_like(total) if weight is None else jnp.asarray(weight, total.dtype)
            return (total, weight), aux

        (total, weight), pull_back, aux = jax.vjp(parts, trained, has_aux=True)
        one, zero = jnp.ones_like(total), jnp.zeros_like(total)
        (grads,) = pull_back((one, zero))
        weighs_params = _depends(lambda trained: parts(trained)[0][1], trained)
        weight_grads = pull_back((zero, one))[0] if weighs_params else None
        return Sums(total, weight, grads, weight_grads), total / weight, aux

    def _parts(self, trained: Any, frozen: Any, batch: Any) -> tuple[Any, Any, Any]:
        """Return the loss or its sum, its weight if it has one, and its aux."""
        loss, aux = loss_and_aux(self.fn(join_frozen(trained, frozen), batch), has_aux=self.has_aux)
        weight = loss.weight if isinstance(loss, Mean) else None
        return jnp.asarray(unwrap(loss)), weight, jax.tree.map(_value_of, aux, is_leaf=_is_declared)


def _depends(fn: Callable[[Any], Any], params: Any) -> bool:
    """Whether a scalar may depend on parameters: a nested program's does if anything that it returns does."""
    traced = jax.make_jaxpr(fn)(params).jaxpr
    _, inputs = needed_for(traced.outvars, traced.eqns)
    return not inputs.isdisjoint(traced.invars)


def _is_declared(node: Any) -> bool:
    return isinstance(node, Sum | Mean | Rows)


def _value_of(node: Any) -> Any:
    """Return what a part of an aux is, where one worker has all rows of the batch."""
    if isinstance(node, Mean) and node.weight is not None:
        return jax.tree.map(lambda leaf: leaf / node.weight, unwrap(node.value))
    return unwrap(node)


def mean_and_gradient(parts: Sequence[Sums]) -> tuple[Any, Any]:
    """Return the mean loss over several batches, the sum of all totals divided by the sum of all weights, and its gradient.

    It is added up in the order of the batches, of short types in float32.
    """
    total, weight = _add(*(part.total for part in parts)), _add(*(part.weight for part in parts))
    grads = jax.tree.map(_add, *(part.grads for part in parts))
    # Of some kinds of batches the weight may depend on the parameters, and of others not.
    weight_grads = [part.weight_grads for part in parts if part.weight_grads is not None]
    if weight_grads:
        of_weight = jax.tree.map(_add, *weight_grads)
        grads = jax.tree.map(lambda grad, other: grad - total / weight * other, grads, of_weight)
    grads = jax.tree.map(lambda grad, like: (grad / weight).astype(like.dtype), grads, parts[0].grads)
    return total / weight, grads


def mean_params(params: Sequence[Any]) -> Any:
    """Return the mean of several workers' parameters, likewise."""
    return jax.tree.map(lambda *leaves: (_add(*leaves) / len(leaves)).astype(leaves[0].dtype), *params)


def _add(first: jax.Array, *others: jax.Array) -> jax.Array:
    total = first.astype(jnp.promote_types(first.dtype, jnp.float32))
    for other in others:
        total = total + other
    return total


def apply_gradients(
    tx: "optax.GradientTransformation", grads: Any, opt_state: Any, trained: Any, loss: Any = None
) -> tuple[Any, Any]:
    """Return what an optimizer makes of parameters, and its new state; some want the loss, too."""
    import optax  # Who has an optimizer has loaded it; it takes longer than all of this library.

    extra = {} if loss is None else {"value": loss}
    updates, opt_state = optax.with_extra_args_support(tx).update(grads, opt_state, trained, **extra)
    return optax.apply_updates(trained, updates), opt_state
