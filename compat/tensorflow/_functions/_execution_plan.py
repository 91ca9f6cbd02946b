"""How a step or a function runs, and why: a value that is decided once, kept and shown."""

import dataclasses
import enum
import logging
import traceback
from typing import Any, final

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._user_code import is_user_file

_log = logging.getLogger("tfdist_jax")
_NEEDS_VALUE = "it needs the value of a tensor. Return the tensor and look at it outside for full speed."


@final
class Way(enum.Enum):
    """The ways in which a step or a function can run."""

    ONE_PROGRAM = "as one program"
    LOCK_STEP = "as one program, traced replica by replica"
    EAGER = "replica by replica, uncompiled"
    PYTHON = "as Python, one operation after the other"


@final
@dataclasses.dataclass(frozen=True)
class ExecutionPlan:
    """How a step or a function runs, and why.

    Attributes:
        way: How.
        reason: Why not otherwise.
        line: The line of the user's that is the cause, as "train.py, line 57: float(loss)"; empty if it is none.
        is_compiled: Whether XLA compiles it.
    """

    way: Way
    reason: str
    line: str = ""
    is_compiled: bool = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look at the way once: each step asks."""
        object.__setattr__(self, "is_compiled", self.way in (Way.ONE_PROGRAM, Way.LOCK_STEP))

    def __str__(self) -> str:
        """Say how and why."""
        line = f" ({self.line})" if self.line else ""
        return f"{self.way.value}{line}: {self.reason}"


def make_uncompiled_plan(way: Way, error: BaseException) -> ExecutionPlan:
    """Return the plan of what could not be traced as a program, because of `error`."""
    reason = str(error) if isinstance(error, NotCompilableError) else _NEEDS_VALUE
    return ExecutionPlan(way, reason, _users_line(error))


def warn_not_compiled(fn: Any, plan: ExecutionPlan) -> None:
    """Log how a function runs that could not be compiled, which of its lines is the cause, and why."""
    name = getattr(fn, "__qualname__", repr(fn)).rpartition("<locals>.")[2].removeprefix("ag__")
    _log.warning("%s runs %s", name, plan)


def _users_line(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
