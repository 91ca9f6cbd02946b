"""Functions made of stages, evaluated over those of a pipeline: one device's results, with each device's own layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tfdist_jax as td
from tests.shared import unlike_stages
from tests.shared.staged_models import (
    LOSSES,
    TENSOR_RULES,
    WIDTH,
    apply_block,
    embed,
    make_batch,
    make_params,
    mean_loss,
)
from tests.strategies.test_pipeline import MESHES, make_pipeline
from tfdist_jax._pipeline._forward import order_forward
from tfdist_jax._pipeline._slots import IDLE

pytestmark = pytest.mark.usefixtures("double_precision")


def evaluate(strategy, fn, params, batch, *extra):
    """What a strategy makes of a function."""
    return jax.device_get(strategy.evaluate(fn)(strategy.init(lambda: params), strategy.put(batch), *extra))


def check_against_one_device(strategy, fn, params, batch, *extra):
    found, expected = (evaluate(one, fn, params, batch, *extra) for one in (strategy, td.SingleDevice()))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1"])
@pytest.mark.parametrize("mesh", MESHES)
def test_results_are_those_of_one_device(mesh, schedule):
    strategy = make_pipeline(**MESHES[mesh], schedule=schedule)
    for fn in LOSSES.values():
        check_against_one_device(strategy, fn, make_params(8), make_batch(16))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rows", [1, 3, 13])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_any_number_of_rows(schedule, rows):
    fn, params = LOSSES["mean"], make_params(8)
    check_against_one_device(
        make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule=schedule), fn, params, make_batch(rows)
    )
    # Devices that communicate have as many rows in each microbatch, of which there may be fewer for that.
    alone = make_pipeline(stages=2, axes={"data": 1, "tensor": 2}, rules=TENSOR_RULES, devices=4, schedule=schedule)
    check_against_one_device(alone, fn, params, make_batch(rows))


GATHERED = "evaluated on each device of a replica with all layers, .* as its stages cannot do it: "


def test_what_stages_cannot_do_is_computed_with_all_layers_and_says_so():
    with_tensor = {"stages": 2, "axes": {"data": 2, "tensor": 2}, "rules": TENSOR_RULES}
    alone = make_pipeline(stages=2, axes={"data": 1}, devices=2)
    largest = lambda params, x, batch: {"largest": x.max(), "size": len(x)}
    of_weights = lambda params, x, batch: {"rows": x.sum((1, 2)), "weights": (params["blocks"]["up"] ** 2).sum()}
    staged = lambda last: td.Staged(embed, apply_block, last)
    cases = [
        (
            make_pipeline(**with_tensor),
            LOSSES["mean"],
            13,
            r"The devices of a stage .* have different numbers of rows, \[\[2, 2, 2, 1\], \[2",
        ),
        (alone, staged(largest), 16, "`result.*` of the whole batch does not follow from those of its parts"),
        (alone, staged(of_weights), 16, "`last` of td.Staged uses blocks/up, which belongs to the layers"),
    ]
    for strategy, fn, rows, why in cases:
        with pytest.warns(UserWarning, match=GATHERED + why):
            check_against_one_device(strategy, fn, make_params(4), make_batch(rows))


def test_a_whole_state_is_evaluated():
    """Its optimizer's arrays of layers are laid out as these, but the stages have another path."""
    params = make_params(4)
    state = {"params": params, "other": params}
    inside = lambda fn: lambda state, *args: fn(state["params"], *args)
    fn = td.Staged(inside(embed), apply_block, inside(mean_loss), stack="params/blocks")
    strategy = make_pipeline(stages=2, axes={"data": 1}, devices=2)
    with pytest.warns(UserWarning, match=GATHERED + "other/blocks/down is laid out P\\('stage',\\)"):
        check_against_one_device(strategy, fn, state, make_batch(13))


def test_a_function_that_is_wrong_says_so_itself():
    strategy = make_pipeline(stages=2, axes={"data": 1}, devices=2)
    wrong = td.Staged(embed, apply_block, lambda params, x, batch: x @ jnp.ones(3))
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        evaluate(strategy, wrong, make_params(4), make_batch(4))


@pytest.mark.parametrize("rows", [16, 13])
def test_draws_by_keys_beside_the_batch_are_one_devices(rows):
    noise = lambda key, x: x + jax.random.normal(key, ())
    fn = td.Staged(
        lambda params, batch, key: noise(key, embed(params, batch)),
        lambda params, x, batch, key: noise(key, apply_block(params, x, batch)),
        lambda params, x, batch, key: noise(key, mean_loss(params, x, batch)[0]),
    )
    strategy = make_pipeline(stages=4, axes={"data": 1}, devices=4)
    check_against_one_device(strategy, fn, make_params(4), make_batch(rows), jax.random.key(3))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("case", unlike_stages.CASES)
