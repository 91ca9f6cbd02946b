"""Pipelines, experts and long sequences, held to bounds; the table of all of them is printed behind the tests.

1. Gradients: relative errors in 64 bits, under every schedule, remat and mesh, of stages that are alike and unlike.
2. Operations: one for each stage and microbatch, and none on idle ticks.
3. What a pipeline costs: time that devices wait, memory, slots, collectives.
4. Memory of attention over a ring of devices.
5. Programs for slices of TPUs: all compile, and keys are on their way while scores are computed (`make test-all`).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tests.shared import unlike_stages
from tests.shared.staged_models import (
    LOSSES,
    MESHES,
    SCHEDULES,
    TENSOR_RULES,
    compute,
    make_batch,
    make_params,
    make_pipeline,
)
from tests.strategies.test_parallelism import relative_error
from tfdist_jax._pipeline import make_schedule
from tfdist_jax._pipeline._slots import make_slot_table

STAGES = 4

in_double_precision = pytest.mark.usefixtures("double_precision")


# 1. Gradients.


@pytest.mark.one_in(2)
@in_double_precision
@pytest.mark.parametrize("remat", ["layer", "stage", "none"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_are_those_of_one_device(schedule, remat, check):
    strategy = make_pipeline(stages=4, axes={"data": 2}, schedule=schedule, remat=remat)
    check(strategy, "mean", 8, 16)


@pytest.mark.one_in(3)
@in_double_precision
@pytest.mark.parametrize("mesh", [name for name in MESHES if name != "data x stage"])
@pytest.mark.parametrize(
    ("schedule", "remat"),
    [
        ("1f1b", "layer"),
        pytest.param("zb-h1", "none"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in [
                ("1f1b", "none"),
                ("gpipe", "layer"),
                ("interleaved", "layer"),
                ("interleaved", "none"),
                ("zb-h1", "layer"),
            ]
        ),
    ],
)
def test_stages_are_composed_with_the_other_axes(mesh, schedule, remat, check):
    strategy = make_pipeline(schedule=schedule, remat=remat, **MESHES[mesh])
    check(strategy, "tied", 8, 16)


@pytest.mark.one_in(3)
@in_double_precision
@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("case", unlike_stages.CASES)
def test_gradients_of_unlike_stages_are_those_of_one_device(case, rows, bound):
    check_unlike_stages(dict(unlike_stages.CASES[case]), rows, bound)


@in_double_precision
@pytest.mark.filterwarnings("ignore:The devices of a stage communicate")
@pytest.mark.parametrize("remat", ["layer", pytest.param("none", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("schedule", "axes"),
    [
        ("1f1b", {"data": 2, "tensor": 2}),
        pytest.param("gpipe", {"data": 1, "fsdp": 2, "tensor": 2}, marks=pytest.mark.exhaustive),
        pytest.param("interleaved", {"data": 1, "fsdp": 2, "tensor": 2}, marks=pytest.mark.exhaustive),
        pytest.param("zb-h1", {"data": 2, "tensor": 2}, marks=pytest.mark.exhaustive),
    ],
)
def test_unlike_stages_lie_on_several_devices_each(schedule, axes, remat, bound):
    options = {"axes": axes, "rules": unlike_stages.TENSOR_RULES, "schedule": schedule, "remat": remat, "min_size": 1}
    check_unlike_stages({"stages": 2, **options}, 16, bound)


def check_unlike_stages(options, rows, bound):
    devices = tuple(jax.devices()[: options.pop("devices", 8)])
    strategy = td.Pipeline(options.pop("stages"), 4, devices=devices, stack=None, **options)
    model = unlike_stages.make_params(), unlike_stages.make_batch(rows)
    found = jax.device_get(compute(strategy, unlike_stages.LOSS, *model))
    expected = jax.device_get(compute(td.SingleDevice(), unlike_stages.LOSS, *model))
    bound("relative error of gradients of a pipeline of a list, f64", relative_error(found, expected), 1e-12)


# 2. Operations.


def test_operations_are_run_once_for_each_stage_and_microbatch(bound):
    """Counted on the host."""
    counts = {"forward": 0, "weight": 0}

    def count(name):
        counts[name] += 1

    @jax.custom_vjp
    def counted(w, x):
        jax.debug.callback(lambda: count("forward"))
        return x * w

    def backward(kept, cotangent):
        w, x = kept
        jax.debug.callback(lambda: count("weight"))
        return (cotangent * x).sum(), cotangent * w

    counted.defvjp(lambda w, x: (counted(w, x), (w, x)), backward)
    loss_fn = td.Staged(
        lambda params, x: x * params["w"],
        lambda block, x, batch: counted(block, x),
        lambda params, x, batch: (x**2).mean(),
    )
    params = {"w": jnp.ones(()), "blocks": jnp.arange(1.0, 5)}
    for schedule in ("gpipe", "1f1b"):
        counts.update(forward=0, weight=0)
        strategy = make_pipeline(stages=4, microbatches=6, axes={"data": 1}, devices=4, schedule=schedule, remat="none")
        jax.block_until_ready(compute(strategy, loss_fn, params, np.arange(12.0), has_aux=False))
        jax.effects_barrier()
        for name, found in counts.items():
            bound(f"{name} passes of 1f1b and gpipe, more or less than stages x microbatches", abs(found - 4 * 6), 0)


# 3. Time, memory and communication of pipelines.


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


# 4. Long sequences.


@functools.cache
def temporary_memory_of_attention(devices, tokens, is_causal):
    """Bytes for the gradients of eight layers in a loop, on each device."""
    width, heads = 256, 8
    strategy = td.Sharded({"data": 1, "sequence": devices}, devices=tuple(jax.devices()[:devices]))

    def layer(x, params):
        query, key, value = jnp.einsum("rtd,dchf->crthf", x, params["qkv"])
        x += td.attend(query, key, value, is_causal=is_causal).reshape(x.shape)
        return x + jnp.tanh(x @ params["up"]) @ params["down"], None

    def loss(params, x):
        return (jax.lax.scan(layer, x, params)[0] ** 2).mean()

    shapes = {"qkv": (width, 3, heads, width // heads), "up": (width, 4 * width), "down": (4 * width, width)}
    params = strategy.init(lambda: {name: jnp.ones((8, *shape)) for name, shape in shapes.items()})
    batch = strategy.put(np.ones((1, tokens, width), np.float32))
    return strategy.explain(strategy.value_and_grad(loss, has_aux=False), params, batch).memory.temporary


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_device_of_eight_needs_as_much_memory_for_eight_times_as_many_tokens(is_causal, bound):
    """A little more than that of the layers goes round: keys, values, and their gradients."""
    ratio = temporary_memory_of_attention(8, 8 * 1024, is_causal) / temporary_memory_of_attention(1, 1024, is_causal)
    bound("temporary memory of 8 devices at 8x the tokens, to one device's", ratio, 1.1)


def test_memory_grows_with_the_tokens_and_not_with_their_square(bound):
    few, many = (temporary_memory_of_attention(1, tokens, is_causal=True) for tokens in (1024, 4096))
    bound("temporary memory of attention, 4,096 tokens to 1,024", many / few, 4)


# 5. Programs for TPU.


@pytest.mark.exhaustive
@pytest.mark.slow("compiles ten pipelines for a TPU slice")
def test_every_pipeline_compiles_for_a_tpu_slice_of_two_hosts(run_for_tpu, bound):
    """Also where chips of a stage share tokens, experts, or what XLA divides: that is at most in branches that all chips take alike."""
    found = run_for_tpu("tpu_pipelines.py", "v5e:2x4")["v5e:2x4"]
    shared = {"fsdp x tensor": ["tensor"], "ring": ["sequence"], "experts": ["expert"]}
    for name, costs in found.items():
        assert all(axes == shared.get(name) for _, *axes in costs["in branches"]), (name, costs)
    sends = ["collective-permute" in costs["over stage"] for costs in found.values()]
    bound("pipelines for v5e:2x4, of ten, that are no programs of stages that send", 10 - sum(sends), 0)
    # With four times as many microbatches, each has a fourth of the rows.
    assert (
        found["1f1b, 16 microbatches"]["temp_bytes"] < found["1f1b"]["temp_bytes"] < found["1f1b, saved"]["temp_bytes"]
    )


@pytest.mark.exhaustive
@pytest.mark.slow("compiles six programs for a TPU slice")
def test_attention_takes_the_kernel_where_it_fits_and_computes_while_keys_go_round(run_for_tpu, bound):
    found = run_for_tpu("tpu_attention.py", "v5e:2x4")["v5e:2x4"]
    # Forward, and for the gradients of the query and of keys and values.
    kernels = {name: costs["kernels"] for name, costs in found.items() if costs["kernels"]}
    assert kernels == {"one chip, bfloat16": 3, "all_to_all, bfloat16": 3}
    for dtype in ("float32", "bfloat16"):
        # Keys and values forward, and with their gradients backward.
        overlapping, sent = found[f"ring, {dtype}"]["overlapping"]
        assert sent == 6
        bound("transfers of a ring for v5e:2x4 that do not overlap with scores, of six", sent - overlapping, 0)
