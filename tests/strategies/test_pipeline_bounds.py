"""What a pipeline costs, held to what it should: time that devices wait, memory, communication."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tests.shared.staged_models import LOSSES, TENSOR_RULES, make_batch, make_params
from tfdist_jax._pipeline import make_schedule
from tfdist_jax._pipeline._slots import make_slot_table

STAGES = 4


@functools.cache
def explain(schedule, microbatches, remat="layer", mesh="data", rows_each=4):
    """A step of a model with layers large enough that its tables do not count."""
    options = {
        "data": {"axes": {"data": 2}},
        "tensor": {"axes": {"data": 1, "tensor": 2}, "rules": TENSOR_RULES},
        "fsdp": {"axes": {"data": 1, "fsdp": 2}, "min_size": 64},
    }[mesh]
    strategy = td.Pipeline(STAGES, microbatches, schedule=schedule, remat=remat, **options)
    replicas = strategy.num_replicas
    loss_fn = td.Staged(LOSSES["mean"].first, LOSSES["mean"].layer, lambda *args: LOSSES["mean"].last(*args)[0])
    state = strategy.init(lambda: make_params(8))
    batch = strategy.put(make_batch(rows_each * replicas * microbatches))
    return strategy.explain(strategy.value_and_grad(loss_fn, has_aux=False), state, batch)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_time_that_devices_wait(devices, bound):
    for microbatches in (devices, 4 * devices):
        for name, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1)):
            schedule = make_schedule(name, devices, microbatches, chunks)
            if name == "zb-h1":
                ticks = schedule.bubble() * schedule.num_ticks - (devices - 1)
                bound("ticks that devices wait under zb-h1, more than those of theory", round(ticks, 6), 2)
            else:
                theory = (devices - 1) / (chunks * microbatches + devices - 1)
                bound(f"time that devices wait under {name}, to theory", abs(schedule.bubble() / theory - 1), 1e-12)


@pytest.mark.parametrize("remat", ["layer", "stage", "none"])
def test_memory_is_the_same_for_any_number_of_microbatches(remat, bound):
    few, many = (explain("1f1b", count, remat, rows_each=16).memory.temporary for count in (8, 32))
    bound(f"temporary memory of 1f1b, remat={remat}, 32 microbatches to 8", many / few, 1.01)
    table = make_slot_table(make_schedule("1f1b", STAGES, 32, 1), saves=remat != "stage")
    # One of each is to spare.
    bound(f"slots of 1f1b, remat={remat}, 4 stages", max(table.sizes.values()) - 1, 2 * STAGES - 1)


def test_what_is_saved_for_gradients_holds_no_parameters(bound):
    """A stage's weights would take more than what its four rows leave."""
    strategy = td.Pipeline(2, 4, axes={"data": 1}, devices=tuple(jax.devices()[:2]), remat="none")
    size = 256
    loss_fn = td.Staged(lambda p, x: x, lambda w, x, batch: jnp.tanh(x @ w), lambda p, x, batch: (x**2).mean())
    state = strategy.init(lambda: {"blocks": jnp.ones((4, size, size)) / size})
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    temporary = strategy.explain(compute, state, strategy.put(np.ones((16, size), np.float32))).memory.temporary
    # Gradients of a device's layers, their sum, and one layer's copy.
    bound("temporary memory of 1f1b that saves all, to a device's weights", temporary / (4 * 2 * size * size), 3)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_a_tick_hands_on_twice_and_a_step_reduces_once_over_each_set_of_axes(schedule, bound):
    explanation = explain(schedule, 8)
    ticks = make_schedule(schedule, STAGES, 8, 1).num_ticks
    permutes = ("collective-permute", "stage")
    reductions = {("all-reduce", "data", "stage"): 1, ("all-reduce", "data"): 1}
    td.assert_collectives(explanation, {permutes: 2 * ticks, **reductions})
    bound("collectives in branches of a pipeline", sum(one.is_branch for one in explanation.collectives), 0)


@pytest.mark.parametrize("mesh", ["tensor", "fsdp"])
def test_stages_communicate_in_no_branch(mesh, bound):
    found = explain("1f1b", 4, mesh=mesh).collectives
    # Those of a stage's devices may be in one that all devices take, or none.
    bound("collectives over stages in branches", sum(one.is_branch and "stage" in one.axes for one in found), 0)
    if mesh == "fsdp":
        assert not any(one.is_branch for one in found)
        over = [one for one in found if one.axes == ("fsdp",) and one.kind != "all-reduce"]
        assert over
        bound("times that a pipeline gathers a parameter over fsdp", max(one.times for one in over), 1)
