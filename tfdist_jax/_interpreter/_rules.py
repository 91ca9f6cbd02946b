"""What JAX's primitives compute, in NumPy: exactly where IEEE arithmetic says the result, else in double precision, rounded once.

A rule takes an equation and gives a function of its operands as NumPy arrays, or None where NumPy would compute something else.
Types are those that the equation states: operands of one operation have one type, so that NumPy promotes nothing.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Primitive

from tfdist_jax._interpreter._indices import choose_gather, choose_scatter, choose_scatter_add

Compute = Callable[..., Any]
Rule = Callable[[Any], Compute | None]

_FLOATS = ("float32", "float64")


def find_rule(equation: Any) -> Compute | None:
    """Return how NumPy computes an equation's results, one or a list as the primitive has it; None if it is left to XLA."""
    rule = _RULES.get(equation.primitive) or _BY_NAME.get(equation.primitive.name)
    avals = [var.aval for var in (*equation.invars, *equation.outvars)]
    return rule(equation) if rule is not None and all(map(is_plain, avals)) else None


def work_of(equation: Any) -> int:
    """Return about how many elements and products an equation goes through."""
    shapes = (getattr(var.aval, "shape", ()) for var in (*equation.invars, *equation.outvars))
    work = sum(math.prod(size for size in shape if isinstance(size, int)) for shape in shapes)
    if equation.primitive is lax.dot_general_p:
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        work += math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
    return work


def is_plain(aval: Any) -> bool:
    """Tell whether a value is an array that NumPy knows as it is: of numbers or truth values, of known shape, not sharded by its type."""
    dtype = getattr(aval, "dtype", None)
    if not isinstance(dtype, np.dtype) or (dtype.kind not in "biu" and dtype.name not in _FLOATS):
        return False
    return all(isinstance(size, int) for size in aval.shape) and not any(aval.sharding.spec)


def _always(compute: Compute) -> Rule:
    return lambda equation: compute


def _of_floats(compute: Compute) -> Rule:
    return lambda equation: compute if equation.invars[0].aval.dtype.kind == "f" else None


def _rounded(compute: Compute) -> Rule:
    """Return the rule that computes in double precision."""

    def rule(equation: Any) -> Compute | None:
        dtype = equation.outvars[0].aval.dtype
        if dtype.kind != "f" or any(var.aval.dtype != dtype for var in equation.invars):
            return None
        if dtype == np.float64:
            return compute
        return lambda *values: compute(*(np.asarray(value, np.float64) for value in values)).astype(np.float32)

    return rule


def _reduction(compute: Compute) -> Rule:
    def rule(equation: Any) -> Compute | None:
        axes, out = tuple(equation.params["axes"]), equation.outvars[0].aval
        if equation.params.get("out_sharding") is not None:
            return None
        return lambda x: compute(x, axis=axes, keepdims=False).astype(out.dtype)

    return rule


def _accumulation(compute: Compute) -> Rule:
    """Return the rule of a reduction that rounds: of floats it is made in double precision."""

    def rule(equation: Any) -> Compute | None:
        out = equation.outvars[0].aval.dtype
        return _reduction(functools.partial(compute, dtype=np.float64 if out.kind == "f" else out))(equation)

    return rule


def _extreme(compute: Compute) -> Rule:
    """Return the rule of a largest or least element, which no empty array has in NumPy."""
    rule = _reduction(compute)
    return lambda equation: rule(equation) if math.prod(equation.invars[0].aval.shape) else None


def _arg(compute: Compute) -> Rule:
    def rule(equation: Any) -> Compute | None:
        (axis,), dtype = equation.params["axes"], equation.params["index_dtype"]
        return lambda x: compute(x, axis=axis).astype(dtype)

    return rule


def _convert(equation: Any) -> Compute | None:
    before, after = equation.invars[0].aval.dtype, np.dtype(equation.params["new_dtype"])
    if equation.params.get("sharding") is not None:
        return None
    if before.kind != "f" or after.kind in "fb":
        return lambda x: np.asarray(x).astype(after)
    least, most = np.iinfo(after).min, np.iinfo(after).max
    top = float(most) if int(float(most)) <= most else np.nextafter(float(most), 0)

    def compute(x: Any) -> Any:
        wide = np.nan_to_num(np.asarray(x, np.float64), nan=0.0)
        return np.where(wide > top, np.asarray(most, after), np.clip(wide, least, top).astype(after))

    return compute


def _integer_pow(equation: Any) -> Compute | None:
    exponent = equation.params["y"]
    if equation.invars[0].aval.dtype.kind != "f" and exponent < 0:
        return None

    def compute(x: Any) -> Any:
        result, factor, left = None, x, abs(exponent)
        while left:
            if left & 1:
                result = factor if result is None else result * factor
            left >>= 1
            factor = factor * factor if left else factor
        if result is None:
            return np.ones_like(x)
        return result.dtype.type(1) / result if exponent < 0 else result

    return compute


