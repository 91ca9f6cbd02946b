"""Integers that must be below a limit, such as ids of an embedding and labels: refused as TensorFlow's kernels refuse them.

Where their values are known they are looked at; in a program that is being traced they are marked, so that `fit` can find
out which entries of a batch they are (`_training/_batch_checks`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu

MARK = "keras_bounded"
"""The name of the equation that marks integers; its parameters are `least`, `size` and `what`."""

_bounded = Primitive(MARK)
_bounded.def_impl(lambda values, **_: values)
_bounded.def_abstract_eval(lambda values, **_: values)
batching.primitive_batchers[_bounded] = lambda values, axes, **given: (_bounded.bind(*values, **given), axes[0])
mlir.register_lowering(_bounded, lambda ctx, values, **_: [values])


def require_within(values: Any, size: int, what: str, *, least: int = 0) -> jax.Array:
    """Return integers of which each must be one of `least` ... `size` - 1.

    Args:
        values: The integers.
        size: How many there are to choose from.
        what: What they are, for the message.
        least: Below 0 where negative ones count from the end.

    Raises:
        InvalidArgumentError: If one is outside, and known.
    """
    values = jnp.asarray(values)
    if isinstance(values, Tracer):
        return _bounded.bind(values, least=least, size=size, what=what)
    known = on_cpu(values)
    if known is not None:
        refuse_outside(known, least, size, what)
    return values


def refuse_outside(values: np.ndarray, least: int, size: int, what: str) -> None:
    """Raise if an integer is outside of `least` ... `size` - 1.

    Raises:
        InvalidArgumentError: If one is.
    """
    if not values.size or (values.min() >= least and values.max() < size):
        return
    place = np.argwhere((values < least) | (values >= size))[0]
    raise InvalidArgumentError(
        None,
        None,
        f"{what}: {values[tuple(place)]} at {place.tolist()} is not in [0, {size}). Count from 0, and let the size be "
        "one more than the largest.",
    )
