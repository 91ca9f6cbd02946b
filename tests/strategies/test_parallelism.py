"""A transformer under every strategy: gradients of one device, and the memory and communication that were promised."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

pytestmark = pytest.mark.usefixtures("double_precision")

WIDTH, HEADS, HIDDEN, VOCABULARY, LAYERS, LENGTH = 32, 4, 64, 48, 2, 8
RULES = {
    "qkv": P(None, None, "tensor"),
    "out": P("tensor"),
    "up": P(None, "tensor"),
    "down": P("tensor"),
    "embedding": P("tensor"),
    "head": P(None, "tensor"),
}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "FSDP": lambda: td.FSDP(min_size=64),
    "ZeRO1": lambda: td.ZeRO1(min_size=64),
    "HSDP 2x4": lambda: td.HSDP(shards=4, min_size=64),
    "HSDP 4x2": lambda: td.HSDP(shards=2, min_size=64),
    "TensorParallel 2x4": lambda: td.TensorParallel(4, RULES),
    "TensorParallel 1x4": lambda: td.TensorParallel(4, RULES, devices=tuple(jax.devices()[:4])),
    "FSDP x tensor": lambda: td.Sharded({"fsdp": 2, "tensor": 4}, RULES, min_size=64),
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, min_size=64),
    "tensor first": lambda: td.Sharded({"tensor": 2, "fsdp": 2, "data": 2}, RULES, min_size=64),
}


def make_params():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.2)
    block = lambda: {
        "norm": jnp.ones(WIDTH),
        "qkv": normal(WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": normal(HEADS, WIDTH // HEADS, WIDTH),
        "up": normal(WIDTH, HIDDEN),
        "down": normal(HIDDEN, WIDTH),
    }
    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "blocks": [block() for _ in range(LAYERS)],
        "head": normal(WIDTH, VOCABULARY),
    }


def apply_block(params, x):
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    q, k, v = jnp.einsum("btd,dche->cbthe", h, params["qkv"])
    scores = jnp.einsum("bthe,bshe->bhts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhts,bshe,hed->btd", jax.nn.softmax(scores), v, params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def token_losses(params, batch, apply=apply_block):
    x = params["embedding"][batch["x"]]
    for block in params["blocks"]:
        x = apply(block, x)
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"])


def mean_loss(params, batch):
    return token_losses(params, batch).mean()


def weighed_loss(params, batch):
    return (token_losses(params, batch) * batch["mask"]).sum(), batch["mask"].sum()


def on_one(loss_fn):
    def loss(params, batch):
        found = loss_fn(params, batch)
        return found[0] / found[1] if isinstance(found, tuple) else found

    return jax.jit(jax.value_and_grad(loss))


def make_batch(rows):
    random = np.random.default_rng(rows)
    x, y = random.integers(0, VOCABULARY, (2, rows, LENGTH))
    return {"x": x, "y": y, "mask": random.random((rows, LENGTH)) < 0.7}


def relative_error(actual, expected):
    errors = jax.tree.map(
        lambda a, e: np.abs(np.asarray(a) - e).max() / (np.abs(e).max() or 1), actual, jax.device_get(expected)
    )
    return max(jax.tree.leaves(errors))


# A plain mean is a weighed one with equal weights: two layouts show that it goes the same way.
LOSSES = [(name, weighed_loss) for name in STRATEGIES] + [
    (name, mean_loss)
    if name in ("HSDP 2x4", "tensor first")
    else pytest.param(name, mean_loss, marks=pytest.mark.exhaustive)
    for name in STRATEGIES
]


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("name", "loss_fn"), LOSSES)
def test_gradients_are_those_of_one_device(name, loss_fn, bound):
    strategy = STRATEGIES[name]()
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    for rows in (24, 13):
        batch = make_batch(rows)
        loss, grads = compute(params, strategy.put(batch))
        expected_loss, expected = on_one(loss_fn)(make_params(), batch)
        error = relative_error((loss, grads), (expected_loss, expected))
        bound(f"relative error of gradients, {loss_fn.__name__}, f64", error, 1e-12)
        layouts = jax.tree.map(
            lambda grad, param: grad.sharding.is_equivalent_to(param.sharding, param.ndim), grads, params
        )
        assert all(jax.tree.leaves(layouts)) or name == "ZeRO1"


def collectives(explanation):
    """Return how many collectives of each kind a program has, and how many bytes they give each device."""
    found = {}
    for one in explanation.collectives:
        count, total = found.get(one.kind, (0, 0))
        found[one.kind] = count + one.count, total + one.bytes
    return found


def explain_gradients(strategy, make_params=make_params, loss_fn=mean_loss, batch=None):
    params, batch = strategy.init(make_params), strategy.put(make_batch(24) if batch is None else batch)
    return strategy.explain(strategy.value_and_grad(loss_fn, has_aux=False), params, batch)


def num_bytes(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def num_bytes_of_large():
    return num_bytes([leaf for leaf in jax.tree.leaves(make_params()) if leaf.size >= 64])


def test_tensor_parallelism_communicates_as_hand_written(bound):
    """As much as what XLA makes of the same layouts for a step without manual axes; the batch has one all-reduce for all gradients."""
    strategy = STRATEGIES["TensorParallel 2x4"]()
    params = strategy.init(make_params)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    by_hand = jax.jit(jax.value_and_grad(mean_loss), out_shardings=(None, shardings))
    expected = collectives(strategy.explain(by_hand, params, strategy.put(make_batch(24))))
    found = collectives(explain_gradients(strategy))
    assert found.keys() == expected.keys() == {"all-reduce"}
    for i, what in enumerate(("all-reduces", "bytes of all-reduces")):
        ratio = found["all-reduce"][i] / expected["all-reduce"][i]
        bound(f"{what} of tensor parallelism 2 x 4, of those by hand", ratio, 1)
    # In each of two layers, two all-reduces over `tensor` forward and two backward; the embedding, the norms and the loss.
    assert found["all-reduce"][0] == 12 + 1


def test_what_is_gathered_is_divided_over_the_other_axes(bound):
    """Of parameters that `tensor` divides, a device gathers its part alone; hand-written, 12 all-reduces over `tensor` are all else."""
    found = collectives(explain_gradients(STRATEGIES["FSDP x tensor"]()))
    assert found.keys() == {"all-gather", "reduce-scatter", "all-reduce"}
    split = num_bytes_of_large()
    assert found["all-gather"] == (10, split // 4)
    assert found["reduce-scatter"] == (10, split // 4 // 2)
    bound("bytes gathered by FSDP x tensor of size 4, of FSDP's", found["all-gather"][1] / split, 1 / 4)
    assert found["all-reduce"][0] == 12 + 1


def test_groups_of_devices_gather_and_scatter_among_themselves():
    found = collectives(explain_gradients(STRATEGIES["HSDP 2x4"]()))
    split = num_bytes_of_large()
    assert (found["all-gather"], found["reduce-scatter"]) == ((10, split), (10, split // 4))
    # Between groups, the scattered gradients in one transfer; and what is whole, with the loss, between all.
    assert found["all-reduce"] == (2, split // 4 + num_bytes(make_params()) - split + 8)


OPTIMIZER = optax.adam(1e-2)
HELD = {  # The share of parameters, and of the optimizer's state, that a device has.
    "Mirrored": (1, 1),
    "FSDP": (1 / 8, 1 / 8),
    "ZeRO1": (1, 1 / 8),
    "HSDP 2x4": (1 / 4, 1 / 4),
    "TensorParallel 2x4": (1 / 4, 1 / 4),
    "data x FSDP x tensor": (1 / 4, 1 / 4),
    "FSDP x tensor": (1 / 8, 1 / 8),
}


@pytest.mark.parametrize("name", HELD)
def test_a_device_holds_its_share_of_the_state(name, bound):
    state = STRATEGIES[name]().init(lambda: (params := make_params(), OPTIMIZER.init(params)))
    for part, share in zip(state, HELD[name], strict=True):
        whole = num_bytes([leaf for leaf in jax.tree.leaves(part) if leaf.size < 64])
        held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(part))
        bound(
            "bytes of the state on a device, of its share and what is whole",
            (held - whole) / num_bytes(part) / share,
            1.05,
        )


def stacked_loss(policy):
    apply = td.layer(lambda params, x: x + jnp.tanh(x @ params["up"]) @ params["down"], policy=policy)
    return lambda params, x: jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, params)[0].mean()


def make_stacked(layers):
    return {"up": jnp.full((layers, 64, 256), 0.01), "down": jnp.full((layers, 256, 64), 0.01)}


LAYERED = {
    "FSDP": lambda: td.FSDP(),
    "FSDP x tensor": lambda: td.Sharded(
        {"fsdp": 4, "tensor": 2}, {"up": P(None, None, "tensor"), "down": P(None, "tensor")}
    ),
}


@pytest.mark.parametrize("policy", ["nothing_saveable", "dots_saveable"])
@pytest.mark.parametrize("name", LAYERED)
def test_memory_for_gathered_layers_does_not_grow_with_their_number(name, policy):
    strategy, loss_fn, batch = LAYERED[name](), stacked_loss(policy), np.ones((8, 64))
    temporary = [
        explain_gradients(strategy, functools.partial(make_stacked, layers), loss_fn, batch).memory.temporary
        for layers in (4, 16)
    ]
    # What is kept of each layer are its input and, if they are saved, the products inside, which `tensor` divides.
    features = 64 + (256 // strategy.mesh.shape.get("tensor", 1) if policy == "dots_saveable" else 0)
    kept = len(batch) // strategy.num_replicas * features * 8
    assert temporary[1] <= temporary[0] + 12 * kept
    # A layer and its gradient, or the next layer, are whole at a time.
    assert temporary[0] < 2 * num_bytes(make_stacked(1)) / strategy.mesh.shape.get("tensor", 1)


def test_temporary_memory_is_the_same_for_four_times_as_many_layers(bound):
    """6 to 24 MiB of parameters in float32, of which a device gathers one layer at a time."""
    with jax.enable_x64(False):
        make = lambda layers: (
            lambda: {
                "up": jnp.zeros((layers, 256, 1024), jnp.float32),
                "down": jnp.zeros((layers, 1024, 256), jnp.float32),
            }
        )
        batch, loss_fn = np.ones((8, 256), np.float32), stacked_loss("nothing_saveable")
        few, many = (explain_gradients(td.FSDP(), make(n), loss_fn, batch).memory.temporary for n in (3, 12))
    bound("temporary MiB of FSDP's gradients, 24 MiB in layers of 2", many / 2**20, 3.2)
    bound("temporary memory of FSDP's gradients, 24 MiB of layers to 6", many / few, 1.05)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rows", [24, 13])
@pytest.mark.parametrize("name", ["FSDP", "HSDP 2x4", "data x FSDP x tensor"])
def test_gradients_of_layers_are_those_of_one_device(name, rows):
    loss_fn = lambda params, batch: token_losses(params, batch, td.layer(apply_block)).mean()
    strategy = STRATEGIES[name]()
    params, batch = strategy.init(make_params), make_batch(rows)
    found = strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(batch))
    assert relative_error(found, on_one(mean_loss)(make_params(), batch)) < 1e-12


def test_an_uneven_batch_tells_that_large_layers_are_gathered_at_once():
    strategy = td.FSDP()
    params = strategy.init(lambda: jnp.zeros((4, 512, 512)))
    loss_fn = lambda params, x: jax.lax.scan(lambda x, w: (td.layer(jnp.dot)(x, w), None), x, params)[0].mean()
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    compute(params, strategy.put(np.ones((16, 512))))
    with pytest.warns(UserWarning, match="all layers are gathered at once.*mask='mask'"):
        compute(params, strategy.put(np.ones((13, 512))))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "strategy",
    [
        td.Sharded({"data": -1, "tensor": 1}),
        td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, rules={"w": P(None, None, "tensor")}, min_size=1),
        td.Pipeline(2, 2, axes={"data": 2, "tensor": 2}, rules={"w": P(None, None, "tensor")}, stack="w", min_size=1),
    ],
    ids=["tensor of one", "data x fsdp x tensor", "data x stage x tensor"],
)
def test_gradients_of_16_bits_are_those_of_one_device(strategy, dtype):
    """XLA:CPU would end the process where it divides `tensor` and sums them as they are."""
    loss_fn = td.Staged(
        lambda params, x: x + params["b"],
        lambda w, x, batch: x + x @ w,
        lambda params, x, batch: (x.astype(jnp.float32) ** 2).mean(),
        stack="w",
    )
    params = {"w": jnp.full((4, 8, 8), 1 / 8, dtype), "b": jnp.ones(8, dtype)}
    found, expected = (
        jax.device_get(
            each.value_and_grad(loss_fn, has_aux=False)(each.init(lambda: params), each.put(np.ones((8, 8), dtype)))
        )
        for each in (strategy, td.SingleDevice())
    )
    assert found[0] == expected[0]
    assert jax.tree.map(lambda leaf: leaf.dtype.name, found[1]) == {"w": dtype, "b": dtype}
    jax.tree.map(lambda one, other: np.testing.assert_array_equal(one, other), found[1], expected[1])


def test_cast_parameters_are_gathered_in_their_type_and_their_gradients_reduced_in_float32():
    strategy = td.FSDP(min_size=1)
    cast = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)
    loss_fn = lambda params, x: stacked_loss("nothing_saveable")(cast(params), x.astype(jnp.bfloat16)).astype(
        jnp.float32
    )
    params = strategy.init(lambda: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), make_stacked(2)))
    batch = strategy.put(np.ones((8, 64), np.float32))
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    text = compute.lower(params, batch).as_text()
    assert set(re.findall(r"all_gather.*?-> tensor<[\dx]*(\w+)>", text)) == {"bf16"}
    assert set(re.findall(r"reduce_scatter.*?-> tensor<[\dx]*(\w+)>", text, re.S)) == {"f32"}
    on_one_device = jax.jit(jax.value_and_grad(loss_fn))(make_stacked(2), np.ones((8, 64), np.float32))
    assert relative_error(compute(params, batch), on_one_device) < 0.05


def test_layers_know_their_policies():
    with pytest.raises(ValueError, match=r"one of nothing_saveable, dots_saveable.*got 'dots'"):
        td.layer(apply_block, policy="dots")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["ZeRO1", "FSDP", "HSDP 4x2", "TensorParallel 2x4", "data x FSDP x tensor"])
def test_checkpoints_move_between_layouts(name, tmp_path, bound):
    make_state = lambda: (params := make_params(), OPTIMIZER.init(params))
    shapes, state = jax.eval_shape(make_state), STRATEGIES[name]().init(make_state)
    for i, other in enumerate(
        [STRATEGIES["FSDP x tensor"](), td.Mirrored(tuple(jax.devices()[:3])), STRATEGIES[name]()]
    ):
        with td.Checkpointer(tmp_path / str(i)) as checkpointer:
            checkpointer.save(1, state)
            state = checkpointer.restore(like=shapes, strategy=other).state
        jax.tree.map(
            lambda leaf, wanted: wanted.is_equivalent_to(leaf.sharding, leaf.ndim) or pytest.fail(f"{leaf.sharding}"),
            state,
            other.shardings(shapes),
        )
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(jax.jit(make_state)()), strict=True)
    unlike = sum(int((np.asarray(leaf) != np.asarray(expected)).sum()) for leaf, expected in pairs)
    bound("numbers that differ after a state has moved A -> B -> C -> A", unlike, 0)


SEVERAL_AXES = ["HSDP 2x4", "data x FSDP x tensor", "tensor first"]


@pytest.mark.parametrize("rows", [24, 13])
@pytest.mark.parametrize("name", SEVERAL_AXES)
def test_results_of_rows_are_in_order_over_several_axes(name, rows):
    strategy, x = STRATEGIES[name](), np.random.default_rng(0).normal(size=(rows, 4))
    describe = lambda scale, x: {"rows": x[:, 0] * scale, "count": len(x), "mean": x.mean(), "sum": x.sum()}
    found = strategy.evaluate(describe)(2.0, strategy.put(x))
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-12), found, describe(2.0, x))


@pytest.mark.filterwarnings("ignore:The rules")
@pytest.mark.filterwarnings("ignore:Over the axes")
@pytest.mark.parametrize("name", SEVERAL_AXES)
def test_statistics_of_the_whole_batch_are_over_all_its_axes(name):
    strategy, x = STRATEGIES[name](), np.random.default_rng(0).normal(size=(24, 4))

    def loss_fn(axes, scale, x):
        mean = x.mean(0) if axes is None else jax.lax.pmean(x.mean(0), axes)
        return ((x - mean) ** 2 * scale).mean()

    params = strategy.init(lambda: jnp.float64(3))
    compute = lambda axes: strategy.value_and_grad(functools.partial(loss_fn, axes), has_aux=False)
    found = compute(strategy.batch_axes)(params, strategy.put(x))
    assert relative_error(found, jax.value_and_grad(functools.partial(loss_fn, None))(3.0, x)) < 1e-12
    with pytest.warns(UserWarning, match=r"axis_name=strategy\.batch_axes"):
        compute(strategy.batch_axes[:1])(params, strategy.put(x))


@pytest.mark.parametrize("make_norm", ["linen", "nnx"])
def test_batch_normalisation_is_that_of_one_device_over_all_axes(make_norm):
    x = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)

    def make_loss(axes):
        if make_norm == "linen":
            norm = linen.BatchNorm(use_running_average=False, axis_name=axes)
            variables = norm.init(jax.random.key(0), x[:8])
            return lambda scale, x: (norm.apply(variables, x, mutable=["batch_stats"])[0] ** 3 * scale).mean()
        graph, state = nnx.split(nnx.BatchNorm(4, axis_name=axes, rngs=nnx.Rngs(0)))
        return lambda scale, x: (nnx.merge(graph, state, copy=True)(x) ** 3 * scale).mean()

    strategy = td.HSDP(shards=4)
    compute = strategy.value_and_grad(make_loss(strategy.batch_axes), has_aux=False)
    found = compute(jnp.float32(3), strategy.put(x))
    assert relative_error(found, jax.value_and_grad(make_loss(None))(np.float32(3), x)) < 1e-5


@pytest.mark.parametrize("name", SEVERAL_AXES)
def test_replicas_along_several_axes_draw_different_numbers(name):
    strategy = STRATEGIES[name]()
    draw = lambda _, x, key: jax.random.uniform(key, x.shape)
    numbers = np.asarray(strategy.evaluate(draw)(0.0, strategy.put(np.zeros(16)), jax.random.key(0)))
    assert len(set(numbers.tolist())) == 16


@pytest.mark.parametrize("rows", [24, 13])
def test_activations_may_be_laid_out_by_the_program(rows):
    strategy = STRATEGIES["TensorParallel 2x4"]()
    divided = lambda params, x: jax.lax.with_sharding_constraint(apply_block(params, x), P(None, None, "tensor"))
    params, batch = strategy.init(make_params), make_batch(rows)
    loss_fn = lambda params, batch: token_losses(params, batch, divided).mean()
    found = strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(batch))
    assert relative_error(found, on_one(mean_loss)(make_params(), batch)) < 1e-12


RULES_OVER_FSDP = {
    "one dimension each": P("fsdp", None, "tensor"),
    "the first alone": P("fsdp"),
    "one dimension over both": P(None, ("fsdp", "tensor")),
    "one dimension over both, tensor first": P(None, ("tensor", "fsdp")),
    "over all": P(None, ("data", "fsdp"), "tensor"),
    "over all, in another order": P(None, "tensor", ("fsdp", "data")),
    "over the data": P(None, "data"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [16, 11])
@pytest.mark.filterwarnings("ignore:Over the axes")
@pytest.mark.parametrize("name", RULES_OVER_FSDP)
def test_stacked_layers_may_lie_over_any_axes(name, rows):
    strategy = td.Sharded(
        {"data": 2, "fsdp": 2, "tensor": 2}, {"up": RULES_OVER_FSDP[name], "scale": P("fsdp")}, min_size=1
    )
    random = np.random.default_rng(0)
    params = {
        "up": random.normal(size=(4, 16, 32)) * 0.1,
        "down": random.normal(size=(4, 32, 16)) * 0.1,
        "scale": random.normal(size=4),
    }
    x = random.normal(size=(rows, 16))
    layer = td.layer(lambda params, x: x + jnp.tanh(x @ params["up"]) @ params["down"] * params["scale"])
    loss_fn = lambda params, x: (jax.lax.scan(lambda x, p: (layer(p, x), None), x, params)[0] ** 2).mean()
    placed = strategy.init(lambda: jax.tree.map(jnp.asarray, params))
    found = strategy.value_and_grad(loss_fn, has_aux=False)(placed, strategy.put(x))
    assert relative_error(found, jax.value_and_grad(loss_fn)(params, x)) < 1e-12


def loss_of_everything(params, x):
    """Layers inside of layers, in jitted functions, in conditionals, and used twice."""
    inner = td.layer(lambda w, x: jnp.tanh(x @ w))
    outer = jax.jit(td.layer(lambda params, x: inner(params["a"], x) + inner(params["b"], x) @ params["a"]))
    x = outer(params, x) + x @ params["a"]
    x = jax.lax.cond(params["b"].sum() > 0, lambda x: inner(params["b"], x), lambda x: x, x)
    x, totals = jax.lax.scan(
        lambda x, w: (inner(w, x) + inner(params["a"], x), x.sum()), x, params["stack"], reverse=True
    )
    steps = jax.lax.fori_loop(0, 3, lambda _, x: inner(params["a"], x), x)
    return (jax.nn.relu(x) * steps).mean(), {"totals": td.Sum(totals), "n": len(x)}


def test_layers_are_found_wherever_they_are():
    random = np.random.default_rng(0)
    params = {name: random.normal(size=(8, 8)) * 0.3 for name in "ab"} | {"stack": random.normal(size=(3, 8, 8)) * 0.3}
    x = random.normal(size=(16, 8))
    strategy = td.FSDP(min_size=1)
    placed = strategy.init(lambda: jax.tree.map(jnp.asarray, params))
    found = strategy.value_and_grad(loss_of_everything)(placed, strategy.put(x))
    (loss, aux), grads = jax.value_and_grad(loss_of_everything, has_aux=True)(params, x)
    assert relative_error(found, ((loss, {"totals": aux["totals"].value, "n": 16}), grads)) < 1e-12
