"""Mixtures of experts under every strategy: gradients of one device, whatever is dropped, and what is sent between devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tests.strategies.test_parallelism import relative_error

pytestmark = pytest.mark.usefixtures("double_precision")

WIDTH, HIDDEN, EXPERTS, LENGTH = 8, 16, 8, 6
RULES = {"experts/.*": P("expert")}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "FSDP": lambda: td.FSDP(min_size=64),
    "expert 8": lambda: td.Sharded({"expert": 8}, RULES, min_size=64),
    "data x expert": lambda: td.Sharded({"data": 2, "expert": 4}, RULES, min_size=64),
    "expert x data": lambda: td.Sharded({"expert": 2, "data": 4}, RULES, min_size=64),
    "data x FSDP x expert": lambda: td.Sharded({"data": 2, "fsdp": 2, "expert": 2}, RULES, min_size=64),
    "FSDP within experts": lambda: td.Sharded({"fsdp": 4, "expert": 2}, {"experts/.*": P(("expert", "fsdp"))}),
    "expert x tensor": lambda: td.Sharded(
        {"data": 2, "expert": 2, "tensor": 2},
        {"experts/up": P("expert", None, "tensor"), "experts/down": P("expert", "tensor")},
    ),
}


def make_params():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape))
    return {
        "router": normal(WIDTH, EXPERTS),
        "experts": {"up": normal(EXPERTS, WIDTH, HIDDEN), "down": normal(EXPERTS, HIDDEN, WIDTH)},
    }


def apply_expert(params, x):
    return jax.nn.gelu(x @ params["up"]) @ params["down"]


def make_loss(top_k=2, capacity_factor=1.25, wrap=lambda fn: fn):
    def loss_fn(params, x):
        gates = jax.nn.softmax(x @ params["router"])
        run = wrap(
            lambda params: td.run_experts(apply_expert, params, x, gates, top_k=top_k, capacity_factor=capacity_factor)
        )
        routed = run(params["experts"])
        loss = ((x + routed.outputs) ** 2).mean() + 0.1 * routed.balance_loss.mean()
        loss += 0.01 * td.compute_router_z_loss(x @ params["router"]).mean()
        aux = {"dropped": routed.dropped.mean(), "outputs": routed.outputs, "sent": routed.sent}
        return loss, aux | {"number": routed.num_dropped.sum()}

    return loss_fn


def make_rows(rows):
    return np.random.default_rng(rows).normal(size=(rows, LENGTH, WIDTH))


def compute_densely(params, x, top_k, room):
    """Return outputs, how many choices each expert is, and how many are dropped: with a loop over tokens instead of a program."""
    gates = np.asarray(jax.nn.softmax(x @ params["router"]))
    outputs, sent = np.zeros_like(x), np.zeros((len(x), EXPERTS), int)
    for row, taken in enumerate(sent):
        choices = np.argsort(-gates[row], axis=-1, kind="stable")[:, :top_k]
        for k in range(top_k):
            for token in range(LENGTH):
                expert = choices[token, k]
                taken[expert] += 1
                if taken[expert] <= room:
                    one = jax.tree.map(lambda leaf, expert=expert: leaf[expert], params["experts"])
                    outputs[row, token] += gates[row, token, expert] * apply_expert(one, x[row, token])
    return outputs, sent, np.maximum(sent - room, 0).sum()


@pytest.mark.parametrize(("top_k", "capacity_factor", "room"), [(1, 1.0, 1), (2, 1.25, 2), (2, None, LENGTH)])
def test_tokens_go_to_the_experts_with_the_largest_gates(top_k, capacity_factor, room):
    params, x = make_params(), make_rows(3)
    _, aux = make_loss(top_k, capacity_factor)(params, x)
    outputs, sent, dropped = compute_densely(params, x, top_k, room)
    np.testing.assert_allclose(aux["outputs"], outputs, atol=1e-12)
    np.testing.assert_array_equal(aux["sent"], sent)
    assert aux["number"] == dropped
    assert bool(dropped) == (capacity_factor is not None)
    np.testing.assert_allclose(aux["dropped"], dropped / (3 * LENGTH * top_k), rtol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("wrap", [lambda fn: fn, td.layer])
@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_those_of_one_device(name, wrap, bound):
    strategy = STRATEGIES[name]()
    params = strategy.init(make_params)
    loss_fn = make_loss(wrap=wrap)
    x = make_rows(24)
    (loss, aux), grads = strategy.value_and_grad(loss_fn)(params, strategy.put(x))
    (expected_loss, expected_aux), expected = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(make_params(), x)
    assert float(aux["dropped"]) > 0
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, atol=1e-12), aux, expected_aux)
    bound(
        "relative error of gradients of experts, f64", relative_error((loss, grads), (expected_loss, expected)), 1e-12
    )
    jax.tree.map(lambda grad, param: grad.sharding.is_equivalent_to(param.sharding, grad.ndim) or 1 / 0, grads, params)


def run_all_experts(params, x):
    """Every expert for every token, of which the two with the largest gates count: nothing is sent anywhere."""
    gates = jax.nn.softmax(x @ params["router"])
    least = jax.lax.top_k(gates, 2)[0][..., -1:]
    results = jax.vmap(apply_expert, (0, None), 2)(params["experts"], x)
    return jnp.einsum("rte,rtef->rtf", jnp.where(gates >= least, gates, 0), results)


MESHES = {
    "data x expert": {"data": 4, "expert": 2},
    "expert x tensor": {"data": 1, "expert": 4, "tensor": 2},
    "data x expert x tensor": {"data": 2, "expert": 2, "tensor": 2},
    "sequence x expert": {"data": 1, "expert": 4, "sequence": 2},
    "stage x expert": {"data": 2, "stage": 2, "expert": 2},
    "stage x expert x tensor": {"data": 1, "stage": 2, "expert": 2, "tensor": 2},
    "stage x expert x sequence": {"data": 1, "stage": 2, "expert": 2, "sequence": 2},
}


@pytest.mark.sampled(2)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", MESHES)
def test_with_room_for_all_experts_are_those_of_a_dense_model_on_one_device(name, bound):
    """Layers of experts in every product of axes, also in stages of a pipeline, with both losses beside the outputs."""
    axes = MESHES[name]
    rules = {"experts/up": P(None, "expert", None, "tensor"), "experts/down": P(None, "expert", "tensor")}
    rules = rules if "tensor" in axes else {"experts/.*": P(None, "expert")}
    strategy = td.Pipeline(2, 2, axes=axes, rules=rules) if "stage" in axes else td.Sharded(axes, rules)

    def layer(params, state, batch):
        x, extra = state
        logits = x @ params["router"]
        routed = td.run_experts(apply_expert, params["experts"], x, jax.nn.softmax(logits), capacity_factor=None)
        return x + routed.outputs, extra + routed.balance_loss + td.compute_router_z_loss(logits)

    def dense_layer(params, state, batch):
        x, extra = state
        logits = x @ params["router"]
        gates, total = jax.nn.softmax(logits), jax.nn.logsumexp(logits, -1)
        is_chosen = gates >= jax.lax.top_k(gates, 2)[0][..., -1:]
        balance = EXPERTS * (is_chosen.mean(1, dtype=x.dtype) / 2 * gates.mean(1)).sum(-1)
        return x + run_all_experts(params, x), extra + balance + (total**2).mean(1)

    make_loss = lambda layer: td.Staged(
        lambda params, x: (x, jnp.zeros(len(x))),
        layer,
        lambda params, state, x: (state[0] ** 2).mean() + state[1].mean(),
    )
    make = lambda: {"blocks": jax.tree.map(lambda leaf: 0.3 * jnp.stack([leaf, leaf[::-1]]), make_params())}
    x = make_rows(16)
    found = strategy.value_and_grad(make_loss(layer), has_aux=False)(strategy.init(make), strategy.put(x))
    expected = jax.jit(jax.value_and_grad(make_loss(dense_layer)))(make(), x)
    bound("relative error of gradients of experts to a dense model, f64", relative_error(found, expected), 1e-12)


def test_the_router_z_loss_is_that_of_large_logits():
    logits = jnp.array([[[0.0, 0.0], [100.0, 0.0]]], jnp.bfloat16)
    found = td.compute_router_z_loss(logits)
    np.testing.assert_allclose(found, (np.log(2) ** 2 + 100**2) / 2, rtol=1e-6)
    assert found.dtype == jnp.float32
    with pytest.raises(ValueError, match=r"logits are \[rows, tokens, experts\], got \(2, 3\).*logits\[:, None\]"):
        td.compute_router_z_loss(jnp.ones((2, 3)))


@pytest.mark.parametrize("name", ["Mirrored", "FSDP"])
def test_where_nothing_is_sent_replicas_may_have_different_numbers_of_rows(name):
    strategy = STRATEGIES[name]()
    loss_fn = make_loss()
    (_, aux), grads = strategy.value_and_grad(loss_fn)(strategy.init(make_params), strategy.put(make_rows(11)))
    (_, expected_aux), expected = jax.value_and_grad(loss_fn, has_aux=True)(make_params(), make_rows(11))
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, atol=1e-12), (aux, grads), (expected_aux, expected))


def test_different_numbers_of_rows_are_refused_where_tokens_are_sent():
    strategy = STRATEGIES["data x expert"]()
    params = strategy.init(make_params)
    with pytest.raises(ValueError, match=r"communicates between replicas, at .*test_experts.py:\d+ .*mask='mask'"):
        strategy.value_and_grad(make_loss())(params, strategy.put(make_rows(11)))

    def masked(params, batch):
        gates = jax.nn.softmax(batch["x"] @ params["router"])
        routed = td.run_experts(apply_expert, params["experts"], batch["x"], gates)
        mask = batch["mask"]
        return ((routed.outputs**2).sum((1, 2)) * mask).sum() + (routed.balance_loss * mask).sum(), mask.sum()

    x = make_rows(11)
    loss, grads = strategy.value_and_grad(masked, has_aux=False)(params, strategy.put({"x": x}, mask="mask"))
    on_one = lambda params: (lambda pair: pair[0] / pair[1])(masked(params, {"x": x, "mask": np.ones(11)}))
    expected_loss, expected = jax.value_and_grad(on_one)(make_params())
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, atol=1e-12), grads, expected)


def test_a_device_holds_its_experts_and_sends_tokens_there_and_back():
    strategy = STRATEGIES["data x expert"]()
    params = strategy.init(make_params)
    assert params["experts"]["up"].addressable_shards[0].data.shape == (EXPERTS // 4, WIDTH, HIDDEN)
    program = jax.jit(strategy.value_and_grad(make_loss()))
    text = program.lower(params, strategy.put(make_rows(16))).compile().as_text()
    # The tokens that are sent have no gradient, only what comes back.
    assert text.count(" all-to-all(") == 3
    assert " all-gather(" not in text


def test_experts_that_are_not_split_over_their_axis_are_refused():
    strategy = td.Sharded({"data": 2, "expert": 4})
    params = strategy.init(make_params)
    with pytest.raises(ValueError, match=r"8 experts on 4 devices.*\['down'\].*\(8, 16, 8\).*P\('expert'\)"):
        strategy.value_and_grad(make_loss())(params, strategy.put(make_rows(16)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": np.zeros((2, WIDTH))}, r"\[rows, tokens, features\].*x\[:, None\]"),
        ({"gates": np.zeros((2, LENGTH + 1, EXPERTS))}, "gates"),
        ({"top_k": 0}, "1 to the 8 experts"),
        ({"top_k": 9}, "1 to the 8 experts"),
        ({"apply": lambda params, x: x.sum(0)}, r"return \[n, features\]"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, message):
    given = {
        "apply": apply_expert,
        "params": make_params()["experts"],
        "tokens": np.zeros((2, LENGTH, WIDTH)),
        "gates": np.zeros((2, LENGTH, EXPERTS)),
    }
    given |= changed
    with pytest.raises(ValueError, match=message):
        td.run_experts(given.pop("apply"), given.pop("params"), given.pop("tokens"), given.pop("gates"), **given)


def test_a_balanced_choice_has_a_balance_loss_of_one():
    gates = np.eye(EXPERTS)[None]
    routed = td.run_experts(lambda _, x: x, jnp.zeros(EXPERTS), jnp.ones((1, EXPERTS, 3)), gates, top_k=1)
    np.testing.assert_allclose(routed.balance_loss, [1])
    np.testing.assert_allclose(routed.outputs, np.ones((1, EXPERTS, 3)))


def test_a_sum_beside_experts_is_known_to_be_one():
    strategy = STRATEGIES["data x expert"]()

    def count(params, x):
        gates = jax.nn.softmax(x @ params["router"])
        return (td.run_experts(apply_expert, params["experts"], x, gates).outputs > 0).sum()

    x = make_rows(16)
    assert int(strategy.evaluate(count)(strategy.init(make_params), strategy.put(x))) == int(count(make_params(), x))


@pytest.mark.parametrize("mesh", [{"data": 2, "expert": 4}, {"data": 8, "expert": 1}])
def test_a_part_of_the_experts_is_not_taken_for_all(mesh):
    strategy = td.Sharded(mesh, RULES)
    params, x = strategy.init(make_params), strategy.put(make_rows(16))
    penalty = lambda params: (params["experts"]["up"] ** 2).sum()
    decayed = strategy.value_and_grad(lambda params, x: (x**2).mean() + penalty(params), has_aux=False)
    first = strategy.value_and_grad(lambda params, x: (x @ params["experts"]["up"][0]).mean(), has_aux=False)
    if mesh["expert"] == 1:
        np.testing.assert_allclose(decayed(params, x)[0], (make_rows(16) ** 2).mean() + penalty(make_params()))
        first(params, x)
        return
    with pytest.raises(ValueError, match=r"does not follow|only a part"):
        decayed(params, x)
    with pytest.raises(ValueError, match=r"test_experts.py.*only a part, such as its experts.*td.assume_exact"):
        first(params, x)

    def loss_fn(params, x):
        total = td.assume_exact(lambda params: jax.lax.psum(penalty(params), "expert"))
        return (x**2).mean() + total(params)

    loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, x)
    np.testing.assert_allclose(loss, (make_rows(16) ** 2).mean() + penalty(make_params()))
    np.testing.assert_allclose(grads["experts"]["up"], 2 * make_params()["experts"]["up"])


def test_an_axis_that_stays_split_comes_first():
    strategy = td.Sharded({"fsdp": 4, "expert": 2}, {"experts/.*": P(("fsdp", "expert"))})
    with pytest.raises(ValueError, match=r"come behind others.*Put them first"):
        strategy.init(make_params)
