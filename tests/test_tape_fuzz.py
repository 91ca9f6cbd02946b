"""Random programs on a tape against `jax.grad`: values, gradients and second derivatives, eager and compiled.

A program draws operations that combine a growing pool of vectors and four variables, two of which share one array at
first. Its seed says all about it. CI runs fixed seeds; `TFDIST_FUZZ=500 TFDIST_FUZZ_SEED=1000 pytest -n auto
tests/test_tape_fuzz.py` runs 500 programs of each kind, from seed 1000 on.
"""

import functools
import itertools
import os
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax._autodiff._tape import Tape, observe_read

NUM_PROGRAMS = int(os.environ.get("TFDIST_FUZZ", "5"))
FIRST_SEED = int(os.environ.get("TFDIST_FUZZ_SEED", "0"))
SIZE = 3
NUM_VARIABLES = 4
OFFSETS = jnp.linspace(0.5, 1.5, SIZE)

OPERATIONS = {}
"""Name to function of a `Draw`, which returns one or more vectors."""

RARE = set()
"""Those that compile anew each time: drawn less often, to keep the time down."""


def operation(fn=None, *, rare=False):
    if fn is None:
        return functools.partial(operation, rare=rare)
    OPERATIONS[fn.__name__] = fn
    if rare:
        RARE.add(fn.__name__)
    return fn


class Draw:
    """What an operation may draw: vectors, variables, numbers."""

    def __init__(self, seed, vectors, variables):
        self._random = random.Random(seed)
        self.pool = list(vectors)
        self._variables = variables

    def vector(self):
        return self.pool[self.number(len(self.pool))]

    def read(self):
        return self.variable().read()

    def variable(self):
        return self._variables[self.number(len(self._variables))]

    def number(self, below):
        return self._random.randrange(below)

    def reader(self):
        """Return a function that reads a variable when it is called, perhaps inside another program."""
        return self.variable().read


@jax.custom_vjp
def lopsided(a, b):
    return a * b


# Forward it calls itself, so that what is differentiated a second time has the rule too.
lopsided.defvjp(lambda a, b: (lopsided(a, b), (a, b)), lambda saved, g: (g * saved[1] * 2, g * saved[0]))


@jax.custom_jvp
def steep(a):
    return jnp.sin(a)


steep.defjvp(lambda primals, tangents: (steep(*primals), 3 * tangents[0] * jnp.cos(*primals)))

identity = jax.jit(lambda a: a)
swapped = jax.jit(lambda a, b: (b, a, a))
half_forwarded = jax.jit(lambda a, b: (jnp.tanh(a), b))
power = jax.jit(lambda a, n: (a * a + 0.1) ** n, static_argnums=1)


@operation
def add(d):
    return [d.vector() + d.vector()]


@operation
def multiply(d):
    return [jnp.tanh(d.vector() * d.vector())]


@operation
def python_numbers(d):
    return [d.vector() * 0.9 + 1]


@operation
def constants(d):
    return [d.vector() * OFFSETS + jnp.float32(0.7)]


@operation
def stopped_factor(d):
    return [lax.stop_gradient(d.vector()) * d.vector()]


@operation
def stopped(d):
    return [lax.stop_gradient(d.vector())]


@operation
def nothing_done(d):
    a = d.vector()
    same = jnp.asarray(a), jnp.squeeze(a), jnp.ravel(a), jnp.reshape(a, SIZE), +a, a[:], a.astype("float32"), a
    return list(same)


@operation
def variable_times_vector(d):
    return [d.read() * d.vector()]


@operation
def variable_twice(d):
    read = d.reader()
    return [read() + read() * 0.3]


@operation
def variable_itself(d):
    return [d.read()]


@operation
def variable_written(d):
    variable = d.variable()
    variable.write(jnp.tanh(variable.read() * d.vector() + 0.1))
    return [variable.read()]


@operation
def variable_given_to_another(d):
    one, other = d.variable(), d.variable()
    one.write(other.read())
    return [one.read() - other.read() * 0.5]


@operation
def forwarded(d):
    a, b = d.vector(), d.vector()
    return [*swapped(a, b), identity(a), *half_forwarded(a, b)]


@operation
def activations(d):
    a = d.vector()
    return [jax.nn.relu(a), jax.nn.gelu(a), jax.nn.softmax(a), jnp.maximum(a, d.vector()), jnp.clip(a, -0.8, 0.8)]


@operation
def where(d):
    a = d.vector()
    return [jnp.where(a > 0, a, d.vector())]


@operation
def indexing(d):
    a = d.vector()
    return [a[jnp.array([2, 0, 0])], a.at[1].set(d.vector()[0]), a.at[0].add(2.0), a[::-1], jnp.stack(list(a))]


