"""Parts of tensors chosen by conditions and indices, and tensors put together from such parts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._autodiff._custom_pullback import take_rows
from tfdist_jax.compat.tensorflow._ops._arguments import (
    carries_texts,
    compute,
    invalid,
    keeps_static,
    require,
    same_type,
    static_axis,
    static_int,
    static_ints,
    value_of,
)
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor, holds_texts
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


class Unique(NamedTuple):
    """The different elements, and which of them each element is."""

    y: Any
    idx: jax.Array


class UniqueWithCounts(NamedTuple):
    """The different elements, which of them each element is, and how often each occurs."""

    y: Any
    idx: jax.Array
    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Return elements of `x` where the condition is true and of `y` elsewhere, all broadcast.

    Without `x` and `y`, the indices of true elements, `[number, rank]` int64; their number must be known, so this
    does not work on tensors of a function that is being traced.
    See https://www.tensorflow.org/api_docs/python/tf/where.
    """
    condition = convert_to_tensor(condition)
    if x is None and y is None:
        return convert_to_tensor(
            np.argwhere(known(require(condition, "fcib", "where"), "tf.where(condition)") != 0).astype(np.int64)
        )
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    chosen, (x, y) = require(condition, "b", "where"), same_type(x, y)
    if holds_texts(x):
        return HostTensor.of(np.where(known(chosen, "tf.where of texts"), x, y))
    return compute(jnp.where, chosen, x, y)


def known(tensor: Any, what: str) -> np.ndarray:
    """Return the value of a tensor on which the size of a result depends."""
    otherwise = (
        f"{what} gives a tensor whose size depends on values, but XLA's sizes are fixed when a function is traced. Call it "
        "outside of the function, or keep the size and mask the elements with tf.where(condition, x, y)."
    )
    return np.asarray(value_of(tensor, otherwise))


def boolean_mask(tensor: Any, mask: Any, axis: Any = None, name: str | None = "boolean_mask") -> jax.Array:
    """Return the entries at which `mask` is true; the mask must be known while a function is traced."""
    values, chosen = convert_to_tensor(tensor), known(convert_to_tensor(mask), "tf.boolean_mask")
    first = 0 if axis is None else static_int(axis, "axis")
    first += values.ndim if first < 0 else 0
    if first < 0 or tuple(values.shape[first : first + chosen.ndim]) != chosen.shape:
        raise ValueError(f"Shapes {tuple(values.shape)} and {chosen.shape} are incompatible.")
    return values[(slice(None),) * first + tuple(np.nonzero(chosen))]


@keeps_static
def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Any:
    """Return entries of `params` along an axis.

    An index out of range raises if it is known and on CPU, and gives zeros otherwise, as TensorFlow does on GPU.

    Args:
        params: The tensor to take from.
        indices: Integers, of any shape.
        validate_indices: Unused.
        axis: The axis to take along, `batch_dims` if None.
        batch_dims: How many first axes `params` and `indices` share.
        name: Unused.
    """
    if axis in (None, 0) and not batch_dims and hasattr(params, "look_up"):
        return params.look_up(indices)
    params, indices = convert_to_tensor(params), require(convert_to_tensor(indices), "i", "gather")
    batch = batch_dims if batch_dims >= 0 else batch_dims + indices.ndim
    where = batch if axis is None else static_axis(axis, params.ndim)
    if not 0 <= batch <= min(where, indices.ndim):
        raise invalid(
            f"`batch_dims` ({batch_dims}) must not be more than `axis` ({where}) or the indices' {indices.ndim} axes."
        )
    check_indices(indices, params.shape[where])
    if isinstance(params, HostTensor):
        return HostTensor.of(np.take(params, np.asarray(indices), where))
    # A negative axis has a dense gradient in TensorFlow too.
    if where == batch == 0 and axis in (None, 0):
        return compute(take_rows, params, indices, _take_rows)
    take: Callable[..., Any] = lambda p, i: jnp.take(p, i, axis=where - batch, mode="fill", fill_value=0)
    for _ in range(batch):
        take = jax.vmap(take)
    return compute(take, params, indices)


def _take_rows(params: Any, indices: Any) -> Any:
    return jnp.take(params, indices, axis=0, mode="fill", fill_value=0)


