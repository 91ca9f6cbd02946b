"""Datasets that are made inside of a function, of tensors that have no value while it is traced: it has to run as Python."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host

AnyClass = TypeVar("AnyClass", bound=type)

_NO_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def needing_values(cls: AnyClass) -> AnyClass:
    """Let a class's methods, which make datasets, ask for the host where they are given a tensor without a value."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") or isinstance(member, property):
            continue
        if isinstance(member, classmethod):
            setattr(cls, name, classmethod(_needing_values(member.__func__)))
        elif callable(member):
            setattr(cls, name, _needing_values(member))
    return cls


def _needing_values(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def making(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except _NO_VALUE:
            require_host()
            raise

    return making
