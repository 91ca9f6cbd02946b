"""A step on a tape compiles to the program that `jax.value_and_grad` gives: same work, same memory, same operations."""

import collections
import re

import jax
import jax.extend
import jax.numpy as jnp
import pytest
from jax import lax

from tfdist_jax._autodiff._tape import Tape, observe_read


class Cell:
    trainable = True

    def __init__(self, array):
        self.array = array

    def read(self):
        return observe_read(self, self.array, trainable=True)


def dense_loss(weights, x):
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return jnp.mean(jax.nn.logsumexp(x @ weights[-1], axis=-1) ** 2)


def convolution_loss(weights, x):
    images = x.reshape(-1, 8, 8, 1)
    for w in weights[:-1]:
        images = lax.conv_general_dilated(images, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        images = jnp.tanh(images - jnp.mean(images, (0, 1, 2)))
    return jnp.mean((images.reshape(x.shape[0], -1) @ weights[-1]) ** 2)


def recurrent_loss(weights, x):
    a, b = weights
    state, _ = lax.scan(lambda s, row: (jnp.tanh(s @ a + row @ b), None), jnp.zeros((1, 32)), x[:, None])
    return jnp.mean(state**2)


MODELS = {
    "dense": (dense_loss, [(64, 128), (128, 128), (128, 10)]),
    "convolution": (convolution_loss, [(3, 3, 1, 8), (3, 3, 8, 8), (512, 10)]),
    "recurrent": (recurrent_loss, [(32, 32), (64, 32)]),
}


def by_tape(loss, arrays, x):
    cells, tape = [Cell(array) for array in arrays], Tape()
    tape.start()
    value = loss([cell.read() for cell in cells], x)
    tape.stop()
    gradients = tape.gradient([value], cells)
    return value, [a - 0.1 * g for a, g in zip(arrays, gradients, strict=True)]


def by_jax(loss, arrays, x):
    value, gradients = jax.value_and_grad(loss)(arrays, x)
    return value, [a - 0.1 * g for a, g in zip(arrays, gradients, strict=True)]


def compiled(step, loss, shapes):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    x = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    return jax.jit(lambda arrays, x: step(loss, arrays, x)).lower(arrays, x).compile()


def operations(program):
    """Count the instructions of a compiled program by kind."""
    names = re.findall(r"^\s+(?:ROOT )?%?\S+ = \S+ ([\w-]+)\(", program.as_text(), re.MULTILINE)
    return collections.Counter(names)


@pytest.mark.parametrize("model", MODELS)
def test_compiled_step_costs_the_same_as_with_value_and_grad(model):
    loss, shapes = MODELS[model]
    ours, theirs = compiled(by_tape, loss, shapes), compiled(by_jax, loss, shapes)
    for figure in ("flops", "transcendentals", "bytes accessed"):
        assert ours.cost_analysis()[figure] == theirs.cost_analysis()[figure]
    assert ours.memory_analysis().temp_size_in_bytes == theirs.memory_analysis().temp_size_in_bytes
    assert operations(ours) == operations(theirs)
    assert sum(operations(ours).values()) > 10


@pytest.mark.parametrize("model", MODELS)
def test_tape_adds_one_copy_for_each_read_to_the_program_and_no_arithmetic(model):
    loss, shapes = MODELS[model]
    arrays = [jnp.zeros(shape) for shape in shapes]
    x = jnp.zeros((16, 64))
    ours = arithmetic(jax.make_jaxpr(lambda a, x: by_tape(loss, a, x))(arrays, x))
    theirs = arithmetic(jax.make_jaxpr(lambda a, x: by_jax(loss, a, x))(arrays, x))
    assert ours["copy"] == len(shapes) + ours["stop_gradient"]  # That would return its argument.
    for name in ("dot_general", "conv_general_dilated", "tanh", "exp", "log", "scan", "max", "while"):
        assert ours[name] == theirs[name], name


def arithmetic(jaxpr):
    counts: collections.Counter[str] = collections.Counter()
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        counts[eqn.primitive.name] += 1
        for sub in jax.extend.core.jaxprs_in_params(eqn.params):
            counts += arithmetic(sub)
    return counts
