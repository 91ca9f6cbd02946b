"""Compile the gradients of layers, under every strategy, for TPU chips that are not there; prints what each costs, as JSON.

`python tpu_strategies.py v5e:2x4 v5e:2x2*2`: eight chips of two hosts, two slices of four chips.
"""

import json
import os
import re
import sys

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec as P

import tfdist_jax as td

WIDTH, HIDDEN, ROWS = 1024, 4096, 64
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
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


def figures(strategy, loss_fn, params):
    """Collectives and memory of the gradients' program."""
    typed = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    params = jax.tree.map(typed, params, strategy.shardings(params))
    batch = typed(jax.ShapeDtypeStruct((ROWS, WIDTH), "float32"), NamedSharding(strategy.mesh, P(strategy.batch_axes)))
    lowered = strategy.value_and_grad(loss_fn, has_aux=False).lower(params, batch)
    compiled = lowered.compile()
    memory, text = compiled.memory_analysis(), compiled.as_text()
    return {
        "asked": [lowered.as_text().count(f'"stablehlo.{name.replace("-", "_")}"') for name in COLLECTIVES],
        "compiled": [len(re.findall(rf" {name}(?:-start)?\(", text)) for name in COLLECTIVES],
        "argument_bytes": memory.argument_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
    }


def costs(chips):
    """What all strategies cost for four layers in a loop; and FSDP for more of them, and for four one after another."""
    found = {name: figures(strategy, loss_of_stack, layer_types(4)) for name, strategy in strategies(chips).items()}
    found["FSDP, 12 layers"] = figures(td.FSDP(chips), loss_of_stack, layer_types(12))
    found["FSDP, list of layers"] = figures(td.FSDP(chips), loss_of_list, [layer_types()] * 4)
    return found


print(json.dumps({topology: costs(chips_of(topology)) for topology in sys.argv[1:]}))
