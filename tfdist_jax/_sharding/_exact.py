"""Functions that communicate between devices by themselves, and whose results are those of one device all the same."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import JaxprEqn

_NAME = "exact_over_devices"


def assume_exact(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Promise that a function's results are one device's, though it communicates: those for rows, its own rows', others the same on all.

    What a loss computes is analysed, and refused where its parts could not be put together; into such a function the analysis does not
    look. The library's own, such as `td.run_experts`, need no promise.

    Args:
        fn: A function of pytrees of arrays, such as one that gathers the rows of all replicas to compare its own with them.

    Returns:
        A function that gives what `fn` gives.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> strategy = td.Mirrored()
        >>> centred = td.assume_exact(lambda x: x - jax.lax.pmean(x.mean(), strategy.batch_axes))
        >>> rows = strategy.put(np.arange(2.0 * strategy.num_replicas, dtype=np.float32))
        >>> float(strategy.evaluate(lambda scale, x: scale * centred(x).sum())(jnp.float32(1), rows))
        0.0
    """

    @functools.wraps(fn)
    def exact(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    exact.__name__ = _NAME
    return jax.jit(exact)


def is_assumed_exact(eqn: JaxprEqn) -> bool:
    """Whether an operation of a program is a call of such a function."""
    return eqn.params.get("name") == _NAME and "jaxpr" in eqn.params


def axis_size(name: str) -> int:
    """Return the size of a mesh axis over which the function runs that is being traced, one part on each device; 1 if there is none."""
    try:
        return jax.lax.axis_size(name)
    except NameError:
        return 1
