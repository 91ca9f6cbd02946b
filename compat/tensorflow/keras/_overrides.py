"""Other methods for one object, while a program is traced."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def overriding(owner: Any, **methods: Callable[..., Any]) -> Iterator[None]:
    """Let `owner` alone have `methods`; past Keras's tracking of attributes, which is for layers and variables."""
    for name, method in methods.items():
        object.__setattr__(owner, name, method)
    try:
        yield
    finally:
        for name in methods:
            object.__delattr__(owner, name)