@carries_texts
def gather_nd(
    params: Any, indices: Any, batch_dims: int = 0, name: str | None = None, bad_indices_policy: str = ""
) -> jax.Array:
    """Return parts of `params`, each given by a row of indices into its first axes.

    See https://www.tensorflow.org/api_docs/python/tf/gather_nd.
    """
    params, indices = convert_to_tensor(params), convert_to_tensor(indices)
    check_indices(indices, params.shape[batch_dims : batch_dims + indices.shape[-1]])
    if indices.shape[-1] == 1 and not batch_dims:
        return compute(take_rows, params, indices[..., 0], _take_rows)

    def take(p: Any, i: Any) -> Any:
        return p.at[tuple(jnp.moveaxis(i, -1, 0))].get(mode="fill", fill_value=0)

    for _ in range(batch_dims):
        take = jax.vmap(take)
    return compute(take, params, indices)


def scatter_nd(
    indices: Any, updates: Any, shape: Any, bad_indices_policy: str = "", name: str | None = None
) -> jax.Array:
    """Return zeros of a shape to which each update has been added at its row of indices."""
    updates = convert_to_tensor(updates)
    return _updated("add", jnp.zeros(static_ints(shape, "shape"), updates.dtype), indices, updates)


def tensor_scatter_nd_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> jax.Array:
    """Return the tensor with parts, each given by a row of indices, replaced."""
    return _updated("set", convert_to_tensor(tensor), indices, updates)


def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> jax.Array:
    """Return the tensor with updates added at their rows of indices."""
    return _updated("add", convert_to_tensor(tensor), indices, updates)


def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> jax.Array:
    """Return the tensor with updates subtracted at their rows of indices."""
    return _updated("subtract", convert_to_tensor(tensor), indices, updates)


def tensor_scatter_nd_max(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> jax.Array:
    """Return the tensor with the larger of element and update at their rows of indices."""
    return _updated("max", convert_to_tensor(tensor), indices, updates)


def tensor_scatter_nd_min(
    tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = "", name: str | None = None
) -> jax.Array:
    """Return the tensor with the smaller of element and update at their rows of indices."""
    return _updated("min", convert_to_tensor(tensor), indices, updates)


def _updated(how: str, tensor: Any, indices: Any, updates: Any) -> jax.Array:
    places = convert_to_tensor(indices)
    check_indices(places, tensor.shape[: places.shape[-1]])
    rows = tuple(jnp.moveaxis(places, -1, 0))
    return compute(getattr(tensor.at[rows], how), same_type(tensor, updates)[1])


def unique(x: Any, out_idx: Any = _dtypes.int32, name: str | None = None) -> Unique:
    """Return the different elements of a vector in order of appearance; does not work while tracing."""
    return Unique(*unique_with_counts(x, out_idx)[:2])


def unique_with_counts(x: Any, out_idx: Any = _dtypes.int32, name: str | None = None) -> UniqueWithCounts:
    """Return the different elements of a vector, as `unique`, and their counts."""
    values = known(convert_to_tensor(x), "tf.unique")
    if values.ndim != 1:
        raise invalid(f"unique expects a 1D vector, got shape {values.shape}.")
    different, first, inverse, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    position = np.argsort(order)
    index_type = as_dtype(out_idx).dtype
    return UniqueWithCounts(
        convert_to_tensor(different[order]),
        convert_to_tensor(position[inverse].astype(index_type)),
        convert_to_tensor(counts[order].astype(index_type)),
    )


def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[jax.Array]:
    """Return the entries of each partition; `partitions` must be known while a function is traced."""
    data, numbers = convert_to_tensor(data), known(convert_to_tensor(partitions), "tf.dynamic_partition")
    return [data[np.nonzero(numbers == i)] for i in range(num_partitions)]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> jax.Array:
    """Return a tensor whose entry `indices[m][i]` is `data[m][i]`; the indices must be known."""
    places = [known(convert_to_tensor(index), "tf.dynamic_stitch") for index in indices]
    parts = [convert_to_tensor(part) for part in data]
    rest = parts[0].shape[places[0].ndim :]
    result = jnp.zeros((1 + max(int(place.max(initial=-1)) for place in places), *rest), parts[0].dtype)
    for place, part in zip(places, parts, strict=True):
        result = result.at[place.reshape(-1)].set(part.reshape(-1, *rest))
    return result
