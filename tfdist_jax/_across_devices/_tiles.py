"""Attention in tiles: a few hundred tokens to a few hundred keys at a time, so that no device holds all scores."""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# The scores of 512 tokens to 512 keys are computed at once: more would need more memory and gain no speed.
LARGEST_TILE = 512


class Tiles(NamedTuple):
    """How the tokens of a device are cut into tiles, which are numbered as they lie; the last of a piece may be filled up.

    Attributes:
        is_causal: Whether only a token itself and those before it count for it.
        length: How many tokens a piece has: those of a piece follow each other, pieces may lie anywhere in a row.
        pieces: How many of them a device has.
    """

    is_causal: bool
    length: int
    pieces: int = 1

    @property
    def per_piece(self) -> int:
        """How many tiles a piece has."""
        return -(-self.length // LARGEST_TILE)

    @property
    def size(self) -> int:
        """How many tokens a tile has."""
        return -(-self.length // self.per_piece)

    def pairs(self, *, is_here: bool) -> list[tuple[int, int]]:
        """Return which tiles have keys that may count for which; where the keys come from several devices, for some of them."""
        numbers = range(self.pieces * self.per_piece)
        step = 1 if is_here else self.per_piece
        return [(a, b) for a in numbers for b in numbers if not self.is_causal or b // step <= a // step]

    def starts(self, pieces: Any) -> jax.Array:
        """Return the place in its row of the first token of each tile, from the numbers of the pieces, `[pieces]`."""
        starts = jnp.asarray(pieces, jnp.int32)[:, None] * self.length + self.size * jnp.arange(
            self.per_piece, dtype=jnp.int32
        )
        return starts.reshape(-1)

    def cut(self, x: jax.Array) -> jax.Array:
        """Return `[rows, tokens, ...]` as `[tiles, rows, size, ...]`."""
        rows, _, *rest = x.shape
        x = x.reshape(rows, self.pieces, self.length, *rest)
        filled = [(0, 0), (0, 0), (0, self.per_piece * self.size - self.length), *[(0, 0)] * len(rest)]
        return jnp.pad(x, filled).reshape(rows, self.pieces * self.per_piece, self.size, *rest).swapaxes(0, 1)

    def join(self, tiles: jax.Array) -> jax.Array:
        """Return `[tiles, rows, size, ...]` as `[rows, tokens, ...]`."""
        _, rows, _, *rest = tiles.shape
        x = tiles.swapaxes(0, 1).reshape(rows, self.pieces, self.per_piece * self.size, *rest)
        return x[:, :, : self.length].reshape(rows, self.pieces * self.length, *rest)

    def counts(self, pair: Any, starts: Any, key_starts: Any, mask: jax.Array | None) -> jax.Array | None:
        """Return which keys of a tile count for which tokens of another, to `[rows, heads, group, tokens, keys]`; None if all do."""
        (a, b), places, found = pair, jnp.arange(self.size, dtype=jnp.int32), []
        if self.is_causal:
            found.append(starts[a] + places[:, None] >= key_starts[b] + places)
        if self.per_piece * self.size > self.length:
            found.append(b % self.per_piece * self.size + places < self.length)
        if mask is not None:
            found.append(mask[b][:, None, None, None, :])
        return functools.reduce(operator.and_, found) if found else None

    def visit(self, visit: Callable[..., Any], state: Any, starts: Any, key_starts: Any, *, is_here: bool) -> Any:
        """Run `visit(state, pair, only_if)` for each pair of tiles that may count.

        Args:
            visit: Returns the next state. `only_if(update, part)` gives it `update(part)`, or `part` where no key of the pair counts.
            state: Pytree of arrays.
            starts: Where the tiles of tokens begin, `[tiles]`.
            key_starts: Where those of keys do.
            is_here: Whether all keys are those of the same tokens, so that it is known beforehand which count.
        """
        pairs = self.pairs(is_here=is_here)

        def step(state: Any, pair: Any) -> tuple[Any, None]:
            def only_if(update: Callable[[Any], Any], part: Any) -> Any:
                if is_here or not self.is_causal:
                    return update(part)
                is_any = key_starts[pair[1]] <= starts[pair[0]]
                return jax.lax.cond(is_any, update, lambda part: part, part)

            return visit(state, pair, only_if), None

        if len(pairs) == 1:
            return step(state, pairs[0])[0]
        first, second = (jnp.array(numbers, jnp.int32) for numbers in zip(*pairs, strict=True))
        return jax.lax.scan(step, state, (first, second))[0]
