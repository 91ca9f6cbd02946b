"""Attention to the blocks of keys that go round, and its gradients, which compute scores again: none are kept."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax._across_devices._ring import Ring
from tfdist_jax._sharding._entries import put, take


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_to_blocks(
    ring: Ring, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array | None
) -> jax.Array:
    """Attend to the tokens of all devices.

    Args:
        ring: Where tokens are.
        query: `[rows, tokens, heads, features]`.
        key: `[rows, tokens, key heads, features]`.
        value: As `key`.
        mask: `[rows, tokens]`: which keys count; None for all.

    Returns:
        `[rows, tokens, heads, features]`, in the type of `query`.
    """
    return _forward(ring, query, key, value, mask)[0]


def _forward(ring: Ring, query: Any, key: Any, value: Any, mask: Any) -> tuple[jax.Array, Any]:
    # What depends on places alone, JAX would take out of a loop over layers, and keep for all pairs of tiles which keys count.
    own, query = jax.lax.optimization_barrier((jnp.asarray(ring.own), query))
    tiles, starts = ring.tiles, ring.starts(own)
    queries, dtype = _cut(ring, query, key.shape[2]), _wide(query)
    of_each = jnp.zeros(queries.shape[:-1], dtype)
    state = of_each - jnp.inf, of_each, jnp.zeros(queries.shape, dtype)

    def step(state: Any, block: Any, source: Any) -> tuple[Any, Any]:
        keys, values, masks = block
        key_starts = ring.starts(source)

        def visit(state: Any, pair: Any, only_if: Any) -> Any:
            a, b = pair
            query, key, value = queries[a], keys[b], values[b]

            def update(part: Any) -> Any:
                best, total, results = part
                scores = _scores(query, key, tiles.counts(pair, starts, key_starts, masks))
                new_best = jnp.maximum(best, scores.max(-1))
                # Where nothing counts yet, there is nothing to be scaled.
                base = jnp.where(jnp.isfinite(new_best), new_best, 0)
                weights, scale = jnp.exp(scores - base[..., None]), jnp.exp(best - base)
                added = jnp.einsum("rhgqk,rhkf->rhgqf", weights, value.astype(dtype))
                return new_best, total * scale + weights.sum(-1), results * scale[..., None] + added

            return put(state, a, only_if(update, take(state, a)))

        return tiles.visit(visit, state, starts, key_starts, is_here=ring.parts == 1), ()

    (best, total, results), _ = ring.go_round(own, _cut_block(ring, key, value, mask), state, (), step)
    is_any = total > 0
    total = jnp.where(is_any, total, 1)
    # The exponent of what counts for nothing is minus infinity.
    log_total = jnp.where(is_any, best + jnp.log(total), jnp.inf)
    results = _join(ring, (results / total[..., None]).astype(query.dtype))
    return results, (query, key, value, mask, results, log_total)


def _backward(ring: Ring, kept: Any, given: jax.Array) -> tuple[Any, ...]:
    # What the forward pass has made of these is made again, and not kept until now.
    own, kept, given = jax.lax.optimization_barrier((jnp.asarray(ring.own), kept, given))
    query, key, value, mask, results, log_total = kept
    tiles, starts, key_heads, dtype = ring.tiles, ring.starts(own), key.shape[2], _wide(query)
    queries, all_given = _cut(ring, query, key_heads), _cut(ring, given.astype(dtype), key_heads)
    means = (all_given * _cut(ring, results, key_heads)).sum(-1)
    block = _cut_block(ring, key, value, mask)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), block[:2])

    def step(of_queries: Any, block: Any, source: Any) -> tuple[Any, Any]:
        keys, values, masks = block
        key_starts = ring.starts(source)

        def visit(state: Any, pair: Any, only_if: Any) -> Any:
            a, b = pair
            query, given, log_total_, mean = queries[a], all_given[a], log_total[a], means[a]
            key, value = keys[b], values[b]

            def update(part: Any) -> Any:
                of_query, of_key, of_value = part
                weights = jnp.exp(
                    _scores(query, key, tiles.counts(pair, starts, key_starts, masks)) - log_total_[..., None]
                )
                of_weights = jnp.einsum("rhgqf,rhkf->rhgqk", given, value.astype(dtype))
                of_scores = weights * (of_weights - mean[..., None])
                of_query += jnp.einsum("rhgqk,rhkf->rhgqf", of_scores, key.astype(dtype))
                of_key += jnp.einsum("rhgqk,rhgqf->rhkf", of_scores, query.astype(dtype))
                of_value += jnp.einsum("rhgqk,rhgqf->rhkf", weights, given)
                return of_query, of_key, of_value

            of_queries, *sums = state
            of_query, *of_block = only_if(update, (take(of_queries, a), *take(sums, b)))
            return put(of_queries, a, of_query), *put(sums, b, of_block)

        of_queries, *added = tiles.visit(visit, (of_queries, *zeros), starts, key_starts, is_here=ring.parts == 1)
        return of_queries, tuple(added)

    of_queries, (of_keys, of_values) = ring.go_round(own, block, jnp.zeros(queries.shape, dtype), zeros, step)
    scale = 1 / jnp.sqrt(query.shape[-1]).astype(dtype)
    of_keys, of_values = (_join_block(ring, leaf) for leaf in (of_keys * scale, of_values))
    of_query = _join(ring, of_queries * scale).astype(query.dtype)
    return of_query, of_keys.astype(key.dtype), of_values.astype(value.dtype), None


attend_to_blocks.defvjp(_forward, _backward)


def _wide(query: jax.Array) -> Any:
    """The type of sums."""
    return jnp.promote_types(query.dtype, jnp.float32)


def _scores(query: jax.Array, key: jax.Array, counts: jax.Array | None) -> jax.Array:
    scores = jnp.einsum("rhgqf,rhkf->rhgqk", query, key, preferred_element_type=_wide(query))
    scores = scores / jnp.sqrt(query.shape[-1]).astype(scores.dtype)
    return scores if counts is None else jnp.where(counts, scores, -jnp.inf)


def _cut(ring: Ring, x: jax.Array, key_heads: int) -> jax.Array:
    """Return `[tiles, rows, key heads, group, size, features]`: heads by the key head that serves them."""
    rows, length, heads, features = x.shape
    tiles = ring.tiles.cut(x.reshape(rows, length, key_heads, heads // key_heads, features))
    return tiles.transpose(0, 1, 3, 4, 2, 5)


def _join(ring: Ring, tiles: jax.Array) -> jax.Array:
    x = ring.tiles.join(tiles.transpose(0, 1, 4, 2, 3, 5))
    return x.reshape(*x.shape[:2], -1, x.shape[-1])


def _cut_block(ring: Ring, key: jax.Array, value: jax.Array, mask: jax.Array | None) -> Any:
    """Return `[tiles, rows, key heads, size, features]` of keys and of values, and the mask's `[tiles, rows, size]`."""
    keys, values = (ring.tiles.cut(x).swapaxes(2, 3) for x in (key, value))
    return keys, values, None if mask is None else ring.tiles.cut(mask)


def _join_block(ring: Ring, tiles: jax.Array) -> jax.Array:
    return ring.tiles.join(tiles.swapaxes(2, 3))
