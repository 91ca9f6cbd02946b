"""A native training that one process and several can run: state, loss, batches and the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9))
GLOBAL_SIZES = (24, 10, 5, 1, 24)
# What each of two processes has of its own, batch by batch.
OWN_SIZES = ((8, 6, 5), (8, 2))


def over_several_axes():
    """Strategies whose replicas lie along several axes, or have several devices: for eight devices."""
    rules = {"w": P(None, "tensor"), "v": P("tensor")}
    return {
        "hsdp": td.HSDP(shards=4, min_size=8),
        "hsdp over processes": td.Sharded({"fsdp": 8}, min_size=8),
        "zero1": td.ZeRO1(min_size=8),
        "offloaded": td.Offloaded(td.FSDP(min_size=8), min_size=8),
        "tensor": td.TensorParallel(4, rules),
        "sharded": td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, rules, min_size=8),
    }


def pipelines():
    """Pipelines whose stages lie in one process, or in both, for eight devices."""
    return {
        "stages within processes": td.Pipeline(2, 3, axes={"data": 4}),
        "stages over processes": td.Pipeline(4, 2, axes={"stage": 4, "data": 2}, schedule="zb-h1"),
        "stages and shards": td.Pipeline(2, 2, "interleaved", axes={"stage": 2, "data": 2, "fsdp": 2}, min_size=8),
    }


def make_staged_state():
    """Parameters and optimizer state of `STAGED`."""
    params, _ = make_state()
    params |= {"blocks": 0.3 * jax.random.normal(jax.random.key(1), (4, 8, 8))}
    return params, OPTIMIZER.init(params)


def make_state():
    """Parameters and optimizer state."""
    keys = jax.random.split(jax.random.key(0))
    params = {"w": jax.random.normal(keys[0], (16, 8)), "b": jnp.zeros(8), "v": jax.random.normal(keys[1], (8, 3))}
    return params, OPTIMIZER.init(params)


def loss_fn(params, batch):
    """Mean squared error."""
    hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
    error = hidden @ params["v"] - batch["y"]
    return jnp.mean(error**2), {"mean": jnp.mean(hidden)}


STAGED = td.Staged(
    lambda params, batch: jnp.tanh(batch["x"] @ params["w"] + params["b"]),
    lambda block, x, batch: x + jnp.tanh(x @ block),
    lambda params, x, batch: (jnp.mean((x @ params["v"] - batch["y"]) ** 2), {"mean": jnp.mean(x)}),
)
"""Mean squared error, with layers in between."""


def batches(sizes, seed):
    """Random batches of these sizes, in 64 bits, which JAX makes 32."""
    random = np.random.RandomState(seed)
    return [{"x": random.randn(n, 16), "y": random.randn(n, 3)} for n in sizes]


def joined_own():
    """The batches that all steps together have when two processes train on their own."""
    steps = max(map(len, OWN_SIZES))
    own = [batches(sizes, seed) for seed, sizes in enumerate(OWN_SIZES)]
    parts = [[mine[step] for mine in own if step < len(mine)] for step in range(steps)]
    return [jax.tree.map(lambda *leaves: np.concatenate(leaves), *part) for part in parts]


def train(strategy, data, *, loss_fn=loss_fn, make_state=make_state, accumulate=1, **options):
    """Return the final state and what each step tells, both whole, and the state where it lies."""

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        (loss, aux), grads = strategy.value_and_grad(loss_fn, accumulate=accumulate)(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), (loss, aux)

    state, logs = strategy.init(make_state), []
    for batch in strategy.prefetch(data, **options):
        state, log = step(state, batch)
        logs.append(log)
    return strategy.fetch((state, logs)), state


def numbers(tree):
    """The leaves, as JSON has them."""
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(tree)]


def together(strategy):
    """What `put`, `split`, `run`, `reduce` and `gather` give, whole."""
    rows = np.arange(8.0)
    replica = lambda x: (x.sum(), jax.lax.psum(x.sum(), strategy.batch_axes))
    own, total = strategy.run(replica, strategy.split(rows))
    placed = strategy.put(rows)
    return {
        "put": numbers(strategy.fetch(placed)),
        "total": numbers(strategy.reduce(td.ReduceOp.MEAN, total)),
        "sum": numbers(strategy.reduce(td.ReduceOp.SUM, own)),
        "mean of rows": numbers(strategy.reduce(td.ReduceOp.MEAN, strategy.split(rows[:6]), axis=0)),
        "gathered": numbers(strategy.gather(strategy.split(rows))),
        "uneven": numbers(strategy.gather(strategy.split(rows[:5]))),
    }
