"""NumPy runs the first calls of small programs with XLA's results."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax import _interpreter
from tfdist_jax._interpreter import _compilations
from tfdist_jax._interpreter._program import make_program

FLOATS = np.array([0.0, -0.0, 1.0, -1.5, 2.5, -2.5, 0.3, 7e4, -3e-3, np.inf, -np.inf, np.nan], np.float32)
FINITE = np.array([[0.5, -1.25, 3.0, 0.1], [2.0, 8.5, -0.7, 1e-3], [-4.0, 0.0, 1.0, 6.0]], np.float32)
INTEGERS = np.array([0, 1, -1, 7, -9, 2**31 - 1, -(2**31)], np.int32)
TRUTHS = np.array([True, False, True])


def pairs(values):
    """Return all pairs of values, as two arrays."""
    return tuple(np.array(side, values.dtype) for side in zip(*itertools.product(values, values), strict=True))


EXACT = {
    "add": (lax.add, *pairs(FLOATS)),
    "sub": (lax.sub, *pairs(FLOATS)),
    "mul": (lax.mul, *pairs(FLOATS)),
    "div": (lax.div, *pairs(FLOATS)),
    "rem": (lax.rem, *pairs(FLOATS)),
    "divided integers": (lambda x, y: (lax.div(x, y), lax.rem(x, y), x // y, x % y), *pairs(INTEGERS)),
    "divided unsigned integers": (lambda x, y: (lax.div(x, y), lax.rem(x, y)), *pairs(INTEGERS.astype(np.uint32))),
    "max": (lax.max, *pairs(FLOATS)),
    "min": (lax.min, *pairs(FLOATS)),
    "integers": (lambda x, y: (x + y, x - y, x * y, lax.max(x, y), lax.min(x, y)), *pairs(INTEGERS)),
    "bits": (lambda x, y: (x & y, x | y, x ^ y, ~x), *pairs(INTEGERS)),
    "truths": (lambda x, y: (x & y, x | y, x ^ y, ~x), *pairs(TRUTHS)),
    "compare": (lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), *pairs(FLOATS)),
    "compare integers": (lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), *pairs(INTEGERS)),
    "unary": (lambda x: (-x, abs(x), jnp.floor(x), jnp.ceil(x), jnp.isfinite(x), lax.square(x)), FLOATS),
    "sqrt": (lax.sqrt, FLOATS),
    "sign": (lax.sign, FLOATS),
    "sign of integers": (lax.sign, INTEGERS),
    "round to even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), FLOATS),
    "round away": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), FLOATS),
    "clamp": (lambda x: lax.clamp(np.float32(-1), x, np.float32(2)), FLOATS),
    "to integers": (lambda x: (x.astype(jnp.int32), x.astype(jnp.int8), x.astype(jnp.uint8)), FLOATS),
    "to truths": (lambda x: x.astype(bool), FLOATS),
    "from integers": (lambda x: (x.astype(jnp.float32), x.astype(jnp.int8), x.astype(jnp.uint32)), INTEGERS),
    "from truths": (lambda x: (x.astype(jnp.float32), x.astype(jnp.int32)), TRUTHS),
    "where": (jnp.where, FINITE > 0, FINITE, -FINITE),
    "where of a scalar": (lambda x: lax.select(x[0, 0] > 0, x, -x), FINITE),
    "broadcast": (lambda x: jnp.broadcast_to(x[:, None], (3, 5, 4)), FINITE),
    "shapes": (lambda x: (x.reshape(2, 6), x.T, x[None], x.reshape(3, 1, 4).squeeze(1), x[::-1, ::2], x[:0]), FINITE),
    "concatenate": (lambda x: (jnp.concatenate([x, 2 * x], 1), jnp.stack([x, x])), FINITE),
    "split": (lambda x: jnp.split(x, [1, 3], 1), FINITE),
    "pad": (lambda x: lax.pad(x, np.float32(9), [(1, 2, 0), (0, 1, 2)]), FINITE),
    "iota": (lambda x: jnp.arange(5) + lax.broadcasted_iota(jnp.int32, (3, 5), 1) + x, np.int32(3)),
    "one hot": (lambda i: jax.nn.one_hot(i, 5), np.array([0, 4, 2, -1, 7])),
    "relu": (jax.nn.relu, FLOATS),
    "largest": (lambda x: (x.max(1), x.min(0), x.max(), x.argmax(1), x.argmin(0)), FINITE),
    "largest with NaN": (lambda x: (x.max(), x.min(), x.argmax(), x.argmin()), FLOATS),
    "all and any": (lambda x: ((x > 0).all(1), (x > 0).any(0), (x > 9).any()), FINITE),
    "sum of integers": (lambda x: (x.sum(), x.prod(), jnp.cumsum(x)), INTEGERS),
    "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3)), FINITE, np.int32(2)),
    "dynamic slice before": (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), FINITE, np.int32(-8)),
    "dynamic update": (lambda x, i: lax.dynamic_update_slice(x, -x[:2], (i, 0)), FINITE, np.int32(7)),
    "take": (lambda x, i: jnp.take(x, i, axis=0), FINITE, np.array([[2, 0], [-1, 1]])),
    "take beyond": (lambda x, i: jnp.take(x, i, axis=1), FINITE, np.array([3, 4, -9])),
    "take clipped": (lambda x, i: jnp.take(x, i, axis=1, mode="clip"), FINITE, np.array([3, 4, -9])),
    "take integers beyond": (lambda x, i: jnp.take(x, i), INTEGERS, np.array([3, 40])),
    "take at unsigned places": (lambda x, i: jnp.take(x, i, mode="clip"), FINITE, np.array([3, 2**32 - 1], np.uint32)),
    "index of an element": (lambda x, i: (x[i, 1], x.at[i, 1].add(3)), FINITE, np.int32(2)),
    "index": (lambda x, i: x[jnp.arange(3), i], FINITE, np.array([1, 3, 2])),
    "index in the middle": (lambda x, i: x[:, i, 1:], FINITE.reshape(3, 2, 2), np.array([[1, 0]])),
    "set": (lambda x, i: x.at[i].set(5.0), FINITE, np.array([2, 0, 9])),
    "set columns": (lambda x, i: x.at[1:, i].set(x[1:, i] * 2), FINITE, np.array([3, 0])),
    "add rows": (lambda x, i: x.at[i].add(x), FINITE, np.array([2, 2, 9])),
    "gradient of take": (lambda x, i: jax.vjp(lambda x: jnp.take(x, i, axis=0), x)[1](jnp.ones((2, 2, 4)))[0],
                         FINITE, np.array([[2, 0], [2, 1]])),
    "unstack": (lambda x: jnp.unstack(x, axis=1), FINITE),
    "along an axis": (lambda x, i: (jnp.take_along_axis(x, i, 1), jnp.take_along_axis(x, i.T, 0)), FINITE[:, :3],
                      np.array([[2, 0, 1], [-1, 1, 9], [0, 0, -9]])),
    "gradient along an axis": (lambda x, i: jax.vjp(lambda x: jnp.take_along_axis(x, i, 1), x)[1](jnp.ones((3, 2)))[0],
                               FINITE, np.array([[2, 2], [-1, 9], [0, 3]])),
    "windows of each row": (jax.vmap(lambda row, i: lax.dynamic_slice(row, i, (2, 1)), (1, 0)), FINITE.reshape(3, 2, 2),
                            np.array([[1, 0], [0, 5]])),
    "rows of rows": (jax.vmap(jax.vmap(lambda row, i: row[i])), FINITE.reshape(3, 2, 2), np.array([[[1], [0]]] * 3)),
    "set in each row": (jax.vmap(lambda row, i: row.at[i].set(row[:2]), (1, 0), 1), FINITE, np.array([[2, 0]] * 3 + [[1, 9]])),
    "add in each row": (jax.vmap(lambda row, i: row.at[i].add(1)), FINITE, np.array([[2, 2], [0, 9], [-1, 1]])),
    "nothing": (lambda x: (x[:0].sum(0), x[:0] + 1, jnp.zeros((0, 2)) @ jnp.ones((2, 3))), FINITE),
    "constants": (lambda x: x + np.arange(4, dtype="f4") + jnp.asarray(FINITE), FINITE),
    "nested": (jax.jit(lambda x: jax.jit(jnp.negative)(x) * 2), FINITE),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row[0], (c, row * 2)), np.float32(1), x), FINITE),
    "scan backwards": (lambda x: lax.scan(lambda c, r: (c + r[0], c), np.float32(1), x, reverse=True), FINITE),
    "scan without rows": (lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=3), FINITE),
}  # fmt: skip
ROUNDED = {
    "unary": (lambda x: [f(x) for f in (jnp.exp, jnp.exp2, jnp.expm1, jnp.tanh, lax.logistic, jnp.sin, jnp.cos)], FINITE),
    "tan": (jnp.tan, FINITE),
    "positive": (lambda x: [f(abs(x)) for f in (jnp.log, jnp.log1p, lax.rsqrt)], FINITE),
    "special": (lambda x: [f(x) for f in (jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.tanh, lax.logistic)], FLOATS),
    "integer powers": (lambda x: [lax.integer_pow(x, y) for y in (0, 2, 3, 7, -1, -2)], FINITE),
    "powers": (lambda x: abs(x) ** jnp.float32(2.7), FINITE),
    "sums": (lambda x: (x.sum(), x.sum(0), x.mean(1), x.prod(1), jnp.cumsum(x, 1)), FINITE),
    "reversed sum": (lambda x: lax.cumsum(x, reverse=True), FINITE),
    "softmax": (jax.nn.softmax, FINITE),
    "log softmax": (jax.nn.log_softmax, FINITE),
    "dot": (lambda x: x @ x.T, FINITE),
    "vectors": (lambda x: (x[0] @ x[1], x @ x[0], x[:, 0] @ x), FINITE),
    "contraction": (lambda x: jnp.einsum("abc,dcb->ad", x, x), FINITE.reshape(3, 2, 2)),
    "batches": (lambda x: jnp.einsum("abc,bcd->bad", x, x), FINITE.reshape(3, 2, 2)[:2]),
    "gradients": (jax.grad(lambda x: jnp.sum(jax.nn.log_softmax(jnp.tanh(x @ x.T)) ** 2)), 0.1 * FINITE),
    "a recurrent layer": (
        jax.grad(lambda x: lax.scan(lambda c, row: (jnp.tanh(c * 0.5 + row), c), x[0], x)[1].sum()), FINITE),
}  # fmt: skip


def by_numpy(fn, *arguments):
    """Return the leaves of `fn`'s results, computed by NumPy."""
    jaxpr = jax.jit(fn).trace(*arguments).jaxpr
    program = make_program(jaxpr)
    assert program is not None, f"left to XLA: {jaxpr}"
    types = [aval.dtype for aval in jaxpr.in_avals]
    return [value for _, value in program.run([np.asarray(*pair) for pair in zip(arguments, types, strict=True)])]


