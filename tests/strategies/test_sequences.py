"""Rows whose tokens are split over devices: gradients of one device, and what would mix tokens without communicating is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._across_devices import _tiles

pytestmark = pytest.mark.usefixtures("double_precision", "small_tiles")

WIDTH, HEADS, KEY_HEADS, HIDDEN, VOCABULARY, LENGTH, EXPERTS = 32, 8, 4, 48, 40, 16, 4
RULES = {
    "out": P("tensor"),
    "up": P(None, "tensor"),
    "down": P("tensor"),
}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "data x sequence": lambda: td.Sharded({"data": 2, "sequence": 4}),
    "sequence first": lambda: td.Sharded({"sequence": 2, "data": 4}),
    "one replica": lambda: td.Sharded({"data": 1, "sequence": 4}, devices=tuple(jax.devices()[:4])),
    "FSDP x sequence": lambda: td.Sharded({"fsdp": 4, "sequence": 2}, min_size=64),
    "data x FSDP x sequence": lambda: td.Sharded({"data": 2, "fsdp": 2, "sequence": 2}, min_size=64),
    "sequence x tensor": lambda: td.Sharded({"data": 2, "sequence": 2, "tensor": 2}, RULES, min_size=64),
    "expert x sequence": lambda: td.Sharded({"expert": 4, "sequence": 2}, {"experts/.*": P("expert")}, min_size=64),
}


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of two tokens, so that few tokens make several, and causal rings deal them out."""
    monkeypatch.setattr(_tiles, "LARGEST_TILE", 2)


def make_params():
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.3)
    features = WIDTH // HEADS
    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "place": normal(LENGTH, WIDTH),
        "query": normal(WIDTH, HEADS, features),
        "key": normal(WIDTH, KEY_HEADS, features),
        "value": normal(WIDTH, KEY_HEADS, features),
        "out": normal(HEADS, features, WIDTH),
        "router": normal(WIDTH, EXPERTS),
        "experts": {"first": normal(EXPERTS, WIDTH, HIDDEN), "second": normal(EXPERTS, HIDDEN, WIDTH)},
        "up": normal(WIDTH, HIDDEN),
        "down": normal(HIDDEN, WIDTH),
        "head": normal(WIDTH, VOCABULARY),
    }


def apply_expert(params, x):
    return jax.nn.gelu(x @ params["first"]) @ params["second"]


def apply(params, batch, method="ring", is_causal=True):
    """The losses of tokens, and each row's balance loss."""
    x = params["embedding"][batch["x"]] + params["place"][td.token_positions(batch["x"])]
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    q, k, v = (jnp.einsum("btd,dhf->bthf", h, params[name]) for name in ("query", "key", "value"))
    attended = td.attend(q, k, v, mask=batch["mask"], is_causal=is_causal, method=method)
    x = x + jnp.einsum("bthf,hfd->btd", attended, params["out"])
    routed = td.run_experts(apply_expert, params["experts"], x, jax.nn.softmax(x @ params["router"]))
    x = x + routed.outputs
    x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"]), routed.balance_loss


def make_mean_loss(method="ring", is_causal=True, wrap=lambda fn: fn):
    def loss_fn(params, batch):
        losses, balance = wrap(lambda params: apply(params, batch, method, is_causal))(params)
        aux = {"tokens": losses, "rows": losses.mean(1), "largest": balance, "count": batch["mask"].sum()}
        return losses.mean() + 0.1 * balance.mean(), aux

    return loss_fn


def weighed_loss(params, batch):
    losses, balance = apply(params, batch)
    losses += 0.1 * balance[:, None]
    return ((losses * batch["mask"]).sum(), batch["mask"].sum()), {"rows": len(losses)}


def of_one(loss_fn):
    def loss(params, batch):
        found, aux = loss_fn(params, batch)
        return (found[0] / found[1] if isinstance(found, tuple) else found), aux

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def make_batch(rows):
    random = np.random.default_rng(rows)
    x, y = random.integers(0, VOCABULARY, (2, rows, LENGTH))
    return {"x": x, "y": y, "mask": random.random((rows, LENGTH)) < 0.8}


def check_against_one_device(strategy, loss_fn, batch, bound):
    params = strategy.init(make_params)
    (loss, aux), grads = strategy.value_and_grad(loss_fn)(params, strategy.put(batch))
    (expected_loss, expected_aux), expected = of_one(loss_fn)(make_params(), batch)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-11, atol=1e-12), aux, expected_aux)
    bound(
        "relative error of gradients of attention, f64", relative_error((loss, grads), (expected_loss, expected)), 1e-12
    )
    for grad, param in zip(jax.tree.leaves(grads), jax.tree.leaves(params), strict=True):
        assert grad.sharding.is_equivalent_to(param.sharding, grad.ndim)