def _select(equation: Any) -> Compute | None:
    if equation.invars[0].aval.dtype != bool:
        return None
    return lambda which, if_false, if_true: np.where(which, if_true, if_false)


def _clamp(equation: Any) -> Compute | None:
    return lambda least, x, most: np.minimum(np.maximum(x, least), most)


def _div(equation: Any) -> Compute | None:
    return np.divide if equation.invars[0].aval.dtype.kind == "f" else _divided


def _rem(equation: Any) -> Compute | None:
    return np.fmod if equation.invars[0].aval.dtype.kind == "f" else lambda x, y: x - _divided(x, y, by_zero=0) * y


def _divided(x: Any, y: Any, by_zero: int = -1) -> Any:
    """Return integers' quotients, rounded to zero."""
    divisor = np.where(y == 0, 1, y).astype(x.dtype)
    floor = x // divisor
    quotient = floor + ((floor * divisor != x) & ((x < 0) != (divisor < 0))).astype(x.dtype)
    return np.where(y == 0, np.array(by_zero).astype(x.dtype), quotient)


def _round(equation: Any) -> Compute | None:
    if equation.params["rounding_method"] is lax.RoundingMethod.TO_NEAREST_EVEN:
        return np.round
    return lambda x: np.copysign(np.trunc(x) + (np.abs(x - np.trunc(x)) >= 0.5) * np.sign(x), x).astype(x.dtype)


def _sign(equation: Any) -> Compute | None:
    if equation.invars[0].aval.dtype.kind == "f":
        return lambda x: np.where(x == 0, x, np.sign(x))  # The sign of a zero stays.
    return np.sign


def _broadcast(equation: Any) -> Compute | None:
    if len(equation.invars) > 1 or equation.params.get("sharding") is not None:
        return None
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    before = equation.invars[0].aval.shape
    spread = [1] * len(shape)
    for axis, size in zip(axes, before, strict=True):
        spread[axis] = size
    return lambda x: np.broadcast_to(np.reshape(x, spread), shape)


def _reshape(equation: Any) -> Compute | None:
    if equation.primitive is lax.reshape_p and (equation.params["dimensions"] or equation.params.get("sharding")):
        return None
    shape = equation.outvars[0].aval.shape
    return lambda x: np.reshape(x, shape)


def _transpose(equation: Any) -> Compute | None:
    return functools.partial(np.transpose, axes=equation.params["permutation"])


def _concatenate(equation: Any) -> Compute | None:
    axis = equation.params["dimension"]
    return lambda *values: np.concatenate(values, axis=axis)


def _stack(equation: Any) -> Compute | None:
    axis = equation.params["axis"]
    return lambda *values: np.stack(values, axis)


def _unstack(equation: Any) -> Compute | None:
    axis = equation.params["axis"]
    return lambda x: list(np.moveaxis(x, axis, 0))


def _pad(equation: Any) -> Compute | None:
    config, shape = equation.params["padding_config"], equation.outvars[0].aval.shape
    if any(low < 0 or high < 0 for low, high, _ in config):
        return None
    place = tuple(slice(low, size - high, inner + 1) for (low, high, inner), size in zip(config, shape, strict=True))

    def compute(x: Any, value: Any) -> Any:
        result = np.full(shape, value, x.dtype)
        result[place] = x
        return result

    return compute


def _slice(equation: Any) -> Compute | None:
    params = equation.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    place = tuple(map(slice, params["start_indices"], params["limit_indices"], strides))
    return lambda x: x[place]


