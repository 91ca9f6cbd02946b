"""What a loss and a function over a batch that is split give is what they give on one device, or an error says what to do."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

pytestmark = pytest.mark.usefixtures("double_precision")

STRATEGIES = {
    "mirrored": td.Mirrored,
    "mirrored on three": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "fsdp": lambda: td.FSDP(min_size=1),
    "one device": td.SingleDevice,
}
SIZES = [24, 13, 9, 3, 1]


def make_params():
    random = np.random.default_rng(0)
    return {"w": jnp.asarray(random.normal(size=(4, 8))), "v": jnp.asarray(random.normal(size=(8, 3)))}


def make_batch(rows):
    random = np.random.default_rng(rows)
    mask = random.random((rows, 5)) < np.linspace(0.2, 0.9, rows)[:, None]
    mask[:, 0] = True
    return {"x": random.normal(size=(rows, 4)), "y": random.integers(0, 3, rows), "tokens": mask * 1.0}


def logits(params, batch):
    return jnp.tanh(batch["x"] @ params["w"]) @ params["v"]


def losses(params, batch):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, batch), batch["y"])


def token_losses(params, batch):
    return (losses(params, batch)[:, None] * batch["tokens"]).sum(), batch["tokens"].sum()


def mean_loss(params, batch):
    return losses(params, batch).mean(), {}


def on_one(loss_fn):
    """Return what the loss is on one device, from what it says of its results."""

    def plain(node):
        if isinstance(node, td.Mean):
            return jax.tree.map(lambda total: total if node.weight is None else total / node.weight, node.value)
        return node.value if isinstance(node, td.Sum | td.Rows) else node

    def loss_and_aux(params, batch, *extra):
        loss, aux = loss_fn(params, batch, *extra)
        is_said = lambda node: isinstance(node, td.Mean | td.Sum | td.Rows)
        aux = jax.tree.map(plain, aux, is_leaf=is_said)
        return loss[0] / loss[1] if isinstance(loss, tuple) else plain(loss), aux

    return jax.value_and_grad(loss_and_aux, has_aux=True)


def assert_equal(actual, expected):
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-12, atol=1e-14), actual, expected)
    assert [np.shape(a) for a in jax.tree.leaves(actual)] == [np.shape(e) for e in jax.tree.leaves(expected)]


LOSSES = {
    "mean": mean_loss,
    "mean and what depends on parameters alone": lambda p, b: (losses(p, b).mean() + 1e-2 * optax.tree.norm(p), {}),
    "sum": lambda p, b: (losses(p, b).sum(), {}),
    "sum over a fixed number": lambda p, b: (losses(p, b).sum() / 64, {}),
    "sum and weight": lambda p, b: (token_losses(p, b), {"tokens": b["tokens"].sum()}),
    "a weight that depends on parameters": lambda p, b: ((losses(p, b).sum(), jnp.exp(logits(p, b)).sum()), {}),
    "a sum of shares": lambda p, b: ((losses(p, b) / len(b["y"])).sum(), {}),
    "said to be a mean": lambda p, b: (td.Mean(losses(p, b).mean()), {}),
    "said to be a weighed sum": lambda p, b: (td.Mean(*token_losses(p, b)), {}),
    "without the batch": lambda p, b: (optax.tree.norm(p), {}),
    "one row after another": lambda p, b: (
        jax.lax.map(lambda row: ((row["x"] @ p["w"]) ** 2).sum() * row["tokens"].sum(), b).mean(),
        {},
    ),
    "rows of a sequence": lambda p, b: (
        jnp.mean(
            jax.lax.scan(
                lambda h, x: (jnp.tanh(h + x[:, None] * p["w"][0]), None), jnp.zeros((len(b["y"]), 8)), b["x"].T
            )[0]
            ** 2
        ),
        {},
    ),
    "recomputed": lambda p, b: (jax.checkpoint(losses)(p, b).mean(), {}),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_one_device(name, strategy):
    strategy, loss_fn, params = STRATEGIES[strategy](), LOSSES[name], make_params()
    compute, state = strategy.value_and_grad(loss_fn), strategy.init(lambda: params)
    for rows in (24, 13, 1):
        batch = make_batch(rows)
        assert_equal(compute(state, strategy.put(batch)), on_one(loss_fn)(params, batch))


def loss_with_everything(params, batch, scale):
    right = logits(params, batch).argmax(-1) == batch["y"]
    return losses(params, batch).mean() * scale, {
        "hits": right.sum(),
        "accuracy": right.astype(float).mean(),
        "rows": len(batch["y"]),
        "half the rows": len(batch["y"]) / 2,
        "loss of each": losses(params, batch),
        "predicted": logits(params, batch).argmax(-1),
        "right": right,
        "norm": optax.tree.norm(params),
        "seven": jnp.int32(7),
        "scale": scale,
        "w": params["w"],
        "labels": batch["y"],
        "confusion": jnp.zeros((3, 3), int).at[batch["y"], logits(params, batch).argmax(-1)].add(1),
        "mean of inputs": batch["x"].mean(0),
        "tokens": td.Mean(token_losses(params, batch)[0], token_losses(params, batch)[1]),
        "of two": td.Mean({"a": losses(params, batch).sum(), "b": right.sum()}, len(batch["y"])),
        "said": (
            td.Sum(losses(params, batch).sum()),
            td.Rows({"x": batch["x"] * 2}),
            td.Mean(losses(params, batch).mean()),
        ),
    }


@pytest.mark.one_in(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_comes_beside_the_loss_is_that_of_the_whole_batch(strategy):
    strategy, params = STRATEGIES[strategy](), make_params()
    compute, state = strategy.value_and_grad(loss_with_everything), strategy.init(lambda: params)
    evaluate = strategy.evaluate(lambda *args: loss_with_everything(*args)[1])
    for rows in SIZES:
        batch, extra = make_batch(rows), jnp.float64(3)
        expected = on_one(loss_with_everything)(params, batch, extra)
        assert_equal(compute(state, strategy.put(batch), extra), expected)
        assert_equal(evaluate(state, strategy.put(batch), extra), expected[0][1])


def test_entries_of_rows_are_sharded_by_rows():
    strategy = td.Mirrored()
    fn = strategy.evaluate(lambda p, b: {"rows": logits(p, b), "w": p["w"]})
    results = fn(strategy.init(make_params), strategy.put(make_batch(24)))
    assert (results["rows"].sharding.spec, results["w"].sharding.spec) == (P("data"), P())


def centred_loss(params, batch):
    centre = jax.lax.pmean(batch["x"].mean(0), td.DATA)
    return losses(params, {**batch, "x": batch["x"] - centre}).mean(), {}


KINDS = {
    "plain": (mean_loss, lambda p, b: (losses(p, b).sum(), 1.0)),
    "sum and weight": (lambda p, b: (token_losses(p, b), {}), token_losses),
    "synchronised": (centred_loss, None),
}


# Around the number of replicas, its multiples and the largest.
SOME_SIZES = [*range(1, 10), 15, 16, 17, 31, 40, 57, 63, 64]
SETS_OF_SIZES = [SOME_SIZES, pytest.param(list(range(1, 65)), marks=pytest.mark.exhaustive)]


@pytest.mark.one_in(2)
@pytest.mark.slow("each size of a batch is a program of its own")
@pytest.mark.parametrize("sizes", SETS_OF_SIZES, ids=["some", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_size_of_a_batch_is_exact_or_refused(kind, sizes, bound):
    strategy, params, batch = td.Mirrored(), make_params(), make_batch(64)
    loss_fn, of_a_row = KINDS[kind]
    compute, state = strategy.value_and_grad(loss_fn), strategy.init(lambda: params)

    def expected(rows):
        if of_a_row is None:
            centred = {**batch, "x": batch["x"] - batch["x"][:rows].mean(0)}
            return on_one(mean_loss)(params, jax.tree.map(lambda leaf: leaf[:rows], centred))
        total = jax.tree.map(lambda leaf: leaf[:rows].sum(0) / weights[:rows].sum(), of_each)
        return (total[0], {}), total[1]

    if of_a_row is not None:
        by_row = jax.tree.map(lambda leaf: leaf[:, None], batch)
        (values, weights), grads = jax.vmap(jax.value_and_grad(of_a_row, has_aux=True), in_axes=(None, 0))(
            params, by_row
        )
        of_each = values, grads
    refused = []
    for rows in sizes:
        try:
            actual = compute(state, strategy.put(jax.tree.map(lambda leaf, n=rows: leaf[:n], batch)))
        except ValueError as error:
            assert "communicates between replicas" in str(error)
            refused.append(rows)
        else:
            assert_equal(actual, expected(rows))
    expected_to_be = [rows for rows in sizes if rows % 8] if kind == "synchronised" else []
    assert refused == expected_to_be
    bound(f"of {len(sizes)} sizes of batches, those that are refused, {kind}", len(refused), len(expected_to_be))


@pytest.mark.parametrize("rows", [13, 3])
def test_a_mask_of_real_rows_stands_in_for_parts_of_other_sizes(rows):
    """Also for functions that communicate, which have to run on all replicas alike."""
    strategy, params, batch = td.Mirrored(), make_params(), make_batch(rows)

    def loss_fn(params, batch):
        weight = batch["is_real"].sum()
        centre = jax.lax.psum((batch["x"] * batch["is_real"][:, None]).sum(0), td.DATA) / jax.lax.psum(weight, td.DATA)
        return ((losses(params, {**batch, "x": batch["x"] - centre}) * batch["is_real"]).sum(), weight), {
            "rows": weight
        }

    (loss, aux), grads = strategy.value_and_grad(loss_fn)(
        strategy.init(lambda: params), strategy.put(batch, mask="is_real")
    )
    centred = {**batch, "x": batch["x"] - batch["x"].mean(0)}
    (expected, _), expected_grads = on_one(mean_loss)(params, centred)
    assert_equal((loss, grads), (expected, expected_grads))
    assert aux["rows"] == rows
    (prefetched,) = strategy.prefetch([batch], mask="is_real")
    assert np.asarray(prefetched["is_real"]).sum() == rows and not isinstance(prefetched, td.PaddedBatch)


REFUSED = {
    "a ratio of sums": (
        lambda p, b: (token_losses(p, b)[0] / token_losses(p, b)[1], {}),
        r"`loss`.*test_global_batch.py:\d+ \(.*token_losses.*sum, weight\)",
    ),
    "a root": (lambda p, b: (jnp.sqrt(losses(p, b).mean()), {}), r"`loss`.*neither a sum nor a mean"),
    "a bounded weight": (
        lambda p, b: ((losses(p, b).sum(), jnp.maximum(b["tokens"].sum(), 1)), {}),
        "sum of their weights.*neither",
    ),
    "a weight that is a mean": (
        lambda p, b: ((losses(p, b).sum(), b["tokens"].mean()), {}),
        "sum of their weights.*a mean",
    ),
    "a sum and what depends on parameters alone": (
        lambda p, b: (losses(p, b).sum() + optax.tree.norm(p), {}),
        "`loss`.*neither",
    ),
    "blocks of rows": (
        lambda p, b: (losses(p, b).mean(), losses(p, b).reshape(3, -1).mean(1)),
        r"`aux`.*different for blocks of the rows.*test_global_batch.py:\d+ \(.*reshape\(3",
    ),
    "one block of rows": (lambda p, b: (losses(p, b).reshape(3, -1)[0].mean(), {}), "`loss`.*blocks of the rows"),
    "a maximum": (lambda p, b: (losses(p, b).mean(), {"worst": losses(p, b).max()}), r"`aux\['worst'\]`.*neither"),
    "a mean that is rounded": (lambda p, b: (losses(p, b).mean(), b["tokens"].mean().astype(int)), "`aux`.*neither"),
    "a number of the replica": (
        lambda p, b: (losses(p, b).mean(), jax.lax.axis_index(td.DATA)),
        "`aux` differs between replicas",
    ),
    "a mean said to be a sum": (
        lambda p, b: (losses(p, b).mean(), td.Sum(losses(p, b).mean())),
        "`aux` is to be a sum.*is a mean",
    ),
    "a sum said to be a mean": (
        lambda p, b: (losses(p, b).mean(), td.Mean(losses(p, b).sum())),
        "`aux` is to be a mean.*is a sum",
    ),
    "a mean of integers": (lambda p, b: (losses(p, b).mean(), td.Mean(jnp.int32(3))), "`aux` is to be a mean.*int32"),
    "entries that are not for rows": (
        lambda p, b: (losses(p, b).mean(), td.Rows(b["tokens"].sum(0))),
        r"`aux`.*for each row.*\(5,\)",
    ),
    "a sum that is scaled": (
        lambda p, b: (losses(p, b).sum() * 8 / jax.lax.psum(b["y"].sum(), td.DATA), {}),
        r"communicates.*weight\)",
    ),
    "a size that is fixed": (
        lambda p, b: (losses(p, {**b, "y": b["y"] + np.zeros(3, int)}).mean(), {}),
        "not known: with the rows of all replicas",
    ),
    "a weight for each row": (lambda p, b: ((losses(p, b).sum(), losses(p, b)), {}), r"scalar.*\(3,\)"),
    "losses of rows": (lambda p, b: (losses(p, b), {}), r"scalar.*\(3,\).*Take its mean"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_follow_from_parts_is_refused(name):
    strategy = td.Mirrored()
    loss_fn, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        strategy.value_and_grad(loss_fn)(make_params(), strategy.put(make_batch(24)))


def test_what_the_program_says_of_a_result_counts_where_nothing_is_known():
    strategy, params = td.Mirrored(), make_params()
    worst = strategy.evaluate(lambda p, b: (td.Sum(losses(p, b).max()), td.Mean(losses(p, b).max())))
    total, average = worst(strategy.init(lambda: params), strategy.put(make_batch(16)))
    of_parts = losses(params, make_batch(16)).reshape(8, 2).max(1)
    np.testing.assert_allclose([total, average], [np.sum(of_parts), np.mean(of_parts)])


def test_entries_of_a_table_for_the_first_rows_of_each_replica_are_warned_of():
    strategy, table = td.Mirrored(), jnp.arange(64.0)
    with pytest.warns(UserWarning, match="depends on other rows"):
        strategy.evaluate(lambda p, b: (losses(p, b) * table[: len(b["x"])]).sum())(
            make_params(), strategy.put(make_batch(16))
        )


def test_statistics_of_a_replicas_rows_are_warned_of():
    strategy = td.Mirrored()
    centred = lambda p, b: (losses(p, {**b, "x": b["x"] - b["x"].mean(0)}).mean(), {})
    with pytest.warns(UserWarning, match=r"depends on other rows.*axis_name=strategy\.batch_axes"):
        strategy.value_and_grad(centred)(make_params(), strategy.put(make_batch(16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        td.SingleDevice().value_and_grad(centred)(make_params(), td.SingleDevice().put(make_batch(16)))
        synchronised = lambda p, b: (losses(p, {**b, "x": b["x"] - jax.lax.pmean(b["x"].mean(0), td.DATA)}).mean(), {})
        strategy.value_and_grad(synchronised)(make_params(), strategy.put(make_batch(16)))


class Linen(linen.Module):
    """Dropout and statistics of the batch of all replicas."""

    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=False, axis_name=td.DATA, param_dtype=float)(
            linen.Dense(8, param_dtype=float)(x)
        )
        return linen.Dropout(0.5, deterministic=False)(linen.LayerNorm()(x))


def test_linen_models_give_their_statistics():
    strategy, batch = td.Mirrored(), make_batch(24)
    variables = jax.vmap(lambda x: Linen().init(jax.random.key(0), x), axis_name=td.DATA, axis_size=1)(
        jnp.ones((1, 8, 4))
    )
    variables = jax.tree.map(lambda leaf: leaf[0], variables)

    def loss_fn(params, batch, statistics, key):
        out, updated = Linen().apply(
            {"params": params, **statistics}, batch["x"], mutable=["batch_stats"], rngs={"dropout": key}
        )
        return (out**2).mean(), updated

    statistics = {"batch_stats": variables["batch_stats"]}
    compute = strategy.value_and_grad(loss_fn)
    (_, updated), _ = compute(variables["params"], strategy.put(batch), statistics, jax.random.key(1))
    hidden = batch["x"] @ np.asarray(variables["params"]["Dense_0"]["kernel"])
    np.testing.assert_allclose(updated["batch_stats"]["BatchNorm_0"]["mean"], 0.01 * hidden.mean(0), rtol=1e-6)


def test_batches_that_cannot_be_split_say_so():
    strategy, params = td.Mirrored(), make_params()
    compute = strategy.value_and_grad(mean_loss)
    with pytest.raises(ValueError, match=r"no rows\. Leave batches without rows out"):
        compute(params, strategy.put(make_batch(0)))
    with pytest.raises(ValueError, match=r"13 rows do not divide evenly over 8.*strategy.put"):
        compute(params, make_batch(13))
    with pytest.raises(ValueError, match="split in different ways"):
        compute(params, {**strategy.put(make_batch(16)), "y": strategy.put(make_batch(13)["y"])})
    with pytest.raises(ValueError, match="'y' already"):
        strategy.put(make_batch(13), mask="y")
    with pytest.raises(TypeError, match=r"mappings.*got ndarray"):
        strategy.put(np.ones(3), mask="mask")


def test_parts_of_a_batch_may_be_put_one_by_one():
    strategy, params, batch = td.Mirrored(), make_params(), make_batch(13)
    parts = {name: strategy.put(array) for name, array in batch.items()}
    assert_equal(strategy.value_and_grad(mean_loss)(params, parts), on_one(mean_loss)(params, batch))


def test_a_loss_and_something_else_are_not_taken_for_a_sum_and_its_weight():
    """On one device neither."""
    loss_fn = lambda p, b: (losses(p, b).mean(), (logits(p, b).argmax(-1) == b["y"]).mean())
    for strategy in (td.Mirrored(), td.SingleDevice()):
        with pytest.raises(ValueError, match=r"sum of their weights.*a mean over the rows"):
            strategy.value_and_grad(loss_fn, has_aux=False)(make_params(), strategy.put(make_batch(16)))


@pytest.mark.parametrize("result", [lambda p, b: b["x"].T, lambda p, b: p["w"], lambda p, b: b["x"] @ b["x"].T])
def test_what_has_as_many_entries_as_rows_by_chance_is_refused(result):
    """Four rows on each replica, and four inputs."""
    strategy = td.Mirrored()
    args = strategy.init(make_params), strategy.put(make_batch(32))
    with pytest.raises(ValueError, match="entry for each row"):
        strategy.evaluate(lambda p, b: td.Rows(result(p, b)))(*args)
    if result(make_params(), make_batch(32)).shape != (4, 8):
        with pytest.raises(ValueError, match="does not follow from those of its parts"):
            strategy.evaluate(result)(*args)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda p, b: (b["x"] * p if len(b["x"]) > 2 else b["x"] + p).sum(), "does other operations"),
        (
            lambda p, b: td.Sum(b["x"].T @ b["x"] if len(b["x"]) > 2 else b["x"][0] * p),
            "returns arrays of other shapes",
        ),
    ],
    ids=["operations", "shapes"],
)
def test_functions_that_are_others_for_the_rows_of_some_replicas_are_refused(fn, what):
    strategy = td.Mirrored(tuple(jax.devices()[:2]))
    batch = {"x": np.ones((5, 4), np.float32)}
    with pytest.raises(
        ValueError, match=f"With 2 rows, as some of the 2 replicas have, the function {what} than with 3"
    ):
        strategy.evaluate(fn)(2.0, strategy.put(batch))


def test_a_part_of_the_batch_that_is_returned_has_the_rows_of_all_replicas():
    strategy, x = td.Mirrored(tuple(jax.devices()[:2])), np.arange(10.0).reshape(5, 2)
    returned, doubled = strategy.evaluate(lambda p, b: (b["x"], 2 * b["x"]))((), strategy.put({"x": x}))
    assert np.array_equal(returned, x) and np.array_equal(doubled, 2 * x)


def test_losses_of_other_types_say_what_is_wanted():
    strategy = td.Mirrored()
    compute = lambda loss_fn, **options: strategy.value_and_grad(loss_fn, **options)(
        make_params(), strategy.put(make_batch(16))
    )
    with pytest.raises(TypeError, match="floating number, but has type int"):
        compute(lambda p, b: b["y"].sum(), has_aux=False)
    with pytest.raises(TypeError, match=r"scalar, but is dict.*has_aux=True"):
        compute(lambda p, b: (losses(p, b).mean(), {}), has_aux=False)
    with pytest.raises(TypeError, match=r"no gradients for the parameter \['steps'\] of type int.*nnx.split"):
        strategy.value_and_grad(mean_loss)({**make_params(), "steps": jnp.int32(3)}, strategy.put(make_batch(16)))
