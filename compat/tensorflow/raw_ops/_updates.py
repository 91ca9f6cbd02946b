"""`tf.raw_ops`: steps of optimizers, on variables or their handles."""

from typing import Any

import jax.numpy as jnp

from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor


def ResourceApplyKerasMomentum(
    *,
    var: Any,
    accum: Any,
    lr: Any,
    grad: Any,
    momentum: Any,
    use_locking: bool = False,
    use_nesterov: bool = False,
    name: str | None = None,
) -> None:
    """Change a variable by an accumulator of steps: `accum = accum * momentum - lr * grad; var += accum`.

    Args:
        var: The variable.
        accum: The accumulator, a variable of the same shape.
        lr: The learning rate.
        grad: The gradient.
        momentum: How much of the accumulator stays.
        use_locking: Not used.
        use_nesterov: Whether the variable is changed by the accumulator after another such step.
        name: Not used.
    """
    rate, gradient, kept = convert_to_tensor(lr), convert_to_tensor(grad), convert_to_tensor(momentum)
    step = convert_to_tensor(accum) * kept - rate * gradient
    accum.assign(step)
    var.assign_add(step * kept - rate * gradient if use_nesterov else step)


def ResourceApplyProximalAdagrad(
    *,
    var: Any,
    accum: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    grad: Any,
    use_locking: bool = False,
    name: str | None = None,
) -> None:
    """Change a variable as FOBOS does, with Adagrad's learning rates: small values become 0 by `l1`, all smaller by `l2`.

    Ref: https://proceedings.neurips.cc/paper/2009/hash/621bf66ddb7c962aa0d22ac97d69b793-Abstract.html.
    """
    gradient, least, shrunk = convert_to_tensor(grad), convert_to_tensor(l1), convert_to_tensor(l2)
    squares = convert_to_tensor(accum) + jnp.square(gradient)
    accum.assign(squares)
    rate = convert_to_tensor(lr) / jnp.sqrt(squares)
    stepped = convert_to_tensor(var) - rate * gradient
    near = jnp.sign(stepped) * jnp.maximum(jnp.abs(stepped) - rate * jnp.maximum(least, 0), 0)
    var.assign(near / (1 + shrunk * rate))
