"""`tf.sparse`: sparse tensors from and to tensors, and what keeps the number of their elements."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax.compat.tensorflow._ops._arguments import (
    compute,
    invalid,
    same_type,
    static_axis,
    static_int,
    static_ints,
)
from tfdist_jax.compat.tensorflow._ops._concat import concat as concat_tensors
from tfdist_jax.compat.tensorflow._ops._shapes import transpose as transposed
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._checks import on_cpu
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor, is_sparse, sparse
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def known_places(tensor: Any, what: str) -> np.ndarray:
    """Return the value of a tensor on which the number of elements depends."""
    if isinstance(tensor, Tracer):
        raise NotImplementedError(
            f"{what} gives a number of elements that depends on values, but XLA's sizes are fixed when a function is "
            "traced. Call it outside of the function, or work on the whole tensor, `tf.sparse.to_dense(x)`, and mask it "
            "with `tf.where`."
        )
    return np.asarray(tensor)


def at_places(whole: Any, there: Any, what: str) -> SparseTensor:
    """Return the elements of a tensor at which `there` is true."""
    places = np.argwhere(known_places(there, what))
    return SparseTensor(places, whole[tuple(places.T)], np.shape(whole))


def to_dense(sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None) -> Any:
    """Return the whole tensor, with `default_value` (zero) where the sparse one has no element.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/to_dense.

    Raises:
        InvalidArgumentError: If `validate_indices`, and places that are known are repeated, out of order or outside.
    """
    given = sparse(sp_input)
    if validate_indices:
        _check_order(given)
    if isinstance(given.values, HostTensor):
        texts = np.full(tuple(given.shape), convert_to_tensor(default_value or b"")[()], object)
        texts[tuple(np.asarray(given.indices).T)] = given.values
        return HostTensor.of(texts)
    default = convert_to_tensor(0 if default_value is None else default_value, dtype_hint=given.dtype)
    whole = jnp.broadcast_to(default.astype(given.values.dtype), tuple(given.shape))
    return whole.at[tuple(given.indices.T)].set(given.values)


def _check_order(given: SparseTensor) -> None:
    places = on_cpu(given.indices)
    if places is None:
        return
    outside = (places < 0) | (places >= np.asarray(given.shape))
    if outside.any():
        raise invalid(f"indices {places[outside.any(-1)][0].tolist()} is out of bounds of {tuple(given.shape)}")
    flat = places @ _steps(given.shape)
    wrong = np.flatnonzero(np.diff(flat) <= 0)
    if wrong.size:
        kind = "repeated" if flat[wrong[0]] == flat[wrong[0] + 1] else "out of order"
        raise invalid(f"indices[{wrong[0] + 1}] is {kind}. Use `tf.sparse.reorder`, or validate_indices=False.")


def eye(num_rows: Any, num_columns: Any = None, dtype: Any = _dtypes.float32, name: str | None = None) -> SparseTensor:
    """Return an identity matrix."""
    rows = static_int(num_rows, "num_rows")
    columns = rows if num_columns is None else static_int(num_columns, "num_columns")
    places = np.repeat(np.arange(min(rows, columns), dtype=np.int64)[:, None], 2, 1)
    return SparseTensor(places, jnp.ones(len(places), as_dtype(dtype).dtype), (rows, columns))


def reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Return the sparse tensor with its elements in the order of their places, row by row."""
    given = sparse(sp_input)
    order = jnp.lexsort(tuple(given.indices[:, ::-1].T)) if given.shape.rank else slice(None)
    return SparseTensor(given.indices[order], given.values[order], given.shape)


def transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Return the sparse tensor with its axes in another order, the opposite one by default; its elements in order."""
    given = sparse(sp_input)
    order = tuple(reversed(range(len(given.shape)))) if perm is None else static_ints(perm, "perm")
    return reorder(SparseTensor(given.indices[:, list(order)], given.values, [given.shape[i] for i in order]))


def expand_dims(sp_input: Any, axis: Any = None, name: str | None = None) -> SparseTensor:
    """Return the sparse tensor with a new axis of size 1, the last one by default."""
    given = sparse(sp_input)
    rank = len(given.shape)
    where = -1 if axis is None else static_int(axis, "axis")
    if not -rank - 1 <= where <= rank:
        raise invalid(f"axis {where} is not in [{-rank - 1}, {rank}]")
    where %= rank + 1
    sizes = list(given.shape)
    return SparseTensor(jnp.insert(given.indices, where, 0, 1), given.values, [*sizes[:where], 1, *sizes[where:]])


def reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """Return the same elements in another shape; one size may be -1, to be whatever is left."""
    given, sizes = sparse(sp_input), list(static_ints(shape, "shape"))
    total = int(np.prod(given.shape))
    if sizes.count(-1) == 1:
        others = int(np.prod([size for size in sizes if size >= 0]))
        sizes[sizes.index(-1)] = total // others if others else 0
    if int(np.prod(sizes)) != total:
        raise invalid(f"Input to reshape is a tensor with {total} dense values, but the requested shape is {sizes}")
    flat = given.indices @ _steps(given.shape)
    places = jnp.stack([flat // step % max(size, 1) for step, size in zip(_steps(sizes), sizes, strict=True)], -1)
    return SparseTensor(places, given.values, sizes)


def _steps(sizes: Sequence[int]) -> np.ndarray:
    """Return by how much an index along each axis moves on in the flat tensor."""
    return np.cumprod([1, *reversed(list(sizes))], dtype=np.int64)[-2::-1]


def concat(axis: Any, sp_inputs: Any, expand_nonconcat_dims: bool = False, name: str | None = None) -> SparseTensor:
    """Return sparse tensors put together along an axis.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/concat. With `expand_nonconcat_dims` the other sizes may
    differ; the largest count.
    """
    parts = [sparse(part) for part in sp_inputs]
    where = static_axis(axis, len(parts[0].shape))
    shapes = np.asarray([tuple(part.shape) for part in parts])
    others = np.delete(shapes, where, 1)
    if not expand_nonconcat_dims and (others != others[0]).any():
        raise invalid(f"Shapes must agree except along axis {where}, got {shapes.tolist()}.")
    sizes = shapes.max(0)
    sizes[where] = shapes[:, where].sum()
    starts = np.zeros_like(shapes)
    starts[:, where] = np.cumsum(shapes[:, where]) - shapes[:, where]
    places = jnp.concatenate([part.indices + start for part, start in zip(parts, starts, strict=True)])
    return reorder(SparseTensor(places, concat_tensors([part.values for part in parts], 0), sizes))


def sparse_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> jax.Array:
    """Return the matrix product of a sparse and a dense matrix, in either order.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/sparse_dense_matmul.
    """
    if is_sparse(b) and not is_sparse(sp_a):
        # (A B)^H = B^H A^H, of which the first factor is the sparse one.
        return transposed(sparse_dense_matmul(b, sp_a, not adjoint_b, not adjoint_a), conjugate=True)
    given = sparse(sp_a)
    values, dense = same_type(given.values, b)
    if adjoint_b:
        dense = jnp.conj(jnp.swapaxes(dense, -1, -2))
    if len(given.shape) != 2:
        raise invalid(f"Tensor 'a' must be a matrix, got shape {tuple(given.shape)}.")
    rows, columns = given.indices.T
    height, width = given.shape
    if adjoint_a:
        rows, columns, height, width, values = columns, rows, width, height, jnp.conj(values)
    if dense.ndim != 2 or dense.shape[0] != width:
        raise invalid(f"Cannot multiply A and B because inner dimension does not match: {width} vs. {dense.shape}.")
    product = jnp.zeros((height, dense.shape[1]), values.dtype)
    return product.at[rows].add(values[:, None] * dense[columns])


def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return `op` applied to the elements of sparse tensors, which all have the same places.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/map_values.
    """
    given = [arg for arg in [*args, *kwargs.values()] if is_sparse(arg)]
    if not given:
        raise ValueError("No SparseTensor in argument list of map_values")
    first = given[0]
    if not all(_same_places(first, other) for other in given[1:]):
        raise invalid("The sparse tensors of `map_values` must have the same places.")
    plain = lambda arg: arg.values if is_sparse(arg) else arg
    return first.with_values(op(*map(plain, args), **{key: plain(arg) for key, arg in kwargs.items()}))


