"""Programs are cut by devices: into few stages, in an order that keeps what they compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tfdist_jax._device_scope import on_device
from tfdist_jax._stateful._stages import cut

X, W = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 3))


@pytest.fixture
def devices():
    return jax.devices()[:4]


def run(stages, *args):
    """Run stages with their devices forgotten."""
    values = dict(zip(stages.inputs, args, strict=True))
    for stage in stages.stages:
        results = jax.extend.core.jaxpr_as_fun(stage.program)(*(values[variable] for variable in stage.inputs))
        for variable in stage.done:
            del values[variable]
        values |= dict(zip(stage.outputs, results, strict=True))
    return [values[variable] for variable in stages.results]


def names(stage):
    return [equation.primitive.name for equation in stage.program.eqns]


def test_a_program_without_devices_is_not_cut(devices):
    program = jax.make_jaxpr(lambda x, w: x @ w)(X, W)
    assert cut(program, [None], devices[0]) is None
    assert cut(program, [devices[0]], devices[0]) is None


def test_a_program_on_the_device_of_its_call_is_not_cut(devices):
    def fn(x, w):
        with on_device(devices[1]):
            return jnp.tanh(x @ w)

    program = jax.make_jaxpr(fn)(X, W)
    assert cut(program, [devices[1]], devices[1]) is None


def test_a_program_on_one_other_device_runs_there_as_a_whole(devices):
    program = jax.make_jaxpr(lambda x, w: jnp.tanh(x * 2) @ w + 1)(X, W)
    stages = cut(program, [devices[1]], devices[0])
    assert [stage.device for stage in stages.stages] == [devices[1]]


def two_layers(devices):
    def loss(weights, x):
        with on_device(devices[1]):
            x = jnp.tanh(x @ weights[0])
        with on_device(devices[2]):
            x = jnp.sin(x @ weights[1])
        return (x * x).sum()

    return loss


def test_a_gradient_goes_back_through_the_stages(devices):
    loss = two_layers(devices)
    fn = lambda x, first, second: jax.value_and_grad(loss)([first, second], x)
    program = jax.make_jaxpr(fn)(X, W, W * 2)
    stages = cut(program, [devices[1], devices[2]], devices[0])
    assert [stage.device for stage in stages.stages] == [devices[1], devices[2], devices[1]]
    assert "tanh" in names(stages.stages[0]) and "sin" in names(stages.stages[1])
    assert [names(stage).count("dot_general") for stage in stages.stages] == [1, 3, 1]
    value, (first, second) = fn(X, W, W * 2)
    for found, wanted in zip(run(stages, X, W, W * 2), [value, first, second], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_what_nothing_places_goes_where_cells_or_most_of_its_inputs_are(devices):
    def fn(x, small, large):
        y = x * 2  # Where its result is taken.
        z = y + large[0]
        with on_device(devices[3]):
            scalar = jnp.sin(small)
        return z * scalar, x * 3

    program = jax.make_jaxpr(fn)(jnp.ones(3), jnp.float32(2), W)
    stages = cut(program, [devices[1], devices[2]], devices[0])
    place = {name: stage.device for stage in stages.stages for name in names(stage)}
    assert place["sin"] == devices[3] and place["add"] == devices[2]
    muls = [stage.device for stage in stages.stages for name in names(stage) if name == "mul"]
    assert sorted(device.id for device in muls) == [0, 2, 2]


def test_a_cell_decides_before_larger_inputs(devices):
    def fn(x, cell):
        with on_device(devices[1]):
            x = jnp.tanh(x)
        return x * cell, x + 1

    program = jax.make_jaxpr(fn)(X, jnp.float32(2))
    stages = cut(program, [devices[2]], devices[0])
    place = {name: stage.device for stage in stages.stages for name in names(stage)}
    assert place["mul"] == devices[2] and place["add"] == devices[1]


def test_results_that_are_constants_or_arguments_are_returned(devices):
    def fn(x, w):
        with on_device(devices[1]):
            y = x + 1
        with on_device(devices[2]):
            return y * 2, x, 3.0, np.arange(3), w

    program = jax.make_jaxpr(fn)(X, W)
    stages = cut(program, [None], devices[0])
    for found, wanted in zip(run(stages, X, W), [(X + 1) * 2, X, 3.0, np.arange(3), W], strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_calls_that_name_devices_are_opened(devices):
    @jax.jit
    def inner(x):
        with on_device(devices[1]):
            x = jnp.sin(x)
        with on_device(devices[2]):
            return jnp.cos(x), x

    def fn(x, w):
        with on_device(devices[3]):
            return jnp.tanh(jax.jit(lambda x: inner(x)[0] + 1)(x)), inner(x * 2)

    program = jax.make_jaxpr(fn)(X, W)
    stages = cut(program, [None], devices[0])
    place = {name: stage.device for stage in stages.stages for name in names(stage)}
    assert [place[name] for name in ("sin", "cos", "tanh")] == [devices[1], devices[2], devices[3]]
    for found, wanted in zip(run(stages, X, W), jax.tree.leaves(fn(X, W)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_loop_is_one_equation(devices):
    def fn(x, w):
        def body(carry, _):
            with on_device(devices[1]):
                carry = jnp.tanh(carry @ w)
            with on_device(devices[2]):
                return carry * 2, carry.sum()

        return jax.lax.scan(body, x, length=3)

    program = jax.make_jaxpr(fn)(X, W)
    stages = cut(program, [devices[3]], devices[0])
    assert [stage.device for stage in stages.stages] == [devices[3]]


def test_effects_stay_in_their_order(devices):
    seen = []

    def fn(x, w):
        for i in range(6):
            with on_device(devices[1 + i % 2]):
                jax.debug.callback(lambda _, i=i: seen.append(i), x[0, 0] * i, ordered=True)
        return x

    program = jax.make_jaxpr(fn)(X, W)
    stages = cut(program, [None], devices[0])
    assert len(stages.stages) == 6
    run(stages, X, W)
    jax.effects_barrier()
    assert seen == list(range(6))
