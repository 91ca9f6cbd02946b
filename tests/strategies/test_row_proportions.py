"""Functions that are another one for the rows of some replicas than for those of others, or of all, are refused, and no other ones."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tfdist_jax as td

pytestmark = pytest.mark.usefixtures("double_precision")
MESH = jax.sharding.Mesh(jax.devices()[:8], ("data",))


def count(x):
    """As many as there are rows, but for one."""
    return max(len(x), 2)


def widen(x):
    """Of four features."""
    return x[:, None] * np.arange(1.0, 5)


def swap(condition, one, other):
    return (other, one) if condition else (one, other)


def subtract(p, x, is_other):
    one, other = swap(is_other, p * x, p * p * x)
    return (one - 2 * other).mean()


# Of one row of each replica, or of some replicas.
OTHERS_FOR_ONE_ROW = {
    "number": lambda p, x: (p * x).sum() / count(x),
    "array": lambda p, x: (p * x * np.full(len(x), 1 / count(x))).sum(),
    # JAX leaves out a reshape.
    "other program": lambda p, x: (
        optax.softmax_cross_entropy_with_integer_labels(x[:, None] * p, x.astype(int) % 1).sum() / count(x)
    ),
    "operations": lambda p, x: (p * x if len(x) > 1 else p + x).sum(),
    "result": lambda p, x: ((p * x).mean(), jnp.asarray(1.0 * count(x))),
    "inner program": lambda p, x: (p * x).sum() / jax.jit(lambda: 1.0 * count(x))(),
    "whole numbers": lambda p, x: (p * x).sum() / (jnp.int32(count(x)) + jnp.int32(0)).astype(float),
    "rounds": lambda p, x: (p * x).mean() * jax.lax.fori_loop(0, min(len(x), 2), lambda i, c: 2 * c, 1.0),
    "features": lambda p, x: (p * widen(x))[:, : 2 if len(x) == 1 else 3].sum(1).mean(),
    "place": lambda p, x: jnp.cumsum(p * widen(x), axis=1)[:, 3 if len(x) == 1 else 2].mean(),
    "weights of features": lambda p, x: (p * widen(x) * np.array([1, 1, 1, 2.0 if len(x) == 1 else 1])).mean(),
    "operands": lambda p, x: subtract(p, x, len(x) == 1),
}
# Of two rows of some replicas, where others have three.
OTHERS_FOR_TWO_ROWS = {
    "largest": lambda p, x: jax.lax.top_k(p * widen(x), min(len(x), 3))[0].sum(1).mean(),
    "features": lambda p, x: (p * widen(x))[:, : min(len(x), 3)].sum(1).mean(),
    "exponent": lambda p, x: ((p * x) ** (min(len(x), 3) + 1)).mean(),
    "ones": lambda p, x: (p * x).mean() * jnp.ones(min(len(x), 3)).sum(),
    "operands": lambda p, x: subtract(p, x, len(x) == 2),
    "reversed": lambda p, x: jax.lax.cumsum(p * widen(x), axis=1, reverse=len(x) == 2)[:, 0].mean(),
    "type": lambda p, x: (p * x).astype(jnp.bfloat16 if len(x) == 2 else jnp.float16).astype(float).mean(),
}


@pytest.mark.parametrize(
    ("rows", "fn"),
    [
        *(
            pytest.param(rows, fn, id=f"{rows} rows, {name}")
            for rows, (name, fn) in itertools.product([8, 9], OTHERS_FOR_ONE_ROW.items())
        ),
        *(pytest.param(17, fn, id=f"17 rows, {name}") for name, fn in OTHERS_FOR_TWO_ROWS.items()),
    ],
)
def test_what_is_another_function_for_the_rows_of_some_replicas_is_refused(fn, rows):
    x = np.arange(1.0, rows + 1)
    match = rf"With {rows // 8} rows?, as (some of the|all) 8 .* (another one than follows from|does other operations)"
    with pytest.raises(ValueError, match=match):
        td.Mirrored().evaluate(fn)(2.0, td.Mirrored().put(x))


def find_own_key(p, x):
    with jax.ensure_compile_time_eval():
        key = jax.random.key(0)
    return (p * x).mean() * jax.random.normal(key)


@pytest.mark.parametrize("rows", [8, 9, pytest.param(17, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda p, x: (p * x).mean() * (jax.lax.optimization_barrier(jnp.float64(2)) * 3),
        lambda p, x: (p * x).mean() * (jax.device_put(2.0) * 3),
        lambda p, x: (p * x).mean() * (jax.device_put(3.0, jax.NamedSharding(MESH, jax.P())) * 2),
        find_own_key,
        lambda p, x: td.assume_exact(lambda x: x * (1 / max(len(x), 3)) * max(len(x), 3))(p * x).mean(),
        lambda p, x: td.assume_exact(lambda x: x * 1 if len(x) > 2 else jnp.sin(x) * 0 + x)(p * x).mean(),
        lambda p, x: (p * widen(x)).squeeze().sum() / len(x) + (p * x[:, None]).squeeze().mean(),
        lambda p, x: jax.grad(lambda p: (p * widen(x) * jnp.ones((len(x), 1))).mean())(p),
    ],
    ids=["barrier", "put", "on the mesh", "key", "exact", "exact operations", "squeezed", "gradient"],
)
def test_what_is_the_same_function_is_that_of_one_device(fn, rows):
    x = np.arange(1.0, rows + 1)
    assert float(td.Mirrored().evaluate(fn)(2.0, td.Mirrored().put(x))) == pytest.approx(float(fn(2.0, x)), rel=1e-12)


@pytest.mark.parametrize("rows", [8, 9])
def test_numbers_that_nothing_follows_from_need_not_be_proportional(rows):
    def loss(p, x):
        losses = (p * x) ** 2
        jax.debug.callback(lambda count: None, jnp.float32(count(x)))
        return (losses.mean(), losses.sum() / count(x))[0]

    x = np.arange(1.0, rows + 1)
    assert float(td.Mirrored().evaluate(loss)(2.0, td.Mirrored().put(x))) == pytest.approx(((2 * x) ** 2).mean())


@pytest.mark.parametrize("rows", [8, 9])
def test_a_step_may_compute_numbers_of_its_own(rows):
    """Which are not known while the function is compared."""
    strategy, x = td.Mirrored(), np.arange(1.0, rows + 1)

    @strategy.jit
    def step(state, batch):
        rate = state["rate"] * 0.5
        loss, grad = strategy.value_and_grad(lambda p, x: (p * x).mean() * (rate + 1.0), has_aux=False)(
            state["p"], batch
        )
        return {**state, "p": state["p"] - grad}, loss

    _, loss = step(strategy.init(lambda: {"p": jnp.float64(2), "rate": jnp.float64(4)}), strategy.put(x))
    assert float(loss) == pytest.approx(6 * x.mean())


def test_whole_numbers_that_are_rounded_are_not_proportional():
    fn = lambda p, x: (p * x).sum() / jax.lax.div(jnp.int32(2 * len(x)), jnp.int32(4))
    with pytest.raises(ValueError, match="neither a sum nor a mean"):
        td.Mirrored().evaluate(fn)(2.0, td.Mirrored().put(np.arange(24.0)))


def test_what_is_said_of_results_counts_for_one_row_as_well():
    strategy, x = td.Mirrored(), np.arange(1.0, 9)
    said = strategy.evaluate(lambda p, x: td.Mean((p * x).sum() / max(len(x), 2)))
    assert float(said(2.0, strategy.put(x))) == x.mean()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("rows", [8, 9, 13, 17])
def test_losses_of_one_row_on_some_replicas_are_those_of_one_device(rows):
    def loss(p, x):
        losses = optax.softmax_cross_entropy_with_integer_labels(x[:, None] * p, x.astype(int) % 3)
        taken = jnp.take_along_axis(x[:, None] * p, x[:, None].astype(int) % 3, 1).squeeze() ** 2
        return losses.sum() / len(x) + taken.mean() + (x[:, None] * p).reshape(-1).mean()

    x, params = np.arange(1.0, rows + 1), jnp.asarray([1.0, 2.0, 4.0])
    found = td.Mirrored().value_and_grad(loss, has_aux=False)(params, td.Mirrored().put(x))
    expected = jax.value_and_grad(loss)(params, x)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found, expected)
