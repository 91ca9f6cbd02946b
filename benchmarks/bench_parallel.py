"""A transformer's step under each native strategy, against the same step written by hand in JAX; interleaved, as JSON.

`python benchmarks/bench_parallel.py [--devices 8] [--rounds 21] [--out benchmarks/results/parallel.json]`

By hand are `shard_map`, with gathers in the layers and sums written out, and plain `jit` with layouts for state and batch, of which XLA's
partitioner makes the rest.
"""

import re
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import jax
import jax.numpy as jnp
import numpy as np
import optax
from _report import emit, parser
from jax.sharding import NamedSharding, PartitionSpec as P

import tfdist_jax as td

WIDTH, HEADS, HIDDEN, VOCABULARY, LAYERS, LENGTH, ROWS = 256, 8, 1024, 512, 4, 64, 32
STEPS = 3
# The rate is so small that the batch is not learned by heart: losses stay comparable.
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-5))
RULES = {
    "qkv": P(None, None, None, "tensor"),
    "out": P(None, "tensor"),
    "up": P(None, None, "tensor"),
    "down": P(None, "tensor"),
    "embedding": P("tensor"),
    "head": P(None, "tensor"),
}


def strategies(devices):
    """What is measured."""
    return {
        "SingleDevice": td.SingleDevice(),
        "Mirrored": td.Mirrored(),
        "ZeRO1": td.ZeRO1(),
        "FSDP": td.FSDP(),
        "HSDP": td.HSDP(devices // 2),
        "TensorParallel": td.TensorParallel(devices // 2, RULES),
        "FSDP x tensor": td.Sharded({"fsdp": devices // 2, "tensor": 2}, RULES),
    }


def make_state():
    """Parameters, those of layers stacked, and the optimizer's state."""
    keys = iter(jax.random.split(jax.random.key(0), 6))
    normal = lambda *shape: 0.05 * jax.random.normal(next(keys), shape)
    layers = {
        "norm": jnp.ones((LAYERS, WIDTH)),
        "qkv": normal(LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": normal(LAYERS, HEADS, WIDTH // HEADS, WIDTH),
        "up": normal(LAYERS, WIDTH, HIDDEN),
        "down": normal(LAYERS, HIDDEN, WIDTH),
    }
    params = {"embedding": normal(VOCABULARY, WIDTH), "layers": layers, "head": normal(WIDTH, VOCABULARY)}
    return params, OPTIMIZER.init(params)


def apply_layer(params, x):
    """Attention and an MLP."""
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    q, k, v = jnp.einsum("btd,dche->cbthe", h, params["qkv"])
    x = x + jnp.einsum("bthe,hed->btd", jax.nn.dot_product_attention(q, k, v, is_causal=True), params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def make_loss(gather_outer=lambda params: params, gather_layer=lambda params: params):
    """A loss over layers in a loop, each computed again for its gradients."""
    layer = jax.checkpoint(lambda params, x: apply_layer(gather_layer(params), x))

    def loss_fn(params, batch):
        outer = gather_outer({name: params[name] for name in ("embedding", "head")})
        x = outer["embedding"][batch["x"]]
        x, _ = jax.lax.scan(lambda x, params: (layer(params, x), None), x, params["layers"])
        logits = x @ outer["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    return loss_fn


def update(state, loss_and_grads):
    """The optimizer's part of a step."""
    (params, opt_state), (loss, grads) = state, loss_and_grads
    updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), loss


def by_library(strategy):
    """The step under a strategy."""
    compute = strategy.value_and_grad(make_loss(), has_aux=False)
    return strategy.jit(lambda state, batch: update(state, compute(state[0], batch)))


def by_partitioner(strategy, state):
    """The step as plain `jit` with layouts for the state that lies as the strategy has laid it out, and for the batch."""
    gradients = jax.value_and_grad(make_loss())
    return compile_step(strategy, state, lambda params, batch: gradients(params, batch))


def by_hand(strategy, state):
    """The step with gathers in the layers and sums written out in `shard_map`; an axis `tensor` is left to the partitioner."""
    params, moments = (
        jax.tree.map(lambda leaf: written_axes(strategy, leaf), tree) for tree in (state[0], state[1][1][0].mu)
    )
    return compile_step(strategy, state, gradients_by_hand(strategy, params, moments))


def compile_step(strategy, state, gradients):
    """Return a compiled step, which gives away its state as the library does with one of this size."""
    step = lambda state, batch: update(state, gradients(state[0], batch))
    out_shardings = (jax.tree.map(lambda leaf: leaf.sharding, state), NamedSharding(strategy.mesh, P()))
    return jax.jit(step, donate_argnums=0, out_shardings=out_shardings)


def written_axes(strategy, leaf):
    """Return the layout of an array over the axes that are written out."""
    return P(*(axis if axis in strategy.batch_axes else None for axis in leaf.sharding.spec))


def gradients_by_hand(strategy, specs, moments):
    """Gathers in the layers, gradients summed into the layout of the optimizer's moments."""
    axes = strategy.batch_axes

    def gather(leaf, spec):
        for dimension, axis in enumerate(spec):
            leaf = leaf if axis is None else jax.lax.all_gather(leaf, axis, axis=dimension, tiled=True)
        return leaf

    outer = {name: specs[name] for name in ("embedding", "head")}
    of_layer = jax.tree.map(lambda spec: P(*spec[1:]), specs["layers"])
    loss_fn = make_loss(
        lambda params: jax.tree.map(gather, params, outer), lambda params: jax.tree.map(gather, params, of_layer)
    )

    def add_up(grad, spec, moment):
        for dimension, axis in enumerate(moment):
            if axis is not None and axis not in spec:
                grad = jax.lax.psum_scatter(grad, axis, scatter_dimension=dimension, tiled=True)
        rest = tuple(axis for axis in axes if axis not in (*spec, *moment))
        return jax.lax.psum(grad, rest) if rest else grad

    def replica(params, batch):
        loss, grads = jax.value_and_grad(lambda params: loss_fn(params, batch) / strategy.num_replicas)(params)
        return jax.lax.psum(loss, axes), jax.tree.map(add_up, grads, specs, moments)

    return jax.shard_map(
        replica,
        mesh=strategy.mesh,
        in_specs=(specs, P(axes)),
        out_specs=(P(), moments),
        axis_names=set(axes),
        check_vma=False,
    )


def figures(compiled):
    """Memory and collectives of a program."""
    memory, text = compiled.memory_analysis(), compiled.as_text()
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    return {
        "temp_mib": round(memory.temp_size_in_bytes / 2**20, 2),
        "collectives": {k: n for k in kinds if (n := len(re.findall(rf" {k}(?:-start)?\(", text)))},
    }


def measure(strategy, rounds):
    """Return how long steps take, the library's and those by hand in turn."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, VOCABULARY, (2, ROWS, LENGTH))
    batch = strategy.put({"x": x, "y": y})
    state = strategy.init(make_state)
    steps = {
        "library": by_library(strategy),
        "shard_map": by_hand(strategy, state),
        "partitioner": by_partitioner(strategy, state),
    }
    programs = {who: figures(step.lower(state, batch).compile()) for who, step in steps.items()}
    states = {who: strategy.init(make_state) for who in steps}
    losses, times = {}, {who: [] for who in steps}
    for number in range(rounds + 1):
        for who, step in list(steps.items())[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            for _ in range(STEPS):
                states[who], losses[who] = step(states[who], batch)
            losses[who] = float(losses[who])
            times[who].append((time.perf_counter() - started) / STEPS * 1000)
    if not np.allclose(list(losses.values()), losses["library"], rtol=1e-4):
        raise ValueError(f"The losses differ: {losses}")
    return {
        "ms": {who: round(statistics.median(some[1:]), 2) for who, some in times.items()},
        "speed_relative_to": {who: ratio(times[who], times["library"]) for who in ("shard_map", "partitioner")},
        "programs": programs,
    }


def ratio(others, own):
    """Return the median over rounds, the first excepted, of how many times as fast the library is."""
    return round(statistics.median(other / mine for other, mine in zip(others[1:], own[1:], strict=True)), 3)


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=21)
    options.set_defaults(devices=8)
    args = options.parse_args()
    td.use_cpu_devices(args.devices)
    found = {name: measure(strategy, args.rounds) for name, strategy in strategies(args.devices).items()}
    emit({"devices": args.devices, "strategies": found}, args.out)


if __name__ == "__main__":
    main()
