"""Attention over rows whose tokens are split over devices: in a ring, or with all tokens of some heads on each."""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax._sharding._exact import assume_exact, axis_size
from tfdist_jax._sharding._mesh import SEQUENCE

Method = Literal["ring", "all_to_all"]


def token_positions(tokens: jax.Array) -> jax.Array:
    """Return where in its row each token is, `[tokens]` of int32: on a mesh with an axis `sequence`, a device has some of them.

    Args:
        tokens: `[rows, tokens, ...]`, of which only the shape counts.

    Example:
        >>> import numpy as np, tfdist_jax as td
        >>> td.token_positions(np.zeros((4, 3, 16)))
        Array([0, 1, 2], dtype=int32)
    """
    length, parts = jnp.shape(tokens)[1], axis_size(SEQUENCE)

    @assume_exact
    def number() -> jax.Array:
        first = jax.lax.axis_index(SEQUENCE) * length if parts > 1 else 0
        return first + jnp.arange(length, dtype=jnp.int32)

    return number()


def attend(  # noqa: PLR0913
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    mask: jax.Array | None = None,
    is_causal: bool = False,
    method: Method = "ring",
) -> jax.Array:
    """Compute `softmax(query @ key / sqrt(features)) @ value` over all tokens of a row, wherever they are.

    On one device it is attention in one block. Over an axis `sequence`, a device has some tokens of each row: in a "ring", keys and values
    go round, one block at a time, so that none has all of them (https://arxiv.org/abs/2310.01889); with "all_to_all", each gets all tokens
    of some heads, and gives them back (https://arxiv.org/abs/2309.14509), which communicates less if there are heads enough. Gradients are
    computed again from the block's keys and values; no scores are kept.

    Args:
        query: `[rows, tokens, heads, features]`.
        key: `[rows, tokens, key heads, features]`, of which each serves as many heads; their number divides that of the heads.
        value: As `key`.
        mask: `[rows, tokens]` of booleans: which keys count. A token for which none does gets zeros.
        is_causal: Whether only a token itself and those before it count.
        method: How devices share the work, "ring" or "all_to_all". For the latter their number divides that of the key heads.

    Returns:
        `[rows, tokens, heads, features]`, in the type of `query`; sums are float32 or wider.

    Raises:
        ValueError: If shapes do not fit together, or heads do not divide over devices.

    Example:
        >>> import jax.numpy as jnp, tfdist_jax as td
        >>> x = jnp.arange(3.0).reshape(1, 3, 1, 1)
        >>> td.attend(0 * x, x, x, is_causal=True).ravel()
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    parts = axis_size(SEQUENCE)
    _check(query, key, value, mask)
    if method not in ("ring", "all_to_all"):
        raise ValueError(f"`method` is 'ring' or 'all_to_all', got {method!r}.")
    if method == "all_to_all" and key.shape[2] % parts:
        raise ValueError(
            f"{key.shape[2]} key heads do not divide over {parts} devices along {SEQUENCE!r}. Repeat them, or take method='ring'."
        )
    counts = jnp.ones(key.shape[:2], bool) if mask is None else mask
    blocks = _Blocks(is_causal, parts if method == "ring" else 1)
    run = _attend_to_blocks if method == "ring" or parts == 1 else _attend_by_heads
    return assume_exact(functools.partial(run, blocks))(query, key, value, counts)


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    fits = query.ndim == key.ndim == value.ndim == 4 and key.shape == value.shape and query.shape[:2] == key.shape[:2]
    if not fits or query.shape[3] != key.shape[3] or query.shape[2] % key.shape[2]:
        raise ValueError(
            "Attention takes a query [rows, tokens, heads, features] and keys and values [rows, tokens, key heads, features], whose number "
            f"of heads divides the query's, got {query.shape}, {key.shape} and {value.shape}."
        )
    if mask is not None and (mask.shape != key.shape[:2] or mask.dtype != bool):
        raise ValueError(
            f"`mask` says which keys count, booleans {key.shape[:2]}, got {mask.dtype} {mask.shape}. For an order of tokens, there is "
            "is_causal=True."
        )


class _Blocks(NamedTuple):
    """How tokens lie over devices.

    Attributes:
        is_causal: Whether only tokens before another count for it.
        parts: Over how many devices they are split, one block on each.
    """

    is_causal: bool
    parts: int

    @property
    def own(self) -> Any:
        """The number of this device's block."""
        return jax.lax.axis_index(SEQUENCE) if self.parts > 1 else 0

    def pass_on(self, tree: Any) -> Any:
        """Give this device's arrays to the next, and get those of the one before."""
        if self.parts == 1:
            return tree
        ring = [(i, (i + 1) % self.parts) for i in range(self.parts)]
        return jax.tree.map(lambda leaf: jax.lax.ppermute(leaf, SEQUENCE, ring), tree)

    def counts(self, mask: jax.Array, source: Any, length: int) -> jax.Array:
        """Return which keys of a block count for which tokens of this device: `[rows, 1, 1, tokens, keys]`."""
        counts = mask[:, None, None, None, :]
        if not self.is_causal:
            return counts
        places = jnp.arange(length)
        return counts & (self.own * length + places[:, None] >= source * length + places)

    def if_any(self, source: Any, update: Any, state: Any) -> Any:
        """Return `update(state)`, unless no key of a block counts for this device's tokens."""
        if not self.is_causal or self.parts == 1:
            return update(state)
        return jax.lax.cond(source <= self.own, update, lambda state: state, state)