def _place(starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices from starts that are moved so that all of them lie inside."""
    first = [min(max(int(start), 0), whole - size) for start, size, whole in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(start, start + size) for start, size in zip(first, sizes, strict=True))


def _dynamic_slice(equation: Any) -> Compute | None:
    sizes = equation.params["slice_sizes"]
    return lambda x, *starts: x[_place(starts, sizes, x.shape)]


def _dynamic_update_slice(equation: Any) -> Compute | None:
    def compute(x: Any, update: Any, *starts: Any) -> Any:
        result = np.array(x)
        result[_place(starts, np.shape(update), np.shape(x))] = update
        return result

    return compute


def _rev(equation: Any) -> Compute | None:
    return functools.partial(np.flip, axis=equation.params["dimensions"])


def _iota(equation: Any) -> Compute | None:
    if equation.params.get("sharding") is not None:
        return None
    shape, axis = equation.params["shape"], equation.params["dimension"]
    along = [1] * len(shape)
    along[axis] = shape[axis]
    values = np.arange(shape[axis]).astype(equation.params["dtype"]).reshape(along)
    return lambda: np.broadcast_to(values, shape)


def _split(equation: Any) -> Compute | None:
    ends, axis = np.cumsum(equation.params["sizes"])[:-1], equation.params["axis"]
    return lambda x: np.split(x, ends, axis)


def _cumsum(equation: Any) -> Compute | None:
    axis, reverse, dtype = equation.params["axis"], equation.params["reverse"], equation.outvars[0].aval.dtype
    wide = np.float64 if dtype.kind == "f" else dtype

    def compute(x: Any) -> Any:
        x = np.flip(x, axis) if reverse else x
        total = np.cumsum(x, axis, dtype=wide).astype(dtype)
        return np.flip(total, axis) if reverse else total

    return compute


def _dot(equation: Any) -> Compute | None:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    out = equation.outvars[0].aval
    if equation.params.get("out_sharding") is not None or any(var.aval.dtype != out.dtype for var in equation.invars):
        return None
    if out.dtype == bool:
        return None
    a, b = (var.aval.ndim for var in equation.invars)
    free_left = [axis for axis in range(a) if axis not in (*left, *left_batch)]
    free_right = [axis for axis in range(b) if axis not in (*right, *right_batch)]
    batch, rows, columns = (len(left_batch), len(free_left), len(free_right))
    shape = out.shape
    inner = math.prod(equation.invars[0].aval.shape[axis] for axis in left)
    outer = shape[:batch]
    first = (*outer, math.prod(shape[batch : batch + rows]), inner)
    second = (*outer, inner, math.prod(shape[batch + rows : batch + rows + columns]))

    def compute(x: Any, y: Any) -> Any:
        x = np.transpose(x, (*left_batch, *free_left, *left)).reshape(first)
        y = np.transpose(y, (*right_batch, *right, *free_right)).reshape(second)
        return np.matmul(x, y).reshape(shape)

    return compute


_RULES: dict[Primitive, Rule] = {
    lax.add_p: _always(np.add),
    lax.sub_p: _always(np.subtract),
    lax.mul_p: _always(np.multiply),
    lax.div_p: _div,
    lax.rem_p: _rem,
    lax.neg_p: _always(np.negative),
    lax.abs_p: _always(np.abs),
    lax.max_p: _always(np.maximum),
    lax.min_p: _always(np.minimum),
    lax.sqrt_p: _of_floats(np.sqrt),
    lax.square_p: _always(np.square),
    lax.floor_p: _always(np.floor),
    lax.ceil_p: _always(np.ceil),
    lax.round_p: _round,
    lax.sign_p: _sign,
    lax.is_finite_p: _always(np.isfinite),
    lax.eq_p: _always(np.equal),
    lax.ne_p: _always(np.not_equal),
    lax.lt_p: _always(np.less),
    lax.le_p: _always(np.less_equal),
    lax.gt_p: _always(np.greater),
    lax.ge_p: _always(np.greater_equal),
    lax.and_p: _always(np.bitwise_and),
    lax.or_p: _always(np.bitwise_or),
    lax.xor_p: _always(np.bitwise_xor),
    lax.not_p: _always(np.invert),
    lax.select_n_p: _select,
    lax.clamp_p: _clamp,
    lax.convert_element_type_p: _convert,
    lax.broadcast_in_dim_p: _broadcast,
    lax.reshape_p: _reshape,
    lax.squeeze_p: _reshape,
    lax.transpose_p: _transpose,
    lax.concatenate_p: _concatenate,
    lax.pad_p: _pad,
    lax.slice_p: _slice,
    lax.dynamic_slice_p: _dynamic_slice,
    lax.dynamic_update_slice_p: _dynamic_update_slice,
    lax.rev_p: _rev,
    lax.iota_p: _iota,
    lax.split_p: _split,
    lax.copy_p: _always(np.array),
    lax.gather_p: choose_gather,
    lax.scatter_p: choose_scatter,
    lax.scatter_add_p: choose_scatter_add,
    lax.reduce_max_p: _extreme(np.max),
    lax.reduce_min_p: _extreme(np.min),
    lax.reduce_and_p: _reduction(np.bitwise_and.reduce),
    lax.reduce_or_p: _reduction(np.bitwise_or.reduce),
    lax.argmax_p: _arg(np.argmax),
    lax.argmin_p: _arg(np.argmin),
    lax.integer_pow_p: _integer_pow,
    lax.exp_p: _rounded(np.exp),
    lax.exp2_p: _rounded(np.exp2),
    lax.log_p: _rounded(np.log),
    lax.log1p_p: _rounded(np.log1p),
    lax.expm1_p: _rounded(np.expm1),
    lax.tanh_p: _rounded(np.tanh),
    lax.logistic_p: _rounded(lambda x: 1 / (1 + np.exp(-x))),
    lax.sin_p: _rounded(np.sin),
    lax.cos_p: _rounded(np.cos),
    lax.tan_p: _rounded(np.tan),
    lax.pow_p: _rounded(np.power),
    lax.rsqrt_p: _rounded(lambda x: 1 / np.sqrt(x)),
    lax.reduce_sum_p: _accumulation(np.sum),
    lax.reduce_prod_p: _accumulation(np.prod),
    lax.cumsum_p: _cumsum,
    lax.dot_general_p: _dot,
}
# Those that JAX has no public name for.
_BY_NAME: dict[str, Rule] = {
    "add_any": _always(np.add),
    "one_minus_square": _rounded(lambda x: 1 - x * x),
    "stack": _stack,
    "unstack": _unstack,
    "stop_gradient": _always(np.array),
}