def by_xla(fn, *arguments):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(fn).lower(*arguments).compile()(*arguments))]


@pytest.mark.parametrize("name", EXACT)
def test_what_ieee_arithmetic_says_is_xlas_to_the_last_bit(name):
    for ours, xlas in zip(by_numpy(*EXACT[name]), by_xla(*EXACT[name]), strict=True):
        assert (ours.dtype, ours.shape) == (xlas.dtype, xlas.shape)
        np.testing.assert_array_equal(ours, xlas)
        if ours.dtype.kind == "f" and name not in (
            "max",
            "min",
        ):  # The sign of the larger one of two zeros is left open.
            np.testing.assert_array_equal(np.signbit(ours), np.signbit(xlas))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ROUNDED)
def test_all_else_is_xlas_but_for_rounding(name, dtype):
    fn, *arguments = ROUNDED[name]
    with jax.enable_x64(dtype == np.float64):
        arguments = [argument.astype(dtype) for argument in arguments]
        for ours, xlas in zip(by_numpy(fn, *arguments), by_xla(fn, *arguments), strict=True):
            assert (ours.dtype, ours.shape) == (xlas.dtype, xlas.shape)
            largest = np.max(np.abs(xlas), where=np.isfinite(xlas), initial=0)
            rounding = 16 * np.finfo(dtype).eps
            np.testing.assert_allclose(ours, xlas, rtol=rounding, atol=rounding * largest)


