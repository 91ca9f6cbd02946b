"""Functions with kinks, and TensorFlow's gradients there: JAX halves them between equal numbers, and has 1 for abs(0).

Zeros are common where a kink is: in the first step, in black borders of images, and behind a relu.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def _with_tangent(function: Callable[..., jax.Array], tangent: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Return a function of real numbers whose derivative along tangents is `tangent(*numbers, *tangents)`."""
    own = jax.custom_jvp(function)
    own.defjvp(lambda primals, tangents: (own(*primals), tangent(*primals, *tangents)))
    return jax.jit(own)  # Without, each eager call would trace the function and its rule anew.


maximum = _with_tangent(jnp.maximum, lambda x, y, dx, dy: jnp.where(x >= y, dx, dy))
minimum = _with_tangent(jnp.minimum, lambda x, y, dx, dy: jnp.where(x <= y, dx, dy))
_absolute = _with_tangent(jnp.abs, lambda x, dx: jnp.sign(x) * dx)


def absolute(x: Any) -> jax.Array:
    """Return absolute values; JAX's gradient of complex ones is TensorFlow's."""
    return jnp.abs(x) if jnp.iscomplexobj(x) else _absolute(x)
