"""Layers: functions whose parameters are gathered, and whose results are computed again, one after another."""

from collections.abc import Callable
from typing import Any

import jax

_POLICIES = (
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
)


def layer(fn: Callable[..., Any], *, policy: str | Callable[..., bool] = "nothing_saveable") -> Callable[..., Any]:
    """Make a function a layer of a model: what it computes is not kept for gradients but computed again.

    It is `jax.checkpoint`, under every strategy, and so are Flax's `nnx.remat` and `linen.remat`. Where a strategy splits parameters
    over `fsdp` or, as `FSDP` does, over `data`, those that only layers use are gathered in them, in the forward pass and again in the
    backward pass: one layer at a time is whole. Loops over stacked parameters (`jax.lax.scan`, `linen.scan`, `nnx.scan`) keep it so on
    every platform; where layers follow each other in Python, it is for XLA to order them.

    Args:
        fn: A function of pytrees of arrays, such as a layer's parameters and its input.
        policy: What of its results is kept all the same, as in `jax.checkpoint_policies`: "nothing_saveable"; "dots_saveable", of which
            matrix products need not be computed again; "dots_with_no_batch_dims_saveable"; "everything_saveable", also the gathered
            parameters; or a policy.

    Returns:
        A function that gives what `fn` gives.

    Raises:
        ValueError: If there is no policy of that name.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, tfdist_jax as td
        >>> strategy = td.FSDP(min_size=1)
        >>> weights = strategy.init(lambda: jnp.full((5, 16, 16), 0.1))
        >>> apply = td.layer(lambda w, x: jnp.tanh(x @ w))
        >>> loss = lambda ws, x: jax.lax.scan(lambda x, w: (apply(w, x), None), x, ws)[0].mean()
        >>> batch = strategy.put(np.ones((8, 16), np.float32))
        >>> strategy.value_and_grad(loss, has_aux=False)(weights, batch)[1].shape
        (5, 16, 16)
    """
    if not callable(policy) and policy not in _POLICIES:
        raise ValueError(f"A layer's policy is one of {', '.join(_POLICIES)}, or a function, got {policy!r}.")
    return jax.checkpoint(fn, policy=policy if callable(policy) else getattr(jax.checkpoint_policies, policy))
