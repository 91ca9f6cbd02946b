"""Attention in tiles, over rings of devices, and by the kernels of accelerators: what one device computes at once."""

import collections
import dataclasses
import functools
import importlib
import itertools
import math
import unittest.mock

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

import tfdist_jax as td
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._across_devices import _kernels, _tiles
from tfdist_jax._across_devices._ring import Ring

HEADS, KEY_HEADS, FEATURES = 8, 4, 4


@pytest.fixture
def small_tiles(double_precision, monkeypatch):
    """Tiles of at most four tokens, so that few tokens make many tiles."""
    monkeypatch.setattr(_tiles, "LARGEST_TILE", 4)


def make_inputs(rows, tokens, heads=HEADS, key_heads=KEY_HEADS, dtype="float64"):
    random = np.random.default_rng(tokens)
    normal = lambda heads: jnp.asarray(random.normal(size=(rows, tokens, heads, FEATURES)), dtype)
    return (normal(heads), normal(key_heads), normal(key_heads)), jnp.asarray(random.random((rows, tokens)) < 0.7)


def attend_at_once(query, key, value, mask=None, is_causal=False):
    """All scores, and zeros where nothing counts."""
    length, group = query.shape[1], query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, group, axis=2) for x in (key, value))
    counts = np.tri(length, dtype=bool) if is_causal else np.ones((length, length), bool)
    counts = counts if mask is None else mask[:, None, None] & counts
    scores = jnp.einsum("bqhf,bkhf->bhqk", query, key) / math.sqrt(query.shape[-1])
    weights = jnp.where(counts, jnp.exp(scores), 0)
    total = weights.sum(-1, keepdims=True)
    return jnp.einsum("bhqk,bkhf->bqhf", weights / jnp.where(total > 0, total, 1), value)


def pull_back_ones(fn, *args):
    """Results, and gradients of the results each multiplied by its place."""
    results, pull_back = jax.vjp(fn, *args)
    return results, pull_back(jnp.linspace(-1, 1, results.size).reshape(results.shape).astype(results.dtype))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 4, 7, 13, 16])
def test_tiles_are_exact(small_tiles, tokens, is_causal, has_mask, bound):
    inputs, mask = make_inputs(3, tokens)
    options = {"mask": mask if has_mask else None, "is_causal": is_causal}
    found = pull_back_ones(functools.partial(td.attend, **options), *inputs)
    expected = pull_back_ones(functools.partial(attend_at_once, **options), *inputs)
    differences = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), found, expected)
    bound("largest error of attention in tiles, of about 1, f64", max(jax.tree.leaves(differences)), 1e-12)


def test_a_token_for_which_nothing_counts_gets_zeros():
    x = jnp.ones((1, 4, 1, 2))
    mask = jnp.array([[False, False, True, True]])
    attend = lambda x: td.attend(x, x, x, mask=mask, is_causal=True)
    found, pull_back = jax.vjp(attend, x)
    np.testing.assert_array_equal(found[0, :, 0, 0], [0, 0, 1, 1])
    assert np.isfinite(pull_back(found)[0]).all()


@pytest.mark.parametrize("shape", [(0, 4, 2, 4), (2, 0, 2, 4)])
def test_nothing_attends_to_nothing(shape):
    x = jnp.zeros(shape)
    assert jax.grad(lambda x: td.attend(x, x, x, is_causal=True).sum())(x).shape == shape


def test_gradients_of_gradients_are_computed_without_kernels():
    """A kernel has none of its own; without one they are those of all scores at once."""
    inputs, _ = make_inputs(1, 8, 2, 2, "float32")
    twice = lambda attend: jax.grad(lambda q: (jax.grad(lambda q: (attend(q, *inputs[1:]) ** 2).sum())(q) ** 2).sum())
    found = twice(functools.partial(td.attend, implementation="xla"))(inputs[0])
    np.testing.assert_allclose(found, twice(attend_at_once)(inputs[0]), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="`implementation` is 'xla', or None for kernels where they fit, got 'cudnn'"):
        td.attend(*inputs, implementation="cudnn")


@pytest.mark.usefixtures("double_precision")
def test_low_precision_is_summed_in_float32():
    inputs, _ = make_inputs(2, 64, 2, 2, jnp.bfloat16)
    found = td.attend(*inputs)
    assert found.dtype == jnp.bfloat16
    wide = td.attend(*(x.astype(jnp.float64) for x in inputs))
    np.testing.assert_allclose(found.astype(jnp.float64), wide, atol=4e-3)