@pytest.mark.sampled(3)
@pytest.mark.one_in(7)
@pytest.mark.parametrize("loss_fn", [make_mean_loss(), make_mean_loss("all_to_all", is_causal=False), weighed_loss])
@pytest.mark.parametrize("name", STRATEGIES)
def test_gradients_are_those_of_one_device(name, loss_fn, bound):
    check_against_one_device(STRATEGIES[name](), loss_fn, make_batch(16), bound)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["ring", "all_to_all"])
def test_gradients_of_layers_are_those_of_one_device(method, bound):
    check_against_one_device(
        STRATEGIES["data x sequence"](), make_mean_loss(method, wrap=td.layer), make_batch(4), bound
    )


MIXING = {
    "attention of the part": lambda params, x: jax.nn.softmax(x @ x.swapaxes(1, 2)) @ x,
    "a mean of the part": lambda params, x: x - x.mean(1, keepdims=True),
    "a shift": lambda params, x: x[:, 1:] - x[:, :-1],
    "places of the part": lambda params, x: x + jnp.arange(x.shape[1])[:, None],
    "a table of places": lambda params, x: x + params["place"][: x.shape[1]],
    "a convolution": lambda params, x: jax.lax.conv_general_dilated(
        x, jnp.ones((3, WIDTH, WIDTH)), (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
    ),
    "a running sum": lambda params, x: jnp.cumsum(x, 1),
    "a recurrence": lambda params, x: jax.lax.scan(lambda c, x: (c + x, c), x[:, 0] * 0, x.swapaxes(0, 1))[1],
    "another order": lambda params, x: x[:, ::-1],
    "chosen tokens": lambda params, x: x[:, jnp.arange(x.shape[1]) // 2],
    "pooling": lambda params, x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 1), (1, 1, 1), "SAME"),
    "a kernel": lambda params, x: jnp.fft.fft(x, axis=1).real,
}


def test_a_token_that_points_to_itself_depends_on_no_other(bound):
    def loss_fn(params, batch):
        rows, tokens = batch["x"].shape
        scores = jax.nn.log_softmax(params["embedding"][batch["x"]] @ params["embedding"].T)
        own = scores[jnp.arange(rows)[:, None], jnp.arange(tokens), batch["y"]]
        ones = jnp.zeros_like(scores).at[jnp.arange(rows)[:, None], jnp.arange(tokens), batch["y"]].set(1.0)
        return -own.mean(), {"own": own, "count": ones.sum()}

    check_against_one_device(STRATEGIES["data x sequence"](), loss_fn, make_batch(4), bound)


BLOCKS = {
    "means": lambda x: x.reshape(len(x), 4, -1, WIDTH).mean(2),
    "the first": lambda x: x.reshape(len(x), 4, -1, WIDTH)[:, 0].mean(),
    "one of flattened rows": lambda x: x.reshape(-1, WIDTH).reshape(len(x), 4, -1, WIDTH)[:, 0].mean(),
    "columns": lambda x: x.reshape(-1, WIDTH).reshape(2, -1, WIDTH)[0],
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_tokens_are_refused(name):
    strategy = STRATEGIES["data x sequence"]()
    compute = strategy.evaluate(lambda params, batch: BLOCKS[name](params["embedding"][batch["x"]]))
    with pytest.raises(ValueError, match=r"different for blocks of the (tokens|rows).*test_sequences.py"):
        compute(strategy.init(make_params), strategy.put(make_batch(4)))


def test_blocks_of_tokens_may_be_added_up_and_rows_flattened():
    strategy = STRATEGIES["data x sequence"]()

    def compute(params, batch):
        x = params["embedding"][batch["x"]]
        flat = jnp.tanh(x.reshape(-1, WIDTH)) * batch["mask"].reshape(-1, 1)
        return {
            "tokens": flat.reshape(x.shape),
            "mean": x.reshape(len(x), 4, -1, WIDTH).mean(2).mean(),
            "sum": flat.sum(),
        }

    found = strategy.evaluate(compute)(strategy.init(make_params), strategy.put(make_batch(4)))
    expected = compute(make_params(), make_batch(4))
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-11), found, expected)


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_tokens_without_communicating_is_refused(name):
    strategy = STRATEGIES["data x sequence"]()
    embed = lambda params, batch: params["embedding"][batch["x"]]
    loss_fn = lambda params, batch: (MIXING[name](params, embed(params, batch)) ** 2).mean()
    params, batch = strategy.init(make_params), strategy.put(make_batch(4))
    with pytest.raises(ValueError, match=r"other tokens|does not follow|different|for any number of tokens"):
        strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)


