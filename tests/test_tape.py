"""What a tape records, how it tells arrays apart, and what it refuses."""

import contextlib
import functools
import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax import _internals
from tfdist_jax._pullbacks import _compiled, _compiled_again
from tfdist_jax._tape import Tape, is_recording, observe_read

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


# --- Rule 1: what is read from cells --------------------------------------------------------------------------------


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


# --- Rule 2: watched arrays inside nested programs -------------------------------------------------------------------


def nested_in_scan(x, w):
    return lax.scan(lambda c, _: (jax.jit(lambda z: z * w)(c), None), x, None, length=2)[0]


def test_array_hidden_in_a_nested_program_is_followed_eagerly():
    with recording(W) as tape:
        y = jnp.sum(nested_in_scan(X, W))
    close(tape.gradient([y], [W]), [jax.grad(lambda w: jnp.sum(X * w * w))(W)])


def test_array_hidden_in_a_loop_while_tracing_is_an_error_that_says_what_to_do():
    @jax.jit
    def by_tape(x):
        with recording(W):  # Not an argument: a constant of the program.
            return jnp.sum(nested_in_scan(x, W))

    with pytest.raises(NotImplementedError, match=r"captured inside 'scan'.* as an argument"):
        by_tape(X)


def test_constant_of_a_compiled_function_is_followed_while_tracing():
    @jax.jit
    def by_tape(x):
        with recording(W) as tape:
            y = jnp.sum(jax.jit(lambda z: z * W)(x))
        return tape.gradient([y], [W])

    close(by_tape(X), [jnp.sum(X, 0)])


def test_scalar_constants_are_followed():
    s = jnp.float32(3)
    with recording(s) as tape:
        y = jax.jit(lambda z: jnp.sum(z * s))(X) + jax.jit(lambda: s)()
    close(tape.gradient([y], [s]), [jnp.sum(X) + 1])


@pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize("argument", ["watched", "not watched"])
def test_custom_derivative_over_a_watched_closure_is_an_error(kind, argument, run):
    def by_tape(x, w):
        hidden = w * 2
        if kind == "custom_vjp":
            fn = jax.custom_vjp(lambda z: z * hidden)
            fn.defvjp(lambda z: (z * hidden, None), lambda _, g: (g,))
        else:
            fn = jax.custom_jvp(lambda z: z * hidden)
            fn.defjvp(lambda primals, tangents: (primals[0] * hidden, tangents[0]))
        with recording(hidden) as tape:
            y = jnp.sum(fn(hidden * x if argument == "watched" else x))
        return tape.gradient([y], [hidden])

    with pytest.raises(NotImplementedError, match="Pass it to the function as an argument"):
        run(by_tape, X, W)


def test_custom_derivative_that_reads_a_cell_is_an_error():
    v = Cell(W)
    fn = jax.custom_jvp(lambda z: z * v.read())
    fn.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with recording(), pytest.raises(NotImplementedError, match="array or variable"):
        fn(X)


def test_custom_derivative_with_other_closures_is_fine(run):
    def by_tape(x, w):
        fn = jax.custom_vjp(lambda z: z * w)
        fn.defvjp(lambda z: (z * w, w), lambda saved, g: (g * saved * 10,))
        with recording(x) as tape:
            y = jnp.sum(fn(x))
        return tape.gradient([y], [x])

    close(run(by_tape, X, W), [jnp.broadcast_to(10 * W, X.shape)])


def test_custom_derivatives_return_structures_as_ever():
    fn = jax.custom_vjp(lambda z: {"a": z * 2, "b": (z, 1.0)})
    fn.defvjp(lambda z: ({"a": z * 2, "b": (z, 1.0)}, None), lambda _, g: (g["a"] * 7 + g["b"][0],))
    with recording(X) as tape:
        unwatched, result = fn(W), fn(X)
    assert set(unwatched) == set(result) == {"a", "b"}
    close(tape.gradient([result["a"], result["b"][0]], [X]), [jnp.full_like(X, 8)])


