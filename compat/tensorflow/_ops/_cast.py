"""Conversions between types."""

from typing import Any

import jax
import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._ops._arguments import invalid, keeps_static, require, same_type
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype, complex64, complex128, float64, string
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices, on_values
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import is_sparse
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


@keeps_static
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """Return `x` with its elements converted to `dtype`.

    Floats are cut towards zero as integers, complex numbers lose their imaginary part. The same tensor comes back if
    it has the type already. See https://www.tensorflow.org/api_docs/python/tf/cast.
    """
    if isinstance(x, IndexedSlices):
        return on_values(lambda values: cast(values, dtype), x)
    if is_sparse(x):
        return x.with_values(cast(x.values, dtype))
    wanted = as_dtype(dtype)
    tensor = convert_to_tensor(x)
    if tensor.dtype == wanted.dtype:
        return tensor
    if string in (wanted, as_dtype(tensor.dtype)):
        raise invalid(f"Cast {as_dtype(tensor.dtype).name} to {wanted.name} is not supported.")
    if jnp.iscomplexobj(tensor) and not wanted.is_complex:
        tensor = jnp.real(tensor)
    return tensor.astype(wanted.dtype)


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Any:
    """Convert to `dtype`, values beyond its range becoming the nearest in it."""
    wanted = as_dtype(dtype)
    tensor = convert_to_tensor(value)
    have = as_dtype(tensor.dtype)
    low, high = max(have.min, wanted.min), min(have.max, wanted.max)
    clipped = jnp.clip(tensor, _exact(low, have), _exact(high, have))
    if have.is_floating and wanted.is_integer:
        # The largest integer may not be a float: compare instead of trusting the rounded bound.
        above = tensor >= _exact(wanted.max, have)
        return jnp.where(above, _exact(wanted.max, wanted), cast(clipped, wanted))
    return cast(clipped, wanted)


def _exact(value: Any, dtype: DType) -> jax.Array:
    return convert_to_tensor(dtype.as_numpy_dtype(value), dtype)


def complex(real: Any, imag: Any, name: str | None = None) -> jax.Array:
    """Return complex numbers from their real and imaginary parts, which are both float32 or both float64."""
    real, imag = same_type(real, imag)
    require(real, "f", "complex")
    wanted = complex128 if as_dtype(real.dtype) is float64 else complex64
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag)).astype(wanted.dtype)


def bitcast(input: Any, type: Any, name: str | None = None) -> jax.Array:
    """Return the same bits as elements of another type; a change of size splits or joins the last axis."""
    return jax.lax.bitcast_convert_type(convert_to_tensor(input), as_dtype(type).dtype)
