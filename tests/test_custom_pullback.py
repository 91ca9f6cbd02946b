"""A caller's own pullback is used by tapes, by JAX's transformations, and by one around the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax._autodiff._custom_pullback import cells_read, with_pullback
from tfdist_jax._autodiff._tape import Tape, observe_read

X = jnp.array([0.3, -1.0, 2.0])


def tripled_slope(x):
    """The sine, whose slope is said to be three times too large, and told in terms of a value on the way."""
    y, c = jnp.sin(x), jnp.cos(x)
    return with_pullback([x], [y], lambda cotangents: [3 * c * cotangents[0]])[0]


def by_tape(fn, x):
    tape = Tape()
    tape.start()
    tape.watch(x)
    y = fn(x)
    tape.stop()
    return tape.gradient([y], [x])[0]


def by_jax(fn, x):
    return jax.grad(lambda x: jnp.sum(fn(x)))(x)


WAYS = {
    "tape": by_tape,
    "compiled_tape": jax.jit(by_tape, static_argnums=0),
    "jax": by_jax,
    "compiled_jax": jax.jit(by_jax, static_argnums=0),
    "tape_over_compiled": lambda fn, x: by_tape(jax.jit(fn), x),
    "tape_in_vmap": lambda fn, x: jax.vmap(lambda s: by_tape(fn, s))(x),
    "tape_over_vmap": lambda fn, x: by_tape(jax.vmap(fn), x),
    "tape_over_scan": lambda fn, x: by_tape(lambda x: lax.scan(lambda c, s: (c, fn(s)), 0, x)[1], x),
    "tape_over_checkpoint": lambda fn, x: by_tape(jax.checkpoint(fn), x),
    "tape_in_compiled_function_under_a_tape": lambda fn, x: by_tape(jax.jit(lambda x: by_tape_value(fn, x)), x),
}


def by_tape_value(fn, x):
    """The result of `fn`, recorded by a tape that nobody asks."""
    tape = Tape()
    tape.start()
    tape.watch(x)
    y = fn(x)
    tape.stop()
    return y


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_gradient_is_what_the_pullback_says(way):
    np.testing.assert_allclose(way(tripled_slope, X), 3 * jnp.cos(X), rtol=1e-6)


@pytest.mark.parametrize("inner", ["tape", "compiled_tape", "jax", "compiled_jax", "tape_over_compiled"])
@pytest.mark.parametrize("outer", ["tape", "compiled_tape", "jax", "compiled_jax"])
def test_pullback_is_differentiated_in_turn(inner, outer):
    slope = lambda x: WAYS[inner](tripled_slope, x)
    np.testing.assert_allclose(WAYS[outer](slope, X), -3 * jnp.sin(X), rtol=1e-6)


# A tape around a vmap takes zeros back along the way to the result, and zero times infinity is not a number.
@pytest.mark.parametrize("way", [name for name in WAYS if name != "tape_over_vmap"])
def test_what_the_pullback_is_there_to_avoid_is_avoided(way):
    """log(1 + exp(x)): its own gradient is inf/inf far out."""

    def softplus(x):
        e = jnp.exp(x)
        return with_pullback([x], [jnp.log1p(e)], lambda cotangents: [cotangents[0] * (1 - 1 / (1 + e))])[0]

    np.testing.assert_allclose(WAYS[way](softplus, jnp.full(3, 100.0)), 1.0)


@pytest.mark.parametrize("way", ["tape", "compiled_tape", "jax", "tape_over_compiled"])
def test_input_without_a_gradient_gets_none_or_zero(way):
    def fn(x):
        y, z = with_pullback([x, x * 2], [x * 5, x * x], lambda cotangents: [None, cotangents[1]])
        return y + z

    np.testing.assert_allclose(WAYS[way](fn, X), 2.0 * jnp.ones(3))


@pytest.mark.parametrize("way", ["tape", "compiled_tape", "jax", "tape_over_compiled"])
def test_integer_results_and_inputs_pass_through(way):
    def fn(x):
        order = jnp.argsort(x)
        y, indices = with_pullback([x, order], [x * 2, order + 1], lambda cotangents: [7 * cotangents[0], None])
        return y * indices

    np.testing.assert_allclose(WAYS[way](fn, X), 7.0 * (jnp.argsort(X) + 1))


def test_others_that_the_result_depends_on_get_no_gradient():
    tape, other = Tape(), X + 1
    tape.start()
    tape.watch(X)
    tape.watch(other)
    (y,) = with_pullback([X], [X * other], lambda cotangents: [cotangents[0] * 2])
    tape.stop()
    gradients = tape.gradient([y], [X, other])
    np.testing.assert_allclose(gradients[0], 2 * jnp.ones(3))
    assert gradients[1] is None


def test_cells_read_are_the_trainable_ones_in_order():
    class Cell:
        def __init__(self, trainable):
            self.trainable = trainable

        def read(self):
            return observe_read(self, X, trainable=self.trainable)

    a, b, c = Cell(True), Cell(False), Cell(True)
    result, reads = cells_read(lambda: c.read() + jax.jit(lambda: b.read() + a.read())() + c.read())
    np.testing.assert_allclose(result, 4 * X)
    assert [id(cell) for cell, _ in reads] == [id(c), id(a)]
    assert all(value is not X and jnp.array_equal(value, X) for _, value in reads)
