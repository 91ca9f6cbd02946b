"""What a tape records, how it tells arrays apart, and what it refuses."""

import contextlib
import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax._autodiff._tape import Tape, is_recording, observe_read

X = jnp.arange(6.0).reshape(2, 3) / 3 + 0.1
W = jnp.array([0.5, -1.0, 2.0])


class Cell:
    """The least that a variable can be."""

    def __init__(self, value, trainable=True):
        self.stored = jnp.asarray(value, jnp.float32)
        self.trainable = trainable

    def read(self):
        return observe_read(self, self.stored, trainable=self.trainable)


@contextlib.contextmanager
def recording(*watched, **options):
    tape = Tape(**options)
    tape.start()
    try:
        for array in watched:
            tape.watch(array)
        yield tape
    finally:
        if tape.recording:
            tape.stop()


@pytest.fixture(params=["eagerly", "compiled"])
def run(request):
    """Call a function as it is, or under jit."""
    return (lambda fn, *args: fn(*args)) if request.param == "eagerly" else (lambda fn, *args: jax.jit(fn)(*args))


def close(found, wanted, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), found, wanted)


@jax.custom_vjp
def scaled_product(a, b):
    return a * b


scaled_product.defvjp(lambda a, b: (a * b, (a, b)), lambda saved, g: (3 * g * saved[1], g * saved[0]))


@jax.custom_jvp
def steep_sine(a):
    return jnp.sin(a)


steep_sine.defjvp(lambda primals, tangents: (steep_sine(*primals), 5 * jnp.cos(*primals) * tangents[0]))

tanh_twice = jax.jit(lambda a: jnp.tanh(a) * 2)
swapped = jax.jit(lambda a, b: (b, a, a))


def sum_of_steps(x, w):
    last, steps = lax.scan(lambda c, row: (jnp.tanh(c * w + row), jnp.sum(c * x)), w, x)
    return jnp.sum(last) + jnp.sum(steps)


