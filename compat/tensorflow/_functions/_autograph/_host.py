"""Functions that need data from the host while they run, and so cannot be one program."""

from typing import Any

from tfdist_jax._errors import NotCompilableError
from tfdist_jax._stateful._state import current_scope


class NeedsHostError(NotCompilableError):
    """A function that is being traced asks the host for data: it has to run as Python, around compiled steps."""

    def __init__(self) -> None:
        """Say what to do, should nobody be there to run the function as Python."""
        super().__init__(
            "A dataset was iterated over, made of tensors, or returned, inside a function that runs on the replicas or in a loop of the "
            "program, where there is no data from the host. Iterate outside of it and pass the batches in."
        )


def is_host_iterable(value: Any) -> bool:
    """Tell whether a loop over a value takes its entries from the host's data."""
    return hasattr(value, "as_numpy_iterator") or hasattr(value, "get_next")


def require_host() -> None:
    """Raise if a function is being traced: called where the next element of a dataset is asked for.

    Raises:
        NeedsHostError: Caught by the function that started the trace.
    """
    scope = current_scope()
    if scope is not None and scope.is_traced:
        raise NeedsHostError
