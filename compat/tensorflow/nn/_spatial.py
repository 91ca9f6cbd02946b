"""TensorFlow's ways to say strides, padding and layouts of images."""

import dataclasses
from typing import Any, final

import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, static_ints

_LETTERS = "DHW"


@final
@dataclasses.dataclass(frozen=True)
class Spatial:
    """The layout of tensors with `rank` spatial axes, batch and channels.

    Attributes:
        rank: Number of spatial axes, 1 to 3.
        channels_first: Whether the channels come right after the batch.
    """

    rank: int
    channels_first: bool

    @property
    def layout(self) -> str:
        """The order of axes in JAX's letters, such as "NHWC"."""
        return "NC" + self.letters if self.channels_first else f"N{self.letters}C"

    @property
    def letters(self) -> str:
        """The letters of the spatial axes."""
        return _LETTERS[-self.rank :]

    @property
    def axes(self) -> range:
        """The spatial axes."""
        return range(2, 2 + self.rank) if self.channels_first else range(1, 1 + self.rank)

    def sizes(self, value: Any, name: str) -> tuple[int, ...]:
        """Return one number for each spatial axis, from one for all, one each, or one for every axis of the tensor."""
        given = (1,) if value is None else static_ints(value, name)
        if len(given) == 1:
            return given * self.rank
        if len(given) == self.rank:
            return given
        if len(given) != self.rank + 2:
            raise ValueError(f"`{name}` should be of length 1, {self.rank} or {self.rank + 2}, got {len(given)}.")
        rest = [given[i] for i in range(self.rank + 2) if i not in self.axes]
        if rest != [1, 1]:
            raise invalid(f"`{name}` must be 1 for the batch and the channels, got {given}.")
        return tuple(given[i] for i in self.axes)

    def padding(self, value: Any) -> Any:
        """Return JAX's padding: its name, or pairs for the spatial axes."""
        if isinstance(value, str):
            if value.upper() not in ("SAME", "VALID"):
                raise ValueError(f"`padding` must be 'SAME', 'VALID' or a list, got {value!r}.")
            return value.upper()
        pairs = [static_ints(pair, "padding") for pair in value]
        return [pairs[i] for i in self.axes] if len(pairs) == self.rank + 2 else pairs

    def everywhere(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return sizes for all axes, 1 for the batch and the channels."""
        return (1, 1, *sizes) if self.channels_first else (1, *sizes, 1)

    def padding_everywhere(self, padding: Any) -> Any:
        """Return the padding of all axes."""
        if isinstance(padding, str):
            return padding
        return [(0, 0), (0, 0), *padding] if self.channels_first else [(0, 0), *padding, (0, 0)]

    def channels(self, shape: Any) -> int:
        """Return the number of channels."""
        return shape[1] if self.channels_first else shape[-1]


def spatial(rank: int, data_format: str | None) -> Spatial:
    """Return the layout that a `data_format` such as "NHWC" names; channels last if None."""
    letters = _LETTERS[-rank:]
    if data_format in (None, f"N{letters}C"):
        return Spatial(rank, channels_first=False)
    if data_format == "NC" + letters:
        return Spatial(rank, channels_first=True)
    raise ValueError(f"`data_format` must be 'N{letters}C' or 'NC{letters}', got {data_format!r}.")


def check_rank(tensor: Any, rank: int, name: str) -> Any:
    """Return the tensor if it has that many axes."""
    if jnp.ndim(tensor) != rank:
        raise invalid(f"`{name}` must have {rank} axes, got shape {tuple(tensor.shape)}.")
    return tensor
