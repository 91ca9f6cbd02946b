"""A transformer made of stages, and its gradients on one device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tests.strategies.test_parallelism import relative_error

WIDTH, HEADS, HIDDEN, VOCABULARY, LENGTH = 16, 2, 32, 40, 8
TENSOR_RULES = {
    "qkv": P(None, None, None, "tensor"),
    "out": P(None, "tensor"),
    "up": P(None, None, "tensor"),
    "down": P(None, "tensor"),
    "head": P(None, "tensor"),
}


def make_params(layers):
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.2)
    features = WIDTH // HEADS
    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "blocks": {
            "norm": jnp.ones((layers, WIDTH)),
            "qkv": normal(layers, WIDTH, 3, HEADS, features),
            "out": normal(layers, HEADS, features, WIDTH),
            "up": normal(layers, WIDTH, HIDDEN),
            "down": normal(layers, HIDDEN, WIDTH),
        },
        "head": normal(WIDTH, VOCABULARY),
    }


def make_batch(rows):
    random = np.random.default_rng(1)
    return {name: random.integers(0, VOCABULARY, (rows, LENGTH)).astype(np.int32) for name in ("x", "y")}


def embed(params, batch):
    return params["embedding"][batch["x"]]


def apply_block(params, x, batch):
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    q, k, v = jnp.einsum("btd,dche->cbthe", h, params["qkv"])
    scores = jnp.einsum("bthe,bshe->bhts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhts,bshe,hed->btd", jax.nn.softmax(scores), v, params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def mean_loss(params, x, batch):
    logits = x @ params["head"]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    hits = logits.argmax(-1) == batch["y"]
    return losses.mean(), {"hits": hits.sum(), "rows": losses.mean(1), "any": hits.any(1), "size": len(x)}


def tied_loss(params, x, batch):
    """A mean over tokens that count, of logits by the embeddings."""
    losses = optax.softmax_cross_entropy_with_integer_labels(x @ params["embedding"].T, batch["y"])
    counts = batch["y"] % 3 > 0
    return ((losses * counts).sum(), counts.sum()), {"rows": losses.sum(1)}


LOSSES = {"mean": td.Staged(embed, apply_block, mean_loss), "tied": td.Staged(embed, apply_block, tied_loss)}


def compute(strategy, loss_fn, params, batch, *extra, has_aux=True):
    """What a strategy computes of a loss: the loss, aux, and gradients."""
    state = strategy.init(lambda: params)
    return strategy.value_and_grad(loss_fn, has_aux=has_aux)(state, strategy.put(batch), *extra)


@functools.cache
def on_one_device(kind, layers, rows):
    return jax.device_get(compute(td.SingleDevice(), LOSSES[kind], make_params(layers), make_batch(rows)))


SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
MESHES = {
    "4 stages": {"stages": 4, "axes": {"data": 1}, "devices": 4},
    "data x stage": {"stages": 4, "axes": {"data": 2}},
    "stage first": {"stages": 2, "axes": {"stage": 2, "data": 4}},
    "data x stage x fsdp": {"stages": 2, "axes": {"data": 2, "fsdp": 2}, "min_size": 64},
    "data x stage x tensor": {"stages": 2, "axes": {"data": 2, "tensor": 2}, "rules": TENSOR_RULES},
    "stage x fsdp x tensor": {"stages": 2, "axes": {"fsdp": 2, "tensor": 2}, "rules": TENSOR_RULES, "min_size": 64},
}


def make_pipeline(*, stages, microbatches=4, devices=8, **options):
    return td.Pipeline(stages, microbatches, devices=tuple(jax.devices()[:devices]), **options)


def check_like_one_device(bound, strategy, kind, layers, rows):
    found = jax.device_get(compute(strategy, LOSSES[kind], make_params(layers), make_batch(rows)))
    (loss, aux), grads = found
    (expected, expected_aux), expected_grads = on_one_device(kind, layers, rows)
    assert loss == pytest.approx(expected, rel=1e-13)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), aux) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), expected_aux
    )
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), aux, expected_aux)
    bound("relative error of gradients of a pipeline, f64", relative_error(grads, expected_grads), 1e-12)
