"""Losses that are divided by what counts of a batch, such as tokens that are not masked, where they are computed of parts of it."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, final

import keras

from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import loss_module

_OF_ENTRIES, _OF_WEIGHTS = ("mean", "sum_over_batch_size"), "mean_with_sample_weight"


@final
class LossRatios:
    """By how much losses are more than the means over all entries, in the order in which they are computed.

    Each part of a batch has other numbers of masked entries. With the ratio of the whole, the mean over the parts is the loss of the whole.

    Attributes:
        found: Those of a whole batch, if none are given.
    """

    def __init__(self, given: Sequence[Any] | None = None) -> None:
        """Use those of the whole batch for parts of it; find them if None."""
        self.found: list[Any] = []
        self._given = None if given is None else iter(given)

    def applied(self) -> AbstractContextManager[None]:
        """Let losses that are computed have them."""
        return having(_ratios, self)

    def next_ratio(self, size: Any, counted: Any) -> Any:
        """Return that of the next loss, of so many entries, with what they count."""
        if self._given is not None:
            return next(self._given)
        self.found.append(keras.ops.divide_no_nan(keras.ops.cast(size, counted.dtype), keras.ops.sum(counted)))
        return self.found[-1]


# While losses of parts of a batch are computed, or the ratios for them.
_ratios: ContextVar[LossRatios | None] = ContextVar("ratios", default=None)


def _with_ratio(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce_weighted_values(
        values: Any, sample_weight: Any = None, mask: Any = None, reduction: Any = _OF_ENTRIES[1], dtype: Any = None
    ) -> Any:
        ratios, of_weights = _ratios.get(), reduction == _OF_WEIGHTS
        counts = mask is not None or (of_weights and sample_weight is not None)
        if ratios is None or not counts or (reduction not in _OF_ENTRIES and not of_weights):
            return original(values, sample_weight, mask, reduction, dtype)
        values = keras.ops.convert_to_tensor(values, dtype=dtype)
        weights = loss_module.apply_mask(sample_weight, mask, values.dtype, "sum")
        # Weights may have entries that the losses are repeated for.
        weighted = original(values, weights, None, "none", dtype)
        # Keras's means are over what masks leave, and those by weights over their sum.
        size, counted = (weighted.size, weights) if of_weights else (keras.ops.size(mask), mask)
        ratio = ratios.next_ratio(size, keras.ops.cast(counted, weighted.dtype))
        return original(weighted, None, None, _OF_ENTRIES[1], dtype) * ratio

    return reduce_weighted_values


CHANGES = (
    Hook(
        loss_module,
        "reduce_weighted_values",
        _with_ratio,
        "values sample_weight mask reduction dtype",
        "a part of a batch is divided by what counts of the whole",
    ),
)