def _same_places(one: SparseTensor, other: SparseTensor) -> bool:
    """Whether the places are the same as far as they are known."""
    places, others = on_cpu(one.indices), on_cpu(other.indices)
    return one.shape == other.shape and (places is None or others is None or np.array_equal(places, others))


def softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Return softmaxes over the elements that each row of the last axis has."""
    given = sparse(sp_input)
    rows = given.indices[:, :-1] @ _steps(given.shape[:-1])
    number = int(np.prod(given.shape[:-1]))
    largest = jnp.full(number, -jnp.inf, given.values.dtype).at[rows].max(given.values)
    powers = jnp.exp(given.values - jax.lax.stop_gradient(largest)[rows])
    return given.with_values(powers / jnp.zeros(number, powers.dtype).at[rows].add(powers)[rows])


def to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> jax.Array:
    """Return a bool tensor that is True at the integers that each row holds, `[*shape[:-1], vocab_size]`."""
    given, width = sparse(sp_input), static_int(vocab_size, "vocab_size")
    whole = jnp.zeros((*given.shape[:-1], width), bool)
    return whole.at[(*given.indices[:, :-1].T, given.values)].set(True)


def reduce_sum(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Return sums over axes, all if None, as a tensor, or as a sparse one if `output_is_sparse`.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/reduce_sum.
    """
    return _reduced(sparse(sp_input), axis, bool(keepdims), output_is_sparse, "add", 0)


def reduce_max(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Return the largest of the elements that are there, over axes; zero where none is.

    See https://www.tensorflow.org/api_docs/python/tf/sparse/reduce_max.
    """
    given = sparse(sp_input)
    low = -jnp.inf if given.dtype.is_floating else given.dtype.min
    return _reduced(given, axis, bool(keepdims), output_is_sparse, "max", low)


def _reduced(given: SparseTensor, axis: Any, keepdims: bool, as_sparse: bool, how: str, start: Any) -> Any:
    rank = len(given.shape)
    over = set(range(rank)) if axis is None else {static_axis(one, rank) for one in static_ints(axis, "axis")}
    kept = [i for i in range(rank) if i not in over]
    sizes = [given.shape[i] for i in kept]
    at = given.indices[:, kept] @ _steps(sizes)
    empty = jnp.full(int(np.prod(sizes)), start, given.values.dtype)
    result = getattr(empty.at[at], how)(given.values).reshape(sizes)
    there = jnp.zeros(empty.shape, bool).at[at].set(True).reshape(sizes)
    result = jnp.where(there, result, jnp.zeros_like(result))
    if keepdims:
        result, there = (jnp.expand_dims(array, sorted(over)) for array in (result, there))
    if not as_sparse:
        return result
    return at_places(result, there, "tf.sparse.reduce_sum(output_is_sparse=True)")


def sampled_addmm(
    indices: Any,
    values: Any,
    dense_shape: Any,
    mat1: Any,
    mat2: Any,
    beta: Any = 1.0,
    alpha: Any = 1.0,
    output_type: Any = _dtypes.float32,
) -> tuple[Any, Any, Any]:
    """Return `alpha * mat1 @ mat2 + beta * values` at the places of a sparse matrix, as its three parts."""
    one, other = same_type(mat1, mat2)
    places = convert_to_tensor(indices)
    rows, columns = one[..., places[..., 0], :], jnp.swapaxes(other, -1, -2)[..., places[..., 1], :]
    products = compute(lambda: jnp.sum(rows * columns, -1))
    return places, alpha * products + beta * convert_to_tensor(values), convert_to_tensor(dense_shape)