@dataclasses.dataclass(frozen=True)
class Case:
    """Attention over some devices."""

    devices: int
    tokens_each: int
    key_heads: int
    method: str
    is_causal: bool
    has_mask: bool


cases = st.builds(
    Case,
    st.sampled_from([2, 3, 4, 5, 8]),
    st.integers(1, 9),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["ring", "all_to_all"]),
    st.booleans(),
    st.booleans(),
)


def check_over_devices(case):
    """Attention over devices is that of one, or it is refused as its heads do not divide."""
    strategy = td.Sharded({"data": 1, "sequence": case.devices}, devices=tuple(jax.devices()[: case.devices]))
    inputs, mask = make_inputs(2, case.devices * case.tokens_each, key_heads=case.key_heads)
    batch = dict(zip(["query", "key", "value"], inputs, strict=True)) | ({"mask": mask} if case.has_mask else {})
    options = {"is_causal": case.is_causal}

    def make_loss(attend):
        def loss(scales, batch):
            query, key, value = (scales[name] * batch[name] for name in ("query", "key", "value"))
            return (attend(query, key, value, mask=batch.get("mask"), **options) ** 2).mean()

        return loss

    make_scales = lambda: {
        "query": jnp.linspace(1, 2, HEADS * FEATURES).reshape(HEADS, FEATURES),
        "key": jnp.ones((case.key_heads, FEATURES)),
        "value": jnp.linspace(0, 1, FEATURES),
    }
    compute = strategy.value_and_grad(make_loss(functools.partial(td.attend, method=case.method)), has_aux=False)
    run = lambda: compute(strategy.init(make_scales), strategy.put(batch))
    if case.method == "all_to_all" and case.key_heads % case.devices:
        with pytest.raises(ValueError, match=rf"{case.key_heads} key heads do not divide over {case.devices} devices"):
            run()
        return 0
    expected = jax.jit(jax.value_and_grad(make_loss(attend_at_once)))(make_scales(), batch)
    loss, gradients = run()
    # Of the largest: those of queries and keys are zero but for rounding where each row has one token that counts.
    stack = lambda gradients: np.hstack([gradients[name].ravel() for name in ("query", "key", "value")])
    return max(relative_error(loss, expected[0]), relative_error(stack(gradients), stack(expected[1])))


@pytest.mark.parametrize("method", ["ring", "all_to_all"])
def test_one_token_that_counts_has_no_gradients_but_of_its_value(small_tiles, bound, method):
    case = Case(devices=2, tokens_each=1, key_heads=2, method=method, is_causal=False, has_mask=True)
    bound("relative error of attention over devices, f64", check_over_devices(case), 1e-12)


ONE_FOR_ALL = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=8, **ONE_FOR_ALL)
@given(cases)
def test_any_number_of_devices_and_tokens(small_tiles, bound, case):
    bound("relative error of attention over devices, f64", check_over_devices(case), 1e-12)


@pytest.mark.exhaustive
@settings(max_examples=150, **ONE_FOR_ALL)
@given(cases)
def test_many_numbers_of_devices_and_tokens(small_tiles, bound, case):
    bound("relative error of attention over devices, f64", check_over_devices(case), 1e-12)


