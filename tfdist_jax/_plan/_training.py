"""What is to be trained."""

import dataclasses
from collections.abc import Callable
from typing import Any, final

import jax

from tfdist_jax._pipeline import Staged
from tfdist_jax._sharding._input import num_rows
from tfdist_jax._sharding._layout import state_leaves


@final
@dataclasses.dataclass(frozen=True)
class Training:
    """A loss, and the shapes of what it is trained with.

    Attributes:
        loss: `loss(params, batch, *extra)`.
        state: The parameters and what else is kept from step to step.
        find_params: From a state to the parameters.
        batch: The rows of all replicas.
        extra: Other arguments of the loss.
        has_aux: Whether the loss returns a pair.
    """

    loss: Callable[..., Any]
    state: Any
    find_params: Callable[[Any], Any]
    batch: Any
    extra: tuple[Any, ...]
    has_aux: bool

    @property
    def params(self) -> Any:
        """The parameters."""
        return self.find_params(self.state)

    @property
    def stack(self) -> str | None:
        """The path of layers that a pipeline divides; None if there are no stacked ones."""
        return self.loss.stack if isinstance(self.loss, Staged) and not self.loss.is_listed else None

    @property
    def num_rows(self) -> int:
        """How many rows a batch has."""
        return num_rows(self.batch)

    def are_layers(self) -> list[bool]:
        """Return of each parameter whether it is one of layers that a pipeline divides."""
        if self.stack is None or not isinstance(self.loss, Staged):
            return [False] * len(jax.tree.leaves(self.params))
        return self.loss.are_layers(self.params)

    def count_layers(self) -> int:
        """Return over how many devices a pipeline can divide the loss; 1 if it is not made of stages."""
        if not isinstance(self.loss, Staged):
            return 1
        return self.loss.count_functions() if self.loss.is_listed else self.loss.count_layers(self.params)


def named_by_arrays(training: Training) -> set[str]:
    """Return what Flax calls the dimensions of a state's arrays, which may be names of axes."""
    leaves = (leaf for leaf in state_leaves(training.state) if leaf is not None)
    return {name for leaf in leaves for name in leaf.axis_names or () if isinstance(name, str)}


def first_of(state: Any) -> Any:
    """Return the parameters of a state: the first of a tuple, or all of it."""
    return state[0] if type(state) is tuple and state else state
