"""The `while` loop that has a gradient although nobody knows how often it runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfdist_jax._autodiff import _while_loop

A = jnp.float32([[0.9, -0.2], [0.1, 0.8]])


def loop(repeat, matrix, start, number):
    """Return what `number` iterations make of an integer, a vector and a sum."""

    def step(carry):
        i, x, total = carry
        x = jnp.tanh(matrix @ x) + start * 0.5
        return i + 1, x, total + x.sum() * (i % 3)

    return repeat(lambda carry: carry[0] < number, step, (jnp.int32(0), start, jnp.float32(0)))[1:]


def unrolled(condition, step, carry):
    while condition(carry):
        carry = step(carry)
    return carry


def loss(repeat, number, matrix, start):
    x, total = loop(repeat, matrix, start, number)
    return (x**2).sum() + total


@pytest.fixture
def few_places(monkeypatch):
    """Let states be kept at four places, so that short loops fill them."""
    monkeypatch.setattr(_while_loop, "_MOST_PLACES", 4)


@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 8, 9, 16, 17, 40])
def test_gradient_is_that_of_the_unrolled_loop(few_places, number):
    compute = jax.jit(jax.grad(functools.partial(loss, _while_loop.repeat), argnums=(1, 2)))
    found = compute(number, A, jnp.float32([0.3, -0.4]))
    wanted = jax.grad(functools.partial(loss, unrolled, number), argnums=(0, 1))(A, jnp.float32([0.3, -0.4]))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), found, wanted)


def test_gradient_of_a_gradient(few_places):
    def second(repeat, number, matrix):
        first = jax.grad(functools.partial(loss, repeat), argnums=1)
        return (first(number, matrix, jnp.float32([0.3, -0.4])) ** 2).sum()

    found = jax.jit(jax.grad(functools.partial(second, _while_loop.repeat), argnums=1))(7, A)
    wanted = jax.grad(functools.partial(second, unrolled, 7))(A)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_loops_under_vmap_have_gradients_of_their_own_lengths():
    numbers = jnp.int32([0, 2, 5])
    found = jax.vmap(jax.grad(functools.partial(loss, _while_loop.repeat), argnums=1), (0, None, None))(
        numbers, A, jnp.float32([0.3, -0.4])
    )
    for row, number in zip(found, [0, 2, 5], strict=True):
        wanted = jax.grad(functools.partial(loss, unrolled, number))(A, jnp.float32([0.3, -0.4]))
        np.testing.assert_allclose(row, wanted, rtol=1e-5, atol=1e-6)


def test_large_states_are_kept_at_few_places():
    places = lambda size: jax.eval_shape(lambda x: _while_loop._empty([x]), jnp.zeros(size)).iterations.shape[0]
    assert places(10) == 64 and places(2**20) == 16 and places(2**26) == 4


def test_loop_with_effects_runs_as_it_is():
    def step(x):
        jax.debug.callback(lambda x: None, x)
        return x * 2

    assert jax.jit(lambda x: _while_loop.repeat(lambda x: x < 9, step, x))(1.5) == 12
