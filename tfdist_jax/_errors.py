"""Errors: of functions that cannot be one compiled program, of programs that do not fit into memory, of damaged files."""

from collections.abc import Callable
from typing import final


class NotCompilableError(RuntimeError):
    """A function that is being traced cannot be one program: it has to run as Python around several."""


@final
class ConcreteValueRequiredError(NotCompilableError):
    """A function that is being traced needs the value of an array, which it has only when it runs as Python."""


@final
class ChangeInBodyError(NotCompilableError):
    """A function that is being traced changes in a conditional or a loop what a program changes elsewhere: it has to run as Python."""


class RestartError(BaseException):
    """Replicas have to be traced again, in another way. No `Exception`: it is not for handlers in the step that they run."""


@final
class DiffersByReplicaError(RestartError):
    """Replicas that are traced as one would have to be traced one by one: they differ, as the message says."""


@final
class NewOwnCellsError(RestartError):
    """Replicas that are traced as one have made cells with a value for each: they are to be traced again, with these."""


@final
class UsedAfterUpdateError(RestartError):
    """Replicas use what an update changes that was to run behind them."""


class OutOfMemoryError(RuntimeError):
    """A program needs more memory than its devices have; it has not run."""


@final
class DataLossError(RuntimeError):
    """What was saved is damaged: a file of it is gone, or does not hold what was written.

    Example:
        >>> import pathlib, tempfile, numpy as np, tfdist_jax as td
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with td.Checkpointer(folder) as checkpointer:
        ...     checkpointer.save(1, {"w": np.ones(3)})
        >>> for file in (folder / "step-1").rglob("*"):
        ...     _ = file.is_file() and file.write_bytes(b"")
        >>> try:
        ...     state = td.Checkpointer(folder).restore().state
        ... except td.DataLossError:
        ...     print("begin anew")
        begin anew
    """


class ServerLostError(RuntimeError):
    """A parameter server has gone, and with it the variables that it held."""


make_server_lost_error: list[Callable[[str], ServerLostError]] = [ServerLostError]
"""As `make_out_of_memory_error`."""

make_out_of_memory_error: list[Callable[[str], OutOfMemoryError]] = [OutOfMemoryError]
"""The last one makes the error: a facade's, which programs for it expect."""


class RelatedRowsWarning(UserWarning):
    """What a function computes for a row depends on other rows, of which each part of a batch has its own alone."""
