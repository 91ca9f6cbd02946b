"""Values that TensorFlow's kernels refuse on CPU, where XLA goes on with something else.

Only values that are known are looked at, and only on CPU: there it takes microseconds, elsewhere operations would wait
for the device. TensorFlow's kernels on GPU do not look either.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError


def on_cpu(value: Any) -> np.ndarray | None:
    """Return the value of a tensor that is known and in the memory of this host, or None."""
    if isinstance(value, Tracer):
        return None
    if not isinstance(value, jax.Array):
        return np.asarray(value)
    near = value.is_fully_addressable and next(iter(value.devices())).platform == "cpu"
    return np.asarray(value) if near else None


def check_indices(indices: Any, sizes: int | Sequence[int]) -> None:
    """Raise if an index is outside of its axis.

    Args:
        indices: Integers; if `sizes` are several, `[..., len(sizes)]`.
        sizes: The size of the axis, or of several.

    Raises:
        InvalidArgumentError: If one is outside.
    """
    rows = on_cpu(indices)
    if rows is None or not rows.size:
        return
    outside = (rows < 0) | (rows >= np.asarray(sizes))
    if outside.any():
        place = np.argwhere(outside)[0]
        first = rows[tuple(place if np.ndim(sizes) == 0 else place[:-1])].tolist()
        raise InvalidArgumentError(
            None,
            None,
            f"indices[{', '.join(map(str, place))}] = {first} is not in [0, {sizes}): an axis has no such entry.",
        )


def check_divisor(divisor: Any, dividend: Any) -> None:
    """Raise if integers are divided by zero."""
    if getattr(dividend, "dtype", np.dtype(int)).kind not in "iu":
        return
    number = on_cpu(divisor)
    if number is not None and number.dtype.kind in "iu" and not number.all():
        raise InvalidArgumentError(None, None, "Integer division by zero")


def check_solvable(solution: Any, *given: Any) -> None:
    """Raise if infinite numbers in what was computed of finite ones show that a matrix has no inverse."""
    found = on_cpu(solution)
    if found is None or np.isfinite(found).all() or any(isinstance(one, Tracer) for one in given):
        return
    if all(np.isfinite(one).all() for one in given):
        raise InvalidArgumentError(None, None, "Input matrix is not invertible.")


def missing_entry(key: Any, sizes: tuple[int, ...]) -> str | None:
    """Return what is wrong with indexing a tensor of these sizes with `key`, or None."""
    if type(key) is int:
        return _off(key, 0, sizes)
    keys = key if isinstance(key, tuple) else (key,)
    axis = 0
    for i, item in enumerate(keys):
        if item is None:
            continue
        if item is Ellipsis:
            axis = len(sizes) - sum(later is not None for later in keys[i + 1 :])
            continue
        if not isinstance(item, slice):
            number = _scalar(item)
            if number is None:
                return None  # JAX looks after it.
            message = _off(number, axis, sizes)
            if message:
                return message
        axis += 1
    return _off(0, axis - 1, sizes) if axis > len(sizes) else None


def _scalar(item: Any) -> int | None:
    if isinstance(item, int):
        return None if isinstance(item, bool) else int(item)
    # Others have a meaning of their own, such as the ranges by which Pallas's kernels read.
    dtype = getattr(item, "dtype", None)
    if dtype is None or dtype.kind not in "iu" or np.ndim(item):
        return None
    number = on_cpu(item)
    return None if number is None else int(number)


def _off(number: int, axis: int, sizes: tuple[int, ...]) -> str | None:
    if axis >= len(sizes):
        return f"Index out of range using input dim {axis}; input has only {len(sizes)} dims."
    if isinstance(sizes[axis], int) and not -sizes[axis] <= number < sizes[axis]:
        return f"slice index {number} of dimension {axis} out of bounds: it has {sizes[axis]} entries."
    return None
