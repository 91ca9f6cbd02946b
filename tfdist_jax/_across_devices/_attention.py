"""Attention over rows whose tokens are split over devices: in a ring, or with all tokens of some heads on each."""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from tfdist_jax._across_devices._blocks import attend_to_blocks
from tfdist_jax._across_devices._kernels import find_kernel
from tfdist_jax._across_devices._ring import Ring
from tfdist_jax._across_devices._tiles import Tiles
from tfdist_jax._sharding._exact import assume_exact, axis_size
from tfdist_jax._sharding._mesh import SEQUENCE

Method = Literal["ring", "all_to_all"]
Implementation = Literal["xla"] | None


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
    implementation: Implementation = None,
) -> jax.Array:
    """Compute `softmax(query @ key / sqrt(features)) @ value` over all tokens of a row, wherever they are.

    Scores are computed in tiles of a few hundred tokens and keys, again for gradients, and none are kept. Over an axis `sequence`, a device
    has some tokens of each row: in a "ring", keys and values go round, so that none has all of them (https://arxiv.org/abs/2310.01889);
    with "all_to_all", each gets all tokens of some heads, and gives them back (https://arxiv.org/abs/2309.14509), which communicates less
    if there are heads enough. In a causal ring all devices have as much to do in each turn, if each has more than 512 tokens and an even
    number.

    Args:
        query: `[rows, tokens, heads, features]`.
        key: `[rows, tokens, key heads, features]`, of which each serves as many heads; their number divides that of the heads.
        value: As `key`.
        mask: `[rows, tokens]` of booleans: which keys count. A token for which none does gets zeros.
        is_causal: Whether only a token itself and those before it count.
        method: How devices share the work, "ring" or "all_to_all". For the latter their number divides that of the key heads.
        implementation: None takes an accelerator's own kernel where it fits: for 16 bits without a mask, where all tokens are on a device
            and no axis of the mesh, such as `tensor`, is left to XLA. Kernels have first derivatives alone; "xla" takes none.

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
    if implementation not in (None, "xla"):
        raise ValueError(f"`implementation` is 'xla', or None for kernels where they fit, got {implementation!r}.")
    if not query.size:
        return jnp.zeros_like(query)
    if method == "all_to_all" and key.shape[2] % parts:
        raise ValueError(
            f"{key.shape[2]} key heads do not divide over {parts} devices along {SEQUENCE!r}. Repeat them, or take method='ring'."
        )
    here = functools.partial(_attend_here, is_causal, implementation)
    if parts == 1:
        run = here
    elif method == "ring":
        run = functools.partial(_attend_in_a_ring, is_causal)
    else:
        run = functools.partial(_attend_by_heads, here)
    return assume_exact(run)(query, key, value, mask)


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


def _attend_here(is_causal: bool, implementation: Implementation, *arrays: Any) -> jax.Array:
    """Attend to tokens that are all on this device."""
    query, key, value, mask = arrays
    kernel = find_kernel(query, key, value, mask, is_causal) if implementation is None else None
    if kernel is not None:
        return kernel(query, key, value)
    return attend_to_blocks(Ring(Tiles(is_causal, query.shape[1]), 1), query, key, value, mask)


def _attend_in_a_ring(is_causal: bool, *arrays: Any) -> jax.Array:
    """Attend to keys that go round."""
    parts, length = axis_size(SEQUENCE), arrays[0].shape[1]
    in_order = Tiles(is_causal, length)
    # To deal tokens out costs more than it saves where there are few of them.
    if not is_causal or length % 2 or in_order.per_piece == 1:
        return attend_to_blocks(Ring(in_order, parts), *arrays)
    ring = Ring(Tiles(is_causal, length // 2, 2), parts)
    return ring.deal_back(attend_to_blocks(ring, *jax.tree.map(ring.deal, arrays)))


def _attend_by_heads(attend_here: Any, query: Any, key: Any, value: Any, mask: Any) -> jax.Array:
    """Attend to all tokens, with this device's share of the heads."""
    to_heads = functools.partial(jax.lax.all_to_all, axis_name=SEQUENCE, split_axis=2, concat_axis=1, tiled=True)
    if mask is not None:
        mask = jax.lax.all_gather(mask, SEQUENCE, axis=1, tiled=True)
    results = attend_here(to_heads(query), to_heads(key), to_heads(value), mask)
    return jax.lax.all_to_all(results, SEQUENCE, split_axis=1, concat_axis=2, tiled=True)
