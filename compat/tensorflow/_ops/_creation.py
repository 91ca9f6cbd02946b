"""Tensors made from sizes and numbers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import (
    all_same_type,
    compute,
    invalid,
    require,
    same_type,
    static_axis,
    static_int,
    static_ints,
    value_of,
)
from tfdist_jax.compat.tensorflow._ops._reductions import reduce_max
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor

_TEXT = np.dtype(object)


def zeros(shape: Any, dtype: Any = _dtypes.float32, name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of zeros (False, or empty strings).

    Args:
        shape: The sizes.
        dtype: The type of the elements.
        name: Unused.
        layout: Unused.
    """
    return _full(static_ints(shape, "shape"), 0, as_dtype(dtype).dtype)


def ones(shape: Any, dtype: Any = _dtypes.float32, name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of ones (or True); arguments as for `zeros`."""
    return _full(static_ints(shape, "shape"), 1, as_dtype(dtype).dtype)


def zeros_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Any:
    """Return zeros of the shape, and the type if none is given, of another tensor."""
    tensor = convert_to_tensor(input)
    return _full(tensor.shape, 0, tensor.dtype if dtype is None else as_dtype(dtype).dtype)


def ones_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Any:
    """Return ones of the shape, and the type if none is given, of another tensor."""
    tensor = convert_to_tensor(input)
    return _full(tensor.shape, 1, tensor.dtype if dtype is None else as_dtype(dtype).dtype)


def fill(dims: Any, value: Any, name: str | None = None, layout: Any = None) -> Any:
    """Return a tensor of sizes `dims` whose elements are all `value`."""
    scalar = convert_to_tensor(value)
    if scalar.ndim:
        raise invalid(f"The value of tf.fill must be a scalar, got shape {tuple(scalar.shape)}.")
    return _full(static_ints(dims, "dims"), scalar, scalar.dtype)


def _full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    if dtype != _TEXT:
        # Not `jnp.full`: jax 0.10 cuts 64-bit integers while its global 64-bit switch is off.
        return compute(jnp.broadcast_to, jnp.asarray(value, dtype), shape)
    return HostTensor.of(np.full(shape, value[()] if isinstance(value, HostTensor) else b"", object))


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = _dtypes.float32,
    name: str | None = None,
) -> jax.Array:
    """Return identity matrices, `[*batch_shape, num_rows, num_columns]`."""
    columns = None if num_columns is None else static_int(num_columns, "num_columns")
    matrix = jnp.eye(static_int(num_rows, "num_rows"), columns, dtype=as_dtype(dtype).dtype)
    batch = () if batch_shape is None else static_ints(batch_shape, "batch_shape")
    return jnp.broadcast_to(matrix, (*batch, *matrix.shape))


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = "range") -> jax.Array:
    """Return numbers from `start` (0 if only one number is given) up to, and without, `limit` in steps of `delta`.

    See https://www.tensorflow.org/api_docs/python/tf/range. The numbers must be known while a function is traced.
    """
    if limit is None:
        start, limit = 0, start
    bounds = [_known(bound) for bound in (start, limit, delta)]
    wanted = _range_type(bounds) if dtype is None else as_dtype(dtype)
    first, last, step = (wanted.as_numpy_dtype(bound) for bound in bounds)
    if step == 0:
        raise invalid("Requires delta != 0: tf.range(delta=0).")
    return convert_to_tensor(np.arange(first, last, step, dtype=wanted.dtype))


def _known(bound: Any) -> np.ndarray:
    if not is_tensor(bound):
        return host_value(bound)  # In a function that is being traced, conversion may make it a traced tensor.
    otherwise = (
        "tf.range needs numbers that are known while the function is traced: XLA's arrays have fixed sizes. "
        "Use Python numbers or `tf.shape(x)`; for a loop of unknown length, `tf.while_loop`."
    )
    return np.asarray(value_of(convert_to_tensor(bound), otherwise))


def _range_type(bounds: list[np.ndarray]) -> _dtypes.DType:
    order = [_dtypes.int32, _dtypes.int64, _dtypes.float16, _dtypes.bfloat16, _dtypes.float32, _dtypes.float64]
    types = [as_dtype(bound.dtype) for bound in bounds]
    for dtype in types:
        if dtype not in order:
            raise TypeError(
                f"tf.range takes int32, int64 and floating numbers, got {dtype.name}. Name a type: dtype=..."
            )
    return max(types, key=order.index)


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: Any = 0) -> jax.Array:
    """Return `num` evenly spaced numbers from `start` to `stop`, both included, along a new axis.

    See https://www.tensorflow.org/api_docs/python/tf/linspace.
    """
    start, stop = same_type(start, stop)
    if as_dtype(start.dtype).is_integer:
        start, stop = start.astype(jnp.float64), stop.astype(jnp.float64)
    require(start, "f", "linspace")
    count = static_int(num, "num")
    if count < 0:
        raise invalid(f"Requires num >= 0: {count}.")
    return jnp.linspace(start, stop, count, axis=static_int(axis, "axis"), dtype=start.dtype)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Any:
    """Return vectors with `on_value` (1) at each index and `off_value` (0) elsewhere.

    Args:
        indices: Integers; an index outside of the vector gives `off_value` everywhere.
        depth: The length of the vectors.
        on_value: A scalar; of strings, vectors stay on the host.
        off_value: A scalar of the same type.
        axis: Where the new axis goes; the last one if None.
        dtype: The type; that of the values if None, float32 without values.
        name: Unused.
    """
    indices = _countable(require(convert_to_tensor(indices), "i", "one_hot"))
    where = static_axis(-1 if axis is None else axis, indices.ndim + 1)
    depth = static_int(depth, "depth")
    wanted = _dtypes.float32 if dtype is None else as_dtype(dtype)
    if on_value is None and off_value is None and wanted != _dtypes.string:
        return _hits(indices, depth, where, wanted)
    on, off = _hot_values(on_value, off_value, dtype)
    hits = _hits(indices, depth, where, _dtypes.bool_)
    return HostTensor.of(np.where(hits, on, off)) if isinstance(on, HostTensor) else jnp.where(hits, on, off)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _hits(indices: jax.Array, depth: int, where: int, dtype: _dtypes.DType) -> jax.Array:
    """Return where along a new axis an index is."""
    shape = [1] * (indices.ndim + 1)
    shape[where] = depth
    hits = jnp.expand_dims(indices, where) == jnp.arange(depth, dtype=indices.dtype).reshape(shape)
    return hits.astype(dtype.dtype)


def _countable(numbers: jax.Array) -> jax.Array:
    """Return integers in a type that holds every place along an axis, too: counting in 8 bits begins anew at 256."""
    return numbers.astype(jnp.int32) if numbers.dtype.itemsize < 4 else numbers


def _hot_values(on_value: Any, off_value: Any, dtype: Any) -> tuple[Any, Any]:
    given = [value for value in (on_value, off_value) if value is not None]
    wanted = _dtypes.float32 if dtype is None else as_dtype(dtype)
    if dtype is None and given:
        wanted = as_dtype(all_same_type(given)[0].dtype)
    on, off = (
        convert_to_tensor(default if value is None else value, wanted)
        for value, default in ((on_value, True), (off_value, False))
    )
    return on, off


def meshgrid(*args: Any, **kwargs: Any) -> list[jax.Array]:
    """Return coordinate grids of vectors; keyword `indexing` is "xy" (default) or "ij"."""
    indexing = kwargs.pop("indexing", "xy")
    kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Argument `indexing` parameter must be either 'xy' or 'ij', got '{indexing}'")
    return list(jnp.meshgrid(*all_same_type(args), indexing=indexing))


def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = _dtypes.bool_, name: str | None = None) -> jax.Array:
    """Return, for each length, that many True and then False up to `maxlen` (the largest length if None)."""
    lengths = _countable(require(convert_to_tensor(lengths), "i", "sequence_mask"))
    longest = static_int(reduce_max(lengths) if maxlen is None else maxlen, "maxlen")
    mask = jnp.arange(max(0, longest), dtype=lengths.dtype) < lengths[..., None]
    return mask.astype(as_dtype(dtype).dtype)
