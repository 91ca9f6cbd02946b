"""What a strategy says of its pipeline."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, final

from tfdist_jax._pipeline._schedule import Schedule
from tfdist_jax._pipeline._staged import Staged

Remat = Literal["layer", "stage", "none"]
"""What is kept for backward passes: what layers take, or what stages take, or all that layers need, as they say themselves."""


@final
@dataclasses.dataclass(frozen=True)
class PipelinePlan:
    """How a batch goes through stages.

    Attributes:
        schedule: Which device computes what, and when.
        remat: What is kept for backward passes, which compute the rest again.
    """

    schedule: Schedule
    remat: Remat


@final
@dataclasses.dataclass(frozen=True)
class StagedLoss:
    """A loss made of stages, and how a pipeline computes it.

    Attributes:
        staged: The stages.
        plan: Which device computes what, and when.
        read: From what the last stage returns to the loss and its aux.
    """

    staged: Staged
    plan: PipelinePlan
    read: Callable[[Any], Any]
