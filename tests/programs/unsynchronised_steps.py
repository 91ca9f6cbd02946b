"""Run 1,000 steps without ever waiting; prints the last loss.

Arguments: number of devices; `mirrored`, `fsdp`, or `jit` for steps whose number in flight nothing bounds.
"""

import sys

import tfdist_jax as td

td.use_cpu_devices(int(sys.argv[1]))

import jax
import jax.numpy as jnp
import numpy as np

strategy = {"mirrored": td.Mirrored, "fsdp": td.FSDP, "jit": td.Mirrored}[sys.argv[2]]()


def make_state():
    """Twenty small matrices: many collectives for little work, where deadlocks showed."""
    return [jax.random.normal(key, (32, 32)) for key in jax.random.split(jax.random.key(0), 20)]


def loss_fn(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


@(jax.jit if sys.argv[2] == "jit" else strategy.jit)
def step(params, x):
    loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, x)
    return [w - 0.1 * g for w, g in zip(params, grads, strict=True)], loss


params = strategy.init(make_state)
batch = strategy.put(np.ones((16, 32), np.float32))
for _ in range(1000):
    params, loss = step(params, batch)
print("loss", float(loss))
