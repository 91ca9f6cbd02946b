"""Random programs that reshape, transpose and reduce the rows of a batch: exact, or refused or warned of."""

import random
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td

pytestmark = pytest.mark.usefixtures("double_precision")


def shape_of(v, d):
    """The dimensions before and after one of them."""
    return v.shape[:d], v.shape[d + 1 :]


def split(choose, v):
    d, factor = choose(range(v.ndim)), choose([2, 4])
    before, after = shape_of(v, d)
    return v.reshape(*before, *choose([(factor, v.shape[d] // factor), (v.shape[d] // factor, factor)]), *after)


def merge(choose, v):
    d = choose(range(v.ndim - 1))
    return v.reshape(*v.shape[:d], v.shape[d] * v.shape[d + 1], *v.shape[d + 2 :])


def transpose(choose, v):
    one, other = choose(range(v.ndim)), choose(range(v.ndim))
    return v.swapaxes(one, other)


def reduce(choose, v):
    axes = [d for d in range(v.ndim) if choose([True, False])] or [choose(range(v.ndim))]
    return choose([jnp.sum, jnp.mean])(v, tuple(axes))


def weigh(choose, v):
    d = choose(range(v.ndim))
    weights = jnp.arange(1.0, 1 + v.shape[d]) if v.shape[d] <= 4 else 2.0
    return jnp.moveaxis(jnp.moveaxis(v, d, -1) * weights, -1, d)


def join(choose, v):
    d = choose(range(v.ndim))
    joined = jnp.concatenate([v, 2 * v], d)
    return choose([joined, joined * jnp.repeat(jnp.sin(v), 2, d), jnp.repeat(v, 2, d)])


def take_apart(choose, v):
    d = choose(range(v.ndim))
    parts = jnp.split(v, choose([2, 4]), d)
    return choose([parts[1], parts[0] * parts[-1], sum(parts), jnp.concatenate(parts[::-1], d), jnp.stack(parts)])


def move(choose, v):
    d = choose(range(v.ndim))
    functions = [jnp.flip, jnp.sort, jnp.cumsum, jnp.diff, jax.nn.softmax, lambda v, axis: jnp.roll(v, 1, axis)]
    return choose(functions)(v, axis=d)


def pick(choose, v):
    d, size = choose(range(v.ndim)), v.shape[0]
    picked = jnp.take(v, choose([jnp.array([1, 0]), jnp.arange(v.shape[d]) // 2]), axis=d)
    return choose([picked, jax.lax.slice_in_dim(v, size // 2, size), v[::2], v[1::2] + v[::2]])


def put(choose, v):
    by_segment = lambda v: jax.ops.segment_sum(v, jnp.arange(v.shape[0]) % choose([2, 4]), 4)
    of_window = lambda v: jax.lax.dynamic_update_slice_in_dim(v, jnp.ones((1, *v.shape[1:])), 1, 0)
    return choose([lambda v: v.at[choose([0, slice(0, 2)])].add(1.0), by_segment, of_window])(v)


def relate(choose, v):
    m = v.reshape(v.shape[0], -1)
    programs = ["ij,ij->j", "ij,ik->jk", "ij,kj->ik", "ij,ij->i"]
    along = lambda: jax.lax.conv_general_dilated(
        m[..., None], jnp.ones((2, 1, 1)), (1,), "SAME", None, None, ("NWC", "WIO", "NWC")
    )
    return choose([along, lambda: jnp.einsum(choose(programs), m, jnp.cos(m))])()


def mask(choose, v):
    places = jax.lax.broadcasted_iota(int, v.shape, choose(range(v.ndim)))
    return jnp.where(places % 2 == 0, v, -v)


def spread(choose, v):
    d = choose(range(v.ndim + 1))
    return choose([jnp.repeat(jnp.expand_dims(v, d), 2, d), v[:, None] * jnp.sin(v)[None]])


OPERATIONS = [
    join,
    take_apart,
    move,
    pick,
    put,
    relate,
    mask,
    spread,
    split,
    split,
    merge,
    transpose,
    reduce,
    weigh,
    lambda choose, v: v[choose([0, 1])],
    lambda choose, v: v.reshape(-1),
    lambda choose, v: jnp.tanh(v),
    lambda choose, v: jax.lax.map(lambda one: jnp.tanh(one).sum(), v),
    lambda choose, v: jax.vmap(jnp.cumsum)(v),
    lambda choose, v: jax.lax.scan(lambda total, one: (total + one.sum(), None), 0.0, v)[0],
    lambda choose, v: jax.lax.scan(lambda mean, one: (0.5 * mean + one.sum(), one * 2), 0.0, v)[choose([0, 1])],
    lambda choose, v: v @ jnp.arange(1.0, 1 + v.shape[-1] * 3).reshape(-1, 3),
    lambda choose, v: v + v.sum(0),
]


def make_program(seed):
    def program(scale, x):
        choose, v = random.Random(seed).choice, x * scale
        seen = [v]
        for _ in range(choose(range(2, 7))):
            v = choose(OPERATIONS)(choose, v)
            alike = [each for each in seen if each.shape == v.shape]
            v = v * jnp.sin(choose(alike)) if alike and choose([True, False]) else v
            seen.append(v)
        return v

    return program


exhaustive = pytest.mark.exhaustive


# Of the first, 0 and 28 were once wrong without a word: rows written by index.
@pytest.mark.slow("80 programs are traced twice and compiled")
@pytest.mark.parametrize(
    ("devices", "seeds"),
    [
        (2, range(80)),
        pytest.param(2, range(80, 1000), marks=exhaustive),
        pytest.param(3, range(300), marks=exhaustive, id="replicas with other numbers of rows"),
    ],
)
def test_programs_are_exact_or_refused(devices, seeds):
    strategy = td.Mirrored(tuple(jax.devices()[:devices]))
    x, exact = np.random.default_rng(0).normal(size=(16, 4)), 0
    for seed in seeds:
        program = make_program(seed)
        try:
            expected = program(1.5, jnp.asarray(x))
        except (TypeError, ValueError, IndexError):
            continue  # One that does not fit together.
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                found = strategy.evaluate(program)(1.5, strategy.put(x))
            except (TypeError, ValueError, IndexError) as error:
                reasons = (
                    "does not follow",
                    "is not known",
                    "cannot reshape",
                    "of shape",
                    "equal division",
                    "than with",
                    "out of range",
                    "empty sequence",  # The program's own error, of which a replica's rows would be the cause alone, too.
                )
                assert any(reason in str(error) for reason in reasons), seed
                continue
        if not any("depends on other rows" in str(each.message) for each in told):
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(seed))
            exact += 1
    assert exact > len(seeds) // 20
