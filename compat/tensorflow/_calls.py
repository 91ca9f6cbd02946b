"""Compiled calls of Python functions on tensors: traced once per signature, kept in a cache."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax import _state
from tfdist_jax._capture import CellProgram
from tfdist_jax.compat.tensorflow._closure_guard import ById
from tfdist_jax.compat.tensorflow._context import current_strategy
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variable import Variable

_SCALARS = (bool, int, float, complex, str, bytes)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic)) and getattr(leaf.dtype, "kind", None) != "O"


def is_traced(args: Any) -> bool:
    """Tell whether a call with `args` is part of a program that is being traced already."""
    return _state.current_frame() is not None or any(isinstance(x, Tracer) for x in jax.tree.leaves(args))


@final
class CallCache:
    """The compiled programs of one function, one for each signature it was called with."""

    def __init__(self, limit: int = 128) -> None:
        """Keep at most `limit` programs, forgetting the oldest."""
        self._limit = limit
        self._programs: dict[Hashable, CellProgram] = {}
        self.traces = 0

    def __len__(self) -> int:
        return len(self._programs)

    def call(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], guard: Hashable = None
    ) -> Any:
        """Run `fn(*args, **kwargs)` as a compiled program.

        Args:
            fn: The function; traced when no program fits.
            args: Positional arguments: tensors are inputs, everything else is a constant of the program.
            kwargs: Keyword arguments, likewise.
            guard: What else the program depends on.
        """
        program, tensors = self.find(fn, args, kwargs, guard)
        return program(tensors)

    def find(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], guard: Hashable = None
    ) -> tuple[CellProgram, list[jax.Array]]:
        """Return the program for this call, traced if need be, and the call's tensors."""
        leaves, tree = jax.tree.flatten((tuple(args), dict(kwargs)))
        tensors = [convert_to_tensor(leaf) for leaf in leaves if _is_tensor(leaf)]
        key = (tree, tuple(map(_signature, leaves)), guard, current_strategy())
        if key not in self._programs:
            self._programs[key] = self._trace(fn, leaves, tree, tensors)
            if len(self._programs) > self._limit:
                del self._programs[next(iter(self._programs))]
        return self._programs[key], tensors

    def _trace(self, fn: Callable[..., Any], leaves: list[Any], tree: Any, tensors: list[jax.Array]) -> CellProgram:
        self.traces += 1

        def program(*tensors: jax.Array) -> Any:
            inputs = itertools.chain(tensors)
            filled = [next(inputs) if _is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = tree.unflatten(filled)
            return as_results(fn(*args, **kwargs))

        return CellProgram(program, tensors)


def _signature(leaf: Any) -> Hashable:
    if _is_tensor(leaf):
        return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    if isinstance(leaf, _SCALARS):
        return (type(leaf), leaf)
    return ById(leaf)


def as_results(results: Any) -> Any:
    """Turn what a traced function returns into tensors: variables give their values, numbers become constants."""
    return jax.tree.map(_as_result, results)


def _as_result(leaf: Any) -> Any:
    if isinstance(leaf, (jax.Array, Tracer)):
        return leaf
    try:
        return convert_to_tensor(leaf.value() if isinstance(leaf, Variable) else leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"A compiled function returned a {type(leaf).__name__} ({leaf!r}). Its results must be tensors, numbers or "
            "None, in tuples, lists or dicts. Compute other values outside of it."
        ) from error
