"""Compile attention over long rows for TPU chips that are not there; prints what it costs on each topology, as JSON.

`python tpu_attention.py v5e:2x4`: eight chips of two hosts.
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

TOKENS, WIDTH, HEADS = 1024, 512, 8


def make_loss(method):
    """Attention of one layer, and what is computed for each token by itself."""

    def loss(params, x):
        query, key, value = jnp.einsum("rtd,dchf->crthf", x, params["qkv"])
        x += td.attend(query, key, value, is_causal=True, method=method).reshape(x.shape)
        return (jnp.tanh(x @ params["out"]).astype(jnp.float32) ** 2).mean()

    return loss


def count_overlaps(text):
    """How many of the transfers in loops go on while tiles are computed, and how many there are: programs are in their order."""
    overlapped = total = 0
    for computation in text.split("\n\n"):
        lines = computation.splitlines()
        for started, line in enumerate(lines):
            name = re.match(r"\s*(%\S+) = .* collective-permute-start\(", line)
            if name is None or lines[0].startswith("ENTRY"):
                continue
            done = next(number for number, other in enumerate(lines) if f"collective-permute-done({name[1]})" in other)
            total += 1
            overlapped += any(" while(" in other for other in lines[started:done])
    return [overlapped, total]


def figures(strategy, method, dtype, rows, tokens):
    """What the gradients' program costs."""
    params = {
        "qkv": jax.ShapeDtypeStruct((WIDTH, 3, HEADS, WIDTH // HEADS), dtype),
        "out": jax.ShapeDtypeStruct((WIDTH, WIDTH), dtype),
    }
    typed = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    params = jax.tree.map(typed, params, strategy.shardings(params))
    split = P(strategy.batch_axes, *(("sequence",) if "sequence" in strategy.mesh.shape else ()))
    batch = jax.ShapeDtypeStruct((rows, tokens, WIDTH), dtype, sharding=NamedSharding(strategy.mesh, split))
    compiled = strategy.value_and_grad(make_loss(method), has_aux=False).lower(params, batch).compile()
    text = compiled.as_text()
    return {
        "overlapping": count_overlaps(text),
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "temp_bytes": compiled.memory_analysis().temp_size_in_bytes,
    }


def costs(topology):
    """Attention on one chip, and over eight with eight times as many tokens."""
    chips = tuple(topologies.get_topology_desc(topology, platform="tpu").devices)
    over_tokens = td.Sharded({"data": 1, "sequence": 8}, devices=chips)
    found = {}
    for dtype in ("float32", "bfloat16"):
        found[f"one chip, {dtype}"] = figures(td.Mirrored(chips), "ring", dtype, 8, TOKENS)
        for method in ("ring", "all_to_all"):
            found[f"{method}, {dtype}"] = figures(over_tokens, method, dtype, 1, 8 * TOKENS)
    return found


print(json.dumps({topology: costs(topology) for topology in sys.argv[1:]}))
