"""What stages of a pipeline do: operations, and what each of them needs."""

import enum
from collections.abc import Mapping
from typing import NamedTuple, final


@final
class Kind(enum.Enum):
    """What a stage computes of a microbatch; the values are the letters that `torch.distributed.pipelining` writes."""

    FORWARD = "F"
    BACKWARD = "B"
    """All gradients: by its input and by its parameters."""
    INPUT = "I"
    """The gradient by its input, for which the stage before waits."""
    WEIGHT = "W"
    """The gradients by its parameters, for which nobody does."""


class Operation(NamedTuple):
    """One piece of work.

    Attributes:
        stage: Of which stage, of all `Schedule.num_stages`.
        kind: What is computed.
        microbatch: Of which microbatch.
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        """Write it as `torch.distributed.pipelining` does, such as 3F0."""
        return f"{self.stage}{self.kind.value}{self.microbatch}"


class ScheduleError(ValueError):
    r"""A schedule that would compute something wrong, or nothing at all.

    Example:
        >>> import tfdist_jax as td
        >>> try:
        ...     td.Schedule.from_csv("0F0,0B0\n1F0")
        ... except td.ScheduleError as error:
        ...     print(error)
        At tick 2 all devices wait: device 0 cannot do 0B0 before 1B0. Put what is needed first.
    """


Cell = tuple[Operation, ...]
"""What a device does at one tick: at most a forward, a backward and a weight gradient, in this order."""


def needs(
    operation: Operation, num_stages: int, backwards: Mapping[tuple[int, int], Kind]
) -> list[tuple[Operation, bool]]:
    """Return what must be done before an operation, and whether it comes from another device, at an earlier tick.

    Args:
        operation: The operation.
        num_stages: How many stages there are.
        backwards: Whether the backward pass of a stage and microbatch is in one piece.
    """
    stage, kind, microbatch = operation
    if kind is Kind.FORWARD:
        return [(Operation(stage - 1, Kind.FORWARD, microbatch), True)] if stage else []
    if kind is Kind.WEIGHT:
        return [(Operation(stage, Kind.INPUT, microbatch), False)]
    own = (Operation(stage, Kind.FORWARD, microbatch), False)
    if stage == num_stages - 1:
        return [own]
    after = backwards.get((stage + 1, microbatch), Kind.BACKWARD)
    return [own, (Operation(stage + 1, after, microbatch), True)]
