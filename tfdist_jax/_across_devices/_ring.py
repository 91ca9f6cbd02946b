"""A ring of devices that have some tokens of each row: who has which, and how their keys go round."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tfdist_jax._across_devices._tiles import Tiles
from tfdist_jax._sharding._mesh import SEQUENCE


class Ring(NamedTuple):
    """How tokens lie over devices.

    Where only earlier tokens count, the first device would have little to do and the last one most. So device i of n takes two pieces of
    2n, i and 2n - 1 - i, and all have as much to do in each turn.

    Attributes:
        tiles: How a device's tokens are cut.
        parts: Over how many devices rows are split.
    """

    tiles: Tiles
    parts: int

    def starts(self, device: Any) -> jax.Array:
        """Return the place of each tile's first token on a device."""
        return self.tiles.starts([device, 2 * self.parts - 1 - device][: self.tiles.pieces])

    @property
    def own(self) -> Any:
        """The number of this device."""
        return jax.lax.axis_index(SEQUENCE) if self.parts > 1 else 0

    def deal(self, x: jax.Array) -> jax.Array:
        """Return the pieces of `[rows, tokens, ...]` that are this device's, from tokens that lie in order."""
        even, odd = (
            jax.lax.ppermute(half, SEQUENCE, moves)
            for half, moves in zip(jnp.split(x, 2, axis=1), self._moves(), strict=True)
        )
        return jnp.concatenate(self._swap(even, odd), axis=1)

    def deal_back(self, x: jax.Array) -> jax.Array:
        """Return tokens in order, from the pieces that `deal` has given."""
        halves = self._swap(*jnp.split(x, 2, axis=1))
        returned = [
            jax.lax.ppermute(half, SEQUENCE, [(target, source) for source, target in moves])
            for half, moves in zip(halves, self._moves(), strict=True)
        ]
        return jnp.concatenate(returned, axis=1)

    def _moves(self) -> list[list[tuple[int, int]]]:
        """From which device to which the first halves go, which are the pieces with even numbers, and the second ones."""
        owner = lambda piece: min(piece, 2 * self.parts - 1 - piece)
        return [[(device, owner(2 * device + half)) for device in range(self.parts)] for half in (0, 1)]

    def _swap(self, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
        """On every other device the piece with an odd number comes first."""
        is_even = self.own % 2 == 0
        return jnp.where(is_even, first, second), jnp.where(is_even, second, first)

    def pass_on(self, tree: Any) -> Any:
        """Give this device's arrays to the next, and get those of the one before."""
        moves = [(i, (i + 1) % self.parts) for i in range(self.parts)]
        return jax.tree.map(lambda leaf: jax.lax.ppermute(leaf, SEQUENCE, moves), tree)

    def go_round(self, own: Any, block: Any, state: Any, sums: Any, step: Any) -> tuple[Any, Any]:
        """Take a step with the block of each device. What is passed on depends on no step of the same turn, so both go at once.

        Args:
            own: The number of this device.
            block: Pytree of arrays, of which each device has its own.
            state: Pytree of arrays that stays here.
            sums: Pytree of zeros, to which each device adds for the block that it has.
            step: Of the state, a block, and from whose device it is: the next state, and what is added to the sums.

        Returns:
            The last state, and the sums for this device's block.
        """
        if self.parts == 1:
            return step(state, block, own)

        def turn(sums: Any, state: Any, block: Any, number: Any) -> tuple[Any, Any]:
            arrived = self.pass_on(sums)
            state, more = step(state, block, (own - number) % self.parts)
            return state, jax.tree.map(jnp.add, arrived, more)

        def turn_and_pass_on(carry: Any, number: Any) -> tuple[Any, None]:
            block, sums, state = carry
            passed = self.pass_on(block)
            state, sums = turn(sums, state, block, number)
            return (passed, sums, state), None

        (block, sums, state), _ = jax.lax.scan(turn_and_pass_on, (block, sums, state), jnp.arange(self.parts - 1))
        state, sums = turn(sums, state, block, self.parts - 1)
        return state, self.pass_on(sums)
