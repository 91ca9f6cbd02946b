"""Which tapes see an operation, what they do about nested programs, and the traps of identity."""

import contextlib
import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from environment import LIMIT_S
from jax import lax

from tfdist_jax import _internals
from tfdist_jax._autodiff._pullbacks import _compiled, _compiled_again
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


swapped = jax.jit(lambda a, b: (b, a, a))


# --- Watched arrays inside nested programs ---------------------------------------------------------------------------


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


# --- Which tapes record --------------------------------------------------------------------------------------------


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
    assert a.gradient([z], [X]) == [None]
    close(b.gradient([z], [X]), [4 * X])


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
    z = y * X
    assert not is_recording()
    close(tape.gradient([z, y], [X]), [jnp.full_like(X, 2)])
    with recording():
        pass
    assert _internals.current_trace() is _internals.eval_trace


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
            start.wait(timeout=LIMIT_S)
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
            thread.join(timeout=LIMIT_S)
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


def test_what_jax_keeps_of_a_custom_derivative_keeps_no_tape():
    """JAX's caches hold its rule, and that the trace under which it was seen."""
    tape, weights = Tape(), jnp.ones(2)
    tape.start()
    tape.watch(weights)
    tape.gradient([jax.jit(jax.nn.relu)(weights * jnp.ones((5, 2)))], [weights])
    gone = weakref.ref(tape)
    del tape
    gc.collect()
    assert gone() is None
