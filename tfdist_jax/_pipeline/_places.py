"""Parameters of any shapes beside each other in flat arrays, which lie over the axes that XLA divides as the parameters do."""

import dataclasses
from typing import Any, final

import jax
import jax.numpy as jnp


@final
@dataclasses.dataclass(frozen=True, order=True)
class FlatKind:
    """Of which kind flat arrays `[*blocks, ...]` are; a key of dicts that are pytrees.

    Attributes:
        is_split: Whether a device has a part of what lies in them, as its place along `stage` says.
        dtype: Their type.
        axes: The other axes over which they are split, along each dimension of blocks.
        blocks: How many blocks there are along each of these.
    """

    is_split: bool
    dtype: str
    axes: tuple[tuple[str, ...], ...]
    blocks: tuple[int, ...]


@final
@dataclasses.dataclass(frozen=True)
class Division:
    """A dimension of a parameter that is split over axes which XLA divides.

    Attributes:
        along: Which dimension it is.
        axes: The axes.
        count: Into how many blocks.
    """

    along: int
    axes: tuple[str, ...]
    count: int


@final
@dataclasses.dataclass(frozen=True)
class ParamLayout:
    """How a parameter lies over the devices of a pipeline.

    Attributes:
        staged: Along which dimension it is split over `stage`; None if all devices have it.
        divisions: Which others are split over other axes, in order.
    """

    staged: int | None
    divisions: tuple[Division, ...] = ()

    def kind_of(self, leaf: Any) -> FlatKind:
        """Return in which kind of arrays a parameter belongs."""
        axes, blocks = (tuple(getattr(each, name) for each in self.divisions) for name in ("axes", "count"))
        return FlatKind(self.staged is not None, str(leaf.dtype), axes, blocks)

    def pack(self, part: jax.Array) -> jax.Array:
        """Return what a device has of a parameter, along `stage`, as `[*blocks, ...]`."""
        counts = {each.along: each.count for each in self.divisions}
        shape: list[int] = []
        for along, length in enumerate(part.shape):
            shape += [counts[along], length // counts[along]] if along in counts else [length]
        blocks = jnp.moveaxis(part.reshape(shape), self._places, range(len(self._places)))
        return blocks.reshape(*counts.values(), -1)

    def unpack(self, packed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return a parameter of a shape from what `pack` makes; of one that is split over `stage`, from that of all devices, stacked."""
        if self.staged is None:
            return self._join(packed, shape)
        part = (*shape[: self.staged], shape[self.staged] // len(packed), *shape[self.staged + 1 :])
        parts = jax.vmap(lambda blocks: self._join(blocks, part))(packed)
        return jnp.moveaxis(parts, 0, self.staged).reshape(shape)

    def _join(self, blocks: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        counts = {each.along: each.count for each in self.divisions}
        inner = [length // counts.get(along, 1) for along, length in enumerate(shape)]
        whole = blocks.reshape(*counts.values(), *inner)
        return jnp.moveaxis(whole, range(len(self._places)), self._places).reshape(shape)

    @property
    def _places(self) -> list[int]:
        """Where dimensions of blocks stand, each before the dimension that they divide."""
        return [each.along + i for i, each in enumerate(self.divisions)]
