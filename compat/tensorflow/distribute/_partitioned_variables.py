"""Variables of parameter servers that are cut into parts, each on a server of its own."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from tfdist_jax.compat.tensorflow._ops._parts import part_sizes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._sharded_variable import ShardedVariable
from tfdist_jax.compat.tensorflow._variables._variable import first_value


def make_partitioned(partitioner: Callable[..., Any], make: Callable[..., Any], **given: Any) -> Any:
    """Make a variable, in parts if there are to be several.

    Args:
        partitioner: Says how many, given a shape and a type.
        make: Makes a variable that is whole.
        **given: The arguments of `tf.Variable`, all of them. An `initial_value` that is called is so for each part, with its
            `partition_shape` and `partition_offset`, if it takes them and the whole shape and type are given, too.

    Returns:
        A `tf.Variable`, or a `ShardedVariable` of several.

    Raises:
        ValueError: If the partitioner answers anything but a list of 1 behind the first number, or if the initial value has not the shape
            that is given.
        TypeError: If the first number is none, or is negative.
    """
    if given["initial_value"] is None:
        return make(**given)  # Which says that there has to be one.
    value_of, shape, dtype = _first_values(given["initial_value"], given["shape"], given["dtype"])
    count = _first_of(partitioner(shape=shape, dtype=as_dtype(dtype))) if shape.rank else 1
    if count == 1:
        return make(**given)
    sizes = part_sizes(int(shape[0]), min(count, int(shape[0])))
    made = []
    for i, (start, size) in enumerate(zip(itertools.accumulate(sizes, initial=0), sizes, strict=False)):
        part_shape = TensorShape([size, *shape[1:]])
        own = {"initial_value": functools.partial(value_of, start, part_shape), "shape": part_shape}
        if given["name"] is not None:
            own["name"] = f"{given['name']}/part_{i}"
        made.append(make(**given | own))
    return ShardedVariable(made)


def _first_values(
    initial: Any, shape: Any, dtype: Any
) -> tuple[Callable[[int, TensorShape], jax.Array], TensorShape, Any]:
    """Return what makes the value of a part, given where it starts and its shape; and the shape and the type of the whole."""
    if callable(initial) and shape is not None and dtype is not None:
        return _Initializer(initial, TensorShape(shape), dtype), TensorShape(shape), dtype
    whole = first_value(initial, dtype)
    return functools.partial(_cut, whole), TensorShape(whole.shape), whole.dtype


def _first_of(answer: Any) -> int:
    """Return into how many parts the first axis is cut, if no other axis is."""
    wanted = (
        "variable_partitioner must return a list/tuple whose elements are 1 besides the first element (non-zero), got: "
    )
    if isinstance(answer, int | float) and answer:
        raise TypeError(f"{wanted}{answer!r}")
    if not isinstance(answer, list | tuple) or not answer or any(number != 1 for number in answer[1:]):
        raise ValueError(f"{wanted}{answer!r}")
    first: Any = answer[0]
    if not hasattr(first, "__index__"):
        raise TypeError(f"{wanted}{answer!r}, whose first element is no integer")
    if int(first) == 0:
        raise ValueError(f"{wanted}{answer!r}")
    if int(first) < 0:
        raise TypeError(f"{wanted}{answer!r}, whose first element is negative")
    return int(first)


def _cut(whole: jax.Array, start: int, shape: TensorShape) -> jax.Array:
    return whole[start : start + int(shape[0])]


class _Initializer:
    """Calls a function for the values of parts; for that of the whole, once, if it knows of no parts."""

    def __init__(self, initial: Callable[..., Any], shape: TensorShape, dtype: Any) -> None:
        self._initial, self._shape, self._dtype = initial, shape, dtype
        self._whole: jax.Array | None = None

    def __call__(self, start: int, shape: TensorShape) -> jax.Array:
        offset: Sequence[int] = (start, *[0] * (len(shape) - 1))
        whole = self._whole
        if whole is None:
            try:
                value = self._initial(partition_shape=shape, partition_offset=offset)
            except (TypeError, ValueError):  # As from functions that take no such arguments.
                value = self._initial()
            whole = convert_to_tensor(value, dtype=self._dtype)
            if tuple(whole.shape) == tuple(shape):
                return whole
            if tuple(whole.shape) != tuple(self._shape):
                raise ValueError(
                    f"The initial value's shape {tuple(whole.shape)} is not compatible with the explicitly given {self._shape}."
                )
            self._whole = whole
        return _cut(whole, start, shape)