# --- Rule 3: which tapes record ------------------------------------------------------------------------------------


def test_tapes_may_end_in_any_order():
    a, b = Tape(), Tape()
    a.start()
    a.watch(X)
    b.start()
    b.watch(X)
    y = X * 2
    a.stop()
    z = y * X
    b.stop()
    assert _internals.current_trace() is _internals.eval_trace
    close(a.gradient([z], [y]), [None])
    close(a._used and b.gradient([z], [X]), [4 * X])


def test_two_tapes_side_by_side_record_each_its_own():
    with recording(X) as a, recording(W) as b:
        y = jnp.sum(X * W)
    close(a.gradient([y], [X, W])[0], jnp.broadcast_to(W, X.shape))
    gradients = b.gradient([y], [X, W])
    assert gradients[0] is None
    close(gradients[1], jnp.sum(X, 0))


def test_paused_tape_takes_results_for_constants(run):
    def by_tape(x):
        with recording(x) as tape:
            y = x * x
            with tape.paused():
                z = y * 3
            total = jnp.sum(y * 2 + z)
        return tape.gradient([total], [x])

    close(run(by_tape, X), [4 * X])


def test_inner_tape_goes_on_while_the_outer_is_paused():
    with recording(X) as outer, recording(X) as inner:
        with outer.paused():
            y = X * 2
        z = y * X
    close(inner.gradient([z], [X]), [4 * X])
    close(outer.gradient([z], [X]), [y])


def test_gradient_taken_while_paused_is_a_constant():
    with recording(X) as outer:
        with recording(X) as inner:
            y = X**3
        with outer.paused():
            (slope,) = inner.gradient([y], [X])
        z = slope * X
    close(outer.gradient([z], [X]), [slope])


def test_outer_tape_that_was_paused_differentiates_the_inner_gradient_later():
    """The inner pullback came about unseen, so it is run anew where the outer tape can see it."""
    with recording(X) as outer:
        with recording(X) as inner, outer.paused():
            y = jnp.sum(X**3)
        (slope,) = inner.gradient([y], [X])
    close(outer.gradient([slope], [X]), [6 * X])


def test_tape_starts_again_where_it_ended():
    with recording(X, persistent=True) as tape:
        y = X * 2
    unseen = y * 3
    tape.start()
    z = y * X + unseen
    tape.stop()
    close(tape.gradient([z], [X]), [4 * X])


def test_reset_tape_forgets_everything():
    v = Cell(W)
    with recording(X) as tape:
        y = X * v.read()
        tape.reset()
        tape.watch(X)
        z = jnp.sum(y * X)
    assert tape.watched_cells() == ()
    close(tape.gradient([z], [X]), [y])


def test_error_inside_leaves_no_tape_behind():
    with pytest.raises(KeyError), recording(X), recording(W):
        raise KeyError
    with pytest.raises(ZeroDivisionError):
        jax.jit(_fails_under_a_tape)(X)
    assert _internals.current_trace() is _internals.eval_trace
    assert not is_recording()


