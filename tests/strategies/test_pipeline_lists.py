"""Pipelines of functions that are not alike: each with its own parameters and shapes, divided by what they compute."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tests.shared.staged_models import compute
from tests.shared.unlike_stages import LOSS, make_batch, make_params
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._pipeline._cuts import cut_evenly
from tfdist_jax._pipeline._listed import exchange_by_permutations
from tfdist_jax._pipeline._places import Division, FlatKind, ParamLayout

FOUR = tuple(jax.devices()[:4])

pytestmark = pytest.mark.usefixtures("double_precision")


def test_keys_and_sums_are_those_of_stacked_layers():
    """One function for all layers is the same loss as a list of it."""
    random = np.random.default_rng(0)
    params = {"w": jnp.asarray(random.normal(size=(8, 8))), "blocks": jnp.asarray(random.normal(size=(4, 8, 8)))}
    drop = lambda key, x: x * jax.random.bernoulli(key, 0.7, x.shape)
    first, last = (
        lambda p, x, key: drop(key, x @ p["w"]),
        lambda p, x, b, key: ((drop(key, x) ** 2).sum(), jnp.float64(len(x))),
    )
    stacked = td.Staged(first, lambda w, x, batch, key: jnp.tanh(drop(key, x) @ w), last)
    at = lambda i: lambda p, x, batch, key: jnp.tanh(drop(key, x) @ p["blocks"][i])
    listed = td.Staged(first, [at(i) for i in range(4)], last)
    batch, key = random.normal(size=(8, 8)), jax.random.key(0)
    strategies = [
        (td.Pipeline(4, 2, axes={"data": 2}), stacked),
        (td.Pipeline(4, 2, axes={"data": 2}, stack=None, min_size=1), listed),
        (td.Pipeline(2, 2, axes={"data": 2}, devices=FOUR, stack=None), listed),
    ]
    found = [jax.device_get(compute(*each, params, batch, key, has_aux=False)) for each in strategies]
    assert relative_error(found[1], found[0]) <= 1e-12
    assert relative_error(found[2], found[0]) <= 1e-12


def test_a_device_gets_the_parameters_of_its_stages_alone(bound):
    """Four matrices of 2 MiB over four devices: a device has a quarter of each, and computes with one of them."""
    size = 512
    at = lambda i: lambda params, x, batch: jnp.tanh(x @ params[f"w{i}"])
    loss_fn = td.Staged(lambda p, x: x * 1.0, [at(i) for i in range(4)], lambda p, x, batch: (x**2).mean())
    params = {f"w{i}": jnp.ones((size, size)) / size for i in range(4)}
    strategy = td.Pipeline(4, 4, axes={"data": 1}, devices=FOUR, stack=None)
    state = strategy.init(lambda: params)
    assert {leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(state)} == {size * size // 4}
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    explanation = strategy.explain(compute, state, strategy.put(np.ones((16, size))))
    assert {one.kind for one in explanation.collectives} == {"all-to-all", "collective-permute", "all-reduce"}
    # Its matrix, as it comes and as it is used; the gradients of a microbatch, their sum, and as it goes back.
    bound(
        "temporary memory of a pipeline of a list, to a stage's weights",
        explanation.memory.temporary / (8 * size * size),
        5.5,
    )


def test_devices_of_a_stage_divide_its_parameters_and_what_it_computes(bound):
    """With four of them, each has a quarter; but it computes both stages."""
    size = 256
    at = lambda i: lambda params, x, batch: x + jnp.tanh(x @ params["up"][i]) @ params["down"][i]
    loss_fn = td.Staged(lambda p, x: x * 1.0, [at(i) for i in range(4)], lambda p, x, batch: (x**2).mean())
    params = {"up": [jnp.ones((size, 4 * size)) / size] * 4, "down": [jnp.ones((4 * size, size)) / size] * 4}
    explanations = []
    for tensor, rules in ((1, {}), (4, {"up/.*": jax.P(None, "tensor"), "down/.*": jax.P("tensor")})):
        devices = tuple(jax.devices()[: 2 * tensor])
        axes = {"data": 1, "tensor": tensor}
        strategy = td.Pipeline(2, 4, axes=axes, devices=devices, rules=rules, stack=None, min_size=1)
        explain = functools.partial(strategy.explain, strategy.value_and_grad(loss_fn, has_aux=False))
        args = strategy.init(lambda: params), strategy.put(np.ones((16, size)))
        if tensor == 1:
            explanations.append(explain(*args))
        else:
            with pytest.warns(UserWarning, match="computes all 2 stages at each tick, 2 times as much"):
                explanations.append(explain(*args))
    one, four = explanations
    # It has gradients of both stages before it takes its own.
    temporary = four.memory.temporary / one.memory.temporary
    bound("temporary memory of a list, its stages over 4 devices to 1", temporary, 0.45)
    bound("operations of a list of 2 stages, these over 4 devices to 1", four.flops.count / one.flops.count, 0.51)
    gathers = [found for found in four.collectives if found.axes == ("tensor",) and found.kind != "all-reduce"]
    bound("times that a list gathers over the devices of a stage", len(gathers), 0)


@pytest.mark.filterwarnings("ignore:The devices of a stage communicate")
def test_functions_of_a_list_may_communicate():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(0.3 * random.normal(size=shape))
    params = {"qkv": normal(8, 3, 2, 4), "router": normal(8, 4), "experts": {"up": normal(4, 8, 8)}, "w": normal(8, 8)}

    def attend(params, x, batch):
        query, key, value = jnp.einsum("btd,dchf->cbthf", x, params["qkv"])
        return x + td.attend(query, key, value, is_causal=True).reshape(x.shape)

    def route(params, x, batch):
        apply = lambda expert, x: jnp.tanh(x @ expert["up"])
        return x + td.run_experts(apply, params["experts"], x, jax.nn.softmax(x @ params["router"]), top_k=2).outputs

    mix = lambda params, x, batch: jnp.tanh(x @ params["w"])
    square = lambda params, x, batch: (x**2).mean()
    x = random.normal(size=(16, 12, 8))
    for functions, axes, rules in (
        ([mix, attend, mix], {"data": 2, "sequence": 2}, {}),
        ([mix, route, mix], {"data": 1, "expert": 2}, {"experts/.*": jax.P("expert")}),
    ):
        loss_fn = td.Staged(lambda params, x: x @ params["w"], functions, square)
        strategy = td.Pipeline(
            2, 2, axes=axes, stack=None, rules=rules, devices=tuple(jax.devices()[: 4 * axes["data"]])
        )
        found = compute(strategy, loss_fn, params, x, has_aux=False)
        expected = compute(td.SingleDevice(), loss_fn, params, x, has_aux=False)
        assert relative_error(jax.device_get(found), jax.device_get(expected)) <= 1e-12


@pytest.mark.filterwarnings("ignore:The devices of a stage communicate")
def test_loops_that_might_have_no_end_are_refused():
    halve = lambda c, step: jax.lax.while_loop(lambda c: c < 3, lambda c: c + step, c)
    stop = jax.lax.stop_gradient
    functions = [lambda params, x, batch: x @ params["w"], lambda p, x, batch: x * halve(0.0, stop(p["w"][0, 0]))]
    loss_fn = td.Staged(lambda params, x: x * 1.0, functions, lambda params, x, batch: (x**2).mean())
    params, x = {"w": jnp.ones((8, 8))}, np.ones((8, 8))
    strategy = td.Pipeline(2, 2, axes={"data": 1, "tensor": 2}, rules={"w": jax.P("tensor")}, stack=None, devices=FOUR)
    args = strategy.init(lambda: params), strategy.put(x)
    with pytest.raises(ValueError, match=r"halve = .* is a loop whose rounds depend on values.*might have no end"):
        strategy.value_and_grad(loss_fn, has_aux=False)(*args)
    with pytest.warns(UserWarning, match="evaluated on each device of a replica with all layers.* might have no end"):
        assert float(strategy.evaluate(loss_fn)(*args)) == 24**2
    strategy = td.Pipeline(2, 2, axes={"data": 2}, stack=None, devices=FOUR)
    assert float(compute(strategy, loss_fn, params, x, has_aux=False)[0]) == 24**2


@pytest.mark.parametrize(
    ("shape", "layout", "axes"),
    [
        ((), ParamLayout(None), ()),
        ((6,), ParamLayout(0), ()),
        ((4, 6), ParamLayout(1, (Division(0, ("tensor",), 2),)), (("tensor",),)),
        # Both along the same dimension; two axes along two, and along one.
        ((12, 5), ParamLayout(0, (Division(0, ("tensor",), 2),)), (("tensor",),)),
        (
            (4, 6, 8),
            ParamLayout(1, (Division(0, ("a", "b"), 4), Division(2, ("tensor",), 2))),
            (("a", "b"), ("tensor",)),
        ),
    ],
)
def test_parameters_are_packed_with_the_parts_of_other_axes_apart(shape, layout, axes):
    stages = 2 if layout.staged is not None else 1
    whole = jnp.arange(float(np.prod(shape))).reshape(shape)
    parts = jnp.split(whole, stages, layout.staged or 0) if shape else [whole]
    packed = jnp.stack([layout.pack(part) for part in parts])
    assert layout.kind_of(whole) == FlatKind(
        stages > 1, "float64", axes, tuple(each.count for each in layout.divisions)
    )
    assert packed.shape[1:-1] == tuple(each.count for each in layout.divisions)
    for each, division in enumerate(layout.divisions):
        first = whole if layout.staged == division.along else jnp.split(whole, division.count, division.along)[0]
        assert {*np.take(np.asarray(packed), 0, axis=each + 1).flat} <= {*np.ravel(first)}
    assert np.array_equal(layout.unpack(packed if stages > 1 else packed[0], shape), whole)


@pytest.mark.parametrize("in_order", [False, True])
def test_permutations_exchange_what_an_all_to_all_does(in_order):
    x = jnp.arange(4.0 * 2 * 4 * 3).reshape(4 * 2, 4, 3)
    mesh = jax.sharding.Mesh(FOUR, ("stage",))
    run = lambda fn: jax.shard_map(fn, mesh=mesh, in_specs=jax.P("stage"), out_specs=jax.P("stage"))(x)
    expected = run(lambda x: jax.lax.all_to_all(x, "stage", split_axis=1, concat_axis=1, tiled=True))
    assert np.array_equal(run(lambda x: exchange_by_permutations(x, 4, in_order=in_order)), expected)


def test_functions_are_divided_by_what_they_compute():
    assert cut_evenly([1, 1, 4, 1, 1], 3) == [range(2), range(2, 3), range(3, 5)]
    assert cut_evenly([0, 0, 0], 3) == [range(1), range(1, 2), range(2, 3)]
    assert cut_evenly([5, 1, 1, 1], 2) == [range(1), range(1, 4)]


def test_lists_that_cannot_be_divided_are_refused():
    make = lambda **options: td.Pipeline(4, 4, stack=None, **options)
    state = lambda strategy: strategy.init(make_params)
    together = {"w": jax.P(("fsdp", "stage"))}
    strategy = td.Pipeline(2, 4, axes={"data": 2, "fsdp": 2}, stack=None, rules=together)
    with pytest.raises(
        ValueError, match=r"blocks/0/w is to be laid out .*these come behind others, over which it is gathered"
    ):
        strategy.value_and_grad(LOSS)(state(strategy), strategy.put(make_batch(16)))
    with_key = td.Staged(
        lambda p, b: (b["x"].mean((1, 2, 3)), jax.random.key(0)), [lambda p, x, b: x], lambda p, x, b: (x[0].mean(), {})
    )
    strategy = td.Pipeline(2, 4, axes={"data": 4}, stack=None)
    with pytest.raises(TypeError, match="Functions of a list hand on a random key"):
        strategy.value_and_grad(with_key)(state(strategy), strategy.put(make_batch(16)))
    short = td.Staged(LOSS.first, [LOSS.layer[0]], lambda params, x, batch: (x.mean(), {}))
    strategy = make(axes={"data": 2})
    with pytest.raises(
        ValueError, match="2 functions with `first`, which cannot be divided into 4 stages over 4 devices along 'stage'"
    ):
        strategy.value_and_grad(short)(state(strategy), strategy.put(make_batch(16)))
    with pytest.raises(
        ValueError,
        match=r"blocks/0/b of shape \(32,\) belongs to the layers at 'blocks'.*give `stack` the path",
    ):
        td.Pipeline(3, 4, axes={"data": 1}, devices=tuple(jax.devices()[:3])).init(make_params)
