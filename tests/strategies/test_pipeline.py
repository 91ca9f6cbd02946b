"""Pipelines: gradients of one device under every schedule, on every mesh, and what cannot be one's is refused."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import HealthCheck, given, settings, strategies as st

import tfdist_jax as td
from tests.shared.staged_models import (
    LOSSES,
    MESHES,
    SCHEDULES,
    WIDTH,
    apply_block,
    compute,
    embed,
    make_batch,
    make_params,
    make_pipeline,
    mean_loss,
)
from tests.strategies.test_parallelism import relative_error

pytestmark = pytest.mark.usefixtures("double_precision")


# Of 9 over two replicas of four microbatches, one has 2, 2, 1 and 0, the other 2, 2, 0 and 0: at the same places.
@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [13, 9, 3, 1])
@pytest.mark.parametrize(("schedule", "kind", "remat"), [("1f1b", "mean", "layer"), ("zb-h1", "tied", "none")])
def test_rows_that_do_not_divide_are_exact(rows, schedule, kind, remat, check):
    strategy = make_pipeline(stages=4, axes={"data": 2}, schedule=schedule, remat=remat)
    check(strategy, kind, 4, rows)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("stages", "chunks", "layers"), [(4, 4, 16), (3, 2, 6), (4, 3, 12), (1, 2, 4)])
def test_layers_are_brought_to_the_devices_that_interleave_them(stages, chunks, layers, check):
    strategy = make_pipeline(
        stages=stages, microbatches=stages, axes={"data": 1}, devices=stages, schedule="interleaved", chunks=chunks
    )
    check(strategy, "mean", layers, 2 * stages)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stages=st.integers(1, 4),
    microbatches=st.integers(1, 5),
    chunks=st.integers(1, 3),
    layers=st.integers(1, 6),
    rows=st.integers(1, 12),
    schedule=st.sampled_from(SCHEDULES),
)
@pytest.mark.exhaustive
def test_any_numbers_are_exact_or_refused(stages, microbatches, chunks, layers, rows, schedule, check):
    options = {"chunks": chunks} if schedule == "interleaved" else {}
    try:
        strategy = make_pipeline(
            stages=stages,
            microbatches=microbatches,
            axes={"data": 2},
            devices=2 * stages,
            schedule=schedule,
            **options,
        )
        check(strategy, "mean", layers, rows)
    except ValueError as error:
        count = stages * options.get("chunks", 1)
        assert layers % count or (microbatches % stages and schedule == "interleaved"), error
        assert "'stage'" in str(error)


def test_a_schedule_of_a_table_runs(check):
    table = td.Schedule.from_csv("0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1I2,1W2", name="mine")
    strategy = make_pipeline(stages=2, microbatches=3, axes={"data": 2}, devices=4, schedule=table)
    check(strategy, "tied", 4, 12)


def test_a_training_is_one_devices():
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2))
    loss_fn = td.Staged(embed, apply_block, lambda params, x, batch: mean_loss(params, x, batch)[0])

    def make_state():
        params = make_params(4)
        return params, tx.init(params)

    def train(strategy):
        @strategy.jit
        def step(state, batch):
            params, opt_state = state
            loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        state, losses = strategy.init(make_state), []
        for rows in (16, 16, 9):
            state, loss = step(state, strategy.put(make_batch(rows)))
            losses.append(float(loss))
        return losses, state

    losses, (params, (_, (adam, *_))) = train(make_pipeline(stages=4, axes={"data": 2}))
    expected, _ = train(td.SingleDevice())
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    # The layers' moments lie where the layers do.
    for tree in params, adam.mu:
        assert tree["blocks"]["up"].addressable_shards[0].data.shape == (1, WIDTH, 2 * WIDTH)


def test_a_checkpoint_is_independent_of_stages_and_schedule(tmp_path):
    params = make_params(8)
    strategies = [
        make_pipeline(stages=4, axes={"data": 2}, schedule="interleaved"),
        make_pipeline(stages=2, axes={"data": 4}, schedule="zb-h1"),
        td.Mirrored(),
    ]
    state = strategies[0].init(lambda: params)
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state)
    for strategy in strategies:
        with td.Checkpointer(tmp_path) as checkpointer:
            restored = checkpointer.restore(jax.eval_shape(lambda: params), strategy=strategy).state
        assert restored["blocks"]["up"].sharding == strategy.shardings(params)["blocks"]["up"]
        jax.tree.map(lambda one, other: np.testing.assert_array_equal(one, other), restored, params)


def drop(key, x, rate=0.3):
    """Dropout of a row by its own key."""
    keep = jax.vmap(lambda key, row: jax.random.bernoulli(key, 1 - rate, row.shape))(key, x)
    return jnp.where(keep, x / (1 - rate), 0)


def test_dropout_by_keys_of_rows_is_one_devices():
    """Keys of rows are a part of the batch; each layer folds its number in, which it takes from what it is given."""

    def layer(params, x, batch):
        keys = jax.vmap(jax.random.fold_in, (0, None))(batch["key"], params["number"].astype(jnp.int32))
        return apply_block(params, drop(keys, x), batch)

    loss_fn = td.Staged(embed, layer, mean_loss)
    params = make_params(4)
    params["blocks"]["number"] = jnp.arange(4.0)
    batch = make_batch(13)
    found = []
    for strategy in td.SingleDevice(), make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule="zb-h1"):
        state, placed = strategy.init(lambda: params), strategy.put(batch)
        keys = td.row_keys(jax.random.key(3), placed)
        if isinstance(placed, td.PaddedBatch):
            rows = td.PaddedBatch({**placed.data, "key": keys.data}, placed.sizes)
        else:
            rows = {**placed, "key": keys}
        (loss, _), grads = strategy.value_and_grad(loss_fn)(state, rows)
        found.append(jax.device_get((loss, grads)))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-13)
    assert relative_error(found[1][1], found[0][1]) <= 1e-12


def test_layers_and_microbatches_have_random_keys_of_their_own():
    """A key beside the batch is another one in `first`, in each layer, in `last`, and for each microbatch."""

    def draw(key, x):
        return x + jax.random.bits(key, (len(x), 1), jnp.uint32).astype(x.dtype)

    loss_fn = td.Staged(
        lambda params, batch, key: draw(key, jnp.zeros((len(batch), 1))) * params["scale"],
        lambda block, x, batch, key: jnp.concatenate([x[:, 1:], draw(key, x[:, :1] * 0)], 1) if x.shape[1] > 1 else x,
        lambda params, x, batch, key: (
            x.mean() + 0 * params["scale"],
            td.Rows(jnp.concatenate([x, draw(key, x * 0)], 1)),
        ),
    )
    params = {"scale": jnp.ones(()), "blocks": jnp.ones((4, 1))}
    strategy = make_pipeline(stages=2, axes={"data": 2}, devices=4)
    batch = strategy.put(np.zeros(8, np.float32))
    (_, drawn), _ = strategy.value_and_grad(loss_fn)(strategy.init(lambda: params), batch, jax.random.key(0))
    assert len(np.unique(np.asarray(drawn))) == drawn.size


def test_what_lies_at_the_layers_path_of_other_arguments_belongs_to_layers():
    loss_fn = td.Staged(
        lambda params, x, extra: x @ params["inner"],
        lambda w, x, batch, own: jnp.tanh(x @ w) * own["scale"] + own["shift"],
        lambda params, x, batch, extra: (x @ params["inner"].T).mean() * extra["factor"],
    )
    random = np.random.default_rng(0)
    params = {"inner": jnp.asarray(random.normal(size=(3, 4))), "blocks": jnp.asarray(random.normal(size=(4, 4, 4)))}
    extra = {"blocks": {"scale": jnp.arange(1.0, 5), "shift": jnp.arange(4.0)}, "factor": jnp.array(3.0)}
    batch = random.normal(size=(8, 3))
    found = [
        jax.device_get(compute(strategy, loss_fn, params, batch, extra, has_aux=False))
        for strategy in (
            td.SingleDevice(),
            make_pipeline(stages=4, axes={"data": 2}),
            make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule="interleaved"),
        )
    ]
    x = batch @ params["inner"]
    for i in range(4):
        x = np.tanh(x @ params["blocks"][i]) * (i + 1) + i
    assert found[0][0] == pytest.approx(float((x @ params["inner"].T).mean() * 3), rel=1e-12)
    assert relative_error(found[1], found[0]) <= 1e-12
    assert relative_error(found[2], found[0]) <= 1e-12


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("schedule", "remat"), [("1f1b", "layer"), ("interleaved", "none")])
def test_what_layers_see_is_stacked_and_put_together(schedule, remat):
    """Such as statistics, of which a layer has its own running means."""

    def layer(params, x, batch, running):
        mean = 0.9 * running["mean"] + 0.1 * x.mean((0, 1))
        return apply_block(params, x, batch), {"mean": mean, "positive": (x > 0).sum(), "old": running["mean"]}

    def last(params, x, batch, running):
        loss, aux = mean_loss(params, x, batch)
        return loss * running["factor"], aux

    loss_fn = td.Staged(lambda params, batch, running: embed(params, batch), layer, last, layer_aux=True)
    params, running = (
        make_params(8),
        {"blocks": {"mean": jnp.arange(8.0 * WIDTH).reshape(8, WIDTH)}, "factor": jnp.array(2.0)},
    )
    strategy = make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule=schedule, remat=remat)
    for rows in 16, 13:
        found, expected = (
            jax.device_get(compute(one, loss_fn, params, make_batch(rows), running))
            for one in (strategy, td.SingleDevice())
        )
        jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found[0], expected[0])
        assert relative_error(found[1], expected[1]) <= 1e-12
        assert found[0][1][1]["mean"].shape == (8, WIDTH)


class NormedBlock(nnx.Module):
    """In 32 bits, as Flax keeps statistics."""

    def __init__(self, rngs):
        self.norm, self.dense = nnx.BatchNorm(8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        return x + jnp.tanh(self.dense(self.norm(x)))


@pytest.mark.parametrize("microbatches", [1, 4])
def test_layers_of_nnx_have_batch_norm(microbatches):
    graph, params, stats = nnx.split(nnx.vmap(NormedBlock)(nnx.Rngs(0).split(4)), nnx.Param, nnx.BatchStat)

    def layer(params, x, batch, stats):
        block = nnx.merge(graph, params, stats, copy=True)
        return block(x), td.Mean(nnx.state(block, nnx.BatchStat))

    last = lambda params, x, batch, stats: ((x**2).mean(), {})
    loss_fn = td.Staged(lambda params, x, stats: x, layer, last, layer_aux=True)
    args = {"blocks": params}, np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32), {"blocks": stats}
    expected = compute(td.SingleDevice(), loss_fn, *args)
    strategy = make_pipeline(stages=4, axes={"data": 1}, devices=4, microbatches=microbatches)
    with pytest.warns(UserWarning, match="depends on other rows") if microbatches > 1 else contextlib.nullcontext():
        found = compute(strategy, loss_fn, *args)
    means = [jax.device_get(results[0][1][1]["norm"]["mean"][...]) for results in (found, expected)]
    assert means[0].shape == (4, 8)
    # Of the first layer, those of all rows are the microbatches' mean.
    np.testing.assert_allclose(means[0][0], means[1][0], rtol=1e-5)
    if microbatches == 1:
        assert relative_error(*(jax.device_get(results) for results in (found, expected))) <= 1e-5


def test_what_layers_see_of_rows_is_refused():
    seeing = lambda aux: td.Staged(embed, lambda p, x, batch: (x * p["norm"], aux(x)), mean_loss, layer_aux=True)
    strategy = make_pipeline(stages=4, axes={"data": 2})
    refuse(seeing(lambda x: x[:, 0]), strategy, "`aux.*` of the whole batch does not follow from those of its parts")
    refuse(seeing(lambda x: x.mean()), strategy, "returns `.loss, .aux, of_layers..`: pass has_aux=True", has_aux=False)
    no_pair = td.Staged(embed, apply_block, mean_loss, layer_aux=True)
    refuse(no_pair, strategy, "With layer_aux=True, a layer of td.Staged returns", kind=TypeError)
    with pytest.raises(ValueError, match="layer_aux=True is for one function of all layers"):
        td.Staged(embed, [apply_block], mean_loss, layer_aux=True)


def test_what_goes_between_stages_may_be_a_tree_with_integers():
    loss_fn = td.Staged(
        lambda params, batch: {"x": params["embedding"][batch["x"]], "place": batch["x"] % 3, "count": jnp.int32(0)},
        lambda block, state, batch: {
            "x": apply_block(block, state["x"], batch) * (1 + state["place"][..., None]),
            "place": (state["place"] + 1) % 3,
            "count": state["count"] + 1,
        },
        lambda params, state, batch: mean_loss(params, state["x"] / state["count"], batch)[0],
    )
    params, batch = make_params(4), make_batch(8)
    found = [
        jax.device_get(compute(strategy, loss_fn, params, batch, has_aux=False))
        for strategy in (
            td.SingleDevice(),
            make_pipeline(stages=4, axes={"data": 2}),
            make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule="zb-h1", remat="none"),
        )
    ]
    assert relative_error(found[1], found[0]) <= 1e-12
    assert relative_error(found[2], found[0]) <= 1e-12


def test_short_numbers_are_added_up_in_float32():
    """Of 64 microbatches, whose gradients would vanish beside their sum in bfloat16."""
    loss_fn = td.Staged(
        lambda params, x: x * params["w"],
        lambda block, x, batch: x * block,
        lambda params, x, batch: (x.astype(jnp.float32).sum(), jnp.float32(len(x))),
    )
    params = {"w": jnp.ones((), jnp.bfloat16), "blocks": jnp.ones(2, jnp.bfloat16)}
    batch = np.concatenate([[256.0], np.ones(63)]).astype("float32")
    strategy = make_pipeline(stages=2, microbatches=64, axes={"data": 1}, devices=2)
    loss, grads = compute(strategy, loss_fn, params, jnp.asarray(batch, jnp.bfloat16), has_aux=False)
    assert float(loss) == pytest.approx(batch.mean())
    assert float(grads["w"]) == float(jnp.bfloat16(batch.mean()))
    assert grads["w"].dtype == jnp.bfloat16


def attend(params, x, batch):
    q, k, v = jnp.einsum("btd,dche->cbthe", x, params["qkv"])
    return x + jnp.einsum("bthe,hed->btd", td.attend(q, k, v, is_causal=True), params["out"])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("schedule", "remat"), [("1f1b", "layer"), ("zb-h1", "none")])
def test_stages_whose_devices_share_tokens_or_experts_are_exact(schedule, remat):
    """What they communicate while they compute, all devices do at the same time."""

    def layer(params, x, batch):
        x = attend(params, x, batch)
        apply = lambda w, x: jax.nn.gelu(x @ w) @ w.T
        gates = jax.nn.softmax(x @ params["up"][:, :4])
        return x + td.run_experts(apply, params["experts"], x, gates, capacity_factor=None).outputs

    loss_fn = td.Staged(embed, layer, lambda params, x, batch: mean_loss(params, x, batch)[0])
    params, batch = make_params(4), make_batch(16)
    params["blocks"]["experts"] = jnp.asarray(np.random.default_rng(2).normal(size=(4, 4, WIDTH, 8)) * 0.3)
    expected = jax.device_get(compute(td.SingleDevice(), loss_fn, params, batch, has_aux=False))
    rules = {"experts": jax.P(None, "expert")}
    for axes in {"sequence": 2, "data": 2}, {"expert": 2, "data": 2}, {"expert": 2, "sequence": 2}:
        strategy = make_pipeline(
            stages=2, microbatches=2, axes=axes, rules=rules if "expert" in axes else {}, schedule=schedule, remat=remat
        )
        found = jax.device_get(compute(strategy, loss_fn, params, batch, has_aux=False))
        assert relative_error(found, expected) <= 1e-12


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("rows", "data"), [(9, 1), (13, 4), (3, 4), (1, 4)])
def test_what_is_the_same_for_all_rows_is_so_on_every_device_also_without_rows(rows, data):
    """Some microbatches, and some replicas, have no rows: of 13 over 4 replicas the last has 1, of 3 none."""

    def layer(params, x, batch):
        return apply_block(params, x, batch), {"norm": params["norm"].sum(), "positive": (x > 0).sum()}

    def last(params, x, batch):
        return x.mean(), {"constant": jnp.arange(3.0) + 1, "sum": params["head"].sum(), "hits": (x > 0).sum()}

    loss_fn = td.Staged(embed, layer, last, layer_aux=True)
    params, batch = make_params(4), make_batch(rows)
    strategy = make_pipeline(stages=2, axes={"data": data}, devices=2 * data)
    (_, found), _ = compute(strategy, loss_fn, params, batch)
    (_, expected), _ = jax.device_get(compute(td.SingleDevice(), loss_fn, params, batch))
    for array, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert len(array.addressable_shards) == 2 * data
        for shard in array.addressable_shards:
            np.testing.assert_allclose(shard.data, other, rtol=1e-12)


@pytest.mark.parametrize("rows", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("schedule", "stack"),
    [
        pytest.param("1f1b", "blocks", marks=pytest.mark.exhaustive),
        ("zb-h1", "blocks"),
        pytest.param("interleaved", "blocks", marks=pytest.mark.exhaustive),
        ("1f1b", None),
    ],
)
def test_what_is_the_same_for_all_rows_goes_along_with_them_also_without_rows(rows, schedule, stack):
    """A number of layers, and a sum over their parameters. Of 4 microbatches of 2 replicas, with 5 rows the last of each has none."""

    def layer(block, carried, batch):
        x, number, squares = carried
        carried = x + jnp.tanh(x @ block["up"]).mean(-1, keepdims=True), number + 1, squares + (block["up"] ** 2).sum()
        return (carried, {"number": number, "squares": squares}) if stack else carried

    of_list = lambda number: lambda params, *args: layer({"up": params["blocks"]["up"][number]}, *args)
    loss_fn = td.Staged(
        lambda params, batch: (embed(params, batch), jnp.int32(0), params["head"].sum()),
        layer if stack else [*map(of_list, range(4))],
        lambda params, carried, batch: (carried[0].mean(), {"layers": carried[1], "squares": carried[2]}),
        layer_aux=bool(stack),
    )
    params, batch = make_params(4), make_batch(rows)
    strategy = make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule=schedule, stack=stack)
    expected = jax.device_get(compute(td.SingleDevice(), loss_fn, params, batch))
    assert relative_error(compute(strategy, loss_fn, params, batch), expected) < 1e-12
    evaluated = strategy.evaluate(loss_fn)(strategy.init(lambda: params), strategy.put(batch))
    assert relative_error(evaluated, expected[0]) < 1e-12


@pytest.mark.parametrize("remat", ["layer", "stage", "none"])
def test_what_layers_print_is_printed_once(remat, capfd):
    def layer(w, x, batch):
        jax.debug.print("layer sees {}", x.shape[0])
        return x * w

    loss_fn = td.Staged(lambda params, x: x * 1.0, layer, lambda params, x, batch: (x**2).mean())
    strategy = make_pipeline(stages=2, microbatches=2, axes={"data": 1}, devices=2, remat=remat)
    jax.block_until_ready(compute(strategy, loss_fn, {"blocks": jnp.ones(2)}, np.arange(4.0), has_aux=False))
    jax.effects_barrier()
    times = capfd.readouterr().out.count("layer sees 2")
    # A layer that is computed again prints again, as under `jax.checkpoint`.
    assert times == 4 if remat == "none" else times >= 4


def test_parameters_and_results_without_elements_are_allowed():
    loss_fn = td.Staged(
        lambda params, x: x * 1.0,
        lambda block, x, batch: x * block["w"] + block["none"].sum(),
        lambda params, x, batch: (x.mean(), td.Rows(x[:, :0])),
    )
    params = {"blocks": {"w": jnp.ones(4), "none": jnp.ones((4, 0))}}
    for schedule in "1f1b", "interleaved":
        strategy = make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule=schedule)
        (_, rows), grads = compute(strategy, loss_fn, params, np.ones((8, 3)))
        assert (rows.shape, grads["blocks"]["none"].shape) == ((8, 0), (4, 0))


def test_a_tick_computes_what_some_device_has_to_do_where_devices_communicate():
    """Counted on the host, on both devices of each stage: the last function at no tick at which no device comes to it."""
    counts = {"layer": 0, "last": 0}

    def count(name):
        counts[name] += 1

    def layer(w, x, batch):
        jax.debug.callback(lambda: count("layer"))
        return x + 0 * td.assume_exact(lambda x: jax.lax.pmean(x, "data"))(x) + x * w

    def last(params, x, batch):
        jax.debug.callback(lambda: count("last"))
        return (x**2).mean()

    loss_fn = td.Staged(lambda params, x: x * 1.0, layer, last)
    strategy = make_pipeline(stages=4, microbatches=6, axes={"data": 2}, schedule="gpipe", remat="none")
    jax.block_until_ready(compute(strategy, loss_fn, {"blocks": jnp.ones(4)}, np.arange(12.0), has_aux=False))
    jax.effects_barrier()
    # Six microbatches and three ticks to fill the pipeline; the last stage has one of them in six.
    assert counts == {"layer": 8 * 9, "last": 8 * 6}


@pytest.mark.parametrize(
    "make",
    [
        lambda: td.Sharded({"data": 4, "stage": 2}),
        lambda: td.Sharded({"data": 4, "stage": 2}, rules={"w": jax.P(None, "stage")}),
        lambda: HandingOnTooLittle(make_pipeline(stages=2, axes={"data": 4})),
    ],
    ids=["idle", "rules", "wrapper"],
)
def test_an_axis_of_stages_without_a_pipeline_is_refused(make):
    strategy = make()
    with pytest.raises(
        ValueError, match=r"has an axis 'stage', over which only pipelines compute.*hand on its `pipeline`"
    ):
        strategy.value_and_grad(lambda params, x: ((x @ params["w"]) ** 2).mean(), has_aux=False)


@dataclasses.dataclass(frozen=True)
class HandingOnTooLittle(td.Strategy):
    strategy: td.Strategy

    @property
    def mesh(self):
        return self.strategy.mesh

    def state_layout(self, leaf):
        return self.strategy.state_layout(leaf)


def test_keys_that_are_results_come_as_numbers():
    drawn = lambda batch: jax.vmap(jax.random.fold_in, (0, None))(batch["key"], 3)
    make = lambda read: td.Staged(
        lambda params, batch: batch["x"] * params["w"],
        lambda w, x, batch: x * w,
        lambda params, x, batch: (x.mean(), read(drawn(batch))),
    )
    strategy, params = make_pipeline(stages=2, axes={"data": 2}, devices=4), {"w": jnp.ones(()), "blocks": jnp.ones(4)}
    batch = strategy.put({"x": np.ones(8)})
    batch["key"] = td.row_keys(jax.random.key(0), batch)
    state = strategy.init(lambda: params)
    (_, found), _ = strategy.value_and_grad(make(jax.random.key_data))(state, batch)
    np.testing.assert_array_equal(found, jax.random.key_data(drawn(batch)))
    with pytest.raises(TypeError, match=r"Return `jax.random.key_data\(key\)`"):
        strategy.value_and_grad(make(lambda keys: keys))(state, batch)


def test_numbers_of_a_pipeline_can_be_replaced():
    strategy = dataclasses.replace(td.Pipeline(2, 4), stages=4, microbatches=8)
    assert (dict(strategy.mesh.shape), strategy.pipeline.schedule.num_devices) == ({"data": 2, "stage": 4}, 4)
    first = td.Pipeline(2, 4, axes={"fsdp": 2, "tensor": 2})
    assert [*first.mesh.shape] == ["stage", "fsdp", "tensor"]


def refuse(loss_fn, strategy, match, params=None, rows=16, kind=ValueError, **options):
    with pytest.raises(kind, match=match):
        compute(strategy, loss_fn, params or make_params(4), make_batch(rows), **options)


def test_a_weight_for_each_layer_is_refused_with_the_remedy():
    def layer(block, x, batch):
        return jnp.tanh(x @ block), td.Mean((x * batch["w"]).sum(), batch["w"].sum())

    loss_fn = td.Staged(lambda params, b: b["x"] * 1.0, layer, lambda p, x, b: (x.mean(), {}), layer_aux=True)
    batch = {"x": np.ones((8, 4)), "w": np.arange(8.0)[:, None]}
    for strategy in (td.SingleDevice(), make_pipeline(stages=2, axes={"data": 2}, devices=4)):
        with pytest.raises(
            ValueError, match=r"entry for each layer: let them return td.Sum\(sum\) and td.Sum\(weight\)"
        ):
            compute(strategy, loss_fn, {"blocks": jnp.ones((2, 4, 4))}, batch)


def test_what_is_no_pipeline_is_refused():
    strategy = make_pipeline(stages=4, axes={"data": 2})
    plain = lambda params, batch: (jnp.float32(0), {})
    refuse(plain, strategy, r"needs a loss made of stages, td.Staged\(first, layer, last\)", kind=TypeError)
    with pytest.raises(ValueError, match=r"give td.Pipeline `microbatches`, and leave accumulate=2 out"):
        strategy.value_and_grad(LOSSES["mean"], accumulate=2)
    wider = td.Staged(embed, lambda block, x, batch: jnp.concatenate([x, x], -1), mean_loss)
    refuse(wider, strategy, r"gives what the next one takes, but was given float64\[2, 8, 16\]")
    uses = td.Staged(lambda params, batch: embed(params, batch) + params["blocks"]["norm"][0], apply_block, mean_loss)
    refuse(uses, strategy, "`first` of td.Staged uses blocks/norm, which belongs to the layers at 'blocks'")
    elsewhere = td.Staged(embed, apply_block, mean_loss, stack="layers")
    refuse(elsewhere, strategy, "There are no parameters of layers at 'layers', only .*blocks/down")
    refuse(
        LOSSES["mean"], make_pipeline(stages=4, axes={"data": 2}, stack="layers"), r"td.Pipeline\(..., stack='blocks'\)"
    )
    refuse(LOSSES["mean"], strategy, "its 5 layers do not divide over 4 devices along .stage.", make_params(5))
    chunked = make_pipeline(stages=2, axes={"data": 4}, schedule="interleaved", chunks=3)
    refuse(
        LOSSES["mean"],
        chunked,
        "4 layers at 'blocks' do not divide into 6 stages, 3 on each of 2 devices along 'stage'",
    )
    tensor = make_pipeline(**MESHES["data x stage x tensor"])
    refuse(LOSSES["mean"], tensor, "microbatches have different numbers of rows", rows=13)
    branch = td.assume_exact(lambda x: jax.lax.cond(x.sum() > 0, lambda x: x, lambda x: jax.lax.pmean(x, "data"), x))
    branching = td.Staged(embed, lambda block, x, batch: branch(x), mean_loss)
    refuse(branching, strategy, "the function communicates in a branch, or in a loop whose rounds depend on values")
    refuse(branching, make_pipeline(**MESHES["data x stage x tensor"]), "the function communicates in a branch")
    synchronised = td.Staged(embed, lambda block, x, batch: x - jax.lax.pmean(x.mean(), "data"), mean_loss)
    refuse(
        synchronised, strategy, "but with `microbatches=4` each sees a part of its rows at a time.*Take microbatches=1"
    )
    with pytest.raises(TypeError, match=r"`last` of td.Staged is to be a function, got None"):
        td.Staged(embed, apply_block, None)
    weighed = td.Staged(embed, apply_block, lambda params, x, batch: ((x**2).sum(), jnp.abs(x).sum()))
    refuse(weighed, strategy, "The weight of a loss .* depends on the parameters", has_aux=False)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="`remat` is 'layer', 'stage' or 'none', got True"):
        td.Pipeline(stages=2, microbatches=4, remat=True)
    for wrong in {"stages": 0}, {"chunks": 0}, {"microbatches": True}:
        with pytest.raises(ValueError, match="`stages`, `microbatches` and `chunks` are numbers of 1 or more, got"):
            td.Pipeline(**{"stages": 2, "microbatches": 4, **wrong})
    with pytest.raises(ValueError, match="4 devices along 'stage', but `stages` is 2"):
        td.Pipeline(stages=2, microbatches=4, axes={"stage": 4, "data": 2})
    table = td.Schedule.from_csv("0F0,0B0\n1F0,1B0")
    with pytest.raises(ValueError, match="for 2 devices and 1 microbatches, but `stages` is 2 and `microbatches` 4"):
        td.Pipeline(stages=2, microbatches=4, schedule=table)
    with pytest.raises(ValueError, match="The schedule has 1 stages on each device, but chunks=2"):
        td.Pipeline(stages=2, microbatches=1, schedule=table, chunks=2)
