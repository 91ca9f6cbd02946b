"""`tf.experimental.numpy`: JAX's NumPy with NumPy's own types: 64 bits for Python's numbers, and its promotion."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax.compat.tensorflow._tensors._dtypes import DType
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor

# Of one array, which may be a list; the other arguments are axes, shapes and options.
_OF_ONE = (
    "abs absolute all amax amin angle any arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort around "
    "atleast_1d atleast_2d atleast_3d average bitwise_not broadcast_to cbrt ceil clip conj conjugate copy cos cosh count_nonzero "
    "cumprod cumsum deg2rad diag diagflat diagonal diff dsplit empty_like exp exp2 expand_dims expm1 fabs flip "
    "fliplr flipud floor full_like hsplit imag iscomplex iscomplexobj isfinite isinf isnan isneginf isposinf isreal "
    "isrealobj log log10 log1p log2 logical_not max mean min moveaxis nanmean nanprod nansum ndim negative nonzero ones_like pad "
    "positive prod ptp rad2deg ravel real reciprocal repeat reshape roll rot90 round shape sign signbit sin sinc sinh "
    "size sort split sqrt square squeeze std sum swapaxes tan tanh tile trace transpose tril triu vander var vsplit "
    "zeros_like"
)
_OF_TWO = (
    "add allclose append arctan2 array_equal bitwise_and bitwise_or bitwise_xor compress cross divide divmod dot equal "
    "float_power floor_divide gcd greater greater_equal heaviside hypot inner isclose kron lcm less less_equal "
    "logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum mod multiply nextafter not_equal "
    "outer polyval power remainder subtract take take_along_axis tensordot true_divide vdot"
)
_OF_MANY = "broadcast_arrays ix_ meshgrid"
_OF_A_SEQUENCE = "concatenate dstack hstack stack vstack"
_OF_SIZES = "arange diag_indices empty eye full geomspace identity linspace logspace ones zeros"
# Kinds of numbers, each wider than those before.
_KINDS = "biufc"
# Whose result is a float64 for integers of any size.
_OF_FLOATS = frozenset(
    [
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "average",
        "cbrt",
        "cos",
        "cosh",
        "deg2rad",
        "divide",
        "exp",
        "exp2",
        "expm1",
        "fabs",
        "float_power",
        "hypot",
        "log",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "logaddexp2",
        "mean",
        "rad2deg",
        "sin",
        "sinc",
        "sinh",
        "sqrt",
        "std",
        "tan",
        "tanh",
        "true_divide",
        "var",
    ]
)
# Whose result JAX leaves in the type of the elements, where NumPy takes its widest integer.
_SUMS = ("cumprod", "cumsum", "prod", "sum")
# Whose second argument is a place or a condition: its type has nothing to do with the result's.
_APART = ("compress", "take", "take_along_axis")


def _operation(name: str, arrays: int | None) -> Callable[..., Any]:
    """Make the function of that name, of which the first `arrays` arguments (all if None) are arrays."""
    function = getattr(jnp, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            count = len(args) if arrays is None else arrays
            given = [_array(arg) for arg in args[:count]] if name in _APART else _promoted(args[:count])
            if name in _OF_FLOATS:
                given = [_as_float(one) for one in given]
            rest, options = _plain(args[count:]), {key: _plain(value) for key, value in kwargs.items()}
            if name in _SUMS and "dtype" not in options:
                options["dtype"] = _sum_type(given[0])
            return function(*given, *rest, **options)

    return call


def _sequence_operation(name: str) -> Callable[..., Any]:
    function = getattr(jnp, name)

    @functools.wraps(function)
    def call(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return function(_promoted(arrays), *_plain(args), **_plain(kwargs))

    return call


def _array(value: Any) -> Any:
    """Return an array argument for JAX: Python's numbers stay what they are, so that tensors keep their type."""
    if isinstance(value, HostTensor):
        return jnp.asarray(np.asarray(value))
    if is_tensor(value):
        return jnp.asarray(value)
    if isinstance(value, list | tuple):
        if any(is_tensor(item) for item in value):
            return jnp.stack(_promoted(value))
        return jnp.asarray(np.asarray(value))
    return jnp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value


