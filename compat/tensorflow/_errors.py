"""TensorFlow's exceptions, with its codes and hierarchy.

See https://www.tensorflow.org/api_docs/python/tf/errors.
"""

from typing import Any, final

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


class OpError(Exception):
    """What an operation raises.

    Attributes:
        message: What went wrong.
        error_code: One of the codes of this module.
        node_def: The operation's description where there is one; JAX has none, so usually None.
        op: The operation where there is one, likewise.
        experimental_payloads: An empty dictionary.
    """

    def __init__(self, node_def: Any, op: Any, message: str, error_code: int, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, error_code, *args)
        self.node_def = node_def
        self.op = op
        self.message = message
        self.error_code = error_code
        self.experimental_payloads: dict[str, Any] = {}

    def __str__(self) -> str:
        """Return the message."""
        return self.message


@final
class CancelledError(OpError):
    """The operation was cancelled."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, CANCELLED, *args)


@final
class UnknownError(OpError):
    """Nothing better is known about the error."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, UNKNOWN, *args)


@final
class InvalidArgumentError(OpError):
    """An argument is of no use to the operation: a wrong shape, type or value."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, INVALID_ARGUMENT, *args)


@final
class DeadlineExceededError(OpError):
    """The operation took too long."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, DEADLINE_EXCEEDED, *args)


@final
class NotFoundError(OpError):
    """A file or a device is not there."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, NOT_FOUND, *args)


@final
class AlreadyExistsError(OpError):
    """What should be made is there already."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, ALREADY_EXISTS, *args)


@final
class PermissionDeniedError(OpError):
    """The caller may not do this."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, PERMISSION_DENIED, *args)


@final
class UnauthenticatedError(OpError):
    """It is not known who the caller is."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, UNAUTHENTICATED, *args)


@final
class ResourceExhaustedError(OpError):
    """Memory, disk or a quota is used up."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, RESOURCE_EXHAUSTED, *args)


@final
class FailedPreconditionError(OpError):
    """The operation cannot run in the present state."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, FAILED_PRECONDITION, *args)


@final
class AbortedError(OpError):
    """The operation was given up, usually for another one that ran at the same time."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, ABORTED, *args)


@final
class OutOfRangeError(OpError):
    """There is nothing more, such as at the end of a dataset."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, OUT_OF_RANGE, *args)


@final
class UnimplementedError(OpError):
    """The operation has not been written."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, UNIMPLEMENTED, *args)


@final
class InternalError(OpError):
    """The system broke one of its own rules."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, INTERNAL, *args)


@final
class UnavailableError(OpError):
    """The service is not there at present."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, UNAVAILABLE, *args)


@final
class DataLossError(OpError):
    """Data is damaged or lost."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        """Describe a failed operation."""
        super().__init__(node_def, op, message, DATA_LOSS, *args)


@final
class OperatorNotAllowedInGraphError(TypeError):
    """A tensor without a value yet was used where Python needs one."""
