"""Reductions over axes, cumulative sums, and where the largest elements are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import (
    axes,
    compute,
    invalid,
    keeps_static,
    require,
    same_type,
    static_axis,
    static_int,
)
from tfdist_jax.compat.tensorflow._ops._cast import cast
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

# Bytes of the types that JAX's global switch is about.
_WIDE = 8
# Of sizes with symbols, which no JAX array can hold.
_OF_SIZES: dict[str, Callable[..., Any]] = {"reduce_sum": np.sum, "reduce_prod": np.prod}
_PAGE = "https://www.tensorflow.org/api_docs/python/tf/math"


def _reduction(name: str, function: Callable[..., Any], kinds: str, doc: str) -> Callable[..., Any]:
    """Make TensorFlow's operation of a JAX reduction; `kinds` as in `require`."""

    def operation(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
        if isinstance(input_tensor, HostTensor) and input_tensor.has_symbols and operation.__name__ in _OF_SIZES:
            return HostTensor.of(_OF_SIZES[operation.__name__](input_tensor, axis=axes(axis), keepdims=keepdims))
        tensor = require(convert_to_tensor(input_tensor), kinds, operation.__name__)
        return compute(function, tensor, axis=axes(axis), keepdims=bool(keepdims))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = (
        f"{doc}\n\n    Over all axes if `axis` is None; the result has the type of the input. See {_PAGE}/{name}.\n    "
    )
    return keeps_static(operation)


def _sum(x: jax.Array, axis: Any, keepdims: bool) -> jax.Array:
    return jnp.sum(x, axis, dtype=x.dtype, keepdims=keepdims)


def _mean(x: jax.Array, axis: Any, keepdims: bool) -> jax.Array:
    if not as_dtype(x.dtype).is_integer:
        return jnp.mean(x, axis, keepdims=keepdims)
    total = _sum(x, axis, keepdims)
    return jax.lax.div(total, jnp.full_like(total, max(x.size, 1) // max(total.size, 1)))


def _extreme(function: Callable[..., Any], *, largest: bool) -> Callable[..., Any]:
    def reduce(x: jax.Array, axis: Any, keepdims: bool) -> jax.Array:
        if x.dtype in (np.int64, np.uint64):
            return _extreme_wide(x, axis, keepdims=keepdims, largest=largest)
        if x.size:
            return function(x, axis, keepdims=keepdims)
        dtype = as_dtype(x.dtype)
        nothing = dtype.min if largest else dtype.max
        if dtype.is_floating:
            nothing = -jnp.inf if largest else jnp.inf
        return function(x, axis, keepdims=keepdims, initial=nothing)

    return reduce


def _extreme_wide(x: jax.Array, axis: Any, *, keepdims: bool, largest: bool) -> jax.Array:
    """Reduce without `jnp.max`, which jax 0.10 refuses for int64, and for empty uint64, while its global 64-bit switch is off."""
    given = range(x.ndim) if axis is None else np.atleast_1d(axis)
    over = tuple(int(one) % x.ndim if -x.ndim <= one < x.ndim else int(one) for one in given)
    result = (jax.lax.reduce_max if largest else jax.lax.reduce_min)(x, over)
    return jnp.expand_dims(result, over) if keepdims else result


def _euclidean_norm(x: jax.Array, axis: Any, keepdims: bool) -> jax.Array:
    return jnp.sqrt(_sum(jnp.square(jnp.abs(x)), axis, keepdims)).astype(x.dtype)


reduce_sum = _reduction("reduce_sum", _sum, "fci", "Return sums of elements.")
reduce_mean = _reduction("reduce_mean", _mean, "fci", "Return means of elements; of integers, cut to integers.")
reduce_prod = _reduction(
    "reduce_prod",
    lambda x, axis, keepdims: jnp.prod(x, axis, dtype=x.dtype, keepdims=keepdims),
    "fci",
    "Return products of elements.",
)
reduce_max = _reduction("reduce_max", _extreme(jnp.max, largest=True), "fi", "Return the largest elements.")
reduce_min = _reduction("reduce_min", _extreme(jnp.min, largest=False), "fi", "Return the smallest elements.")
reduce_all = _reduction("reduce_all", jnp.all, "b", "Tell whether all elements are true.")
reduce_any = _reduction("reduce_any", jnp.any, "b", "Tell whether any element is true.")
reduce_logsumexp = _reduction(
    "reduce_logsumexp",
    lambda x, axis, keepdims: jax.nn.logsumexp(x, axis, keepdims=keepdims),
    "f",
    "Return log(sum(exp(elements))), without overflow.",
)
reduce_variance = _reduction("reduce_variance", jnp.var, "fc", "Return variances of elements.")
reduce_std = _reduction("reduce_std", jnp.std, "fc", "Return standard deviations of elements.")
reduce_euclidean_norm = _reduction(
    "reduce_euclidean_norm", _euclidean_norm, "fci", "Return Euclidean norms of elements."
)


def count_nonzero(
    input: Any, axis: Any = None, keepdims: bool | None = None, dtype: Any = _dtypes.int64, name: str | None = None
) -> jax.Array:
    """Return how many elements are not zero."""
    counts = jnp.sum(convert_to_tensor(input) != 0, axes(axis), keepdims=bool(keepdims))
    return counts.astype(as_dtype(dtype).dtype)


def zero_fraction(value: Any, name: str | None = None) -> jax.Array:
    """Return the share of elements that are zero, a float32."""
    return jnp.mean((convert_to_tensor(value) == 0).astype(jnp.float32))


def argmax(input: Any, axis: Any = None, output_type: Any = _dtypes.int64, name: str | None = None) -> jax.Array:
    """Return where along `axis` (0 if None) the largest element is, the first if several are.

    See https://www.tensorflow.org/api_docs/python/tf/math/argmax.
    """
    return _arg(jnp.argmax, input, axis, output_type)


def argmin(input: Any, axis: Any = None, output_type: Any = _dtypes.int64, name: str | None = None) -> jax.Array:
    """Return where along `axis` (0 if None) the smallest element is, the first if several are.

    See https://www.tensorflow.org/api_docs/python/tf/math/argmin.
    """
    return _arg(jnp.argmin, input, axis, output_type)


def _arg(function: Callable[..., Any], input: Any, axis: Any, output_type: Any) -> jax.Array:
    tensor = convert_to_tensor(input)
    along = static_axis(0 if axis is None else axis, tensor.ndim)
    return compute(_position, function, tensor, along).astype(as_dtype(output_type).dtype)


def _position(function: Callable[..., Any], tensor: jax.Array, axis: int) -> jax.Array:
    largest = function is jnp.argmax
    if as_dtype(tensor.dtype).is_floating:
        # TensorFlow passes over NaN, which is not larger than anything.
        tensor = jnp.where(jnp.isnan(tensor), -jnp.inf if largest else jnp.inf, tensor)
    if tensor.dtype.itemsize < _WIDE:
        return function(tensor, axis)
    # JAX's own does not take 64-bit types while its global 64-bit switch is off: look for the extreme instead.
    extreme = _extreme(jnp.max if largest else jnp.min, largest=largest)(tensor, axis, keepdims=True)
    return jnp.argmax(tensor == extreme, axis)


def cumsum(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None) -> jax.Array:
    """Return sums of the elements up to each one.

    Args:
        x: A tensor.
        axis: The axis to go along.
        exclusive: Leave the element itself out of its sum.
        reverse: Go from the end to the start.
        name: Unused.
    """
    return _cumulative(jnp.cumsum, x, axis, exclusive=exclusive, reverse=reverse, nothing=0)


def cumprod(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> jax.Array:
    """Return products of the elements up to each one; arguments as for `cumsum`."""
    return _cumulative(jnp.cumprod, x, axis, exclusive=exclusive, reverse=reverse, nothing=1)


def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> jax.Array:
    """Return log(sum(exp(elements))) up to each one; arguments as for `cumsum`."""
    return _cumulative(
        lambda x, axis, dtype: jax.lax.cumlogsumexp(x, axis),
        x,
        axis,
        exclusive=exclusive,
        reverse=reverse,
        nothing=-jnp.inf,
    )


def _cumulative(
    function: Callable[..., Any], x: Any, axis: Any, *, exclusive: bool, reverse: bool, nothing: Any
) -> jax.Array:
    tensor = convert_to_tensor(x)
    if np.ndim(axis):
        raise invalid(f"ScanOp: axis must be a scalar, not {list(np.shape(axis))}")
    axis = static_axis(axis, tensor.ndim)
    if reverse:
        tensor = jnp.flip(tensor, axis)
    result = function(tensor, axis, dtype=tensor.dtype)
    if exclusive:
        before = jnp.full_like(jax.lax.slice_in_dim(tensor, 0, 1, axis=axis), nothing)
        result = jnp.concatenate([before, jax.lax.slice_in_dim(result, 0, -1, axis=axis)], axis)
    return jnp.flip(result, axis) if reverse else result


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = _dtypes.int32,
    name: str | None = None,
    axis: Any = None,
    binary_output: bool = False,
) -> jax.Array:
    """Return how often each integer from 0 on occurs.

    Without `minlength` the result is as long as the largest value needs; while a function is traced that is not
    known, and both `minlength` and `maxlength` (equal) must be given.
    See https://www.tensorflow.org/api_docs/python/tf/math/bincount.
    """
    tensor = require(convert_to_tensor(arr), "i", "math.bincount")
    length = _bincount_length(tensor, minlength, maxlength)
    if weights is not None:
        weights = convert_to_tensor(weights)
        dtype = weights.dtype
    rows = tensor.reshape(-1) if axis is None or tensor.ndim == 1 else tensor
    ones = jnp.ones(rows.shape, as_dtype(dtype).dtype) if weights is None else weights.reshape(rows.shape)
    slots = jnp.where((rows >= 0) & (rows < length), rows, length)
    empty = jnp.zeros((*rows.shape[:-1], length + 1), ones.dtype)
    count = lambda row, slot, one: row.at[slot].set(1) if binary_output else row.at[slot].add(one)
    counts = count(empty, slots, ones) if rows.ndim == 1 else jax.vmap(count)(empty, slots, ones)
    return counts[..., :length]


def _bincount_length(tensor: Any, minlength: Any, maxlength: Any) -> int:
    least = 0 if minlength is None else static_int(minlength, "minlength")
    if maxlength is not None and least == static_int(maxlength, "maxlength"):
        return least
    needed = static_int(jnp.max(tensor, initial=-1), "arr") + 1
    length = max(needed, least)
    return length if maxlength is None else min(length, static_int(maxlength, "maxlength"))


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    weights: Any = None,
    dtype: Any = _dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Return how often each label (row) was predicted as each class (column)."""
    labels, predictions = convert_to_tensor(labels).reshape(-1), convert_to_tensor(predictions).reshape(-1)
    if num_classes is None:
        num_classes = jnp.maximum(jnp.max(labels), jnp.max(predictions)) + 1
    size = static_int(num_classes, "num_classes")
    ones = jnp.ones(labels.shape, as_dtype(dtype).dtype) if weights is None else cast(weights, dtype)
    return jnp.zeros((size, size), as_dtype(dtype).dtype).at[labels, predictions].add(ones)


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = _dtypes.int32, name: str | None = None
) -> jax.Array:
    """Return which of `nbins` bins of equal width each value falls into, values outside into the first or last.

    See https://www.tensorflow.org/api_docs/python/tf/histogram_fixed_width_bins. The numbers are int32.
    """
    numbers, bounds = same_type(values, value_range)
    count = static_int(nbins, "nbins")
    if count < 1:
        raise invalid(f"nbins {count} must > 0")
    edges = on_cpu(bounds)
    if edges is not None and not edges[0] < edges[1]:
        raise invalid(f"value_range should satisfy value_range[0] < value_range[1], but got {edges.tolist()}")
    wide = numbers.astype(jnp.promote_types(numbers.dtype, jnp.float32))
    scaled = (wide - bounds[0]) / (bounds[1] - bounds[0])
    return jnp.clip(jnp.floor(scaled * count), 0, count - 1).astype(jnp.int32)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = _dtypes.int32, name: str | None = None
) -> jax.Array:
    """Return how many values fall into each of `nbins` bins of equal width, values outside into the first or last.

    See https://www.tensorflow.org/api_docs/python/tf/histogram_fixed_width.
    """
    bins = histogram_fixed_width_bins(values, value_range, nbins).reshape(-1)
    return jnp.zeros(static_int(nbins, "nbins"), as_dtype(dtype).dtype).at[bins].add(1)


def is_non_decreasing(x: Any, name: str | None = None) -> jax.Array:
    """Tell whether no element is smaller than the one before."""
    flat = convert_to_tensor(x).reshape(-1)
    return jnp.all(flat[1:] >= flat[:-1])


def is_strictly_increasing(x: Any, name: str | None = None) -> jax.Array:
    """Tell whether every element is larger than the one before."""
    flat = convert_to_tensor(x).reshape(-1)
    return jnp.all(flat[1:] > flat[:-1])
