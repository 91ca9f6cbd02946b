"""What summaries go by: the default writer, the default step, and whether to record at all."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor, is_tracing

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.summary._writer import SummaryWriter


@dataclasses.dataclass(frozen=True)
class Recording:
    """What holds at one moment.

    Attributes:
        writer: The default writer, or None.
        step: The default step: a number, a tensor, a variable, or None.
        condition: Whether to record: a value, or a function that is asked each time.
        inside: Which of these were set while a function was traced, so that they belong to that function.
    """

    writer: "SummaryWriter | None" = None
    step: Any = None
    condition: Any = True
    inside: frozenset[str] = frozenset()


# For the whole process: compiled functions write from threads of JAX's own.
_current = Recording()


def current() -> Recording:
    """Return what holds now."""
    return _current


def change(**changes: Any) -> None:
    """Let something else hold from now on."""
    global _current
    inside = _current.inside | set(changes) if is_tracing() else _current.inside - set(changes)
    _current = dataclasses.replace(_current, **changes, inside=inside)


@contextlib.contextmanager
def changed(**changes: Any) -> Iterator[None]:
    """Let something else hold inside the context."""
    global _current
    before = _current
    change(**changes)
    try:
        yield
    finally:
        undone = {name: getattr(before, name) for name in changes}
        inside = (_current.inside - set(changes)) | (before.inside & set(changes))
        _current = dataclasses.replace(_current, **undone, inside=inside)


def get_step() -> Any:
    """Return the default step, or None."""
    return _current.step


def set_step(step: Any) -> None:
    """Set the default step.

    Args:
        step: A number; or a tensor or `tf.Variable`, which compiled functions read each time they run.
    """
    change(step=step)


def record_if(condition: bool | Callable[[], Any] | Any) -> contextlib.AbstractContextManager[None]:
    """Return a context in which summaries are recorded only if `condition` holds.

    Args:
        condition: A value, a bool tensor, or a function that returns one and is called for each summary.
    """
    return changed(condition=condition)


def asked(condition: Any) -> Any:
    """Return the value of a condition: a bool, or a tensor."""
    return condition() if callable(condition) and not is_tensor(condition) else condition


def should_record_summaries() -> Any:
    """Return a bool tensor: whether there is a default writer and recording is on."""
    if _current.writer is None:
        return convert_to_tensor(False)
    return convert_to_tensor(asked(_current.condition))


@contextlib.contextmanager
def using(writer: "SummaryWriter", step: Any) -> Iterator[None]:
    """Make `writer`, and `step` unless it is None, the default inside the context."""
    with changed(**defaults(writer, step)):
        yield


def defaults(writer: "SummaryWriter", step: Any) -> dict[str, Any]:
    """Return the changes that make `writer`, and `step` unless it is None, the default."""
    return {"writer": writer} if step is None else {"writer": writer, "step": step}