@pytest.mark.parametrize(("devices", "tokens_each"), [(2, 8), (3, 16), (8, 24), (8, 10)])
def test_all_devices_of_a_ring_have_as_much_to_do_in_each_turn(small_tiles, devices, tokens_each):
    ring = Ring(_tiles.Tiles(is_causal=True, length=tokens_each // 2, pieces=2), devices)
    starts = [ring.starts(device) for device in range(devices)]

    def count(device, source):
        pairs = ring.tiles.pairs(is_here=False)
        return sum(bool(starts[source][b] <= starts[device][a]) for a, b in pairs)

    work = [[count(device, (device - turn) % devices) for device in range(devices)] for turn in range(devices)]
    assert all(len({*of_devices}) == 1 for of_devices in work)
    # Little more than half of all tiles: those on the diagonal count, too.
    tiles = 2 * devices * ring.tiles.per_piece
    assert sum(map(sum, work)) == tiles * (tiles + 1) // 2


def eqns_of(jaxpr, name):
    """Operations of a kind, each with the program that it is in."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == name:
            yield jaxpr, eqn
        for inner in jax.extend.core.jaxprs_in_params(eqn.params):
            yield from eqns_of(inner, name)


def test_what_goes_round_waits_for_nothing_that_is_computed_meanwhile(small_tiles):
    strategy = td.Sharded({"data": 1, "sequence": 8})
    loss = lambda scale, x: (td.attend(scale * x, x, x, is_causal=True) ** 2).mean()
    compute = strategy.value_and_grad(loss, has_aux=False)
    program = jax.make_jaxpr(compute)(jnp.ones(()), strategy.put(np.ones((1, 64, 2, 4))))
    loops = [eqn.params["jaxpr"].jaxpr for _, eqn in eqns_of(program.jaxpr, "scan")]
    passed = [[eqn for inner, eqn in eqns_of(loop, "ppermute") if inner is loop] for loop in loops]
    assert [len(eqns) for eqns in passed if eqns] == [2, 4]
    for loop, eqns in zip(loops, passed, strict=True):
        assert all(eqn.invars[0] in loop.invars for eqn in eqns)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_kernel_for_tpu_computes_the_same(is_causal):
    random = np.random.default_rng(0)
    normal = lambda heads: jnp.asarray(random.normal(size=(2, 256, heads, 64)), jnp.bfloat16)
    inputs = normal(4), normal(2), normal(2)
    found = pull_back_ones(functools.partial(_kernels.attend_on_tpu, is_causal, interpret=True), *inputs)
    expected = pull_back_ones(functools.partial(td.attend, is_causal=is_causal), *inputs)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        ours, theirs = ours.astype("float32"), theirs.astype("float32")
        assert jnp.abs(ours - theirs).max() < 0.02 * jnp.abs(theirs).max()


def test_the_kernel_for_tpu_runs_where_the_facade_is_imported():
    """Kernels read references by ranges that are no slices of Python."""
    importlib.import_module("tfdist_jax.compat.tensorflow")
    x = jnp.ones((1, 128, 1, 64), jnp.bfloat16)
    np.testing.assert_allclose(_kernels.attend_on_tpu(True, x, x, x, interpret=True).astype("float32"), 1, rtol=1e-2)


GPU = collections.namedtuple("GPU", "compute_capability")


def find_kernel(platform="tpu", *, axes=None, dtype=jnp.bfloat16, tokens=1024, features=128, mask=None, value=None):
    axes = axes or {"data": AxisType.Manual}
    kind = AbstractDevice("some kind", None, platform)
    mesh = AbstractMesh((2,) * len(axes), tuple(axes), axis_types=tuple(axes.values()), abstract_device=kind)
    query = jax.ShapeDtypeStruct((2, tokens, 8, features), dtype)
    with jax.sharding.use_abstract_mesh(mesh):
        values = query if value is None else jax.ShapeDtypeStruct(query.shape, value)
        return _kernels.find_kernel(query, query, values, mask, is_causal=True)


@pytest.mark.parametrize(
    "options",
    [
        {"platform": "cpu"},
        {"axes": {"data": AxisType.Manual, "tensor": AxisType.Auto}},
        {"dtype": jnp.float32},
        {"value": jnp.float32},
        {"tokens": 1000},
        {"features": 100},
        {"mask": np.ones((2, 1024), bool)},
        {"platform": "gpu", "features": 60},
        {"platform": "gpu", "features": 256},
        {"platform": "gpu", "dtype": jnp.float32},
        {"platform": "gpu", "value": jnp.float32},
    ],
)
def test_kernels_are_taken_only_where_they_fit(options, monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [GPU("8.0"), GPU("9.0")])
    assert find_kernel(**options) is None


def test_kernels_that_fit(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [GPU("8.0"), GPU("9.0")])
    assert find_kernel().func is _kernels.attend_on_tpu
    for dtype, tokens in itertools.product((jnp.bfloat16, jnp.float16), (1000, 1024)):
        found = find_kernel("gpu", dtype=dtype, tokens=tokens, features=64)
        assert (found.func, found.keywords["implementation"]) == (jax.nn.dot_product_attention, "cudnn")
    for other in "7.0", "gfx942":
        monkeypatch.setattr(jax, "local_devices", lambda other=other: [GPU("8.0"), GPU(other)])
        assert find_kernel("gpu") is None


def test_without_a_mesh_there_is_no_kernel():
    """Arrays may lie on several devices, also of a TPU: XLA could not divide a kernel."""
    query = jnp.ones((2, 1024, 8, 128), jnp.bfloat16)
    assert jax.sharding.get_abstract_mesh().empty
    with unittest.mock.patch.object(jax, "default_backend", lambda: "tpu"):
        assert _kernels.find_kernel(query, query, query, None, is_causal=True) is None