def _promoted(values: Any) -> list[Any]:
    """Return arrays of the type that NumPy computes with: float64 for an int32 and a float32.

    Lists of Python's numbers take part as the numbers do: they change the type only if their kind is a wider one.
    """
    arrays = [_array(value) for value in values]
    pairs = [(value, array) for value, array in zip(values, arrays, strict=True) if isinstance(array, jax.Array)]
    strong = {array.dtype for value, array in pairs if not _is_plain(value)}
    weak = {array.dtype for value, array in pairs if _is_plain(value)}
    if any(kind.kind not in _KINDS for kind in strong):
        return arrays
    wanted = np.result_type(*strong) if strong else None
    wider = [kind for kind in weak if wanted is None or _KINDS.index(kind.kind) > _KINDS.index(wanted.kind)]
    if wider:
        wanted = np.result_type(*wider, *([] if wanted is None else [wanted]))
    return [array.astype(wanted) if isinstance(array, jax.Array) else array for array in arrays]


def _is_plain(value: Any) -> bool:
    return isinstance(value, list | tuple) and not any(is_tensor(item) for item in value)


def _as_float(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, jax.Array) and value.dtype.kind in "biu" else value


def _plain(value: Any) -> Any:
    """Return an argument that is no array for JAX."""
    if isinstance(value, DType):
        return value.dtype
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, HostTensor):
        return value.tolist()
    return jnp.asarray(value) if is_tensor(value) else value


def _sum_type(value: Any) -> Any:
    dtype = jnp.asarray(value).dtype
    if dtype.kind == "u":
        return np.uint64
    return np.int64 if dtype.kind in "ib" else dtype


def array(val: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> jax.Array:
    """Return a tensor of numbers; Python's become int64 and float64.

    See https://www.tensorflow.org/api_docs/python/tf/experimental/numpy/array.
    """
    with jax.enable_x64(True):
        made = jnp.asarray(_array(val), dtype=_plain(dtype))
        return jnp.array(made, ndmin=ndmin) if copy or ndmin else made


def asarray(a: Any, dtype: Any = None) -> jax.Array:
    """Return a tensor of numbers, the same if it is one of this type already."""
    return array(a, dtype, copy=False)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = np.float64) -> jax.Array:
    """Return ones at and below a diagonal, zeros above."""
    with jax.enable_x64(True):
        return jnp.tri(N, M, k, _plain(dtype))


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return elements of `x` where the condition holds, of `y` elsewhere; or the places where it does."""
    with jax.enable_x64(True):
        if x is None and y is None:
            return jnp.nonzero(_array(condition))
        return jnp.where(_array(condition), *_promoted([x, y]))


def select(condlist: Any, choicelist: Any, default: Any = 0) -> jax.Array:
    """Return for each place the element of the first choice whose condition holds there."""
    with jax.enable_x64(True):
        choices = _promoted(choicelist)
        return jnp.select([_array(one) for one in condlist], choices, _array(default))


def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> jax.Array:
    """Return sums of products, as an equation such as "ij,jk->ik" says."""
    with jax.enable_x64(True):
        return jnp.einsum(subscripts, *_promoted(operands))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the NumPy type that these have together."""
    return np.result_type(*(_array(one) if is_tensor(one) else _plain(one) for one in arrays_and_dtypes))


def experimental_enable_numpy_behavior(prefer_float32: bool = False, dtype_conversion_mode: str = "legacy") -> None:
    """Accept the switch that gives tensors NumPy's methods: JAX's arrays have them always.

    Raises:
        NotImplementedError: For `prefer_float32`, or another way to convert types.
    """
    if prefer_float32 or dtype_conversion_mode != "legacy":
        raise NotImplementedError(
            "Operators of tensors convert types as TensorFlow's or, in modules that do not import it, JAX's do: leave "
            "`prefer_float32` and `dtype_conversion_mode` out, and use `tf.cast`."
        )


_OPERATIONS = {
    **{name: _operation(name, 1) for name in _OF_ONE.split()},
    **{name: _operation(name, 2) for name in _OF_TWO.split()},
    **{name: _operation(name, None) for name in _OF_MANY.split()},
    **{name: _sequence_operation(name) for name in _OF_A_SEQUENCE.split()},
    **{name: _operation(name, 0) for name in _OF_SIZES.split()},
}


def __getattr__(name: str) -> Callable[..., Any]:
    """Return an operation; as globals they would hide Python's functions of the same names."""
    if name in _OPERATIONS:
        return _OPERATIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
