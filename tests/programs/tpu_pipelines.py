"""Compile pipelines for TPU chips that are not there; prints what each costs on each topology, as JSON.

`python tpu_pipelines.py v5e:2x4 v5e:2x2*2`: eight chips of two hosts, two slices of four chips.
"""

import json
import os
import sys

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost"}

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec as P

import tfdist_jax as td

WIDTH, HIDDEN, ROWS, TOKENS, LAYERS = 256, 1024, 32, 128, 8
RULES = {"up": P(None, None, "tensor"), "down": P(None, "tensor")}


def chips_of(topology):
    """The chips of a topology, such as "v5e:2x4" or, for two slices, "v5e:2x2*2"."""
    shape, _, slices = topology.partition("*")
    return tuple(topologies.get_topology_desc(shape, platform="tpu", num_slices=int(slices or 1)).devices)


def pipelines(chips):
    """Every schedule, and stages whose chips share what they compute."""
    make = lambda schedule="1f1b", stages=4, microbatches=4, axes=None, **options: td.Pipeline(
        stages, microbatches, schedule, axes=axes or {"data": 2}, devices=chips, **options
    )
    return {
        "gpipe": make("gpipe"),
        "1f1b": make(),
        "1f1b, 16 microbatches": make(microbatches=16),
        "1f1b, saved": make(remat="none"),
        "interleaved": make("interleaved"),
        "zb-h1": make("zb-h1"),
        "fsdp x tensor": make(stages=2, axes={"fsdp": 2, "tensor": 2}, rules=RULES),
        "ring": make(stages=2, axes={"data": 1, "sequence": 4}),
        "list": make(stack=None),
        "experts": make(stages=2, axes={"data": 1, "expert": 4}, rules={"experts": P(None, "expert")}),
    }


def layer(params, x, batch):
    """Attention, and a dense part or experts."""
    heads = x.reshape(*x.shape[:2], 4, -1)
    x += td.attend(heads, heads, heads, is_causal=True).reshape(x.shape)
    if "experts" not in params:
        return x + jnp.tanh(x @ params["up"]) @ params["down"]
    apply = lambda w, x: jnp.tanh(x @ w) @ w.T
    return x + td.run_experts(apply, params["experts"], x, jax.nn.softmax(x @ params["up"][:, :8])).outputs


LOSS = td.Staged(
    lambda params, x: x @ params["first"], layer, lambda params, x, batch: ((x @ params["first"].T - batch) ** 2).mean()
)


LISTED = td.Staged(
    LOSS.first,
    [
        lambda params, x, batch, i=i: layer({name: leaf[i] for name, leaf in params["blocks"].items()}, x, batch)
        for i in range(LAYERS)
    ],
    LOSS.last,
)


def figures(strategy, has_experts):
    """What the gradients' program costs."""
    loss_fn = LISTED if strategy.stack is None else LOSS
    shapes = {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)} | ({"experts": (8, WIDTH, HIDDEN)} if has_experts else {})
    params = {
        "first": jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32"),
        "blocks": {name: jax.ShapeDtypeStruct((LAYERS, *shape), "float32") for name, shape in shapes.items()},
    }
    typed = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    params = jax.tree.map(typed, params, strategy.shardings(params))
    spec = P(strategy.batch_axes, *(("sequence",) if "sequence" in strategy.mesh.shape else ()))
    batch = jax.ShapeDtypeStruct((ROWS, TOKENS, WIDTH), "float32", sharding=NamedSharding(strategy.mesh, spec))
    found = strategy.explain(strategy.value_and_grad(loss_fn, has_aux=False), params, batch)
    return {
        "over stage": sorted({one.kind for one in found.collectives if one.axes == ("stage",)}),
        "in branches": [[one.kind, *one.axes] for one in found.collectives if one.is_branch],
        "temp_bytes": found.memory.temporary,
    }


if __name__ == "__main__":
    found = {}
    for topology in sys.argv[1:]:
        pairs = pipelines(chips_of(topology)).items()
        found[topology] = {name: figures(strategy, name == "experts") for name, strategy in pairs}
    print(json.dumps(found))
