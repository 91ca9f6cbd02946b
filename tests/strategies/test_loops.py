"""Loops whose rounds depend on values: which are found, and what pipelines do with them."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tests.shared.staged_models import MESHES, TENSOR_RULES, compute, embed, make_batch, make_params, make_pipeline
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._global_batch._loops import find_loop
from tfdist_jax._global_batch._row_values import line_of

in_double_precision = pytest.mark.usefixtures("double_precision")
up_to = lambda limit, start: jax.lax.while_loop(lambda n: n < limit, lambda n: n + 1, start)
squared = jax.custom_jvp(lambda x: up_to(x, 0.0) ** 2)
squared.defjvp(lambda primals, tangents: (squared(*primals), tangents[0]))


def bounded(goes_on, step=1):
    """A loop of a counter and of what is doubled."""

    def run(a, b):
        goes = lambda carried: goes_on(*carried, b)
        return jax.lax.while_loop(goes, lambda carried: (carried[0] + step, carried[1] * 2), (0, a))[1]

    return run


CASES = {
    "limit": (lambda a, b: up_to(a, b), True),
    "start": (lambda a, b: up_to(b, a), True),
    "step": (lambda a, b: jax.lax.while_loop(lambda n: n < b, lambda n: n + a, b), True),
    "other limit": (lambda a, b: a * up_to(b, 0.0), False),
    "carried beside a counter": (
        lambda a, b: jax.lax.while_loop(lambda c: c[0] < b, lambda c: (c[0] + 1, c[1] * a), (0.0, a))[1],
        False,
    ),
    "number of rounds": (lambda a, b: jax.lax.fori_loop(0, a.astype(int), lambda i, x: x + i, b), True),
    "body of a loop of other rounds": (
        lambda a, b: jax.lax.fori_loop(0, b.astype(int), lambda i, x: up_to(x, 0.0), a),
        True,
    ),
    "called": (jax.jit(lambda a, b: up_to(a, b)), True),
    "called, other": (lambda a, b: jax.jit(up_to)(b, 0.0) + a, False),
    "own derivative": (lambda a, b: squared(a) + b, True),
    "computed again": (lambda a, b: jax.checkpoint(up_to)(a, b), True),
    "branch": (lambda a, b: jax.lax.cond(b > 0, lambda a, b: up_to(a, b), lambda a, b: a, a, b), True),
    "branch, other": (lambda a, b: jax.lax.cond(a > 0, lambda b: up_to(b, 0.0), lambda b: b, b), False),
    "behind a branch": (lambda a, b: up_to(jax.lax.cond(a > 0, lambda b: b, lambda b: -b, b), 0.0), True),
    # `b` becomes what `a` was only in the third round.
    "after some turns": (
        lambda a, b: jax.lax.scan(lambda c, _: ((c[0], c[0], c[1]), up_to(c[2], 0.0)), (a, b, b), length=4)[1],
        True,
    ),
    "turns of others": (
        lambda a, b: jax.lax.scan(lambda c, x: (c + x, up_to(b, 0.0)), a, jnp.arange(3.0))[1],
        False,
    ),
    "turns": (lambda a, b: jax.lax.map(functools.partial(up_to, start=b), jnp.ones(3) * a), True),
    "no loop": (lambda a, b: a * b, False),
    "limit of rounds": (bounded(lambda i, x, b: (i < 4) & (x < 9)), False),
    "limit of rounds, the other way round": (bounded(lambda i, x, b: (x < 9) & (b.astype(int) >= i) & (x > 0)), False),
    "limit of rounds, each its own": (
        lambda a, b: jax.vmap(bounded(lambda i, x, b: (x < 9) & (i < 4)), (0, None))(jnp.ones(3) * a, b),
        False,
    ),
    "limit that depends": (bounded(lambda i, x, b: (x < 9) & (i < x.astype(int))), True),
    "limit that goes along": (
        lambda a, b: jax.lax.while_loop(
            lambda c: (c[1] < 9) & (c[0] < c[2]), lambda c: (c[0] + 1, c[1] * 2, c[2] + 1), (0, a, 4)
        )[1],
        True,
    ),
    "limit that is carried": (
        lambda a, b: jax.lax.while_loop(
            lambda c: jnp.logical_and(c[1] < 9, c[0] < c[2]), lambda c: (c[0] + 1, c[1] * 2, c[2]), (0, a, 4)
        )[1],
        False,
    ),
    "limit that is none": (bounded(lambda i, x, b: (x < 9) & (i >= 0)), True),
    "limit or something": (bounded(lambda i, x, b: (x < 9) | (i < 4)), True),
    "counter that goes back": (bounded(lambda i, x, b: (x < 9) & (i < 4), step=-1), True),
    "counter that stays": (bounded(lambda i, x, b: (x < 9) & (i < 4), step=0), True),
    "counter that depends": (
        lambda a, b: jax.lax.while_loop(
            lambda c: (c[1] < 9) & (c[0] < 4), lambda c: (c[0] + (c[1] > 2).astype(int), c[1] * 2), (0, a)
        )[1],
        True,
    ),
    "conjugate gradients": (lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: 2 * x, jnp.ones(3) * a)[0], False),
    "conjugate gradients, a limit that depends": (
        lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: 2 * x, jnp.ones(3) * a, maxiter=a.astype(int))[0],
        True,
    ),
    "a solver without a limit": (
        lambda a, b: jax.lax.custom_linear_solve(lambda x: 2 * x, a, lambda _, y: up_to(y, 0.0)),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loop_is_found_where_an_input_decides_its_rounds(name):
    fn, is_found = CASES[name]
    program = jax.make_jaxpr(fn)(1.0, 2.0)
    found = find_loop(program, [True, False])
    assert (found is not None) == is_found
    assert found is None or "test_loops.py" in line_of(found)
    assert find_loop(program, [False, False]) is None


def test_solvers_with_a_limit_are_exact_while_devices_wait():
    """In 32 bits: with 64, constants are arguments where the facade is loaded, so that a counter is not seen to be one."""

    def layer(block, x, batch):
        solved, _ = jax.scipy.sparse.linalg.cg(lambda y: y + 0.1 * y @ (block["up"] @ block["up"].T), x, maxiter=20)
        return x + jnp.tanh(solved)

    loss_fn = td.Staged(embed, layer, lambda params, x, batch: (x**2).sum())
    params, batch = jax.tree.map(lambda leaf: leaf.astype(np.float32), make_params(4)), make_batch(8)
    strategy = make_pipeline(stages=2, microbatches=1, axes={"data": 1, "tensor": 2}, rules=TENSOR_RULES, devices=4)
    one, found = (compute(each, loss_fn, params, batch, has_aux=False) for each in (td.SingleDevice(), strategy))
    assert relative_error(jax.device_get(found), jax.device_get(one)) < 1e-5


def grow(x, step):
    return jax.lax.while_loop(lambda y: jnp.abs(y).max() < 1, lambda y: y * step, jax.lax.stop_gradient(x))


@jax.custom_vjp
def pass_on(x):
    return x


pass_on.defvjp(lambda x: (x, None), lambda _, cotangent: (grow(cotangent, 2) * 0 + cotangent,))

in_double = lambda x: grow(x, 2)


@in_double_precision
@pytest.mark.parametrize(
    ("part", "grown"),
    [("layer", in_double), ("layer", jax.jit(in_double)), ("last", in_double), ("layer", pass_on), ("first", pass_on)],
)
def test_loops_that_might_have_no_end_are_refused(part, grown):
    """While they wait, devices that communicate compute with zeros for what stages hand on, which no doubling makes 1."""
    of = lambda name, x: x + grown(x) if part == name else x
    loss_fn = td.Staged(
        lambda params, x: of("first", x @ params["w"]),
        lambda w, x, batch: of("layer", x @ w),
        lambda params, x, batch: (of("last", x) ** 2).mean(),
    )
    params, x = {"blocks": jnp.ones((2, 8, 8)), "w": jnp.ones((8, 8))}, np.ones((8, 8))
    rules = {"blocks": jax.P(None, None, "tensor")}
    strategy = td.Pipeline(2, 1, axes={"data": 1, "tensor": 2}, rules=rules, devices=tuple(jax.devices()[:4]))
    with pytest.raises(
        ValueError,
        match=r"is a loop whose rounds depend on values, without a limit.*The devices of a stage.*might have no end",
    ):
        compute(strategy, loss_fn, params, x, has_aux=False)
    args = strategy.init(lambda: params), strategy.put(x)
    told = pytest.warns(UserWarning, match="evaluated on each device of a replica with all layers")
    with told if grown is not pass_on else contextlib.nullcontext():
        found = strategy.evaluate(loss_fn)(*args)
    assert float(found) == pytest.approx(float(jax.jit(loss_fn)(params, x)), rel=1e-12)


@in_double_precision
@pytest.mark.parametrize("part", ["first", "layer"])
@pytest.mark.parametrize("keeps", [True, False])
def test_loops_of_replicas_without_rows_have_an_end_or_are_refused(part, keeps):
    """Of 1 row over 2 replicas the second has none, and would begin with zeros, to compute the layers' number."""
    of = lambda name, x: x + jax.vmap(in_double)(x) if part == name else x
    count = (lambda number: number) if keeps else lambda number: ()

    def layer(w, carried, batch):
        x, number = carried
        return (of("layer", x @ w), number + 1), count(number)

    loss_fn = td.Staged(
        lambda params, x: (of("first", x @ params["w"]), jnp.int32(0)),
        layer,
        lambda params, carried, batch: ((carried[0] ** 2).mean(), count(carried[1])),
        layer_aux=True,
    )
    params, x = {"blocks": jnp.ones((2, 8, 8)), "w": jnp.ones((8, 8))}, np.ones((1, 8))
    strategy = td.Pipeline(2, 4, axes={"data": 2}, devices=tuple(jax.devices()[:4]))
    expected = jax.device_get(compute(td.SingleDevice(), loss_fn, params, x))
    if keeps:
        with pytest.raises(ValueError, match=r"depend on values, without a limit. A replica has no rows"):
            compute(strategy, loss_fn, params, x)
        x = np.ones((3, 8))
        expected = jax.device_get(compute(td.SingleDevice(), loss_fn, params, x))
    assert relative_error(compute(strategy, loss_fn, params, x), expected) < 1e-12


@in_double_precision
def test_loops_that_depend_on_parameters_and_arguments_are_exact():
    """These are those of the batch also while devices wait."""

    def layer(block, x, batch, count):
        scale = grow(block["up"].sum(), 2)
        times = jax.lax.while_loop(
            lambda carried: carried[0] < count, lambda carried: (carried[0] + 1, carried[1] * 2), (0, x[0, 0, 0] * 0)
        )
        return x + jnp.tanh(x @ block["up"]) @ block["down"] * scale + jax.lax.stop_gradient(times[1])

    loss_fn = td.Staged(
        lambda params, batch, count: embed(params, batch), layer, lambda params, x, batch, count: (x**2).mean()
    )
    params, batch = make_params(4), make_batch(8)
    strategy = make_pipeline(**MESHES["data x stage x tensor"])
    one, found = (compute(each, loss_fn, params, batch, 3, has_aux=False) for each in (td.SingleDevice(), strategy))
    assert relative_error(jax.device_get(found), jax.device_get(one)) < 1e-12
