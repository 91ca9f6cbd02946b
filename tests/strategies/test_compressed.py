"""Gradients that travel in int8: near to the exact ones, in a quarter of the bytes, and everything else as it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

RULES = {"up": P(None, "tensor"), "down": P("tensor")}
STRATEGIES = {
    "Mirrored": td.Mirrored,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "FSDP": td.FSDP,
    "ZeRO1": td.ZeRO1,
    "HSDP": lambda: td.HSDP(shards=4),
    "TensorParallel": lambda: td.TensorParallel(4, RULES),
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES),
}


def make_params(hidden=336):
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.1, jnp.float32)
    return {"up": normal(48, hidden), "bias": normal(hidden), "down": normal(hidden, 48)}


def make_batch(rows):
    return np.random.default_rng(rows).normal(size=(rows, 48)).astype(np.float32)


def loss_fn(params, x):
    return ((jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"] - x) ** 2).mean(), x.sum(1)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_rounded_and_nothing_else(name, accumulate):
    strategy = STRATEGIES[name]()
    for rows in (24, 13):
        batch = strategy.put(make_batch(rows))
        exact, rounded = (
            each.value_and_grad(loss_fn, accumulate=accumulate)(each.init(make_params), batch)
            for each in (strategy, td.Compressed(strategy))
        )
        jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-6), rounded[0], exact[0])
        np.testing.assert_allclose(rounded[1]["bias"], exact[1]["bias"], rtol=1e-5, atol=1e-8)
        for matrix in ("up", "down"):
            error = np.abs(np.asarray(rounded[1][matrix]) - exact[1][matrix]).max() / np.abs(exact[1][matrix]).max()
            assert 1e-6 < error < 0.02
            assert rounded[1][matrix].sharding.is_equivalent_to(exact[1][matrix].sharding, 2)
        for leaf in jax.tree.leaves(rounded[1]):
            copies = {str(shard.index): np.asarray(shard.data) for shard in leaf.addressable_shards}
            for shard in leaf.addressable_shards:
                np.testing.assert_array_equal(shard.data, copies[str(shard.index)])


def num_wire_bytes(strategy):
    """Bytes that a device sends in all-gathers, and in others: of what it gives away and what is passed on, in a ring."""
    params, batch = strategy.init(lambda: make_params(1024)), strategy.put(make_batch(24))
    gathers = others = 0.0
    for one in strategy.explain(strategy.value_and_grad(loss_fn), params, batch).collectives:
        passed_on = (one.group - 1) / one.group
        times = {"all-reduce": 2 * passed_on, "reduce-scatter": one.group - 1, "all-to-all": passed_on}
        if one.kind == "all-gather":
            gathers += passed_on * one.bytes
        else:
            others += times[one.kind] * one.bytes
    return gathers, others


@pytest.mark.parametrize("name", ["Mirrored", "FSDP", "ZeRO1", "HSDP"])
def test_gradients_travel_in_a_quarter_of_the_bytes(name, bound):
    strategy = STRATEGIES[name]()
    of_parameters, exact = num_wire_bytes(strategy)
    gathers, others = num_wire_bytes(td.Compressed(strategy, min_size=2048))
    rounded = gathers - of_parameters + others
    assert rounded > 0.25 * exact
    bound("bytes of gradients in int8, of those in float32", rounded / exact, 0.27)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["Mirrored", "FSDP"])
def test_what_is_not_finite_stays_so(name, number):
    strategy = td.Compressed(STRATEGIES[name]())
    batch = make_batch(16)
    batch[3, 5] = number
    linear = lambda params, x: ((x @ params["up"]) @ params["down"]).mean()
    _, grads = strategy.value_and_grad(linear, has_aux=False)(strategy.init(make_params), strategy.put(batch))
    assert not np.isfinite(np.asarray(grads["up"])[5]).any()


def test_gradients_that_are_zero_stay_so():
    strategy = td.Compressed(td.Mirrored())
    flat = lambda params, x: (params["up"].sum() * 0 + x.sum(1)).mean()
    _, grads = strategy.value_and_grad(flat, has_aux=False)(strategy.init(make_params), strategy.put(make_batch(16)))
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads))


def train(strategy, steps=30):
    optimizer = optax.adam(1e-2)

    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        (loss, _), grads = strategy.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    state = strategy.init(lambda: (params := make_params(), optimizer.init(params)))
    losses = []
    for _ in range(steps):
        state, loss = step(state, strategy.put(make_batch(32)))
        losses.append(float(loss))
    return losses


def test_a_training_comes_as_far():
    exact, rounded = train(td.FSDP()), train(td.Compressed(td.Offloaded(td.FSDP())))
    assert exact[-1] < 0.5 * exact[0]
    assert rounded[-1] == pytest.approx(exact[-1], rel=0.02)


def test_other_forms_are_refused():
    class Coarse(td.Strategy):
        mesh = td.Mirrored().mesh

        def state_layout(self, leaf):
            return td.Layout(wire="int4")

    with pytest.raises(ValueError, match="'int4'; it may as None or 'int8'"):
        Coarse().init(make_params)
