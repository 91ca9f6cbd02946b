"""Training on tokens that go to experts on other devices, and attend to tokens there; run by the tests in one process and in several."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

ROWS = (8, 5)
LENGTH = 8


def over_tokens():
    """Strategies for eight devices."""
    rules = {"experts": P("expert")}
    return {
        "expert over processes": td.Sharded({"expert": 8}, rules),
        "all": td.Sharded({"data": 2, "expert": 2, "sequence": 2}, rules),
    }


def make_params():
    """Parameters of a layer."""
    keys = jax.random.split(jax.random.key(0), 4)
    normal = lambda key, *shape: jax.random.normal(key, shape) / 2
    return {
        "embedding": normal(keys[0], 16, 8),
        "qkv": normal(keys[1], 8, 3, 4, 2),
        "router": normal(keys[2], 8, 8),
        "experts": normal(keys[3], 8, 8, 8),
    }


def loss_fn(params, batch):
    """A sum over tokens, and how many of them count."""
    x = params["embedding"][batch["x"]]
    query, key, value = jnp.einsum("btd,dchf->cbthf", x, params["qkv"])
    x += td.attend(query, key, value, is_causal=True).reshape(x.shape)
    gates = jax.nn.softmax(x @ params["router"])
    x += td.run_experts(lambda expert, x: jnp.tanh(x @ expert), params["experts"], x, gates).outputs
    counts = batch["real"][:, None] & (batch["x"] > 2)
    return ((x**2).sum(-1) * counts).sum(), counts.sum()


def batches():
    """Random batches, the last of which does not divide evenly."""
    random = np.random.RandomState(0)
    return [{"x": random.randint(0, 16, (rows, LENGTH))} for rows in ROWS]


def train(strategy):
    """Return the parameters after a few steps, as lists."""

    @strategy.jit
    def step(params, batch):
        loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)
        return jax.tree.map(lambda param, grad: param - 0.1 * grad, params, grads), loss

    params = strategy.init(make_params)
    for batch in strategy.prefetch(batches(), mask="real"):
        params, _ = step(params, batch)
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(strategy.fetch(params))]
