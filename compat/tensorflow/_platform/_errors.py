"""TensorFlow's exceptions, with its codes and hierarchy.

See https://www.tensorflow.org/api_docs/python/tf/errors.
"""

from typing import Any, final

from tfdist_jax._errors import OutOfMemoryError, ServerLostError, make_out_of_memory_error, make_server_lost_error

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

    _code: int | None = None

    def __init__(self, node_def: Any, op: Any = None, message: str | None = None, *args: Any) -> None:
        """Describe a failed operation; a further argument is the code, where the class is no particular error's.

        A message alone will do: so libraries that add to what an error says make it anew, and pickle.
        """
        if message is None:
            node_def, message = None, str(node_def)
        super().__init__(message)
        self.node_def = node_def
        self.op = op
        self.message = message
        self.error_code = args[0] if self._code is None and args else self._code
        self.experimental_payloads: dict[str, Any] = {}

    def __str__(self) -> str:
        """Return the message."""
        return self.message


@final
class CancelledError(OpError):
    """The operation was cancelled."""

    _code = CANCELLED


@final
class UnknownError(OpError):
    """Nothing better is known about the error."""

    _code = UNKNOWN


@final
class InvalidArgumentError(OpError):
    """An argument is of no use to the operation: a wrong shape, type or value."""

    _code = INVALID_ARGUMENT


@final
class DeadlineExceededError(OpError):
    """The operation took too long."""

    _code = DEADLINE_EXCEEDED


class NotFoundError(OpError):
    """A file or a device is not there."""

    _code = NOT_FOUND


@final
class NoTPUError(NotFoundError, ValueError):
    """There is no TPU: TensorFlow has one of both errors, depending on why."""


@final
class AlreadyExistsError(OpError):
    """What should be made is there already."""

    _code = ALREADY_EXISTS


@final
class PermissionDeniedError(OpError):
    """The caller may not do this."""

    _code = PERMISSION_DENIED


@final
class UnauthenticatedError(OpError):
    """It is not known who the caller is."""

    _code = UNAUTHENTICATED


class ResourceExhaustedError(OpError):
    """Memory, disk or a quota is used up."""

    _code = RESOURCE_EXHAUSTED


@final
class _OutOfMemoryError(ResourceExhaustedError, OutOfMemoryError):
    """What the native library raises in a program for TensorFlow."""


make_out_of_memory_error.append(lambda message: _OutOfMemoryError(None, None, message))


@final
class FailedPreconditionError(OpError):
    """The operation cannot run in the present state."""

    _code = FAILED_PRECONDITION


@final
class AbortedError(OpError):
    """The operation was given up, usually for another one that ran at the same time."""

    _code = ABORTED


@final
class OutOfRangeError(OpError):
    """There is nothing more, such as at the end of a dataset."""

    _code = OUT_OF_RANGE


@final
class UnimplementedError(OpError):
    """The operation has not been written."""

    _code = UNIMPLEMENTED


@final
class InternalError(OpError):
    """The system broke one of its own rules."""

    _code = INTERNAL


class UnavailableError(OpError):
    """The service is not there at present."""

    _code = UNAVAILABLE


@final
class _ServerLostError(UnavailableError, ServerLostError):
    """What the native library raises in a program for TensorFlow."""


make_server_lost_error.append(lambda message: _ServerLostError(None, None, message))


class DataLossError(OpError):
    """Data is damaged or lost."""

    _code = DATA_LOSS


@final
class OperatorNotAllowedInGraphError(TypeError):
    """A tensor without a value yet was used where Python needs one."""


@final
class InaccessibleTensorError(TypeError, ValueError):
    """A tensor was used outside of the function, or of the branch of it, in which alone it has a value."""
