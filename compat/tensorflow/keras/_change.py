"""What one change in Keras is: a name replaced, or a name added."""

import dataclasses
from collections.abc import Callable
from typing import Any, final


@final
@dataclasses.dataclass(frozen=True)
class Hook:
    """A name of Keras's own that is replaced.

    Attributes:
        owner: The class or module that has it.
        name: What is replaced.
        wrapper: Makes the replacement from the original, which it calls except where the reason says otherwise.
        parameters: The first parameters of the original, separated by blanks; None for what is not a function.
        reason: Why the original does not do.
        elsewhere: The other modules that hand the original out, and are to hand out the replacement.
    """

    owner: Any
    name: str
    wrapper: Callable[[Any], Any]
    parameters: str | None
    reason: str
    elsewhere: tuple[Any, ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class Addition:
    """A name that Keras does not have, and TensorFlow 2's programs or this project use.

    Attributes:
        owner: The class or module that gets it.
        name: What is added.
        value: What it stands for.
    """

    owner: Any
    name: str
    value: Any


Change = Hook | Addition


def instead(value: Any) -> Callable[[Any], Any]:
    """Return the wrapper that makes `value` of whatever was there."""
    return lambda original: value
