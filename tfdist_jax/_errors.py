"""Why a function that is being traced cannot be one compiled program, or not the same one for all replicas."""

from typing import final


class NotCompilableError(RuntimeError):
    """A function that is being traced cannot be one program: it has to run as Python around several."""


@final
class ConcreteValueRequiredError(NotCompilableError):
    """A function that is being traced needs the value of an array, which it has only when it runs as Python."""


class DiffersByReplicaError(Exception):
    """Replicas that are traced as one would have to be traced one by one: they differ, as the message says."""


@final
class DataLossError(RuntimeError):
    """What was saved is damaged: a file of it is gone, or does not hold what was written."""
