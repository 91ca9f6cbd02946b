"""A transformer's step in a pipeline, under each schedule, against GPipe written by hand in JAX; interleaved, as JSON.

`python benchmarks/bench_pipeline.py [--devices 8] [--rounds 15] [--out benchmarks/results/pipeline.json]`

By hand is what JAX derives from a loop over ticks: `scan` and `ppermute` in `shard_map`, with layers that are computed again for their
gradients. On virtual devices, which share a few cores, waiting takes no time: times say what is computed and what the library adds, and
nothing of the time that devices of their own would wait, which is `waiting`, by the schedule.
"""

import functools
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import jax
import jax.numpy as jnp
import numpy as np
import optax
from _report import describe_machine, emit, parser
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

WIDTH, HEADS, HIDDEN, VOCABULARY, LAYERS, LENGTH, ROWS = 256, 8, 1024, 512, 8, 64, 64
STAGES, MICROBATCHES = 4, 8
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-5))


def make_state():
    """Parameters, those of layers stacked, and the optimizer's state."""
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(0.05 * random.normal(size=shape), jnp.float32)
    layers = {
        "norm": jnp.ones((LAYERS, WIDTH)),
        "qkv": normal(LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": normal(LAYERS, HEADS, WIDTH // HEADS, WIDTH),
        "up": normal(LAYERS, WIDTH, HIDDEN),
        "down": normal(LAYERS, HIDDEN, WIDTH),
    }
    params = {"embedding": normal(VOCABULARY, WIDTH), "blocks": layers, "head": normal(WIDTH, VOCABULARY)}
    return params, OPTIMIZER.init(params)


def embed(params, batch):
    """Before the layers."""
    return params["embedding"][batch["x"]]


def apply_layer(params, x, batch=None):
    """Attention and an MLP."""
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    q, k, v = jnp.einsum("btd,dche->cbthe", h, params["qkv"])
    x = x + jnp.einsum("bthe,hed->btd", jax.nn.dot_product_attention(q, k, v, is_causal=True), params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def loss_of(params, x, batch):
    """Behind the layers."""
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"]).mean()


def gradients_by_hand(strategy, specs, first=embed, layer=apply_layer, last=loss_of):
    """GPipe as JAX differentiates it; what all devices have, all but "blocks", is summed over them."""
    pairs = [(i, i + 1) for i in range(STAGES - 1)]
    layer = jax.checkpoint(layer)

    def replica(params, batch):
        stage = jax.lax.axis_index("stage")
        parts = jax.tree.map(lambda leaf: leaf.reshape(MICROBATCHES, -1, *leaf.shape[1:]), batch)
        gather = lambda leaf, spec: jax.lax.all_gather(leaf, "stage", axis=spec.index("stage"), tiled=True)

        def loss_fn(params):
            outer = {name: gather(params[name], specs[name]) for name in params if name != "blocks"}
            run = lambda x: jax.lax.scan(lambda x, layer_params: (layer(layer_params, x), None), x, params["blocks"])[0]

            def tick(carry, number):
                x, loss = carry
                m = jnp.clip(number - stage, 0, MICROBATCHES - 1)
                is_due = (number >= stage) & (number - stage < MICROBATCHES)
                part = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, m, keepdims=False), parts)
                x = jax.lax.cond(stage == 0, lambda x: first(outer, part), lambda x: x, x)
                y = jax.lax.cond(is_due, run, lambda x: x, x)
                finish = lambda y: last(outer, y, part)
                added = jax.lax.cond(is_due & (stage == STAGES - 1), finish, lambda y: jnp.zeros(()), y)
                return (jax.lax.ppermute(y, "stage", pairs), loss + added / MICROBATCHES), None

            shape = jax.eval_shape(lambda: first(outer, jax.tree.map(lambda leaf: leaf[0], parts)))
            start = jnp.zeros(shape.shape, shape.dtype), jnp.zeros(())
            (_, loss), _ = jax.lax.scan(tick, start, jnp.arange(MICROBATCHES + STAGES - 1))
            return loss / strategy.num_replicas

        loss, grads = jax.value_and_grad(loss_fn)(params)
        rest = lambda spec: ("data",) if "stage" in spec else ("data", "stage")
        return jax.lax.psum(loss, ("data", "stage")), jax.tree.map(lambda g, s: jax.lax.psum(g, rest(s)), grads, specs)

    return jax.shard_map(
        replica, mesh=strategy.mesh, in_specs=(specs, P("data")), out_specs=(P(), specs), check_vma=False
    )


def contenders(devices):
    """Every schedule, and what is written by hand."""
    axes = {"data": devices // STAGES}
    make = lambda *args, **options: td.Pipeline(STAGES, MICROBATCHES, *args, axes=axes, **options)
    library = {
        f"{schedule}, remat={remat}": make(schedule, remat=remat)
        for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1")
        for remat in ("layer", "stage", "none")
    }
    return {"by hand": make("gpipe"), **library}


def make_step(name, strategy, state):
    """Compile a training step."""
    compute = strategy.value_and_grad(td.Staged(embed, apply_layer, loss_of), has_aux=False)
    if name == "by hand":
        compute = gradients_by_hand(strategy, jax.tree.map(lambda leaf: leaf.sharding.spec, state[0]))

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        loss, grads = compute(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return step


def time_in_turn(steps, rounds):
    """Take every step in turn, and once more before, when it compiles; return the milliseconds of each.

    Raises:
        ValueError: If their losses are not those by hand.
    """
    losses, times = ({name: [] for name in steps} for _ in range(2))
    for number in range(rounds + 1):
        for name, step in list(steps.items())[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            losses[name].append(float(step()))
            times[name].append((time.perf_counter() - started) * 1000)
    if not np.allclose(list(losses.values()), losses["by hand"], rtol=1e-4):
        raise ValueError(f"The losses differ: {losses}")
    return times


def compare(times, by_hand):
    """Return the median of steps but the first, in milliseconds, and how many times as fast they are as those by hand."""
    ratios = (other / mine for other, mine in zip(by_hand[1:], times[1:], strict=True))
    return {
        "ms": round(statistics.median(times[1:]), 1),
        "times as fast as by hand": round(statistics.median(ratios), 3),
    }


def measure(devices, rounds):
    """Return times and memory of steps, taken in turn."""
    strategies = contenders(devices)
    x, y = np.random.default_rng(0).integers(0, VOCABULARY, (2, ROWS, LENGTH)).astype(np.int32)
    batch = {"x": x, "y": y}
    states = {name: strategy.init(make_state) for name, strategy in strategies.items()}
    steps = {name: make_step(name, strategy, states[name]) for name, strategy in strategies.items()}
    placed = {name: strategy.put(batch) for name, strategy in strategies.items()}
    memory = {
        name: step.lower(states[name], placed[name]).compile().memory_analysis().temp_size_in_bytes
        for name, step in steps.items()
    }

    def take_step(name):
        states[name], loss = steps[name](states[name], placed[name])
        return loss

    times = time_in_turn({name: functools.partial(take_step, name) for name in steps}, rounds)
    return {
        name: {
            **compare(own, times["by hand"]),
            "temp_mib": round(memory[name] / 2**20, 1),
            "waiting": round(strategies[name].pipeline.schedule.bubble(), 3),
        }
        for name, own in times.items()
    }


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=15)
    options.set_defaults(devices=8)
    args = options.parse_args()
    td.use_cpu_devices(args.devices)
    found = measure(args.devices, args.rounds)
    emit({"devices": args.devices, **describe_machine("jax", "jaxlib"), "contenders": found}, args.out)


if __name__ == "__main__":
    main()
