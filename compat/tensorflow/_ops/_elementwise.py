"""Functions of one tensor, element by element."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from tfdist_jax.compat.tensorflow._ops._arguments import compute, keeps_static, require
from tfdist_jax.compat.tensorflow._ops._subgradients import absolute
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

_PAGE = "https://www.tensorflow.org/api_docs/python/tf/math"


def _unary(name: str, function: Callable[[Any], Any], kinds: str, doc: str) -> Callable[..., Any]:
    """Make TensorFlow's operation of a JAX function; `kinds` as in `require`."""

    def operation(x: Any, name: str | None = None) -> Any:
        return compute(function, require(convert_to_tensor(x), kinds, operation.__name__))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{doc}\n\n    See {_PAGE}/{name}.\n    "
    return keeps_static(operation) if "i" in kinds else operation


def _in_steps(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that is constant almost everywhere, without the gradient of zeros that JAX gives it."""
    return lambda x: function(jax.lax.stop_gradient(x))


abs = _unary("abs", absolute, "fci", "Return absolute values.")
acos = _unary("acos", jnp.arccos, "fc", "Return arc cosines.")
acosh = _unary("acosh", jnp.arccosh, "fc", "Return inverse hyperbolic cosines.")
asin = _unary("asin", jnp.arcsin, "fc", "Return arc sines.")
asinh = _unary("asinh", jnp.arcsinh, "fc", "Return inverse hyperbolic sines.")
atan = _unary("atan", jnp.arctan, "fc", "Return arc tangents.")
atanh = _unary("atanh", jnp.arctanh, "fc", "Return inverse hyperbolic tangents.")
bessel_i0 = _unary("bessel_i0", special.i0, "f", "Return modified Bessel functions of order 0.")
bessel_i0e = _unary("bessel_i0e", special.i0e, "f", "Return exponentially scaled Bessel functions of order 0.")
bessel_i1 = _unary("bessel_i1", special.i1, "f", "Return modified Bessel functions of order 1.")
bessel_i1e = _unary("bessel_i1e", special.i1e, "f", "Return exponentially scaled Bessel functions of order 1.")
ceil = _unary("ceil", _in_steps(jnp.ceil), "f", "Return the next integers above.")
cos = _unary("cos", jnp.cos, "fc", "Return cosines.")
cosh = _unary("cosh", jnp.cosh, "fc", "Return hyperbolic cosines.")
digamma = _unary("digamma", special.digamma, "f", "Return the derivatives of log gamma.")
erf = _unary("erf", special.erf, "f", "Return Gauss error functions.")
erfc = _unary("erfc", special.erfc, "f", "Return complements of Gauss error functions.")
erfcinv = _unary("erfcinv", lambda x: special.erfinv(1 - x), "f", "Return inverses of `erfc`.")
erfinv = _unary("erfinv", special.erfinv, "f", "Return inverses of `erf`.")
dawsn = _unary("dawsn", special.dawsn, "f", "Return Dawson's integrals.")
exp = _unary("exp", jnp.exp, "fc", "Return e to the power of each element.")
expint = _unary("expint", special.expi, "f", "Return exponential integrals Ei.")
expm1 = _unary("expm1", jnp.expm1, "fc", "Return e to the power of each element, less 1.")
fresnel_cos = _unary("fresnel_cos", lambda x: special.fresnel(x)[1], "f", "Return Fresnel cosine integrals.")
fresnel_sin = _unary("fresnel_sin", lambda x: special.fresnel(x)[0], "f", "Return Fresnel sine integrals.")
floor = _unary("floor", _in_steps(jnp.floor), "f", "Return the next integers below.")
is_finite = _unary("is_finite", jnp.isfinite, "f", "Tell which elements are finite.")
is_inf = _unary("is_inf", jnp.isinf, "f", "Tell which elements are infinite.")
is_nan = _unary("is_nan", jnp.isnan, "f", "Tell which elements are not a number.")
lgamma = _unary("lgamma", special.gammaln, "f", "Return logarithms of the absolute gamma function.")
log = _unary("log", jnp.log, "fc", "Return natural logarithms.")
log1p = _unary("log1p", jnp.log1p, "fc", "Return natural logarithms of 1 + x.")
log_sigmoid = _unary("log_sigmoid", jax.nn.log_sigmoid, "f", "Return logarithms of sigmoids.")
logical_not = _unary("logical_not", jnp.logical_not, "b", "Return the opposite truth values.")
ndtri = _unary("ndtri", special.ndtri, "f", "Return quantiles of the standard normal distribution.")
negative = _unary("negative", jnp.negative, "fci", "Return negated elements.")
reciprocal = _unary("reciprocal", jnp.reciprocal, "fci", "Return 1 / x.")
rint = _unary("rint", jnp.rint, "f", "Return the nearest integers, halves to the even one.")
round = _unary("round", _in_steps(jnp.round), "fi", "Return the nearest integers, halves to the even one.")
rsqrt = _unary("rsqrt", jax.lax.rsqrt, "fc", "Return 1 / sqrt(x).")
sigmoid = _unary("sigmoid", lambda x: jax.nn.sigmoid(x), "fc", "Return 1 / (1 + exp(-x)).")
sign = _unary("sign", jnp.sign, "fci", "Return -1, 0 or 1.")
sin = _unary("sin", jnp.sin, "fc", "Return sines.")
sinh = _unary("sinh", jnp.sinh, "fc", "Return hyperbolic sines.")
spence = _unary("spence", special.spence, "f", "Return Spence's integrals.")
sqrt = _unary("sqrt", jnp.sqrt, "fc", "Return square roots.")
square = _unary("square", jnp.square, "fci", "Return squares.")
tan = _unary("tan", jnp.tan, "fc", "Return tangents.")
tanh = _unary("tanh", jnp.tanh, "fc", "Return hyperbolic tangents.")


def lbeta(x: Any, name: str | None = None) -> jax.Array:
    """Return logarithms of the beta function of vectors along the last axis.

    See https://www.tensorflow.org/api_docs/python/tf/math/lbeta.
    """
    tensor = require(convert_to_tensor(x), "f", "math.lbeta")
    return jnp.sum(special.gammaln(tensor), -1) - special.gammaln(jnp.sum(tensor, -1))


def real(input: Any, name: str | None = None) -> jax.Array:
    """Return real parts."""
    return jnp.real(convert_to_tensor(input))


def imag(input: Any, name: str | None = None) -> jax.Array:
    """Return imaginary parts, zeros for real numbers."""
    return jnp.imag(convert_to_tensor(input))


def angle(input: Any, name: str | None = None) -> jax.Array:
    """Return the arguments of complex numbers."""
    tensor = convert_to_tensor(input)
    return jnp.angle(tensor) if jnp.iscomplexobj(tensor) else jnp.where(tensor < 0, jnp.pi, 0).astype(tensor.dtype)


def conj(x: Any, name: str | None = None) -> jax.Array:
    """Return complex conjugates; real numbers as they are."""
    tensor = convert_to_tensor(x)
    return jnp.conj(tensor) if as_dtype(tensor.dtype).is_complex else tensor


def identity(input: Any, name: str | None = None) -> Any:
    """Return a new tensor with the same elements."""
    tensor = convert_to_tensor(input)
    return jnp.copy(tensor) if isinstance(tensor, jax.Array) else tensor


def identity_n(input: Any, name: str | None = None) -> list[Any]:
    """Return new tensors with the same elements."""
    return [identity(tensor) for tensor in input]


def reciprocal_no_nan(x: Any, name: str | None = None) -> jax.Array:
    """Return 1 / x, and 0 for 0."""
    tensor = require(convert_to_tensor(x), "fc", "math.reciprocal_no_nan")
    zero = tensor == 0
    return jnp.where(zero, jnp.zeros_like(tensor), 1 / jnp.where(zero, jnp.ones_like(tensor), tensor))