def test_a_large_result_is_not_made_to_find_out_that_it_is_large():
    jaxpr = jax.jit(lambda: jnp.arange(2**40, dtype=jnp.float32)).trace().jaxpr
    assert make_program(jaxpr) is None


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8])
def test_floats_become_integers_within_their_bounds(dtype):
    values = np.array([0.0, -1.5, 2.9, 1e10, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30, np.inf, -np.inf, np.nan])
    with jax.enable_x64(True):
        convert = lambda x: x.astype(dtype)
        np.testing.assert_array_equal(by_numpy(convert, values), by_xla(convert, values))


@pytest.mark.parametrize(
    ("fn", "argument"),
    [
        (lambda x: lax.while_loop(lambda v: v.sum() < 9, lambda v: v + 1, x), FINITE),
        (lambda x: lax.sort(x), FINITE),
        (lambda x: x.astype(jnp.bfloat16) * 2, FINITE),
        (lambda x: x * 1j, FINITE),
        (lambda x: jax.random.normal(jax.random.key(0), x.shape), FINITE),
        (lambda x: functools.reduce(lambda total, _: total * x, range(100), x), FINITE),
        (lambda x: x @ x.T, np.ones((2000, 2000), np.float32)),
        (lambda x: lax.scan(lambda c, _: (c + 1, None), x, None, length=10_000), FINITE),
        (lambda x: jax.debug.print("{}", x) or x, FINITE),
        (lambda x: lax.population_count(x), INTEGERS),
    ],
)
def test_other_programs_are_xlas(fn, argument):
    assert make_program(jax.jit(fn).trace(argument).jaxpr) is None