def test_lists_of_functions_are_evaluated(case, rows):
    options = {"devices": 8, "schedule": "1f1b"} | unlike_stages.CASES[case]
    strategy = make_pipeline(**options, stack=None)
    check_against_one_device(strategy, unlike_stages.LOSS, unlike_stages.make_params(), unlike_stages.make_batch(rows))


@pytest.mark.filterwarnings("ignore:The devices of a stage communicate")
def test_lists_whose_stages_lie_on_several_devices_are_evaluated():
    options = {"axes": {"data": 2, "tensor": 2}, "rules": unlike_stages.TENSOR_RULES, "min_size": 1}
    strategy = make_pipeline(stages=2, schedule="1f1b", stack=None, **options)
    check_against_one_device(strategy, unlike_stages.LOSS, unlike_stages.make_params(), unlike_stages.make_batch(16))


def test_predictions_need_no_gradients():
    """Classes as integers, what is the same for all rows, and an argument."""

    def layer(params, x, batch):
        x, steps = x
        rounded = jnp.floor(x * 8).astype(jnp.int32)
        return apply_block(params, x, batch) + rounded.astype(x.dtype), steps + 1

    def last(params, state, batch):
        x, steps = state
        return {
            "class": (x @ params["head"]).argmax(-1),
            "steps": steps.max(),
            "given": batch["y"],
            "name": jnp.array(3),
        }

    fn = td.Staged(lambda params, batch: (embed(params, batch), jnp.zeros((), jnp.int32)), layer, last)
    strategy = make_pipeline(stages=4, axes={"data": 2})
    check_against_one_device(strategy, fn, make_params(4), make_batch(13))
    assert evaluate(strategy, fn, make_params(4), make_batch(13))["steps"] == 4


@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_what_layers_see_is_stacked(schedule, rows):
    def layer(params, x, batch, running):
        return apply_block(params, x, batch), {"shift": x.mean((0, 1)) - running["mean"], "positive": (x > 0).sum()}

    fn = td.Staged(
        lambda params, batch, running: embed(params, batch),
        layer,
        lambda params, x, batch, running: mean_loss(params, x, batch),
        layer_aux=True,
    )
    running = {"blocks": {"mean": jnp.arange(8.0 * WIDTH).reshape(8, WIDTH)}}
    strategy = make_pipeline(stages=2, axes={"data": 2}, devices=4, schedule=schedule)
    check_against_one_device(strategy, fn, make_params(8), make_batch(rows), running)


def test_a_function_that_is_not_made_of_stages_has_all_parameters():
    strategy = make_pipeline(stages=4, axes={"data": 2})
    check_against_one_device(strategy, lambda *args: LOSSES["mean"](*args), make_params(4), make_batch(13))


def test_a_device_has_no_other_layers_than_its_own():
    """Of 16 layers each has four; gathering all would take another 12."""
    strategy, width, layers = make_pipeline(stages=4, axes={"data": 2}), 128, 16
    fn = td.Staged(lambda p, x: x, lambda w, x, batch: jnp.tanh(x @ w), lambda p, x, batch: x.sum(1))
    state = strategy.init(lambda: {"blocks": jnp.ones((layers, width, width))})
    explanation = strategy.explain(strategy.evaluate(fn), state, strategy.put(np.ones((8, width))))
    assert explanation.memory.temporary < 2 * 8 * width * width
    over_stages = {one.kind for one in explanation.collectives if "stage" in one.axes}
    assert over_stages == {"collective-permute", "all-reduce"}
    ticks = 4 + 4 - 1
    count = lambda found: sum(one.runs for one in found.collectives if one.kind == "collective-permute")
    assert count(explanation) == ticks
    # As many microbatches, also if rows do not divide into them.
    assert count(strategy.explain(strategy.evaluate(fn), state, strategy.put(np.ones((26, width))))) == ticks


@given(devices=st.integers(1, 6), chunks=st.integers(1, 4), microbatches=st.integers(1, 20))
def test_each_stage_computes_each_microbatch_a_tick_after_the_one_before(devices, chunks, microbatches):
    numbers, chunk_of = order_forward(devices, chunks, microbatches)
    done = {}
    for tick, device in np.argwhere(numbers != IDLE):
        key = int(chunk_of[tick, device]) * devices + int(device), int(numbers[tick, device])
        assert key not in done
        done[key] = tick
    assert set(done) == {(k, number) for k in range(devices * chunks) for number in range(microbatches)}
    assert all(done[k, number] == done[k - 1, number] + 1 for k, number in done if k)
    assert (numbers[-1] != IDLE).any()
    # Whole groups keep every device at work but for the first and last ticks.
    if microbatches % devices == 0:
        assert len(numbers) == chunks * microbatches + devices - 1
