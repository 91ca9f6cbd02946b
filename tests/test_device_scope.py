"""Scopes of devices: where operations run, and what their equations say."""

import jax
import jax.numpy as jnp
import pytest

from tfdist_jax._device_scope import copy_to, current_device, device_of, on_device


def test_operations_run_on_the_device_of_the_innermost_scope():
    x, devices = jnp.ones(2), jax.devices()
    with on_device(devices[1]):
        y = x + 1
        with on_device(devices[2]):
            z = y + 1
        with on_device(None):
            w = y + z
            assert current_device() is None
        assert current_device() == devices[1]
    assert [array.devices() for array in (x, y, z, w)] == [{devices[i]} for i in (0, 1, 2, 0)]


def test_outside_of_scopes_is_where_jaxs_default_is():
    devices = jax.devices()
    with jax.default_device(devices[3]), on_device(devices[1]), on_device(devices[2]), on_device(None):
        assert jnp.ones(1).devices() == {devices[3]}
        with on_device(None):
            assert jnp.ones(1).devices() == {devices[3]}


@pytest.mark.parametrize("differentiated", [False, True])
def test_equations_say_on_which_device_they_run(differentiated):
    first, second = jax.devices()[1:3]

    def loss(x):
        with on_device(first):
            y = jnp.tanh(x)
            with on_device(second):
                y = jnp.sin(y @ y)
            with on_device(None):
                y = y * 2
        return y.sum()

    program = jax.make_jaxpr(jax.grad(loss) if differentiated else loss)(jnp.ones((2, 2)))
    said = {}
    for equation in program.eqns:
        said.setdefault(equation.primitive.name, set()).add(device_of(equation))
    assert said["tanh"] == {first} and said["sin"] == {second} and said["dot_general"] == {second}
    assert None in said["mul"] and said["reduce_sum"] == {None} if not differentiated else said["cos"] == {second}


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_copy_on_a_device_is_bound_to_none(is_bound):
    first, second = jax.devices()[1:3]
    array = jax.device_put(jnp.arange(3), first) if is_bound else jnp.arange(3)
    copy = copy_to(array, second)
    assert copy.devices() == {second} and not copy.committed and copy.tolist() == [0, 1, 2]
    assert copy.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
