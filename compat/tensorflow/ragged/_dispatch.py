"""Public functions called with ragged tensors: which of them take these, and how.

A public function is called first; where it meets a ragged tensor it raises an error, since none is a tensor. Then what is listed
here is called in its place. Functions of each value take flat values; the others have a form of their own.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tfdist_jax.compat.tensorflow._names._symbolic import unwrap
from tfdist_jax.compat.tensorflow.ragged import _control, _joining, _reductions, _selection, _shapes
from tfdist_jax.compat.tensorflow.ragged._base import Ragged
from tfdist_jax.compat.tensorflow.ragged._broadcasting import elementwise, map_flat_values
from tfdist_jax.compat.tensorflow.ragged._ragged_tensor import RaggedTensorSpec

_OF_EACH = (
    "abs acos acosh angle asin asinh atan atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bitcast cast ceil check_numerics conj "
    "cos cosh digamma dropout elu embedding_lookup erf erfc erfcinv erfinv exp expm1 floor gelu grad_pass_through identity imag "
    "is_finite is_inf is_nan leaky_relu lgamma log log1p log_sigmoid logical_not ndtri negative one_hot ones_like real "
    "reciprocal reciprocal_no_nan relu relu6 rint round rsqrt saturate_cast selu sigmoid sign silu sin sinh softplus softsign "
    "sqrt square stop_gradient tan tanh zeros_like"
)
_BROADCASTING = (
    "add atan2 betainc clip_by_value complex divide divide_no_nan equal floordiv floormod greater greater_equal igamma igammac "
    "less less_equal logical_and logical_or logical_xor maximum minimum mod multiply multiply_no_nan nextafter not_equal "
    "polygamma pow scalar_mul squared_difference subtract truediv truncatediv truncatemod xdivy xlog1py xlogy zeta "
    "sigmoid_cross_entropy_with_logits bitwise_and bitwise_or bitwise_xor left_shift right_shift"
)
_OF_STRINGS = (
    "as_string length lower regex_full_match regex_replace strip substr to_hash_bucket to_hash_bucket_fast to_hash_bucket_strong "
    "to_number unicode_script unicode_transcode upper"
)
_ASSERTIONS = (
    "assert_equal assert_none_equal assert_less assert_less_equal assert_greater assert_greater_equal assert_near"
)
# Functions that take ragged tensors in lists, or in other structures.
_OF_STRUCTURES = "accumulate_n add_n concat join map_fn stack tuple"
# No operands of those that broadcast.
_OPTIONS = ("name", "dtype", "out_type")


def _of_each(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return map_flat_values(op, *args, **kwargs)


def _broadcasting(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    given = inspect.signature(op).bind(*args, **kwargs).arguments
    options = {name: value for name, value in given.items() if name in _OPTIONS}
    names = [name for name in given if name not in _OPTIONS]
    call = lambda *values: op(**dict(zip(names, values, strict=True)), **options)
    return elementwise(call, [given[name] for name in names])


def _join(op: Callable[..., Any], inputs: Any, separator: Any = "", name: Any = None) -> Any:
    return elementwise(lambda *values: op(list(values), separator), list(inputs))


def _sum_of_all(op: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
    return elementwise(lambda *values: op(list(values)), list(inputs))


def _checking(op: Callable[..., Any], x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
    def check(one: Any, other: Any) -> Any:
        op(one, other, *args, **kwargs)
        return one

    elementwise(check, [x, y])


def _each_as_it_is(op: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
    return type(tensors)(one if isinstance(one, Ragged) else op([one])[0] for one in tensors)


def _expand_dims(op: Callable[..., Any], input: Any, axis: Any, name: Any = None) -> Any:
    return _shapes.expand_dims(input, axis)


_OVERRIDES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(f"{_OF_EACH} {_OF_STRINGS}".split(), _of_each),
    **dict.fromkeys(_BROADCASTING.split(), _broadcasting),
    **dict.fromkeys(_ASSERTIONS.split(), _checking),
    **dict.fromkeys(("add_n", "accumulate_n"), _sum_of_all),
    **dict.fromkeys(
        ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all"], _reductions.reduce
    ),
    **dict.fromkeys(
        (f"unsorted_segment_{kind}" for kind in ("sum", "prod", "max", "min", "mean", "sqrt_n")), _reductions.segment_op
    ),
    "bincount": _reductions.bincount,
    "boolean_mask": _selection.boolean_mask_of,
    "concat": _joining.concat,
    "cumsum": _reductions.cumsum,
    "dynamic_partition": _selection.dynamic_partition,
    "expand_dims": _expand_dims,
    "gather": _selection.gather,
    "gather_nd": _selection.gather_nd,
    "join": _join,
    "map_fn": _control.map_fn,
    "rank": _shapes.rank,
    "reduce_logsumexp": _reductions.reduce_logsumexp,
    "reduce_mean": _reductions.reduce_mean,
    "reduce_std": _reductions.reduce_std,
    "reduce_variance": _reductions.reduce_variance,
    "reverse": _shapes.reverse,
    "shape": _shapes.shape,
    "size": _shapes.size,
    "softmax": _reductions.softmax,
    "split": _joining.split,
    "squeeze": _shapes.squeeze,
    "stack": _joining.stack_ragged,
    "tile": _shapes.tile,
    "tuple": _each_as_it_is,
    "where": _selection.where,
}


def find_override(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], Any] | None:
    """Return the call that takes the place of a public function's with ragged tensors; None if it does not take them."""
    plain = unwrap(function)
    override = _OVERRIDES.get(getattr(plain, "__name__", ""))
    if override is None:
        return None
    given = (*args, *kwargs.values())
    is_direct = any(isinstance(leaf, Ragged | RaggedTensorSpec) for leaf in given)
    if not is_direct and plain.__name__ not in _OF_STRUCTURES.split():
        return None
    return functools.partial(override, plain, *args, **kwargs)