def _attend_by_heads(blocks: _Blocks, query: Any, key: Any, value: Any, mask: Any) -> jax.Array:
    """Attend to all tokens, with this device's share of the heads."""
    to_heads = functools.partial(jax.lax.all_to_all, axis_name=SEQUENCE, split_axis=2, concat_axis=1, tiled=True)
    mask = jax.lax.all_gather(mask, SEQUENCE, axis=1, tiled=True)
    results = _attend_to_blocks(blocks, to_heads(query), to_heads(key), to_heads(value), mask)
    return jax.lax.all_to_all(results, SEQUENCE, split_axis=1, concat_axis=2, tiled=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_to_blocks(blocks: _Blocks, query: Any, key: Any, value: Any, mask: Any) -> jax.Array:
    """Attend to the tokens of all blocks, which go round."""
    return _forward(blocks, query, key, value, mask)[0]


def _forward(blocks: _Blocks, query: Any, key: Any, value: Any, mask: Any) -> tuple[jax.Array, Any]:
    grouped = _group(query, key)
    rows, length, kv_heads, group, _ = grouped.shape
    of_each = jnp.zeros((rows, kv_heads, group, length), grouped.dtype)
    state = of_each - jnp.inf, of_each, jnp.zeros(grouped.shape, grouped.dtype)

    def attend_to(block: Any, source: Any, state: Any) -> Any:
        key, value, mask = block

        def update(state: Any) -> Any:
            best, total, results = state
            scores = jnp.where(blocks.counts(mask, source, length), _scores(grouped, key), -jnp.inf)
            new_best = jnp.maximum(best, scores.max(-1))
            # Where nothing counts yet, there is nothing to be scaled.
            base = jnp.where(jnp.isfinite(new_best), new_best, 0)
            weights, scale = jnp.exp(scores - base[..., None]), jnp.exp(best - base)
            added = jnp.einsum("rhgqk,rkhf->rqhgf", weights, value.astype(weights.dtype))
            results = results * scale.transpose(0, 3, 1, 2)[..., None] + added
            return new_best, total * scale + weights.sum(-1), results

        return blocks.if_any(source, update, state)

    _, (best, total, results) = _go_round(blocks, (key, value, mask), state, attend_to)
    is_any = total > 0
    total = jnp.where(is_any, total, 1)
    results = results / total.transpose(0, 3, 1, 2)[..., None]
    # The exponent of what counts for nothing is minus infinity.
    log_total = jnp.where(is_any, best + jnp.log(total), jnp.inf)
    return results.reshape(query.shape).astype(query.dtype), (query, key, value, mask, results, log_total)


def _backward(blocks: _Blocks, kept: Any, given: jax.Array) -> tuple[Any, ...]:
    query, key, value, mask, results, log_total = kept
    grouped = _group(query, key)
    length, given = grouped.shape[1], given.reshape(grouped.shape).astype(grouped.dtype)
    mean = (given * results).sum(-1).transpose(0, 2, 3, 1)[..., None]
    sums = jnp.zeros(key.shape, grouped.dtype), jnp.zeros(key.shape, grouped.dtype)

    def differentiate(block: Any, source: Any, state: Any) -> Any:
        (key, value, mask, *sums), of_query = block, state

        def update(state: Any) -> Any:
            of_query, of_key, of_value = state
            scores = jnp.where(blocks.counts(mask, source, length), _scores(grouped, key), -jnp.inf)
            weights = jnp.exp(scores - log_total[..., None])
            of_weights = jnp.einsum("rqhgf,rkhf->rhgqk", given, value.astype(given.dtype))
            of_scores = weights * (of_weights - mean)
            of_query += jnp.einsum("rhgqk,rkhf->rqhgf", of_scores, key.astype(given.dtype))
            of_key += jnp.einsum("rhgqk,rqhgf->rkhf", of_scores, grouped)
            of_value += jnp.einsum("rhgqk,rqhgf->rkhf", weights, given)
            return of_query, of_key, of_value

        return blocks.if_any(source, update, (of_query, *sums))

    def step(block: Any, source: Any, state: Any) -> Any:
        of_query, *sums = differentiate(block, source, state)
        return (*block[:3], *sums), of_query

    block, of_query = _go_round_with(blocks, (key, value, mask, *sums), jnp.zeros_like(grouped), step)
    _, _, _, of_key, of_value = blocks.pass_on(block)
    of_query = (of_query / jnp.sqrt(grouped.shape[-1]).astype(grouped.dtype)).reshape(query.shape)
    return of_query.astype(query.dtype), of_key.astype(key.dtype), of_value.astype(value.dtype), None


_attend_to_blocks.defvjp(_forward, _backward)


def _go_round(blocks: _Blocks, block: Any, state: Any, attend_to: Any) -> tuple[Any, Any]:
    """Return the last block, and the state that has seen all of them."""
    return _go_round_with(blocks, block, state, lambda block, source, state: (block, attend_to(block, source, state)))


def _go_round_with(blocks: _Blocks, block: Any, state: Any, step: Any) -> tuple[Any, Any]:
    """Take a step with each of the blocks, which may change it on its way; the last is not passed on."""

    def turn(carry: Any, number: Any) -> tuple[Any, None]:
        block, state = carry
        block, state = step(block, (blocks.own - number) % blocks.parts, state)
        return (blocks.pass_on(block), state), None

    if blocks.parts > 1:
        (block, state), _ = jax.lax.scan(turn, (block, state), jnp.arange(blocks.parts - 1))
    return step(block, (blocks.own + 1) % blocks.parts, state)


def _group(query: jax.Array, key: jax.Array) -> jax.Array:
    """Return the query, divided by the root of the features, with its heads by the key head that serves them."""
    rows, length, heads, features = query.shape
    query = query.astype(jnp.promote_types(query.dtype, jnp.float32))
    query = query / jnp.sqrt(features).astype(query.dtype)
    return query.reshape(rows, length, key.shape[2], heads // key.shape[2], features)


def _scores(grouped: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.einsum("rqhgf,rkhf->rhgqk", grouped, key.astype(grouped.dtype))
