"""Pipelines of functions that are not alike: each with its own parameters and shapes, divided by what they compute."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tests.shared.staged_models import compute
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._pipeline._cuts import cut_evenly

pytestmark = pytest.mark.usefixtures("double_precision")


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


CASES = {
    "1f1b": {"stages": 2, "axes": {"data": 4}},
    "1f1b, saved, 3 stages": {"stages": 3, "axes": {"data": 1}, "devices": 3, "remat": "none", "min_size": 64},
    "gpipe": {"stages": 4, "axes": {"data": 2}, "schedule": "gpipe", "min_size": 1},
    "interleaved x fsdp": {"stages": 2, "axes": {"data": 2, "fsdp": 2}, "schedule": "interleaved", "min_size": 1},
    "zb-h1, saved": {"stages": 2, "axes": {"data": 2, "fsdp": 2}, "schedule": "zb-h1", "remat": "none", "min_size": 64},
}


@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_one_device(case, rows, bound):
    options = dict(CASES[case])
    devices = tuple(jax.devices()[: options.pop("devices", 8)])
    strategy = td.Pipeline(options.pop("stages"), 4, devices=devices, stack=None, **options)
    found = jax.device_get(compute(strategy, LOSS, make_params(), make_batch(rows)))
    expected = jax.device_get(compute(td.SingleDevice(), LOSS, make_params(), make_batch(rows)))
    bound("relative error of gradients of a pipeline of a list, f64", relative_error(found, expected), 1e-12)


def test_keys_and_sums_are_those_of_stacked_layers():
    """One function for all layers is the same loss as a list of it."""
    random = np.random.default_rng(0)
    params = {"w": jnp.asarray(random.normal(size=(8, 8))), "blocks": jnp.asarray(random.normal(size=(4, 8, 8)))}
    drop = lambda key, x: x * jax.random.bernoulli(key, 0.7, x.shape)
    first, last = (
        lambda p, x, key: drop(key, x @ p["w"]),
        lambda p, x, b, key: ((drop(key, x) ** 2).sum(), jnp.float64(len(x))),
    )
    stacked = td.Staged(first, lambda w, x, batch, key: jnp.tanh(drop(key, x) @ w), last)
    at = lambda i: lambda p, x, batch, key: jnp.tanh(drop(key, x) @ p["blocks"][i])
    listed = td.Staged(first, [at(i) for i in range(4)], last)
    batch, key = random.normal(size=(8, 8)), jax.random.key(0)
    strategies = [
        (td.Pipeline(4, 2, axes={"data": 2}), stacked),
        (td.Pipeline(4, 2, axes={"data": 2}, stack=None, min_size=1), listed),
        (td.Pipeline(2, 2, axes={"data": 2}, devices=tuple(jax.devices()[:4]), stack=None), listed),
    ]
    found = [jax.device_get(compute(*each, params, batch, key, has_aux=False)) for each in strategies]
    assert relative_error(found[1], found[0]) <= 1e-12
    assert relative_error(found[2], found[0]) <= 1e-12


def test_a_device_gets_the_parameters_of_its_stages_alone(bound):
    """Four matrices of 2 MiB over four devices: a device has a quarter of each, and computes with one of them."""
    size = 512
    at = lambda i: lambda params, x, batch: jnp.tanh(x @ params[f"w{i}"])
    loss_fn = td.Staged(lambda p, x: x * 1.0, [at(i) for i in range(4)], lambda p, x, batch: (x**2).mean())
    params = {f"w{i}": jnp.ones((size, size)) / size for i in range(4)}
    strategy = td.Pipeline(4, 4, axes={"data": 1}, devices=tuple(jax.devices()[:4]), stack=None)
    state = strategy.init(lambda: params)
    assert {leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(state)} == {size * size // 4}
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    explanation = strategy.explain(compute, state, strategy.put(np.ones((16, size))))
    assert {one.kind for one in explanation.collectives} == {"all-to-all", "collective-permute", "all-reduce"}
    # Its matrix, as it comes and as it is used; the gradients of a microbatch, their sum, and as it goes back.
    bound(
        "temporary memory of a pipeline of a list, to a stage's weights",
        explanation.memory.temporary / (8 * size * size),
        5.5,
    )


def test_functions_are_divided_by_what_they_compute():
    assert cut_evenly([1, 1, 4, 1, 1], 3) == [range(2), range(2, 3), range(3, 5)]
    assert cut_evenly([0, 0, 0], 3) == [range(1), range(1, 2), range(2, 3)]
    assert cut_evenly([5, 1, 1, 1], 2) == [range(1), range(1, 4)]


def test_lists_that_cannot_be_divided_are_refused():
    make = lambda **options: td.Pipeline(4, 4, stack=None, **options)
    state = lambda strategy: strategy.init(make_params)
    together = {"w": jax.P(("fsdp", "stage"))}
    strategy = td.Pipeline(2, 4, axes={"data": 2, "fsdp": 2}, stack=None, rules=together)
    with pytest.raises(
        ValueError, match=r"blocks/0/w is to be laid out .*these come behind others, over which it is gathered"
    ):
        strategy.value_and_grad(LOSS)(state(strategy), strategy.put(make_batch(16)))
    with_key = td.Staged(
        lambda p, b: (b["x"].mean((1, 2, 3)), jax.random.key(0)), [lambda p, x, b: x], lambda p, x, b: (x[0].mean(), {})
    )
    strategy = td.Pipeline(2, 4, axes={"data": 4}, stack=None)
    with pytest.raises(TypeError, match="Functions of a list hand on a random key"):
        strategy.value_and_grad(with_key)(state(strategy), strategy.put(make_batch(16)))
    short = td.Staged(LOSS.first, [LOSS.layer[0]], lambda params, x, batch: (x.mean(), {}))
    strategy = make(axes={"data": 2})
    with pytest.raises(
        ValueError, match="2 functions with `first`, which cannot be divided into 4 stages over 4 devices along 'stage'"
    ):
        strategy.value_and_grad(short)(state(strategy), strategy.put(make_batch(16)))
    strategy = make(axes={"data": 1, "tensor": 2}, rules={"head": jax.P(None, "tensor")})
    with pytest.raises(ValueError, match=r"which functions that are not alike cannot: .* Stack layers that are alike"):
        strategy.value_and_grad(LOSS)(state(strategy), strategy.put(make_batch(16)))
    with pytest.raises(
        ValueError,
        match=r"blocks/0/b of shape \(32,\) belongs to the layers at 'blocks'.*give `stack` the path",
    ):
        td.Pipeline(3, 4, axes={"data": 1}, devices=tuple(jax.devices()[:3])).init(make_params)
