"""A model whose layers are not alike, for pipelines."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import tfdist_jax as td


def convolve(x, kernel):
    return jax.nn.relu(
        jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )


def dense(x, params):
    return jnp.tanh(x @ params["w"] + params["b"])


def loss_of(params, x, batch):
    """Its kernel is another function's, too."""
    logits = x @ params["tied"]
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], 1)[:, 0]
    return losses.mean(), {"hits": (logits.argmax(-1) == batch["y"]).sum(), "rows": losses}


LOSS = td.Staged(
    lambda params, batch: convolve(batch["x"], params["kernels"][0]),
    [
        lambda params, x, batch: convolve(x, params["kernels"][1]).reshape(len(x), -1),
        lambda params, x, batch: {"x": dense(x, params["blocks"][0]), "label": batch["y"]},
        lambda params, x, batch: dense(x["x"], params["blocks"][1]) * (1 + x["label"][:, None]),
        lambda params, x, batch: dense(x, params["blocks"][2]),
        lambda params, x, batch: x @ params["head"] @ params["tied"],
    ],
    loss_of,
)


def make_params():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.3)
    sizes = (64, 32, 48, 24)
    return {
        "kernels": [normal(3, 3, 1, 8), normal(3, 3, 8, 16)],
        "blocks": [{"w": normal(*pair), "b": normal(pair[1])} for pair in itertools.pairwise(sizes)],
        "head": normal(24, 10),
        "tied": normal(10, 10),
    }


def make_batch(rows):
    random = np.random.default_rng(1)
    return {"x": random.normal(size=(rows, 8, 8, 1)), "y": random.integers(0, 10, rows).astype(np.int32)}


TENSOR_RULES = {
    "kernels/1": jax.P(None, None, None, "tensor"),
    "blocks/0/w": jax.P(None, "tensor"),
    "blocks/0/b": jax.P("tensor"),
    "blocks/1/w": jax.P("tensor"),
}
CASES = {
    "1f1b": {"stages": 2, "axes": {"data": 4}},
    "1f1b, saved, 3 stages": {"stages": 3, "axes": {"data": 1}, "devices": 3, "remat": "none", "min_size": 64},
    "gpipe": {"stages": 4, "axes": {"data": 2}, "schedule": "gpipe", "min_size": 1},
    "interleaved x fsdp": {"stages": 2, "axes": {"data": 2, "fsdp": 2}, "schedule": "interleaved", "min_size": 1},
    "zb-h1, saved": {"stages": 2, "axes": {"data": 2, "fsdp": 2}, "schedule": "zb-h1", "remat": "none", "min_size": 64},
}