PROGRAMS = {
    "elementwise": lambda x, w: jnp.sum(jnp.sin(x) * x**2 * w),
    "matmul": lambda x, w: jnp.sum(jnp.tanh(x @ w) * (x @ w)),
    "the_same_argument_twice": lambda x, w: jnp.sum(x * x + jnp.stack([w, w])),
    "one_compiled_function_again_and_again": lambda x, w: jnp.sum(tanh_twice(tanh_twice(tanh_twice(x * w)))),
    "one_compiled_function_on_the_same_argument": lambda x, w: jnp.sum(tanh_twice(x) + tanh_twice(x) * w),
    "compiled_function_that_returns_its_arguments": lambda x, w: sum(jnp.sum(o * w) for o in swapped(x, x * w)),
    "compiled_closure": lambda x, w: jnp.sum(jax.jit(lambda z: z * x * w)(jnp.ones(3))),
    "compiled_closure_in_compiled_closure": lambda x, w: jnp.sum(
        jax.jit(lambda z: jax.jit(lambda y: jnp.sin(y) * w)(z) * x)(w)
    ),
    "compiled_function_of_nothing": lambda x, w: jnp.sum(jax.jit(lambda: x * w + jnp.cos(x))()),
    "cond_on_closures": lambda x, w: jnp.sum(lax.cond(jnp.sum(x) > 0, lambda: x * w, lambda: x)),
    "switch": lambda x, w: jnp.sum(lax.switch(1, [lambda a: a, lambda a: a * w], x)),
    "scan_on_closures": sum_of_steps,
    "scan_of_compiled_closure": lambda x, w: jnp.sum(
        lax.scan(lambda c, _: (jax.jit(lambda z: jnp.tanh(z * w))(c), None), x, None, length=3)[0]
    ),
    "scan_backwards": lambda x, w: jnp.sum(
        lax.scan(lambda c, r: (c * r, jax.jit(lambda: c * w)()), w, x, reverse=True)[1] * x
    ),
    "fixed_loop": lambda x, w: jnp.sum(lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + w * i), x)),
    "checkpoint_on_closures": lambda x, w: jnp.sum(jax.checkpoint(lambda z: jnp.sin(z) * w)(x)),
    "vmap_on_closures": lambda x, w: jnp.sum(jax.vmap(lambda row: jax.nn.softmax(row) * w)(x)),
    "vmap_of_compiled_closure": lambda x, w: jnp.sum(jax.vmap(jax.jit(lambda row: jnp.sin(row * w)))(x)),
    "gradient_inside": lambda x, w: jnp.sum(jax.grad(lambda z: jnp.sum(z**3 * w))(x)),
    "linearization_inside": lambda x, w: jnp.sum(jax.linearize(lambda z: jnp.sin(z) * w, x)[1](x)),
    "custom_vjp": lambda x, w: jnp.sum(scaled_product(x, jnp.broadcast_to(w, x.shape)) * x),
    "custom_jvp": lambda x, w: jnp.sum(steep_sine(x) * w),
    "custom_rules_in_compiled_function": lambda x, w: jnp.sum(
        jax.jit(scaled_product)(steep_sine(x), jnp.broadcast_to(w, x.shape))
    ),
    "activations": lambda x, w: jnp.sum(jax.nn.relu(x - 0.5) + jax.nn.gelu(x) * w + jax.nn.silu(x)),
    "logsumexp": lambda x, w: jax.nn.logsumexp(x * w),
    "integers_on_the_way": lambda x, w: jnp.sum(x * jnp.argmax(x, axis=1)[:, None] + w * (x > 0.5)),
    "top_k": lambda x, w: jnp.sum(lax.top_k(x * w, 2)[0] * lax.top_k(x, 2)[1]),
    "indexing": lambda x, w: jnp.sum(x[jnp.array([1, 0, 0])] * w + x.at[1].set(w)[::-1].sum()),
    "rows_in_a_python_loop": lambda x, w: sum(jnp.sum(jnp.sin(row) * w) * i for i, row in enumerate(x)),
    "split_and_join": lambda x, w: jnp.sum(jnp.concatenate(jnp.split(x, 3, axis=1)[::-1], axis=1) * w),
    "half_precision_between": lambda x, w: jnp.sum((x.astype(jnp.bfloat16) * 2).astype(jnp.float32) * w),
    "no_operation": lambda x, w: jnp.sum(jnp.reshape(jnp.asarray(x), x.shape) * +w),
    "barrier": lambda x, w: jnp.sum(lax.optimization_barrier((x, x))[0] * w),
    "stopped_in_part": lambda x, w: jnp.sum(lax.stop_gradient(x) * x * w),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_those_of_jax(program, run):
    def by_tape(x, w):
        with recording(x, w) as tape:
            y = program(x, w)
        return tape.gradient([y], [x, w])

    close(run(by_tape, X, W), list(jax.grad(program, (0, 1))(X, W)))


def norm_of_gradient(program, x, w):
    return sum(jnp.sum(jnp.square(g)) for g in jax.grad(program, (0, 1))(x, w))


NESTINGS = {}


def nesting(fn):
    NESTINGS[fn.__name__] = fn
    return fn


@nesting
def tape_in_tape(program, x, w):
    with recording(x, w) as outer:
        with recording(x, w) as inner:
            y = program(x, w)
        norm = sum(jnp.sum(jnp.square(g)) for g in inner.gradient([y], [x, w]))
    return outer.gradient([norm], [x, w])


@nesting
def persistent_tape_over_its_own_gradient(program, x, w):
    with recording(x, w, persistent=True) as tape:
        y = program(x, w)
        norm = sum(jnp.sum(jnp.square(g)) for g in tape.gradient([y], [x, w]))
    return tape.gradient([norm], [x, w])


