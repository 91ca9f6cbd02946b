"""Strings that differ between replicas: a step that does not look at them is still one program."""

from collections.abc import Sequence
from typing import Any, NoReturn, final

import numpy as np

from tfdist_jax import PerReplica
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._no_value import NoValueError


@final
class UnavailableString:
    """Stands for a replica's string while the replicas are traced, when it has no value, or where another process has it."""

    def __init__(self, *, is_elsewhere: bool = False) -> None:
        """Stand for a string that is traced, or elsewhere."""
        self._is_elsewhere = is_elsewhere

    def __jax_array__(self) -> NoReturn:
        raise self._no_value()

    __array__ = __iter__ = __len__ = __getitem__ = __bool__ = __jax_array__

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same object; it is compared with nothing but its like, since it has no value.

        Raises:
            NoValueError: If it is compared with a text.
        """
        if not isinstance(other, UnavailableString):
            raise self._no_value()
        return self is other

    def __add__(self, other: Any) -> NoReturn:
        raise self._no_value()

    __radd__ = __add__
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        raise self._no_value()

    def _no_value(self) -> NoValueError:
        if self._is_elsewhere:
            return NoValueError(
                "This string is another process's: strings stay where they have been read. "
                "`strategy.experimental_local_results` returns those of this process's replicas."
            )
        return NoValueError(
            "XLA has no strings: a compiled step cannot use a string that differs between replicas. Use it outside of the "
            "compiled function, by `strategy.experimental_local_results`, or turn it into numbers in the dataset."
        )


@final
class PerReplicaStrings(tuple):
    """The strings of all replicas; as a subclass no structure for JAX, but one leaf of it."""

    __slots__ = ()

    def unknown(self) -> "PerReplicaStrings":
        """Return what stands for them while a function is traced."""
        return PerReplicaStrings([UnavailableString()] * len(self))


def per_replica_strings(texts: Sequence[Any]) -> PerReplica:
    """Hold a string tensor for each replica."""
    return PerReplica(PerReplicaStrings(texts), len(texts))


def strings_of_this_process(parts: Sequence[Any]) -> PerReplica:
    """Hold the strings of this process's replicas, of which others, given as None, are elsewhere."""
    known = lambda part: UnavailableString(is_elsewhere=True) if part is None else np.asarray(part).view(HostTensor)
    return per_replica_strings(list(map(known, parts)))


def has_own_strings(value: Any) -> bool:
    """Tell whether a value is a string for each replica."""
    return isinstance(value, PerReplica) and isinstance(value.data, PerReplicaStrings)
