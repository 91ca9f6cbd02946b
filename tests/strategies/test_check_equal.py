"""Trainings that are, and are not, under a strategy what they are on one device: what is told of those that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

OPTIMIZER = optax.adam(1e-2)
STRATEGIES = [
    td.Mirrored,
    lambda: td.FSDP(min_size=4),
    lambda: td.ZeRO1(min_size=4),
    lambda: td.HSDP(shards=4, min_size=4),
    lambda: td.TensorParallel(4, {"w": P(None, "tensor")}),
]


def make_params():
    return {"w": jax.random.normal(jax.random.key(0), (16, 8)), "b": jnp.zeros(8)}


def make_state():
    params = make_params()
    return {"params": params, "opt_state": OPTIMIZER.init(params), "key": jax.random.key(1)}


def batches(*sizes):
    return [np.random.default_rng(rows).normal(size=(rows, 16)).astype(np.float32) for rows in sizes]


def loss_fn(params, x, key=None):
    return ((jnp.tanh(x @ params["w"] + params["b"]) - 1) ** 2).mean()


def making(loss_fn=loss_fn, *, update=lambda grads, strategy: grads, tell=lambda loss, strategy: loss):
    """Returns a `make_step` for a loss, which changes gradients and what the step returns by functions of the strategy."""

    def make_step(strategy):
        @strategy.jit
        def step(state, x):
            key, own = jax.random.split(state["key"])
            loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(state["params"], x, own)
            updates, opt_state = OPTIMIZER.update(update(grads, strategy), state["opt_state"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "opt_state": opt_state, "key": key}, {"loss": tell(loss, strategy)}

        return step

    return make_step


def told(make_step, strategies=(td.Mirrored,), sizes=(24, 13), make_state=make_state, **options):
    """What `check_equal` says of a training that differs."""
    with pytest.raises(AssertionError) as raised:
        td.check_equal(make_step, make_state, batches(*sizes), [make() for make in strategies], **options)
    return str(raised.value)


def test_a_training_is_the_same_under_every_strategy_uneven_batches_included():
    td.check_equal(making(), make_state, batches(24, 13, 5, 24), [make() for make in STRATEGIES])


def test_all_begin_with_the_same_state_and_take_all_batches():
    seen = []

    def make_step(strategy):
        def step(state, x):
            seen.append((strategy.num_replicas, float(state), td.SingleDevice().fetch(x).shape))
            return state + 1, None

        return step

    td.check_equal(make_step, lambda: jnp.float32(3), iter(batches(8, 16)), [td.Mirrored()])
    assert seen == [(1, 3, (8, 16)), (8, 3, (8, 16)), (1, 4, (16, 16)), (8, 4, (16, 16))]


def test_the_strategy_the_step_and_the_array_are_named():
    """From the third batch on, a bias is too large by a little under one strategy."""
    strategies = [td.Mirrored(), td.FSDP(min_size=4)]

    def make_step(strategy):
        @strategy.jit
        def step(state, x):
            is_late = (state["count"] >= 2) & (strategy == strategies[1])
            b = state["b"].at[5].add(jnp.where(is_late, 1e-3, 0))
            return {"a": state["a"] + 1, "b": b, "count": state["count"] + 1}, x.mean()

        return step

    make = lambda: {"a": jnp.ones(8), "b": jnp.full(8, 0.25), "count": jnp.int32(0)}
    with pytest.raises(AssertionError) as raised:
        td.check_equal(make_step, make, batches(8, 8, 8, 8), strategies)
    assert str(raised.value).startswith(
        "Under FSDP(devices=None, min_size=4), the training is not that of one device after step 3: `state/b` differs by 0.004 of its "
        "largest value at [5], 0.251 instead of 0.25. Of 4 arrays, 1 differ by more than rtol=0.0001 allows."
    )
    td.check_equal(make_step, make, batches(8, 8, 8), strategies, rtol=5e-3)


def test_a_sum_over_replicas_in_place_of_a_mean():
    text = told(making(tell=lambda loss, strategy: loss * strategy.num_replicas))
    assert "after step 1: `out/loss` differs by 7 of its largest value, " in text
    assert "it is 8 times as large: a sum over the 8 replicas in place of a mean" in text
    text = told(making(tell=lambda loss, strategy: loss / strategy.num_replicas))
    assert "it is 1/8 as large: a sum over" in text


def test_gradients_that_are_summed_twice():
    text = told(making(update=lambda grads, strategy: jax.tree.map(lambda g: g * strategy.num_replicas, grads)))
    assert "`state/opt_state/0/mu/b` differs by 7 of its largest value" in text
    assert "it is 8 times as large: gradients are added up over the 8 replicas" in text


def test_a_factor_that_only_the_optimizer_sees():
    scale = lambda grads, strategy: jax.tree.map(lambda g: g * (3 if strategy.num_replicas > 1 else 1), grads)
    text = told(making(update=scale), sizes=(24,))
    assert "`state/opt_state/0/mu/b`" in text
    assert (
        "the parameters agree so far, the optimizer's state does not: gradients differ in a way that the update" in text
    )


def drop_out(params, x, key):
    return (x * jax.random.bernoulli(key, 0.5, x.shape) @ params["w"]).mean()


def test_random_draws():
    assert "Likely cause: the step draws random numbers" in told(making(drop_out))


def test_random_draws_by_row_are_those_of_one_device():
    def loss_fn(params, batch):
        x, keys = batch
        draw = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (16,)))
        return (x * draw(keys) @ params).mean()

    def make_step(strategy):
        @strategy.jit
        def step(state, x):
            params, key = state
            loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, (x, td.row_keys(key, x)))
            return (params - grads, jax.random.fold_in(key, 1)), loss

        return step

    td.check_equal(make_step, lambda: (jnp.ones(16), jax.random.key(1)), batches(24, 16), [td.Mirrored(), td.HSDP(4)])


NORM = linen.BatchNorm(use_running_average=False)


def making_normalised(axis_name_of):
    """Returns a `make_step` for a model with BatchNorm over the axes that a function of the strategy gives."""

    def make_step(strategy):
        norm = linen.BatchNorm(use_running_average=False, axis_name=axis_name_of(strategy))

        def loss_fn(params, x, stats):
            y, new = norm.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
            return (y**3 * jnp.arange(16)).mean(), td.Mean(new["batch_stats"])

        @strategy.jit
        def step(state, x):
            (_, stats), grads = strategy.value_and_grad(loss_fn)(state["params"], x, state["batch_stats"])
            params = jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], grads)
            return {"params": params, "batch_stats": stats}, None

        return step

    return make_step


@pytest.mark.filterwarnings("ignore:.*tatistics")
@pytest.mark.filterwarnings("ignore:.*fewer rows")
def test_statistics_of_a_replicas_rows():
    make = lambda: NORM.init(jax.random.key(0), jnp.ones((1, 16)))
    text = told(making_normalised(lambda strategy: None), make_state=make, sizes=(24,))
    assert "BatchNorm takes those of the batch with `axis_name=strategy.batch_axes`" in text
    axes = lambda strategy: strategy.batch_axes
    td.check_equal(making_normalised(axes), make, batches(24, 16), [td.Mirrored(), td.HSDP(4)])


def test_rounding_in_16_bits():
    half = lambda params, x, key: (
        jnp.square(x.astype(jnp.bfloat16) @ params["w"].astype(jnp.bfloat16)).mean().astype(jnp.float32)
    )
    assert "sums in another order, in 16 bits" in told(making(half))


def test_a_state_that_is_made_otherwise(monkeypatch):
    monkeypatch.setattr(td.Mirrored, "init", lambda strategy, make: make() + 1)
    text = told(lambda strategy: lambda state, x: (state, None), make_state=lambda: jnp.ones(4))
    assert "before the first step: `state` differs by 1 of its largest value at [0], 2 instead of 1" in text
    assert "`make_state` gives other numbers where arrays are split" in text


def test_shapes_and_structures_that_differ():
    step_with = lambda out: lambda strategy: lambda state, x: (state, out(strategy))
    make = lambda: jnp.ones(4)
    text = told(step_with(lambda strategy: jnp.ones(strategy.num_replicas)), make_state=make)
    assert "`out` has the shape (8,), expected is (1,)" in text
    assert "`td.Rows`" in text
    text = told(step_with(lambda strategy: [jnp.ones(1)] * strategy.num_replicas), make_state=make)
    assert "step 1 returns PyTreeDef" in text


def test_numbers_that_are_none():
    make_step = lambda value: lambda strategy: lambda state, x: (state, jnp.float32(value(strategy)))
    make = lambda: jnp.ones(4)
    nan_on_several = make_step(lambda strategy: np.nan if strategy.num_replicas > 1 else 1)
    assert "`out` differs by inf of its largest value, nan instead of 1" in told(nan_on_several, make_state=make)
    for value in (np.nan, np.inf, 0.0):
        td.check_equal(make_step(lambda strategy, value=value: value), make, batches(8), [td.Mirrored()])
