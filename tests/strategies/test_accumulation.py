"""Gradients of a batch that each replica computes in parts: those of one device for the whole batch, reduced once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tests.strategies.test_parallelism import collectives, num_bytes, on_one, relative_error

pytestmark = pytest.mark.usefixtures("double_precision")

RULES = {"up": P(None, None, "tensor"), "down": P(None, "tensor"), "embedding": P("tensor")}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "FSDP": lambda: td.FSDP(min_size=1),
    "ZeRO1": lambda: td.ZeRO1(min_size=1),
    "HSDP": lambda: td.HSDP(shards=4, min_size=1),
    "TensorParallel": lambda: td.TensorParallel(4, RULES),
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, min_size=1),
}


def make_params(layers=2):
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.3)
    return {"embedding": normal(24, 8), "up": normal(layers, 8, 16), "down": normal(layers, 16, 8)}


def make_batch(rows):
    random = np.random.default_rng(rows)
    return {
        "x": random.integers(0, 24, (rows, 3)),
        "y": random.normal(size=rows),
        "mask": random.random((rows, 3)) < 0.7,
    }


def apply_layer(params, x):
    return x + jnp.tanh(x @ params["up"]) @ params["down"]


def token_losses(params, batch, apply=apply_layer):
    x, layers = params["embedding"][batch["x"]], {name: params[name] for name in ("up", "down")}
    x, _ = jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, layers)
    return (x.mean(-1) - batch["y"][:, None]) ** 2


def mean_loss(params, batch):
    return token_losses(params, batch).mean()


def layered_loss(params, batch):
    return token_losses(params, batch, td.layer(apply_layer)).mean()


def weighed_loss(params, batch):
    return (token_losses(params, batch) * batch["mask"]).sum(), batch["mask"].sum()


def loss_with_learned_weight(params, batch):
    weights = jax.nn.sigmoid(params["embedding"][batch["x"]].sum(-1))
    return (token_losses(params, batch) * weights).sum(), weights.sum()


# What is harder for all layouts, what is easier for one.
LOSSES = [(name, loss_fn) for name in STRATEGIES for loss_fn in (weighed_loss, loss_with_learned_weight)] + [
    pytest.param(name, loss_fn, marks=[pytest.mark.exhaustive] * (name != "Mirrored on 3"))
    for name in STRATEGIES
    for loss_fn in (mean_loss, layered_loss)
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "loss_fn"), LOSSES)
def test_gradients_are_those_of_one_device(name, loss_fn, bound):
    strategy = STRATEGIES[name]()
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(loss_fn, has_aux=False, accumulate=3)
    for rows in (24, 13):
        batch = make_batch(rows)
        found = compute(params, strategy.put(batch))
        error = relative_error(found, on_one(loss_fn)(make_params(), batch))
        bound("relative error of gradients in three parts, f64", error, 1e-12)


def describe(params, batch):
    losses = token_losses(params, batch)
    aux = {
        "rows": losses.mean(1),
        "count": len(losses),
        "positive": (losses > 0).sum(),
        "mean": losses.mean(),
        "weighed": td.Mean((losses * batch["mask"]).sum(), batch["mask"].sum()),
        "norm": optax.tree.norm(params),
        "given": batch["x"],
    }
    return losses.mean(), aux


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [24, 13, 3, 1])
@pytest.mark.parametrize("name", ["one device", "Mirrored on 3", "FSDP"])
def test_results_are_those_of_the_whole_batch(name, rows):
    strategy, batch = STRATEGIES[name](), make_batch(rows)
    found = strategy.value_and_grad(describe, accumulate=2)(strategy.init(make_params), strategy.put(batch))
    (loss, aux), grads = jax.value_and_grad(describe, has_aux=True)(make_params(), batch)
    aux["weighed"] = aux["weighed"].value / aux["weighed"].weight
    assert relative_error(found, ((loss, aux), grads)) < 1e-12


def explain_gradients(strategy, loss_fn, accumulate, rows=48, layers=2):
    compute = strategy.value_and_grad(loss_fn, has_aux=False, accumulate=accumulate)
    make = functools.partial(make_params, layers)
    return strategy.explain(compute, strategy.init(make), strategy.put(make_batch(rows)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("loss_fn", [mean_loss, weighed_loss])
@pytest.mark.parametrize("name", ["Mirrored", "FSDP", "ZeRO1", "HSDP"])
def test_gradients_are_reduced_once(name, loss_fn):
    """As often, and but for a loss and its weight as many bytes, as those of a batch that is computed at once."""
    strategy = {**STRATEGIES, "Mirrored": td.Mirrored}[name]()
    expected = collectives(explain_gradients(strategy, loss_fn, 1))
    found = collectives(explain_gradients(strategy, loss_fn, 4))
    assert found.keys() == expected.keys()
    for kind, (count, size) in found.items():
        assert count == expected[kind][0] and size <= expected[kind][1] + 16


def test_layers_gather_for_each_part_and_hold_no_more_than_one():
    temporary = [
        explain_gradients(td.FSDP(min_size=1), layered_loss, 2, layers=layers).memory.temporary for layers in (3, 15)
    ]
    inputs = 12 * (48 // 8 // 2) * 3 * 8 * 8
    gradients = (num_bytes(make_params(15)) - num_bytes(make_params(3))) / 8
    assert temporary[1] - temporary[0] <= inputs + 3 * gradients


def test_memory_for_activations_is_that_of_one_part():
    temporary = [explain_gradients(td.Mirrored(), mean_loss, parts, rows=8 * 4096).memory.temporary for parts in (1, 8)]
    assert temporary[1] < temporary[0] / 6


def test_a_weight_of_the_batch_alone_keeps_no_gradients():
    temporary = [
        explain_gradients(td.Mirrored(), loss_fn, 4, layers=512).memory.temporary
        for loss_fn in (mean_loss, weighed_loss)
    ]
    assert temporary[1] < temporary[0] + num_bytes(make_params(512)) / 2


@pytest.mark.parametrize("name", ["one device", "Mirrored on 3"])
def test_parts_draw_different_numbers(name):
    strategy = STRATEGIES[name]()

    def loss_fn(scale, batch, key):
        numbers = jax.random.uniform(key, batch.shape)
        return (scale * numbers).mean(), numbers

    compute = strategy.value_and_grad(loss_fn, accumulate=4)
    (_, numbers), _ = compute(jnp.float64(1), strategy.put(np.zeros(24)), jax.random.key(0))
    assert len(np.unique(numbers)) == 24


def test_what_would_be_of_a_part_alone_is_refused_or_warned_of():
    strategy, params = td.Mirrored(), make_params()
    batch = strategy.put(make_batch(32))

    def synchronised(params, batch):
        x = params["embedding"][batch["x"]]
        return ((x - jax.lax.pmean(x.mean(0), td.DATA)) ** 2).mean()

    with pytest.raises(ValueError, match=r"test_accumulation.py.*with `accumulate=2` each sees a part"):
        strategy.value_and_grad(synchronised, has_aux=False, accumulate=2)(params, batch)

    def centred(params, batch):
        x = params["embedding"][batch["x"]]
        return ((x - x.mean(0)) ** 2).mean()

    with pytest.warns(UserWarning, match="Each of 2 parts of the batch sees its own rows alone"):
        td.SingleDevice().value_and_grad(centred, has_aux=False, accumulate=2)(params, make_batch(32))
    with pytest.raises(ValueError, match="from a key that is the same on all 16 parts"):
        strategy.value_and_grad(
            lambda scale, batch: (scale * jax.random.normal(jax.random.key(0), batch["y"].shape)).mean(),
            has_aux=False,
            accumulate=2,
        )(jnp.float64(1), batch)
    with pytest.raises(ValueError, match=r"`aux`.*neither a sum nor a mean"):
        td.SingleDevice().value_and_grad(
            lambda params, batch: (mean_loss(params, batch), token_losses(params, batch).max()), accumulate=2
        )(params, make_batch(32))


@pytest.mark.parametrize("parts", [0, -1, 1.5, "2", None])
def test_numbers_of_parts_are_checked(parts):
    with pytest.raises(ValueError, match="number of parts that a replica computes, 1 or more, got"):
        td.Mirrored().value_and_grad(mean_loss, accumulate=parts)


def test_short_gradients_are_added_up_in_float32():
    strategy, values = td.SingleDevice(), np.full((64, 1), 1 / 512, np.float32)
    values[0] = 1
    loss_fn = lambda scale, x: (scale.astype(jnp.float32) * x).sum()
    _, grad = strategy.value_and_grad(loss_fn, has_aux=False, accumulate=64)(jnp.bfloat16(1), values)
    # In bfloat16, a 512th added to 1 is lost each time.
    assert grad.dtype == jnp.bfloat16 and float(grad) == float(jnp.bfloat16(1 + 63 / 512))


def loss_of_experts(params, x):
    apply = lambda weight, tokens: jnp.tanh(tokens @ weight)
    routed = td.run_experts(apply, params["experts"], x, jax.nn.softmax(x @ params["router"]), top_k=2)
    return ((x + routed.outputs) ** 2).mean() + 0.1 * routed.balance_loss.mean()


def loss_of_attention(params, x):
    query, key, value = jnp.einsum("btd,cdhf->cbthf", x, params["qkv"])
    return (td.attend(query, key, value, is_causal=True) ** 2).mean()


@pytest.mark.parametrize(
    ("loss_fn", "axes"), [(loss_of_experts, {"data": 2, "expert": 4}), (loss_of_attention, {"data": 2, "sequence": 4})]
)
def test_what_the_librarys_functions_communicate_is_exact_in_parts(loss_fn, axes, bound):
    random = np.random.default_rng(0)
    shapes = {"experts": (8, 4, 4), "router": (4, 8), "qkv": (3, 4, 2, 2)}
    params, x = {name: random.normal(size=shape) for name, shape in shapes.items()}, random.normal(size=(16, 8, 4))
    rules = {"experts": P("expert")} if "expert" in axes else {}
    strategy = td.Sharded(axes, rules)
    compute = strategy.value_and_grad(loss_fn, has_aux=False, accumulate=2)
    found = compute(strategy.init(lambda: jax.tree.map(jnp.asarray, params)), strategy.put(x))
    error = relative_error(found, jax.value_and_grad(loss_fn)(params, x))
    bound("relative error of gradients in parts, f64, experts and attention", error, 1e-12)


@pytest.mark.parametrize("name", ["one device", "FSDP"])
def test_keys_of_rows_draw_one_devices_numbers_in_parts(name):
    def loss_fn(scale, batch):
        x, keys = batch
        noise = jax.vmap(lambda key: jax.random.normal(key))(keys)
        return ((scale * x + noise) ** 2).mean(), noise

    strategy, x, key = STRATEGIES[name](), np.arange(13.0), jax.random.key(0)
    batch = strategy.put(x)
    compute = strategy.value_and_grad(loss_fn, accumulate=3)
    found = compute(jnp.float64(2), (batch, td.row_keys(key, batch)))
    expected = jax.value_and_grad(loss_fn, has_aux=True)(jnp.float64(2), (x, td.row_keys(key, x)))
    assert relative_error(found, expected) < 1e-12


def test_a_function_that_is_another_one_for_some_parts_is_refused():
    loss_fn = lambda scale, x: (scale * x if len(x) > 3 else scale + x).mean()
    compute = td.SingleDevice().value_and_grad(loss_fn, has_aux=False, accumulate=3)
    remedy = r"With 2 rows, as some of the 3 parts of the batch have.*than with 4.*number of rows that 3 divides"
    with pytest.raises(ValueError, match=remedy):
        compute(jnp.float64(2), jnp.arange(10.0))
    assert float(compute(jnp.float64(2), jnp.arange(12.0))[0]) == pytest.approx(11)
