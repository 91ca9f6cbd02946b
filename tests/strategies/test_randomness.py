"""Random numbers in losses: different on each replica, or one device's where each row has a key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tfdist_jax as td

STRATEGY = td.Mirrored()


def drawn(params, batch, key):
    return (params * batch).mean(), jax.random.uniform(key, (len(batch),))


@pytest.mark.parametrize("rows", [16, 13])
def test_each_replica_draws_its_own(rows):
    (_, numbers), _ = STRATEGY.value_and_grad(drawn)(1.0, STRATEGY.put(np.ones(rows, np.float32)), jax.random.key(3))
    keys = [jax.random.fold_in(jax.random.key(3), replica) for replica in range(8)]
    sizes = td.split_sizes(rows, 8)
    expected = np.concatenate([jax.random.uniform(key, (size,)) for key, size in zip(keys, sizes, strict=True)])
    np.testing.assert_array_equal(numbers, expected)
    (_, alone), _ = td.SingleDevice().value_and_grad(drawn)(1.0, np.ones(rows, np.float32), jax.random.key(3))
    np.testing.assert_array_equal(alone, jax.random.uniform(jax.random.key(3), (rows,)))


@pytest.mark.parametrize(("rows", "is_laid_out"), [(16, False), (13, False), (13, True), (3, True)])
def test_keys_of_rows_draw_what_one_device_draws(rows, is_laid_out):
    """Also keys that are laid out with the batch, where their rows do not divide."""

    def loss_fn(params, batch):
        x, keys = batch
        noise = jax.vmap(lambda key: jax.random.uniform(key, (5,)))(keys)
        return (params * x[:, None] * noise).mean(), noise

    x = np.arange(1, rows + 1, dtype=np.float32)
    results = []
    for strategy in (STRATEGY, td.SingleDevice()):
        if is_laid_out:
            batch = strategy.put((x, td.row_keys(jax.random.key(0), x)))
        else:
            batch = strategy.put(x)
            batch = batch, td.row_keys(jax.random.key(0), batch)
        results.append(strategy.value_and_grad(loss_fn)(1.0, batch))
    ((loss, noise), grad), ((expected, expected_noise), expected_grad) = results
    np.testing.assert_array_equal(noise, expected_noise)
    np.testing.assert_allclose([loss, grad], [expected, expected_grad], rtol=1e-6)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_that_draw_together_are_warned_of(impl):
    """JAX draws for a batch of such keys what depends on the first, so that it is another on each replica; one by one it does not."""
    x = np.ones(16, np.float32)
    keys = td.row_keys(jax.random.key(0, impl=impl), x)
    drawn = lambda scale, batch: td.Rows(scale * jax.vmap(jax.random.uniform)(batch[1]))
    with pytest.warns(
        UserWarning, match=r"test_randomness.py:\d+ \(`drawn = .*jax.random.key\(seed, impl='threefry2x32'\)"
    ):
        STRATEGY.evaluate(drawn)(1.0, STRATEGY.put((x, keys)))
    one_by_one = lambda scale, batch: td.Rows(scale * jax.lax.map(jax.random.uniform, batch[1]))
    found = STRATEGY.evaluate(one_by_one)(1.0, STRATEGY.put((x, keys)))
    np.testing.assert_array_equal(found, [jax.random.uniform(key) for key in keys])


KEY = jax.random.key(0)
RAW = jax.random.PRNGKey(0)
REPEATED = {
    "closed over": (lambda p, b: (p * b).mean() * jax.random.bernoulli(KEY, 0.5, b.shape).mean(), ()),
    "split for rows": (
        lambda p, b: (p * b * jax.vmap(jax.random.uniform)(jax.random.split(KEY, len(b)))).mean(),
        (),
    ),
    "folded with the place": (
        lambda p, b: (
            p * b * jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(KEY, i)))(jnp.arange(len(b)))
        ).mean(),
        (),
    ),
    "folded with the place, row by row": (
        lambda p, b: jax.lax.map(
            lambda at: p * at[1] * jax.random.uniform(jax.random.fold_in(KEY, at[0])), (jnp.arange(len(b)), b)
        ).mean(),
        (),
    ),
    "raw": (lambda p, b, key: (p * b * jax.random.normal(key, b.shape)).mean(), (RAW,)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_equal_numbers_on_all_replicas_are_refused(name):
    loss_fn, extra = REPEATED[name]
    batch = np.ones(16, np.float32)
    with pytest.raises(
        ValueError, match=r"(?s)test_randomness.py:\d+.*same on all 8 replicas.*jax.random.key.*td.row_keys"
    ):
        STRATEGY.value_and_grad(loss_fn, has_aux=False)(1.0, STRATEGY.put(batch), *extra)
    td.SingleDevice().value_and_grad(loss_fn, has_aux=False)(1.0, batch, *extra)


def test_what_does_not_depend_on_rows_may_be_drawn_from_one_key():
    noisy = lambda p, b, key: (b @ (p + jax.random.normal(key, p.shape))).mean()
    compute = STRATEGY.value_and_grad(noisy, has_aux=False)
    loss, _ = compute(jnp.zeros(4), STRATEGY.put(np.ones((16, 4), np.float32)), jax.random.PRNGKey(0))
    np.testing.assert_allclose(loss, jax.random.normal(jax.random.PRNGKey(0), (4,)).sum(), rtol=1e-6)


def test_a_key_that_is_returned_is_as_it_was_given():
    compute = STRATEGY.value_and_grad(lambda p, b, key: ((p * b).mean(), {"key": key, "half": drawn(p, b, key)[1]}))
    (_, aux), _ = compute(1.0, STRATEGY.put(np.ones(16, np.float32)), KEY)
    assert aux["key"] == KEY
    with pytest.raises(ValueError, match=r"`aux` differs between replicas.*outside"):
        STRATEGY.value_and_grad(lambda p, b, key: ((p * b).mean(), jax.random.split(key)))(
            1.0, STRATEGY.put(np.ones(16)), KEY
        )


class Dropped(nnx.Module):
    """Half of its inputs."""

    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 64, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.dense(x))


def test_dropout_of_nnx_modules_differs_between_replicas_and_counts_on():
    graph, params, rest = nnx.split(Dropped(nnx.Rngs(0)), nnx.Param, ...)

    def loss_fn(params, batch, rest):
        model = nnx.merge(graph, params, rest, copy=True)
        out = model(batch)
        return (out**2).mean(), (out == 0, nnx.state(model, nnx.Not(nnx.Param)))

    compute = STRATEGY.value_and_grad(loss_fn)
    batch = STRATEGY.put(np.ones((16, 4), np.float32))
    (_, (dropped, after)), _ = compute(params, batch, rest)
    masks = np.asarray(dropped).reshape(8, 2, 64)
    assert all((masks[0] != masks[i]).any() for i in range(1, 8))
    assert after["dropout"]["rngs"]["count"].get_value() == 1
    (_, (again, _)), _ = compute(params, batch, after)
    assert (np.asarray(again) != np.asarray(dropped)).any()


def test_params_that_hold_random_state_say_to_split_them():
    with pytest.raises(TypeError, match=r"no gradients for the parameter.*nnx.split"):
        STRATEGY.value_and_grad(lambda model, x: (model(x) ** 2).mean(), has_aux=False)(
            Dropped(nnx.Rngs(0)), STRATEGY.put(np.ones((16, 4), np.float32))
        )
