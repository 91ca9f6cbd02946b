"""A transformer under every strategy: gradients of one device, and the memory and communication that were promised."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

WIDTH, HEADS, HIDDEN, VOCABULARY, LAYERS, LENGTH = 32, 4, 64, 48, 2, 8
RULES = {
    "qkv": P(None, None, "tensor"),
    "out": P("tensor"),
    "up": P(None, "tensor"),
    "down": P("tensor"),
    "embedding": P("tensor"),
    "head": P(None, "tensor"),
}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "FSDP": lambda: td.FSDP(min_size=64),
    "ZeRO1": lambda: td.ZeRO1(min_size=64),
    "HSDP 2x4": lambda: td.HSDP(shards=4, min_size=64),
    "HSDP 4x2": lambda: td.HSDP(shards=2, min_size=64),
    "TensorParallel 2x4": lambda: td.TensorParallel(4, RULES),
    "TensorParallel 1x4": lambda: td.TensorParallel(4, RULES, devices=tuple(jax.devices()[:4])),
    "FSDP x tensor": lambda: td.Sharded({"fsdp": 2, "tensor": 4}, RULES, min_size=64),
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, min_size=64),
    "tensor first": lambda: td.Sharded({"tensor": 2, "fsdp": 2, "data": 2}, RULES, min_size=64),
}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def make_params():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.2)
    block = lambda: {
        "norm": jnp.ones(WIDTH),
        "qkv": normal(WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": normal(HEADS, WIDTH // HEADS, WIDTH),
        "up": normal(WIDTH, HIDDEN),
        "down": normal(HIDDEN, WIDTH),
    }
    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "blocks": [block() for _ in range(LAYERS)],
        "head": normal(WIDTH, VOCABULARY),
    }


def apply_block(params, x):
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    q, k, v = jnp.einsum("btd,dche->cbthe", h, params["qkv"])
    scores = jnp.einsum("bthe,bshe->bhts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhts,bshe,hed->btd", jax.nn.softmax(scores), v, params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def token_losses(params, batch, apply=apply_block):
    x = params["embedding"][batch["x"]]
    for block in params["blocks"]:
        x = apply(block, x)
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"])


def mean_loss(params, batch):
    return token_losses(params, batch).mean()


def weighed_loss(params, batch):
    return (token_losses(params, batch) * batch["mask"]).sum(), batch["mask"].sum()


def on_one(loss_fn):
    def loss(params, batch):
        found = loss_fn(params, batch)
        return found[0] / found[1] if isinstance(found, tuple) else found

    return jax.jit(jax.value_and_grad(loss))


def make_batch(rows):
    random = np.random.default_rng(rows)
    x, y = random.integers(0, VOCABULARY, (2, rows, LENGTH))
    return {"x": x, "y": y, "mask": random.random((rows, LENGTH)) < 0.7}


def relative_error(actual, expected):
    errors = jax.tree.map(
        lambda a, e: np.abs(np.asarray(a) - e).max() / np.abs(e).max(), actual, jax.device_get(expected)
    )
    return max(jax.tree.leaves(errors))


@pytest.mark.parametrize("loss_fn", [mean_loss, weighed_loss])
@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_those_of_one_device(name, loss_fn, record_property):
    strategy = STRATEGIES[name]()
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    for rows in (24, 13, 1):
        batch = make_batch(rows)
        loss, grads = compute(params, strategy.put(batch))
        expected_loss, expected = on_one(loss_fn)(make_params(), batch)
        assert relative_error(loss, expected_loss) < 1e-12
        assert relative_error(grads, expected) < 1e-12
        jax.tree.map(lambda grad, param: None if name == "ZeRO1" else check(grad, param), grads, params)


def check(grad, param):
    assert grad.sharding.is_equivalent_to(param.sharding, param.ndim), (grad.sharding, param.sharding)


def collectives(compiled):
    """Return how many collectives of each kind a program has, and how many bytes they give each device."""
    found = {}
    kinds = "all-gather|reduce-scatter|all-reduce|all-to-all|collective-permute"
    for results, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", compiled.as_text()):
        sizes = [
            np.prod([int(size) for size in shape.split(",") if size]) * int(bits) // 8
            for bits, shape in re.findall(r"\b[a-z]+(\d+)\[([\d,]*)\]", results)
        ]
        count, total = found.get(kind, (0, 0))
        found[kind] = count + 1, total + int(sum(sizes))
    return found