@nesting
def inner_tape_over_the_gradient_of_the_outer(program, x, w):
    with recording(x, w, persistent=True) as outer, recording(x, w) as inner:
        y = program(x, w)
        norm = sum(jnp.sum(jnp.square(g)) for g in outer.gradient([y], [x, w]))
    return inner.gradient([norm], [x, w])


@nesting
def jax_over_a_tape(program, x, w):
    def norm(x, w):
        with recording(x, w) as tape:
            y = program(x, w)
        return sum(jnp.sum(jnp.square(g)) for g in tape.gradient([y], [x, w]))

    return list(jax.grad(norm, (0, 1))(x, w))


@nesting
def tape_over_jax(program, x, w):
    with recording(x, w) as tape:
        norm = norm_of_gradient(program, x, w)
    return tape.gradient([norm], [x, w])


TWICE_DIFFERENTIATED = (
    "elementwise",
    "one_compiled_function_again_and_again",
    "compiled_closure_in_compiled_closure",
    "cond_on_closures",
    "scan_on_closures",
    "vmap_on_closures",
    "custom_jvp",
    "top_k",
    "stopped_in_part",
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("nested", NESTINGS.values(), ids=NESTINGS)
@pytest.mark.parametrize("name", TWICE_DIFFERENTIATED)
def test_second_derivatives_are_those_of_jax(name, nested, run):
    wanted = jax.grad(functools.partial(norm_of_gradient, PROGRAMS[name]), (0, 1))(X, W)
    close(run(functools.partial(nested, PROGRAMS[name]), X, W), list(wanted), 1e-4)


def test_third_derivative_through_three_tapes(run):
    def by_tapes(x):
        with recording(x) as a:
            with recording(x) as b:
                with recording(x) as c:
                    y = jnp.sum(x**4)
                (first,) = c.gradient([y], [x])
            (second,) = b.gradient([first], [x])
        return a.gradient([second], [x])

    close(run(by_tapes, X), [24 * X])


def test_tape_works_inside_scan_vmap_and_grad():
    def slope(x):
        with recording(x) as tape:
            y = jnp.sum(x**3)
        return tape.gradient([y], [x])[0]

    close(lax.scan(lambda c, row: (c, slope(row)), 0, X)[1], 3 * X**2)
    close(jax.vmap(slope)(X), 3 * X**2)
    close(jax.jacrev(slope)(W), jnp.diag(6 * W))


def test_values_can_be_looked_at_while_recording():
    with recording(X) as tape:
        y = X * 2
        seen = np.asarray(y)
        z = jnp.sum(y * seen) if float(jnp.sum(y)) > 0 else jnp.sum(y)
    close(tape.gradient([z], [X]), [2 * seen])


def test_while_loop_is_differentiated_eagerly():
    with recording(W) as tape:
        _, y = lax.while_loop(lambda c: jnp.sum(c[1]) < 10, lambda c: (c[0] + 1, c[1] * 2 * W**2), (0, W + 2))
    expected = W + 2
    while jnp.sum(expected) < 10:
        expected = expected * 2 * W**2
    close(y, expected)
    assert tape.gradient([y], [W])[0] is not None


# --- What a gradient is asked of ---------------------------------------------------------------------------------------


def test_unconnected_source_gives_none():
    with recording(X, W) as tape:
        y = jnp.sum(X)
    assert tape.gradient([y], [W, X + 1]) == [None, None]


def test_intermediate_result_may_be_a_source():
    with recording(X, persistent=True) as tape:
        y = X * X
        z = jnp.sum(y * y)
    close(tape.gradient([z], [y, X]), [2 * y, 4 * X**3])


def test_array_watched_late_counts_from_then_on():
    with recording() as tape:
        before = X * 2
        tape.watch(X)
        y = before + X * 5
    close(tape.gradient([y], [X]), [jnp.full_like(X, 5)])


def test_target_is_its_own_source():
    close(Tape().gradient([X], [X]), [jnp.ones_like(X)])


def test_targets_are_summed_and_cotangents_weigh_them():
    with recording(X, persistent=True) as tape:
        y, z = X * 2, X * X
    close(tape.gradient([y, z], [X]), [2 + 2 * X])
    close(tape.gradient([y, z], [X], [jnp.full_like(X, 5), None]), [10 + 2 * X])


def test_integer_target_gives_none():
    with recording(X) as tape:
        y = jnp.floor(X * 9).astype(jnp.int32)
    assert tape.gradient([y], [X]) == [None]


def test_persistent_tape_gives_gradients_again():
    with recording(X, persistent=True) as tape:
        y = X * X
    assert all(jnp.array_equal(tape.gradient([y], [X])[0], 2 * X) for _ in range(3))


def test_other_tape_gives_gradients_once():
    with recording(X) as tape:
        y = X * X
    tape.gradient([y], [X])
    with pytest.raises(RuntimeError, match="persistent=True"):
        tape.gradient([y], [X])


def test_gradient_ends_the_recording_of_a_tape_that_is_not_persistent():
    with recording(X) as tape:
        y = X * X
        tape.gradient([y], [X])
        assert not tape.recording
        assert not is_recording()


def test_used_tape_lets_go_of_what_it_recorded():
    with recording(X) as tape:
        middle = jnp.sin(X)
        y = jnp.cos(middle)
    tape.gradient([y], [X])
    gone = weakref.ref(middle)
    del middle, y
    gc.collect()
    assert gone() is None


def test_complex_gradient_is_that_of_jax(run):
    z = jnp.array([1 + 2j, -0.5 + 1j], jnp.complex64)
    program = lambda z: jnp.sum(jnp.abs(z * z + jnp.conj(z)) + jnp.real(z) * jnp.imag(z))

    def by_tape(z):
        with recording(z) as tape:
            y = program(z)
        return tape.gradient([y], [z])

    close(run(by_tape, z), [jax.grad(program)(z)])


def test_gradients_of_sharded_arrays_stay_sharded():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.NamedSharding(mesh, jax.P("data"))
    x = jax.device_put(jnp.arange(16.0).reshape(8, 2), rows)
    with recording(x) as tape:
        y = jnp.sum(jnp.sin(x))
    (gradient,) = tape.gradient([y], [x])
    close(gradient, jnp.cos(x))
    assert gradient.sharding.is_equivalent_to(rows, 2)


# --- What is read from cells ----------------------------------------------------------------------------------------


def test_read_is_the_array_itself_while_nothing_records():
    v = Cell(W)
    assert v.read() is v.stored


def test_read_under_a_tape_is_an_object_of_its_own_the_same_for_the_same_value():
    v = Cell(W)
    with recording():
        first, again = v.read(), v.read()
        v.stored = v.stored * 2
        later = v.read()
    assert first is again
    assert len({id(first), id(later), id(v.stored)}) == 3


def test_cells_that_share_an_array_get_gradients_of_their_own(run):
    def by_tape(w):
        a, b = Cell(W), Cell(W)
        a.stored = b.stored = w
        with recording() as tape:
            y = jnp.sum(a.read() * 2 + b.read() * 3)
        return tape.gradient([y], [a, b])

    close(run(by_tape, W), [jnp.full(3, 2.0), jnp.full(3, 3.0)])


def test_cell_written_from_its_own_value_starts_anew(run):
    def by_tape(w):
        v = Cell(W)
        v.stored = w
        with recording() as tape:
            v.stored = v.read() * 3
            y = jnp.sum(v.read() ** 2)
        return tape.gradient([y], [v])

    close(run(by_tape, W), [6 * W])


def test_gradients_by_all_values_a_cell_had_are_added(run):
    def by_tape(w):
        v = Cell(W)
        v.stored = w
        with recording() as tape:
            y = v.read() * 3
            v.stored = w + 1
            z = v.read() ** 2
            total = jnp.sum(y + z)
        return tape.gradient([total], [v])

    close(run(by_tape, W), [3 + 2 * (W + 1)])


def test_read_inside_nested_programs_counts(run):
    def by_tape(w):
        v = Cell(W)
        v.stored = w
        with recording() as tape:
            a = jax.jit(lambda z: z * v.read())(jnp.ones(3))
            b = lax.scan(lambda c, _: (jnp.tanh(c * v.read()), None), jnp.ones(3), None, length=2)[0]
            c = jax.vmap(lambda s: s * v.read()[0])(jnp.ones(3))
            d = lax.cond(jnp.sum(a) > -100, lambda: v.read() ** 2, lambda: v.read())
            e = jax.checkpoint(lambda z: jnp.sin(z * v.read()))(jnp.ones(3))
            y = jnp.sum(a + b + c + d + e)
        return tape.gradient([y], [v])

    def plain(w):
        b = jnp.tanh(jnp.tanh(w) * w)
        return jnp.sum(w + b + w[0] + w**2 + jnp.sin(w))

    close(run(by_tape, W), [jax.grad(plain)(W)])


def test_what_was_read_before_a_tape_does_not_count():
    v = Cell(W)
    with recording() as outer:
        early = v.read()
        with recording() as inner:
            y = jnp.sum(v.read() * 2 + early * 5)
        close(inner.gradient([y], [v]), [jnp.full(3, 2.0)])
    close(outer.gradient([y], [v]), [jnp.full(3, 7.0)])


def test_only_trainable_cells_are_watched_unless_asked():
    fixed, free = Cell(W, trainable=False), Cell(W)
    with recording() as tape:
        y = jnp.sum(fixed.read() * free.read())
    assert tape.watched_cells() == (free,)
    assert tape.gradient([y], [fixed]) == [None]


def test_tape_that_watches_no_reads_sees_the_cells_it_is_given():
    fixed, free = Cell(W, trainable=False), Cell(W)
    with recording(watch_reads=False) as tape:
        tape.watch_cell(fixed, fixed.read())
        y = jnp.sum(fixed.read() * free.read())
        fixed.stored = fixed.stored + 1
        y += jnp.sum(fixed.read())
    gradients = tape.gradient([y], [fixed, free])
    close(gradients[0], W + 1)
    assert gradients[1] is None


def test_integer_cells_are_read_as_they_are():
    v = Cell(W)
    v.stored = jnp.arange(3)
    with recording() as tape:
        assert v.read() is v.stored
    assert tape.watched_cells() == ()


def test_cells_come_in_the_order_of_their_first_reads():
    a, b, c = (Cell(i) for i in range(3))
    with recording() as tape:
        b.read(), a.read(), b.read(), c.read()
    assert tape.watched_cells() == (b, a, c)


def test_cell_may_be_a_target():
    v = Cell(W)
    with recording() as tape:
        y = v.read() * 3
    close(tape.gradient([y, v], [v], [None, jnp.ones(3)]), [jnp.full(3, 4.0)])


def test_value_of_a_program_being_traced_is_not_shown_to_tapes_outside_of_it():
    """A compiled function under an eager tape reads tracers of its own; the tape sees its operands instead."""
    v = Cell(W)

    def program(operand):
        return jnp.sum(observe_read(v, operand, trainable=True) ** 2)

    with recording() as tape:
        y = jax.jit(program)(v.read())
    close(tape.gradient([y], [v]), [2 * W])


def test_tapes_around_replicas_see_values_read_inside():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.P("data")
    v = Cell(2.0)

    def body(x):
        return x * v.read()

    @jax.jit
    def by_tape(x):
        with recording() as tape:
            y = jnp.sum(jax.jit(jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False))(x))
        return tape.gradient([y], [v])

    close(by_tape(jnp.arange(8.0)), [jnp.float32(28)])