def compilations(run):
    """Return how many programs XLA compiles in `run()`."""
    compiled = []

    def note(event, _, **__):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        run()
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    return len(compiled)


@pytest.fixture
def interpreted():
    """The interpreter, which the facade installs, is there."""
    was_installed = _interpreter.uninstall()
    _interpreter.install()
    yield
    if not was_installed:
        _interpreter.uninstall()


def test_a_program_is_compiled_after_some_calls(interpreted):
    program = jax.jit(lambda x: jnp.sqrt(x) * 2 + 1)
    x = jnp.arange(7.0)
    expected = np.sqrt(np.arange(7, dtype="f4")) * 2 + 1
    calls = lambda count: [np.testing.assert_allclose(program(x), expected, rtol=1e-6) for _ in range(count)]
    assert compilations(lambda: calls(_interpreter.CALLS)) == 0
    assert compilations(lambda: calls(3)) == 1
    assert compilations(lambda: calls(3)) == 0


def test_compiled_programs_find_their_short_way(interpreted, monkeypatch):
    asked = []
    note = lambda by_xla, *arguments, **options: asked.append(by_xla) or interpret(by_xla, *arguments, **options)
    interpret = _interpreter._interpret
    monkeypatch.setattr(_interpreter._internals, "kept_calls", lambda: 5)
    _interpreter.uninstall()
    undo = _interpreter._internals.wrap_first_calls(note)
    try:
        program, x = jax.jit(lambda x: x * 6 - 5), jnp.arange(4.0)
        for _ in range(_interpreter.CALLS + 100):
            assert program(x).tolist() == [-5, 1, 7, 13]
    finally:
        undo()
        _interpreter.install()
    assert _interpreter.CALLS + 2 <= len(asked) <= _interpreter.CALLS + 20


@pytest.mark.parametrize("is_bound", [False, True])
def test_results_are_where_and_what_xlas_are(interpreted, is_bound):
    x = jnp.arange(3.0) + 11
    x = jax.device_put(x, jax.local_devices()[1]) if is_bound else x
    result = jax.jit(lambda x: x * 3)(x)
    assert (result.committed, result.devices()) == (x.committed, x.devices())
    assert not result.weak_type
    assert jax.jit(lambda: jnp.asarray(2.0) * 5)().weak_type


def test_results_of_arrays_that_are_bound_to_no_device_are_on_the_default_one(interpreted):
    x, other = jnp.arange(3.0), jax.device_put(np.float32(2), jax.devices()[2])
    program = jax.jit(lambda x, y: x * 3 - y)
    with jax.default_device(jax.devices()[1]):
        assert program(x, x).devices() == {jax.devices()[1]}
        assert program(x, other).devices() == {jax.devices()[2]}
    assert program(x, other).tolist() == [-2, 1, 4]