def _fails_under_a_tape(x):
    with recording(x):
        return x / (1 // 0)


def test_tape_that_ends_inside_a_transformation_records_no_more():
    tape = Tape()
    tape.start()
    tape.watch(X)
    y = X * 2

    def body(z):
        tape.stop()
        return z

    jax.vmap(body)(jnp.ones(2))
    assert not is_recording()
    z = y * X
    set_back = _internals.current_trace()
    close(tape.gradient([z, y], [X]), [jnp.full_like(X, 2)])
    _internals.set_trace(_internals.eval_trace)
    assert not getattr(set_back, "tape", tape).recording


def test_tape_cannot_start_twice_or_stop_when_stopped():
    with recording() as tape, pytest.raises(ValueError, match="records already"):
        tape.start()
    with pytest.raises(ValueError, match="does not record"):
        tape.stop()
    with pytest.raises(ValueError, match="does not record"), tape.paused():
        pass


def test_threads_do_not_share_tapes():
    start, gradients, errors = threading.Barrier(4), {}, []

    def work(i):
        try:
            start.wait(timeout=60)
            for _ in range(5):
                assert not is_recording()
                v = Cell(W * i)
                with recording(X) as tape:
                    y = jnp.sum(jnp.sin(X) * v.read() * i)
                gradients[i] = tape.gradient([y], [X, v])
        except BaseException as error:
            errors.append(error)

    with recording(X) as outer:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
    assert not errors
    assert not outer._records
    for i, found in gradients.items():
        close(found, [jnp.cos(X) * W * i * i, jnp.sum(jnp.sin(X), 0) * i])


# --- Traps --------------------------------------------------------------------------------------------------------


def test_stopped_gradient_is_none_and_an_object_of_its_own(run):
    def by_tape(x):
        with recording(x) as tape:
            stopped = lax.stop_gradient(x)
            assert stopped is not x
            y = jnp.sum(stopped * 2)
        assert tape.gradient([y], [x]) == [None]
        return y

    run(by_tape, X)


def test_what_a_compiled_function_returns_is_never_its_argument(run):
    def by_tape(x, w):
        with recording(x) as tape:
            second, first, first_again = swapped(x, w)
            assert len({id(x), id(w), id(first), id(second), id(first_again)}) == 5
            y = jnp.sum(first * first_again * second)
        return tape.gradient([y], [first, first_again, x])

    close(run(by_tape, X, W), [X * W, X * W, 2 * X * W])


def test_tapes_do_not_make_compiled_functions_compile_anew():
    double = jax.jit(lambda x: x * 2)
    for _ in range(4):
        with recording():
            double(X)
    assert double._cache_size() == 1


def test_eager_operations_are_compiled_once():
    def step():
        with recording(X) as tape:
            y = jnp.sum(jnp.tanh(X * 3) @ W)
        tape.gradient([y], [X])

    step()
    before = _compiled.cache_info()
    for _ in range(3):
        step()
    after = _compiled.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


def test_memory_of_compiled_operations_is_bounded():
    assert _compiled.cache_info().maxsize is not None
    assert _compiled_again.cache_info().maxsize is not None


def test_compiled_operations_keep_no_array_alive():
    big = jnp.ones(1000)
    held = weakref.ref(big)
    with recording(W) as tape:
        y = jax.jit(lambda w, big=big: jnp.sum(w) * jnp.sum(big))(W)
    tape.gradient([y], [W])
    del big, y, tape
    gc.collect()
    jax.clear_caches()  # JAX's own.
    gc.collect()
    assert held() is None


def test_operation_without_a_derivative_is_an_error_only_where_it_matters():
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    outside = lambda x: jax.pure_callback(lambda a: np.float32(np.sum(a)), shape, x)
    with recording(X, persistent=True) as tape:
        y, z = outside(X), jnp.sum(X)
    close(y, jnp.sum(X))
    close(tape.gradient([z], [X]), [jnp.ones_like(X)])
    with pytest.raises(LookupError, match="pure_callback"):
        tape.gradient([y], [X])


def test_mistake_in_an_operation_shows_where_it_is_made():
    with recording(X), pytest.raises(TypeError, match="dot_general"):
        X @ X


def test_bare_shard_map_under_a_tape_is_an_error_that_says_what_to_do():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.P("data")
    doubled = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=rows, out_specs=rows)
    x = jnp.arange(8.0)
    with recording(x), pytest.raises(NotImplementedError, match=r"jax\.jit\(jax\.shard_map"):
        doubled(x)
    with recording(x) as tape:
        y = jax.jit(doubled)(x)
    close(tape.gradient([y], [x]), [jnp.full(8, 2.0)])