@operation
def top_k(d):
    values, indices = lax.top_k(d.vector(), SIZE)
    return [values * (indices + 1)]


@operation
def products(d):
    a = d.vector()
    return [jnp.tanh(jnp.einsum("i,j->j", a, d.vector())), jnp.outer(a, d.vector())[1], jnp.dot(a, a) * a * 0.2]


@operation
def scans_of_sums(d):
    return [jnp.cumsum(d.vector()), jnp.roll(d.vector(), 1), power(d.vector(), 2) * 0.1]


@operation
def several_results(d):
    return jnp.split(jnp.concatenate([d.vector(), d.vector()]), 2)


@operation
def integers(d):
    a = d.vector()
    return [a * jnp.argmax(a), a * (a > 0)]


@operation
def same_twice(d):
    a = d.vector()
    return [jnp.add(a, a), jnp.multiply(a, a) * 0.3, jnp.stack([a, a]).sum(0)]


@operation
def normalized(d):
    a = d.vector()
    return [a / jnp.sqrt(jnp.sum(a * a) + 1.0), jax.nn.logsumexp(a) * a * 0.3]


@operation
def barrier(d):
    return [lax.optimization_barrier((d.vector(), d.vector()))[0]]


@operation
def custom_rules(d):
    return [lopsided(d.vector(), d.vector()) * 0.5, steep(d.vector())]


@operation(rare=True)
def compiled_closure(d):
    a, b = d.vector(), d.vector()
    return [
        jax.jit(lambda z: z * a + jnp.sin(b))(d.vector()),
        jax.jit(lambda: a * 2 + jnp.cos(a))(),
        jax.jit(lambda: b)(),
    ]


@operation(rare=True)
def doubly_compiled_closure(d):
    a = d.vector()
    return [jax.jit(lambda z: jax.jit(lambda y: y * a + z)(z))(d.vector())]


@operation(rare=True)
def compiled_read(d):
    read = d.reader()
    return [jax.jit(lambda z: jnp.tanh(z * read()))(d.vector())]


@operation(rare=True)
def vectorized(d):
    a, b, read = d.vector(), d.vector(), d.reader()
    return [
        jax.vmap(lambda s: jnp.sin(s) * b[0] + jnp.sum(a))(d.vector()),
        jax.vmap(jax.jit(lambda s: jnp.sin(s) * jnp.sum(a)))(d.vector()),
        jax.vmap(lambda s: jnp.sum(read() * s) * 0.3)(d.vector()),
    ]


@operation(rare=True)
def scanned(d):
    a, b = d.vector(), d.vector()
    last, rows = lax.scan(lambda c, x: (jnp.tanh(c * a + x), c[0] * b[1]), d.vector(), jnp.stack([a, b]))
    return [last, jnp.concatenate([rows, rows[:1]])]


@operation(rare=True)
def scanned_compiled_closure(d):
    a = d.vector()
    inner = jax.jit(lambda c: jnp.tanh(c * a))
    return [lax.scan(lambda c, _: (inner(c), None), d.vector(), None, length=2)[0]]


@operation(rare=True)
def scanned_read(d):
    read = d.reader()
    return [lax.scan(lambda c, _: (jnp.tanh(c * read()), None), d.vector(), None, length=2)[0]]


@operation(rare=True)
def fixed_loop(d):
    a = d.vector()
    return [lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + a * i), d.vector())]


@operation(rare=True)
def branches(d):
    a, b = d.vector(), d.vector()
    return [
        lax.cond(jnp.sum(d.vector()) > 0, lambda: a * b, lambda: a - b),
        lax.cond(jnp.sum(a) > 0, lambda x: x, lambda x: x * b, d.vector()),
        lax.switch(d.number(2), [lambda x: x * a, lambda x: x + a], d.vector()),
    ]


@operation(rare=True)
def checkpointed(d):
    a = d.vector()
    return [jax.checkpoint(lambda z: jnp.sin(z) * a)(d.vector())]


@operation(rare=True)
def differentiated_inside(d):
    a = d.vector()
    value, slope = jax.value_and_grad(lambda z: jnp.sum(jnp.sin(z) * a))(d.vector())
    return [slope * value, jax.grad(lambda z: jnp.sum(z**3 * a * 0.1))(d.vector())]


@operation(rare=True)
def linearized_inside(d):
    a = d.vector()
    return [jax.linearize(lambda z: jnp.sin(z) * a, d.vector())[1](d.vector()) * 0.3]


# Rare operations stand once in the hat, the others four times.
HAT = [name for name in OPERATIONS for _ in range(1 if name in RARE else 4)]


