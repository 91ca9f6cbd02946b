"""`tf.range` with bounds that are known only when the program runs: something to loop over."""

import dataclasses
from typing import Any, final

import jax.numpy as jnp
from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax.compat.tensorflow._ops._creation import range as tf_range
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@final
@dataclasses.dataclass(frozen=True)
class TracedRange:
    """The numbers from `start` on, in steps of `delta`, below `limit` (above it, if `delta` is negative)."""

    start: Any
    limit: Any
    delta: Any

    def contains(self, number: Any) -> Any:
        """Tell whether a number of the sequence is before its end."""
        return jnp.where(self.delta > 0, number < self.limit, number > self.limit)

    def __jax_array__(self) -> Any:
        raise ConcreteValueRequiredError(
            "tf.range of a tensor that is known only when the program runs can be looped over with `for`, but is no "
            "tensor itself, since XLA needs fixed shapes. Use a Python number, or a mask over the largest range."
        )


def range_(*args: Any, **kwargs: Any) -> Any:
    """Return `tf.range(...)`, or what stands for it in a `for` loop if its bounds are traced."""
    numbers = [*args, *kwargs.values()]
    if not any(isinstance(number, Tracer) for number in numbers):
        return tf_range(*args, **kwargs)
    return _traced_range(*args, **kwargs)


def _traced_range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: Any = None) -> TracedRange:
    if limit is None:
        start, limit = 0, start
    numbers = [
        convert_to_tensor(number, dtype=dtype) if dtype else jnp.asarray(number) for number in (start, limit, delta)
    ]
    common = dtype or jnp.result_type(*[number.dtype for number in numbers if isinstance(number, Tracer)])
    return TracedRange(*(number.astype(common) for number in numbers))
