"""`tf.map_fn` over rows."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._ops import _concat
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.ragged._base import Ragged, with_outer
from tfdist_jax.compat.tensorflow.ragged._joining import stack
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensor, RaggedTensorSpec
from tfdist_jax.compat.tensorflow.ragged._row_partition import RowPartition


def map_fn(
    op: Callable[..., Any],
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: Any = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: Any = None,
    fn_output_signature: Any = None,
) -> Any:
    """Return the results of `fn` on rows, stacked; where the signature has a `RaggedTensorSpec`, as rows of different lengths."""
    given = jax.tree.map(
        lambda part: part if isinstance(part, Ragged) else convert_to_tensor(part), elems, is_leaf=_is_ragged
    )
    parts = jax.tree.leaves(given, is_leaf=_is_ragged)
    count = parts[0].outer.nrows if isinstance(parts[0], Ragged) else np.shape(parts[0])[0]
    signature = next((one for one in (fn_output_signature, dtype) if one is not None), None)
    results = [fn(jax.tree.map(lambda part, i=i: part[i], given, is_leaf=_is_ragged)) for i in range(count)]
    if signature is None:
        signature = jax.tree.map(_like, given, is_leaf=_is_ragged)
    specs, tree = jax.tree.flatten(signature, is_leaf=lambda leaf: isinstance(leaf, RaggedTensorSpec))
    if not results:
        return tree.unflatten([_empty(spec) for spec in specs])
    columns = zip(*(jax.tree.leaves(result, is_leaf=_is_ragged) for result in results), strict=True)
    return tree.unflatten([_stacked(list(column), spec) for column, spec in zip(columns, specs, strict=True)])


def _is_ragged(value: Any) -> bool:
    return isinstance(value, Ragged)


def _like(part: Any) -> Any:
    if not isinstance(part, Ragged):
        return part.dtype
    return RaggedTensorSpec(part.shape[1:], part.dtype, part.ragged_rank - 1)


def _stacked(results: list[Any], spec: Any) -> Any:
    if not isinstance(spec, RaggedTensorSpec):
        return _concat.stack(results)
    for result in results:
        if (result.rank if isinstance(result, Ragged) else np.ndim(result)) == 0:
            raise invalid(
                f"`fn` returned a scalar where its signature has rows, {spec!r}. Give `fn_output_signature` the type of the "
                "scalars, such as tf.int32."
            )
    return stack(results)


def _empty(spec: Any) -> Any:
    if not isinstance(spec, RaggedTensorSpec):
        return convert_to_tensor(
            np.zeros([0, *(getattr(spec, "shape", None) or ())], getattr(spec, "dtype", spec).as_numpy_dtype)
        )
    inner = [size or 0 for size in spec.shape[spec.ragged_rank + 1 :]]
    nothing = convert_to_tensor(np.zeros([0, *inner], spec.dtype.as_numpy_dtype))
    levels = [RowPartition.of_lengths(np.zeros(0, np.int64)) for _ in range(spec.ragged_rank + 1)]
    return with_outer(RaggedTensor, levels[0], RaggedTensor.of(nothing, levels[1:]))
