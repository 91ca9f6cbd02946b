"""`tf.data.experimental.group_by_reducer`: what a reducer makes of the elements of each key."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._mapping import first_of
from tfdist_jax.compat.tensorflow.data._plan import Plan, Uncounted, made_once
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog


@final
class Reducer:
    """A state for the elements of a key, how each changes it, and what becomes of it.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/Reducer

    Attributes:
        init_func: Makes a state of a key.
        reduce_func: Makes the next state of a state and an element.
        finalize_func: Makes an element of the last state.
    """

    def __init__(
        self, init_func: Callable[..., Any], reduce_func: Callable[..., Any], finalize_func: Callable[..., Any]
    ) -> None:
        """Hold the functions."""
        self.init_func, self.reduce_func, self.finalize_func = init_func, reduce_func, finalize_func


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Callable[[Dataset], Dataset]:
    """Return a transformation that gives one element for each key, in the keys' order.

    Args:
        key_func: Returns an element's key, `[]` int64.
        reducer: What makes an element of those of a key.

    Raises:
        ValueError: While elements are made, or their type is asked for, if a key is something else.
    """
    functions = key_func, reducer.init_func, reducer.reduce_func, reducer.finalize_func
    return lambda dataset: Dataset(GroupByReducer(dataset._plan, *map(ElementFunction, functions)), dataset.options())


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GroupByReducer(Uncounted):
    """For each key, in their order, what the functions make of its elements."""

    parent: Plan
    key_func: ElementFunction
    init_func: ElementFunction
    reduce_func: ElementFunction
    finalize_func: ElementFunction

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        functions = self.key_func, self.init_func, self.reduce_func, self.finalize_func
        calls = [function.caller(seed_log) for function in functions]
        elements = self.parent.elements(seed_log.part("reduced"))
        return _failures.flatten(_reduced(elements, *calls) for _ in range(1))

    @made_once
    def make_spec(self) -> Any:
        key = _checked_key(self.key_func.example(first_of(self.parent)))
        return _elements.spec_of(self.finalize_func.example(self.init_func.example(key)))


def _reduced(
    elements: Iterator[Any],
    find_key: Callable[[Any], Any],
    begin: Callable[[Any], Any],
    reduce: Callable[[Any], Any],
    finish: Callable[[Any], Any],
) -> Iterator[Any]:
    states: dict[int, Any] = {}
    for element in elements:
        key = _checked_key(find_key(element))
        state = states[int(key)] if int(key) in states else begin(key)
        states[int(key)] = reduce((state, element))
    return map(finish, (states[key] for key in sorted(states)))


def _checked_key(key: Any) -> Any:
    if not isinstance(key, np.ndarray | np.generic) or key.dtype != np.int64 or key.shape:
        got = f"dtype {key.dtype} and shape {key.shape}" if hasattr(key, "dtype") else repr(key)
        raise ValueError(f"Invalid `key_func`. It must return a scalar tf.int64 tensor, and returned {got}.")
    return key
