"""What a strategy says of its pipeline."""

import dataclasses
from typing import final

from tfdist_jax._pipeline._schedule import Schedule


@final
@dataclasses.dataclass(frozen=True)
class PipelinePlan:
    """How a batch goes through stages.

    Attributes:
        schedule: Which device computes what, and when.
        remat: Whether backward passes compute again what forward passes have computed, of which only stages' inputs are kept.
    """

    schedule: Schedule
    remat: bool
