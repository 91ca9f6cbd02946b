"""A mixture of experts: each token goes to a few of them, on whatever device they are."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._collectives import sum_over
from tfdist_jax._sharding._exact import assume_exact, axis_size
from tfdist_jax._sharding._mesh import EXPERT, SEQUENCE


class Routed(NamedTuple):
    """What experts have made of tokens.

    Attributes:
        outputs: `[rows, tokens, features]`: of each token, the sum of its experts' results, each multiplied by its gate.
        balance_loss: `[rows]`: the number of experts times the sum over them of (share of the row's choices x mean gate), 1 if all are
            chosen as often; gradients flow to the gates (https://arxiv.org/abs/2101.03961, within each row).
        dropped: `[rows]`: the share of a row's choices for which its experts had no room.
        num_dropped: `[rows]` of int32: how many choices those are.
        sent: `[rows, experts]` of int32: how many of a row's choices each expert is, with those for which it had no room.

    Example:
        >>> import jax.numpy as jnp, tfdist_jax as td
        >>> gates = jnp.array([[[0.9, 0.1], [0.8, 0.2]]])
        >>> routed = td.run_experts(lambda factor, x: factor * x, jnp.ones(2), jnp.ones((1, 2, 1)), gates, top_k=1, capacity_factor=1.0)
        >>> routed.outputs.ravel(), routed.dropped  # There is room for one token in each expert.
        (Array([0.9, 0. ], dtype=float32), Array([0.5], dtype=float32))
    """

    outputs: jax.Array
    balance_loss: jax.Array
    dropped: jax.Array
    num_dropped: jax.Array
    sent: jax.Array


def compute_router_z_loss(logits: jax.Array) -> jax.Array:
    """Return how large a router's logits are: of each row, the mean over its tokens of `logsumexp(logits) ** 2`.

    Multiplied by about 0.001 and added to a loss, it keeps softmax of them exact in low precision (https://arxiv.org/abs/2202.08906).

    Args:
        logits: `[rows, tokens, experts]`, of which gates are the softmax; where tokens are split over an axis `sequence`, a device's.

    Returns:
        `[rows]`, of all tokens of a row, in float32 or wider.

    Raises:
        ValueError: If there are not three dimensions.

    Example:
        >>> import jax.numpy as jnp, tfdist_jax as td
        >>> td.compute_router_z_loss(jnp.zeros((1, 5, 1)))
        Array([0.], dtype=float32)
    """
    if logits.ndim != 3:
        raise ValueError(
            f"A router's logits are [rows, tokens, experts], got {logits.shape}. With one token a row, give logits[:, None]."
        )

    @assume_exact
    def run(logits: jax.Array) -> jax.Array:
        totals = jax.nn.logsumexp(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), -1)
        return _mean_over_tokens((totals**2).mean(1))

    return run(logits)


def run_experts(  # noqa: PLR0913
    apply: Callable[[Any, jax.Array], jax.Array],
    params: Any,
    tokens: jax.Array,
    gates: jax.Array,
    *,
    top_k: int = 2,
    capacity_factor: float | None = 1.25,
) -> Routed:
    """Send each token to the experts with its largest gates, and add up what they make of it.

    The tokens of one row compete for an expert's room, those of different rows do not: so the results are the same, whatever rows a
    device has. First choices come before second ones, and earlier tokens before later ones; what finds no room is left out, and of a
    token that none takes the output is zero. It is so, too, where a row's tokens are split over an axis `sequence`. Where a strategy's
    mesh has an axis `expert`, its devices have some of the experts each,
    by rules such as `td.Sharded({"data": 2, "expert": 4}, rules={"experts/.*": P("expert")})`, and exchange tokens in two all-to-alls.

    Args:
        apply: One expert: from its parameters and `[n, features]` to `[n, features']`. It computes each token by itself.
        params: Pytree of arrays `[experts, ...]`; of those that are split over `expert`, this device's.
        tokens: `[rows, tokens, features]`.
        gates: `[rows, tokens, experts]`, such as `jax.nn.softmax(tokens @ router)`. What is chosen is multiplied by them as they are.
        top_k: How many experts a token goes to.
        capacity_factor: An expert has room for `ceil(capacity_factor * top_k * tokens / experts)` of a row; None for all of them.

    Raises:
        ValueError: If shapes do not fit together, or a device has another part of the experts than the mesh says.

    Example:
        >>> import jax.numpy as jnp, tfdist_jax as td
        >>> scale = lambda factor, tokens: factor * tokens
        >>> gates = jnp.array([[[0.9, 0.1], [0.2, 0.8]]])
        >>> td.run_experts(scale, jnp.array([1.0, 2.0]), jnp.ones((1, 2, 1)), gates, top_k=1).outputs.ravel()
        Array([0.9, 1.6], dtype=float32)
    """
    devices = axis_size(EXPERT)
    _check(params, tokens, gates, top_k, devices)
    length, num_experts = gates.shape[1] * axis_size(SEQUENCE), gates.shape[-1]
    room = length if capacity_factor is None else min(length, math.ceil(capacity_factor * top_k * length / num_experts))

    @assume_exact
    def run(params: Any, tokens: jax.Array, gates: jax.Array) -> Routed:
        chosen_gates, experts = jax.lax.top_k(gates, top_k)
        run_all = functools.partial(_apply_all, apply, params, devices)
        return _route(run_all, tokens, gates, (chosen_gates, experts), room)

    return run(params, tokens, gates)


def _route(
    run_all: Callable[[jax.Array], jax.Array],
    tokens: jax.Array,
    gates: jax.Array,
    chosen: tuple[jax.Array, jax.Array],
    room: int,
) -> Routed:
    (chosen_gates, experts), num_experts = chosen, gates.shape[-1]
    places, counts = jax.vmap(functools.partial(_take_places, num_experts))(experts)
    before, counts = _count_elsewhere(counts)
    is_kept = places + jax.vmap(_of_choices)(before, experts) < room
    # What a device keeps are the first of its own, as they are the first of all.
    room = min(room, gates.shape[1])
    # A place behind the last one is none.
    slots = jnp.where(is_kept, experts * room + places, num_experts * room)
    sent = jax.vmap(functools.partial(_fill, num_experts * room))(tokens, slots)
    received = run_all(sent.reshape(-1, num_experts, room, tokens.shape[-1]))
    returned = received.reshape(len(tokens), num_experts * room, -1)
    results = jax.vmap(lambda slots, flat: flat.at[slots].get(mode="fill", fill_value=0))(slots, returned)
    weights = jnp.where(is_kept, chosen_gates, 0).astype(results.dtype)
    num_choices = counts.sum(-1).astype(jnp.promote_types(gates.dtype, jnp.float32))
    shares = (counts / num_choices[:, None]).astype(gates.dtype)
    num_dropped = _sum_over_tokens((~is_kept).sum((1, 2), dtype=jnp.int32))
    return Routed(
        jnp.einsum("rtkf,rtk->rtf", results, weights),
        num_experts * (shares * _mean_over_tokens(gates.mean(1))).sum(-1),
        (num_dropped / num_choices).astype(gates.dtype),
        num_dropped,
        counts,
    )


def _take_places(num_experts: int, experts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return which of an expert's tokens here each choice `[tokens, k]` is, and how many each has of every choice: `[k, experts]`."""
    in_turn = jax.nn.one_hot(experts.T.reshape(-1), num_experts, dtype=jnp.int32)
    before = jnp.cumsum(in_turn, 0) - in_turn
    places = (before * in_turn).sum(-1).reshape(experts.T.shape).T
    return places, in_turn.reshape(*experts.T.shape, num_experts).sum(1)


def _count_elsewhere(counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return how many on other devices come before choices here, `[rows, k, experts]`, and how many each expert is sent in all."""
    if axis_size(SEQUENCE) == 1:
        return jnp.zeros_like(counts), counts.sum(1)
    everywhere = jax.lax.all_gather(counts, SEQUENCE)
    is_before = jnp.arange(len(everywhere)) < jax.lax.axis_index(SEQUENCE)
    earlier = (everywhere * is_before[:, None, None, None]).sum(0)
    total = everywhere.sum(0)
    better = jnp.cumsum(total - counts, 1) - (total - counts)
    return better + earlier, total.sum(1)


def _of_choices(before: jax.Array, experts: jax.Array) -> jax.Array:
    """Return the entry `[k, experts]` of each choice `[tokens, k]`."""
    return before[jnp.arange(len(before)), experts]


def _mean_over_tokens(means: jax.Array) -> jax.Array:
    return _sum_over_tokens(means) / axis_size(SEQUENCE)


def _sum_over_tokens(sums: jax.Array) -> jax.Array:
    return sums if axis_size(SEQUENCE) == 1 else sum_over(sums, SEQUENCE)


def _fill(num_slots: int, tokens: jax.Array, slots: jax.Array) -> jax.Array:
    """Return the tokens `[tokens, features]` of one row at their places."""
    each = jnp.broadcast_to(tokens[:, None], (*slots.shape, tokens.shape[-1]))
    return jnp.zeros((num_slots, tokens.shape[-1]), tokens.dtype).at[slots].set(each, mode="drop")


def _apply_all(apply: Callable[..., Any], params: Any, devices: int, sent: jax.Array) -> jax.Array:
    """Run all experts on `[rows, experts, room, features]`, each where it is."""
    rows, num_experts, room, _ = sent.shape
    by_expert = sent.swapaxes(0, 1)
    if devices > 1:
        by_expert = jax.lax.all_to_all(by_expert, EXPERT, split_axis=0, concat_axis=1, tiled=True)
    results = jax.vmap(apply)(params, by_expert.reshape(num_experts // devices, devices * rows * room, -1))
    if results.ndim != 3 or results.shape[1] != devices * rows * room:
        raise ValueError(
            f"An expert is to return [n, features] for n tokens, but for {devices * rows * room} it returned {results.shape[1:]}."
        )
    results = results.reshape(num_experts // devices, devices * rows, room, -1)
    if devices > 1:
        results = jax.lax.all_to_all(results, EXPERT, split_axis=1, concat_axis=0, tiled=True)
    return results.swapaxes(0, 1)


def _check(params: Any, tokens: Any, gates: Any, top_k: int, devices: int) -> None:
    if tokens.ndim != 3 or gates.shape[:2] != tokens.shape[:2] or gates.ndim != 3:
        raise ValueError(
            f"Experts take tokens [rows, tokens, features] and gates [rows, tokens, experts], got {tokens.shape} and {gates.shape}. "
            "With one token a row, give x[:, None]."
        )
    num_experts = gates.shape[-1]
    if not 1 <= top_k <= num_experts:
        raise ValueError(f"`top_k` is 1 to the {num_experts} experts that there are gates for, got {top_k}.")
    if num_experts % devices:
        raise ValueError(
            f"{num_experts} experts do not divide over {devices} devices along the mesh's axis {EXPERT!r}."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jnp.shape(leaf)[:1] != (num_experts // devices,):
            raise ValueError(
                f"The gates are for {num_experts} experts on {devices} devices, so parameters have {num_experts // devices} experts as "
                f"their first dimension, but {jax.tree_util.keystr(path) or 'the one given'} has shape {jnp.shape(leaf)}. Where a mesh has "
                f"an axis {EXPERT!r}, a rule says that they are split over it: rules={{'experts/.*': P({EXPERT!r})}}."
            )
