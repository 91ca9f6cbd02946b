"""Compile gradients and steps, under every strategy, for TPU chips that are not there; prints what each costs, as JSON.

`python tpu_strategies.py v5e:2x4 v5e:2x2*2`: eight chips of two hosts, two slices of four chips.
"""

import json
import os
import sys

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import jax.numpy as jnp
import optax
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec as P

import tfdist_jax as td

WIDTH, HIDDEN, ROWS = 1024, 4096, 64
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
SENDING = ("all-to-all", "collective-permute")
RULES = {"up": P(None, None, "tensor"), "down": P(None, "tensor")}


def chips_of(topology):
    """The chips of a topology, such as "v5e:2x4" or, for two slices, "v5e:2x2*2"."""
    shape, _, slices = topology.partition("*")
    return tuple(topologies.get_topology_desc(shape, platform="tpu", num_slices=int(slices or 1)).devices)


def strategies(chips):
    """Every strategy over eight chips."""
    return {
        "Mirrored": td.Mirrored(chips),
        "FSDP": td.FSDP(chips),
        "ZeRO1": td.ZeRO1(chips),
        "HSDP": td.HSDP(4, chips),
        "TensorParallel": td.TensorParallel(4, RULES, devices=chips),
        "data x FSDP x tensor": td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, devices=chips),
    }


apply = td.layer(lambda params, x: x + jnp.tanh(x @ params["up"]) @ params["down"])


def loss_of_list(params, x):
    """Layers one after another."""
    for layer in params:
        x = apply(layer, x)
    return x.mean()


def loss_of_stack(params, x):
    """Layers in a loop."""
    return jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, params)[0].mean()


def layer_types(*stacked):
    """Types of a layer's parameters, or of a stack of them."""
    return {
        name: jax.ShapeDtypeStruct((*stacked, *shape), "float32")
        for name, shape in (("up", (WIDTH, HIDDEN)), ("down", (HIDDEN, WIDTH)))
    }


def typed(leaf, sharding):
    """Type of an array that is laid out over chips."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def figures(strategy, loss_fn, params, shape=(ROWS, WIDTH)):
    """What the gradients' program costs."""
    params = jax.tree.map(typed, params, strategy.shardings(params))
    rows = P(strategy.batch_axes, *(("sequence",) if "sequence" in strategy.mesh.shape else ()))
    batch = typed(jax.ShapeDtypeStruct(shape, "float32"), NamedSharding(strategy.mesh, rows))
    return describe(strategy, strategy.value_and_grad(loss_fn, has_aux=False), params, batch)


def describe(strategy, step, *args):
    """Collectives, memory and operations of a program."""
    text, explanation = step.lower(*args).as_text(), strategy.explain(step, *args)
    found, asked = explanation.collectives, lambda name: text.count(f'"stablehlo.{name.replace("-", "_")}"')
    return {
        "asked": [asked(name) for name in COLLECTIVES],
        "sent": [asked(name) for name in SENDING],
        "compiled": [sum(one.count for one in found if one.kind == name) for name in COLLECTIVES],
        "per step": [[one.kind, " ".join(one.axes), one.group, one.runs, one.bytes_per_step] for one in found],
        "flops": [explanation.flops.count, explanation.flops.is_exact, dict(explanation.flops.not_counted)],
        "argument_bytes": explanation.memory.arguments,
        "host_argument_bytes": explanation.memory.host_arguments,
        "temp_bytes": explanation.memory.temporary,
    }


def training_step(strategy):
    """A step with Adam of four layers in a loop."""
    optimizer = optax.adam(1e-3)

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        loss, grads = strategy.value_and_grad(loss_of_stack, has_aux=False)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    make_state = lambda: (
        params := jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), layer_types(4)),
        optimizer.init(params),
    )
    state = jax.eval_shape(make_state)
    state = jax.tree.map(typed, state, strategy.shardings(state))
    batch = jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")
    return describe(strategy, step, state, typed(batch, NamedSharding(strategy.mesh, P(strategy.batch_axes))))


def loss_of_experts(params, x):
    """Eight experts, of which each token has two."""
    apply = lambda expert, x: jnp.tanh(x @ expert["up"]) @ expert["down"]
    gates = jax.nn.softmax(x @ params["router"])
    return (x + td.run_experts(apply, params["experts"], x, gates, top_k=2).outputs).mean()


def expert_types():
    """Types of eight experts' parameters."""
    return {"experts": layer_types(8), "router": jax.ShapeDtypeStruct((WIDTH, 8), "float32")}


def make_attention_loss(method):
    """Attention over split tokens."""

    def loss(params, x):
        query, key, value = jnp.split((x @ params["qkv"]).reshape(*x.shape[:2], 8, -1), 3, -1)
        return td.attend(query, key, value, is_causal=True, method=method).mean()

    return loss


def costs(chips):
    """What all strategies cost for four layers in a loop; and FSDP for more of them, and for four one after another."""
    found = {name: figures(strategy, loss_of_stack, layer_types(4)) for name, strategy in strategies(chips).items()}
    found["FSDP, 12 layers"] = figures(td.FSDP(chips), loss_of_stack, layer_types(12))
    found["FSDP, list of layers"] = figures(td.FSDP(chips), loss_of_list, [layer_types()] * 4)
    found["a step"] = training_step(td.FSDP(chips))
    found["a step, offloaded"] = training_step(td.Offloaded(td.FSDP(chips)))
    experts = td.Sharded({"data": 2, "expert": 4}, {"experts/.*": P("expert")}, devices=chips)
    found["experts"] = figures(experts, loss_of_experts, expert_types(), (ROWS, 16, WIDTH))
    sequences = td.Sharded({"data": 2, "sequence": 4}, devices=chips)
    qkv = {"qkv": jax.ShapeDtypeStruct((WIDTH, 3 * WIDTH), "float32")}
    for method in ("ring", "all_to_all"):
        found[method] = figures(sequences, make_attention_loss(method), qkv, (ROWS, 64, WIDTH))
    return found


print(json.dumps({topology: costs(chips_of(topology)) for topology in sys.argv[1:]}))