def run_program(seed, vectors, variables, steps):
    """Run the program of `seed`; returns a number that depends on its last vectors."""
    d = Draw(seed, vectors, variables)
    for _ in range(steps):
        results = OPERATIONS[HAT[d.number(len(HAT))]](d)
        result = results[d.number(len(results))]
        d.pool.append(jnp.tanh(result) if d.number(10) < 3 else result)
    weighted = (jnp.sum(vector * (0.3 + 0.1 * i)) for i, vector in enumerate(d.pool[-6:]))
    return sum(weighted) + jnp.sum(d.vector())


class Cell:
    """A variable for a tape."""

    trainable = True

    def __init__(self, value):
        self.stored = value

    def read(self):
        return observe_read(self, self.stored, trainable=True)

    def write(self, value):
        self.stored = value


class Reference:
    """A variable for JAX: each read has derivative one by `source`; what is written is a constant."""

    def __init__(self, source):
        self._source = self._value = source

    def read(self):
        return lax.stop_gradient(self._value) + (self._source - lax.stop_gradient(self._source))

    def write(self, value):
        self._value = value


def inputs(seed):
    """Return two vectors and the variables' values; two variables share an array."""
    draw = np.random.RandomState(seed)
    vectors = [jnp.asarray(draw.uniform(-1, 1, SIZE), jnp.float32) for _ in range(NUM_VARIABLES + 1)]
    return vectors[:2], [vectors[2], vectors[2], *vectors[3:]]


def recorded(tape, vectors, run):
    tape.start()
    try:
        for vector in vectors:
            tape.watch(vector)
        return run()
    finally:
        tape.stop()


def norm(gradients):
    return sum(jnp.sum(jnp.square(g)) for g in gradients if g is not None)


def first_by_tape(seed, vectors, values):
    cells, tape = [Cell(value) for value in values], Tape()
    y = recorded(tape, vectors, lambda: run_program(seed, vectors, cells, 24))
    return y, tape.gradient([y], [*vectors, *cells])


def first_by_jax(seed, vectors, values):
    program = lambda vectors, values: run_program(seed, vectors, [Reference(value) for value in values], 24)
    y, (by_vectors, by_values) = jax.value_and_grad(program, (0, 1))(vectors, values)
    return y, [*by_vectors, *by_values]


def second_by_tapes(seed, vectors, values):
    cells, outer, inner = [Cell(value) for value in values], Tape(), Tape()

    def norm_of_first():
        y = recorded(inner, vectors, lambda: run_program(seed, vectors, cells, 12))
        return norm(inner.gradient([y], vectors)) + y

    y = recorded(outer, vectors, norm_of_first)
    return y, outer.gradient([y], [*vectors, *cells])


def second_by_one_tape(seed, vectors, values):
    cells, tape = [Cell(value) for value in values], Tape(persistent=True)

    def norm_of_first():
        y = run_program(seed, vectors, cells, 12)
        return norm(tape.gradient([y], vectors)) + y

    y = recorded(tape, vectors, norm_of_first)
    return y, tape.gradient([y], [*vectors, *cells])


def second_by_jax(seed, vectors, values):
    def norm_of_first(vectors, values):
        program = lambda vectors: run_program(seed, vectors, [Reference(value) for value in values], 12)
        y, gradients = jax.value_and_grad(program)(vectors)
        return norm(gradients) + y

    y, (by_vectors, by_values) = jax.value_and_grad(norm_of_first, (0, 1))(vectors, values)
    return y, [*by_vectors, *by_values]


KINDS = {
    "first_order": (first_by_tape, first_by_jax),
    "second_order": (second_by_tapes, second_by_jax),
    "second_order_by_one_tape": (second_by_one_tape, second_by_jax),
}
_tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def bounded_memory():
    yield
    if next(_tests_run) % 100 == 0:
        jax.clear_caches()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("mode", ["eagerly", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + NUM_PROGRAMS))
def test_random_program_has_the_gradients_of_jax(seed, kind, mode):
    by_tape, by_jax = KINDS[kind]
    vectors, values = inputs(seed)
    expected, wanted = by_jax(seed, vectors, values)
    by_tape = jax.jit(by_tape, static_argnums=0) if mode == "compiled" else by_tape
    found, gradients = by_tape(seed, vectors, values)
    gradients = [jnp.zeros(SIZE) if g is None else g for g in gradients]
    # Operations compiled one by one round differently from whole programs, and some programs grow large.
    scale = max(1.0, *(float(jnp.max(jnp.abs(g))) for g in wanted))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(jnp.stack(gradients) / scale, jnp.stack(wanted) / scale, rtol=0, atol=1e-3)