def test_keys_differ_between_the_devices_of_a_row():
    strategy = STRATEGIES["data x sequence"]()
    drop = strategy.evaluate(lambda params, batch, key: jax.random.uniform(key, batch["x"].shape))
    found = np.asarray(drop(strategy.init(make_params), strategy.put(make_batch(4)), jax.random.key(0)))
    assert found.shape == (4, LENGTH)
    assert len(np.unique(found)) == found.size

    def repeat(params, batch):
        return jax.vmap(lambda key: jax.random.uniform(key, batch["x"].shape[1:]))(batch["keys"]).mean()

    batch = make_batch(4)
    keyed = strategy.put({**batch, "keys": td.row_keys(jax.random.key(0), batch)})
    with pytest.raises(ValueError, match="for each token from a key that is the same"):
        strategy.evaluate(repeat)(strategy.init(make_params), keyed)


def test_uneven_rows_are_refused_and_a_mask_makes_them_even():
    strategy = STRATEGIES["data x sequence"]()
    params, batch = strategy.init(make_params), make_batch(5)
    with pytest.raises(ValueError, match=r"communicates between replicas, at .*test_sequences.py:\d+ .*mask='mask'"):
        strategy.value_and_grad(weighed_loss)(params, strategy.put(batch))

    def loss_fn(params, batch):
        losses, balance = apply(params, batch)
        losses += 0.1 * balance[:, None]
        counts = batch["mask"] & batch["real"][:, None]
        return (losses * counts).sum(), counts.sum()

    loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(batch, mask="real"))
    (expected_loss, _), expected = of_one(weighed_loss)(make_params(), batch)
    close = lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-11, atol=1e-12)
    jax.tree.map(close, (loss, grads), (expected_loss, expected))


def test_what_does_not_communicate_may_have_different_numbers_of_rows(bound):
    strategy = STRATEGIES["data x sequence"]()

    def loss_fn(params, batch):
        return (params["embedding"][batch["x"]] ** 2).mean(), {"rows": batch["x"].sum(1), "tokens": batch["x"]}

    check_against_one_device(strategy, loss_fn, make_batch(5), bound)


def test_tokens_that_do_not_divide_are_refused():
    strategy = STRATEGIES["data x sequence"]()
    with pytest.raises(ValueError, match=r"\['x'\].*\(4, 6\).*4 devices along 'sequence'"):
        strategy.put({"x": np.zeros((4, 6))})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": np.zeros((2, 4, 3, 2))}, "divides the query's"),
        ({"mask": np.ones((2, 4, 4), bool)}, r"booleans \(2, 4\)"),
        ({"mask": np.ones((2, 4))}, r"booleans \(2, 4\)"),
        ({"method": "rings"}, "'ring' or 'all_to_all'"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, message):
    array = np.zeros((2, 4, 2, 2))
    given = {"query": array, "key": array, "value": array} | changed
    with pytest.raises(ValueError, match=message):
        td.attend(**given)


def test_heads_that_do_not_divide_over_devices_are_refused():
    strategy = td.Sharded({"data": 1, "sequence": 8})
    with pytest.raises(ValueError, match=r"4 key heads do not divide over 8.*method='ring'"):
        strategy.value_and_grad(make_mean_loss("all_to_all"))(strategy.init(make_params), strategy.put(make_batch(4)))


def count(program, *names):
    text = program.compile().as_text()
    return [text.count(f" {name}(") + text.count(f" {name}-start(") for name in names]


@pytest.mark.parametrize(("method", "permutes", "all_to_alls"), [("ring", True, 0), ("all_to_all", False, 6)])
def test_no_device_gathers_all_tokens(method, permutes, all_to_alls):
    strategy = td.Sharded({"data": 2, "sequence": 4})
    array = strategy.put(np.ones((4, LENGTH, HEADS, 4), np.float32))

    def loss_fn(scale, x):
        return (td.attend(scale * x, scale * x, scale * x, method=method) ** 2).mean()

    program = strategy.value_and_grad(loss_fn, has_aux=False).lower(jnp.float32(1), array)
    found = count(program, "collective-permute", "all-to-all", "all-gather")
    assert bool(found[0]) is permutes
    assert found[1] == all_to_alls
    assert found[2] == 0
