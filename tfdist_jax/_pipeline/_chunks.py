"""Layers that lie in order over devices, brought to where an interleaved schedule has them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._sharding._mesh import STAGE


def bring_chunks(layers: Any, devices: int, chunks: int) -> Any:
    """Return a device's stages, in a program of replicas.

    In the state, layers lie in order over devices, whatever the schedule. Stage `k` is computed on device `k % devices`: where a device has
    several, they are sent there, each device one in each of `chunks` permutations, and their gradients back.

    Args:
        layers: Pytree of arrays `[layers of this device, ...]`.
        devices: How many devices there are.
        chunks: How many stages each of them has.

    Returns:
        Arrays `[stages of this device, layers of a stage, ...]`.
    """
    parts = jax.tree.map(lambda leaf: leaf.reshape(chunks, leaf.shape[0] // chunks, *leaf.shape[1:]), layers)
    if chunks == 1 or devices == 1:
        return parts
    sent, pairs, places = _plan_permutations(devices, chunks)
    device = jax.lax.axis_index(STAGE)

    def bring(leaf: jax.Array) -> jax.Array:
        found = [
            jax.lax.ppermute(leaf[jnp.asarray(row)[device]], STAGE, pair) for row, pair in zip(sent, pairs, strict=True)
        ]
        return jnp.stack(found)[jnp.asarray(places)[device]]

    return jax.tree.map(bring, parts)


def _plan_permutations(devices: int, chunks: int) -> tuple[np.ndarray, list[list[tuple[int, int]]], np.ndarray]:
    """Return which chunk devices send in each round, to whom, and in which round a device gets each of its stages.

    Device `s` has the chunks `s * chunks` and following. With `d` the greatest common divisor of both numbers, it sends in round `r` the
    one at `(r + s * d // devices) % chunks`, which differ in where they go: by multiples of `chunks`, and within these by `r` and a
    number below `d`.
    """
    common = math.gcd(devices, chunks)
    sent = np.array([[(r + s * common // devices) % chunks for s in range(devices)] for r in range(chunks)])
    stages = sent + np.arange(devices) * chunks
    pairs = [[(s, int(stage) % devices) for s, stage in enumerate(row)] for row in stages]
    places = np.zeros((devices, chunks), np.int32)
    for r, row in enumerate(stages):
        for stage in row:
            places[stage % devices, stage // devices] = r
    return sent, pairs, places