def test_results_share_no_memory(interpreted):
    x = jnp.arange(12.0).reshape(3, 4)
    results = jax.jit(lambda x: (x, x.T, x.reshape(12), x + 1, (x + 1)[:2]))(x)
    ends = sorted((array.unsafe_buffer_pointer(), array.nbytes) for array in (x, *results))
    assert all(start + size <= after for (start, size), (after, _) in itertools.pairwise(ends))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x,
        lax.stop_gradient,
        jnp.copy,
        jnp.ravel,
        lambda x: x.astype(jnp.float32),
        lambda x: lax.scan(lambda carry, _: (carry[::-1], None), (x, x + 1), None, length=1)[0][1],
        lambda x: lax.scan(lambda carry, _: (2 * carry, None), x, None, length=0)[0],
    ],
)
def test_results_keep_their_values_when_numpy_arrays_change(interpreted, fn):
    whole = np.zeros(4096 + 16, np.float32)
    start = -whole.ctypes.data % 64 // 4  # Memory that JAX would not copy.
    x = whole[start : start + 4096]
    for value in (x, whole):
        result = jax.jit(lambda x: fn(x))(value)
        value[:] = 7
        assert not np.asarray(result).any()
        value[:] = 0


def test_arguments_of_python_and_numpy(interpreted):
    program = jax.jit(lambda x, y: x + y)
    assert program(2, 3.5) == 5.5
    assert program(np.arange(3), np.float32(0.5)).tolist() == [0.5, 1.5, 2.5]
    assert program(np.arange(3), 2).dtype == np.int32
    with pytest.raises(TypeError, match="non-array argument"):
        program("text", 2)


@pytest.mark.parametrize(
    "options",
    [
        {"donate_argnums": 0},
        {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])},
        {"compiler_options": {}},
    ],
)
def test_programs_with_options_are_compiled(interpreted, options):
    program = jax.jit(lambda x: x - 4, **options)
    x = jnp.arange(5.0)
    expected = 1 if options != {"compiler_options": {}} else 0
    assert compilations(lambda: program(x)) == expected


def test_arrays_over_several_devices_are_xlas(interpreted):
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    x = jax.device_put(np.arange(6.0), jax.sharding.NamedSharding(mesh, jax.P("data")))
    assert compilations(lambda: jax.jit(lambda x: x - 5)(x)) == 1


def test_arrays_in_other_memory_are_xlas(interpreted):
    kept = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    result = jax.jit(lambda x: x)(jax.device_put(np.ones(3), kept))
    assert result.sharding.memory_kind == "pinned_host"


def test_different_devices_are_refused_as_by_jax(interpreted):
    first, second = (jax.device_put(np.ones(3), device) for device in jax.devices()[:2])
    with pytest.raises(ValueError, match="incompatible devices"):
        jax.jit(lambda x, y: x - y)(first, second)


def test_results_that_are_checked_are_xlas(interpreted):
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jax.jit(lambda x: jnp.log(x) * 3)(jnp.float32(-1))


def test_transfers_are_none_where_jax_has_none(interpreted):
    x = jnp.arange(3.0)
    with jax.transfer_guard("disallow"):
        assert compilations(lambda: jax.jit(lambda x: x * 7 - 2)(x)) == 1


def test_programs_are_forgotten_with_their_functions(interpreted):
    before = len(_interpreter._programs)
    for number in range(5):
        jax.jit(functools.partial(jnp.add, number))(jnp.arange(3.0))
    jax.clear_caches()
    assert len(_interpreter._programs) <= before


@pytest.mark.parametrize("axis", [0, 1])
def test_a_line_that_compiles_for_changing_shapes_is_told_once(interpreted, monkeypatch, caplog, axis):
    monkeypatch.setattr(_interpreter, "_compilation_log", _compilations.CompilationLog())
    monkeypatch.setattr(_compilations, "TELL_AFTER_S", 0)
    monkeypatch.setattr(_compilations, "TELL_SHARE", 0)  # What was compiled before takes no time.
    program = jax.jit(lambda x: jnp.sort(x) - 8)
    shapes = [(size, 3) if axis == 0 else (3, size) for size in range(1, 14)]
    for shape in shapes:
        program(np.ones(shape, np.float32))
    (told,) = caplog.records
    assert f"{__file__}, line" in told.message
    assert "10 times <lambda> alone" in told.message
    assert "padded_batch" in told.message


def test_different_layers_and_other_work_are_not_told(interpreted, monkeypatch, caplog):
    monkeypatch.setattr(_interpreter, "_compilation_log", _compilations.CompilationLog())
    program = jax.jit(lambda x: jnp.sort(x) - 9)
    for size in range(1, 14):
        program(np.ones((size, size + 1, 2 * size), np.float32))  # Of layers, each with sizes of its own.
    monkeypatch.setattr(_compilations, "TELL_AFTER_S", 1000)
    for size in range(1, 14):
        program(np.ones((size, 2), np.float32))
    assert not caplog.records
