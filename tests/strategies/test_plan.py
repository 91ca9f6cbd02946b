"""Plans: what is predicted of meshes is what their programs are, for devices that are not there."""

import dataclasses
import math
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from environment import LIMIT_S
from flax import nnx
from jax.sharding import PartitionSpec as P

import tfdist_jax as td
from tfdist_jax._explain import ProgramCosts
from tfdist_jax._explain._collectives import Collective
from tfdist_jax._explain._explanation import Memory
from tfdist_jax._explain._flops import Flops
from tfdist_jax._plan._candidate import Candidate, Rules, find_candidates
from tfdist_jax._plan._figures import Figures, read_figures
from tfdist_jax._plan._plan import Comparison
from tfdist_jax._plan._programs import find_share_of_16_bits, make_absent_devices
from tfdist_jax._plan._sizes import Sizes, measure_sizes
from tfdist_jax._plan._times import estimate_times
from tfdist_jax._plan._training import Training, first_of

WIDTH, HIDDEN, LAYERS, HEADS, VOCABULARY, TOKENS, ROWS = 64, 256, 8, 4, 512, 32, 32
RULES = {
    "qkv": P(None, None, None, "tensor"),
    "out": P(None, "tensor"),
    "up": P(None, None, "tensor"),
    "down": P(None, "tensor"),
    "head": P(None, "tensor"),
}
OPTIMIZER = optax.adam(1e-3)
BATCH = {name: jax.ShapeDtypeStruct((ROWS, TOKENS), "int32") for name in "xy"}


def block(params, x, batch):
    heads = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, params["qkv"]), 2, 0)
    x += jnp.einsum("bthk,hkd->btd", td.attend(*heads, is_causal=True), params["out"])
    return x + jax.nn.gelu(x @ params["up"]) @ params["down"]


def last(params, x, batch):
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"], batch["y"]).mean()


LOSS = td.Staged(lambda params, batch: params["embed"][batch["x"]], td.layer(block), last)


def make_state(dtype="float32"):
    zeros = lambda *shape: jnp.zeros(shape, dtype)
    blocks = {
        "qkv": zeros(LAYERS, WIDTH, 3, HEADS, WIDTH // HEADS),
        "out": zeros(LAYERS, HEADS, WIDTH // HEADS, WIDTH),
        "up": zeros(LAYERS, WIDTH, HIDDEN),
        "down": zeros(LAYERS, HIDDEN, WIDTH),
    }
    params = {"embed": zeros(VOCABULARY, WIDTH), "blocks": blocks, "head": zeros(WIDTH, VOCABULARY)}
    return params, OPTIMIZER.init(params)


STATE = jax.eval_shape(make_state)
TRAINING = Training(LOSS, STATE, first_of, BATCH, (), has_aux=False)


def make_plan(devices=8, hardware="h100-sxm", **options):
    return td.plan(LOSS, STATE, BATCH, devices=devices, hardware=hardware, has_aux=False, rules=RULES, **options)


def explain_whole_step(mesh):
    """Explain a whole training step with Adam over a planned mesh, which reuses its state's memory as on accelerators."""
    strategy, accumulate = mesh.strategy, 1 if mesh.schedule else mesh.microbatches

    def step(state, batch):
        params, opt_state = state
        loss, grads = strategy.value_and_grad(LOSS, has_aux=False, accumulate=accumulate)(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    with warnings.catch_warnings(action="ignore"):
        program = jax.jit(step, donate_argnums=0, out_shardings=(strategy.shardings(STATE), None))
        batch = strategy.put({name: np.zeros((ROWS, TOKENS), np.int32) for name in "xy"})
        return strategy.explain(program, STATE, batch)


@pytest.fixture(scope="module")
def plan():
    """Meshes of eight devices."""
    return make_plan(axes={"fsdp": (1, 2, 8), "tensor": (1, 2, 8)}, microbatches=(1, 2, 4, 8))


def check_memory(meshes, bound):
    for mesh in meshes:
        found = explain_whole_step(mesh).memory
        assert found.arguments == pytest.approx(mesh.state + 2 * ROWS * TOKENS * 4 / mesh.strategy.num_replicas, abs=64)
        bound(f"predicted memory of {mesh}, to XLA's", abs(mesh.memory / found.total - 1), 0.15)


@pytest.mark.slow("compiles each several times")
@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_what_was_not_compiled_is_predicted(plan, bound, count):
    unseen = [mesh for mesh in plan.meshes if not mesh.is_compiled]
    chosen = unseen[:: len(unseen) // count][:count]
    assert len({(mesh.schedule, *mesh.axes.values()) for mesh in chosen}) >= min(count, 3)
    check_memory(chosen, bound)


@pytest.mark.exhaustive
@pytest.mark.slow("compiles sixty programs")
@pytest.mark.timeout(6 * LIMIT_S)
def test_memory_is_predicted_of_all_kinds_of_meshes(bound):
    plan = make_plan(programs=20)
    unseen = [mesh for mesh in plan.meshes if not mesh.is_compiled]
    check_memory(unseen[:: max(1, len(unseen) // 32)], bound)
    assert len(unseen) >= 32


@pytest.mark.exhaustive
def test_the_first_meshes_were_compiled_and_their_memory_is_that_of_the_whole_step(plan):
    assert sum(mesh.is_compiled for mesh in plan.meshes) <= 20
    assert plan.meshes[0].memory == pytest.approx(explain_whole_step(plan.meshes[0]).memory.total, rel=0.02)
    told = [mesh for mesh in plan.meshes if mesh.is_compiled and mesh.predicted_memory is not None]
    assert all(abs(mesh.error) < 0.15 for mesh in told)


@pytest.mark.exhaustive
def test_the_table_names_each_mesh_once(plan):
    lines = str(plan).splitlines()
    assert lines[0].startswith(
        f"{len({(*one.axes.values(), one.schedule) for one in plan.meshes})} meshes of 8 x h100-sxm, 74.5 GiB"
    )
    first = plan.meshes[0]
    assert lines[3].split("  ")[1] == str(first)
    assert f"{1e3 * first.seconds:.2f}" in lines[3]
    assert "its program" in lines[3]
    assert first.reason.split(" %")[0] in lines[3]
    assert plan.format(2).splitlines()[5].startswith("  And ")
    names = [
        line.split("  ")[1] for line in plan.format(100).splitlines()[3:] if " %" in line and "Left out" not in line
    ]
    meshes = {name.split(", ")[0].split(" accumulate")[0] for name in names}
    assert len(meshes) == len(names)


@pytest.mark.exhaustive
def test_a_planned_strategy_trains(plan):
    mesh = next(mesh for mesh in plan.meshes if mesh.schedule and mesh.axes["fsdp"] > 1)
    assert mesh.strategy.mesh.size == 8
    state = mesh.strategy.init(make_state)
    batch = mesh.strategy.put({name: np.zeros((ROWS, TOKENS), np.int32) for name in "xy"})
    loss, _ = mesh.strategy.value_and_grad(LOSS, has_aux=False)(state[0], batch)
    assert float(loss) == pytest.approx(math.log(VOCABULARY), rel=1e-6)


@pytest.mark.parametrize("count", [1, 3, 64, 1024])
def test_meshes_are_made_for_devices_that_are_not_there(count):
    batch = jax.ShapeDtypeStruct((3 * count, 16), "float32")
    loss = lambda params, batch: ((batch @ params["w"]) ** 2).mean()
    plan = td.plan(
        loss,
        {"w": jax.ShapeDtypeStruct((16, 3 * 1024), "float32")},
        batch,
        devices=count,
        hardware="tpu-v5e",
        has_aux=False,
        axes={"fsdp": (1, count)},
        microbatches=(1,),
        programs=2,
    )
    assert [math.prod(mesh.axes.values()) for mesh in plan.meshes] == [count] * (1 if count == 1 else 2)
    assert all(mesh.memory > 0 and mesh.seconds > 0 and mesh.fits for mesh in plan.meshes)
    assert jax.device_count() == 8


def test_candidates_use_all_devices_and_divide_rows():
    found = list(
        find_candidates(
            12, 24, max_stages=6, choices={"tensor": (1, 2)}, schedules=("1f1b", "gpipe"), microbatches=None
        )
    )
    assert len(set(found)) == len(found)
    for candidate in found:
        axes = candidate.axes
        assert math.prod(axes.values()) == 12
        assert axes["tensor"] in (1, 2)
        assert axes["stage"] <= 6
        assert 24 % (candidate.num_replicas * candidate.microbatches) == 0
        assert bool(candidate.schedule) == (axes["stage"] > 1)
        assert axes["stage"] == 1 or candidate.microbatches >= axes["stage"]
    assert {candidate.schedule for candidate in found} == {"", "1f1b", "gpipe"}
    assert str(Candidate((2, 4, 1, 1), 8, "1f1b")) == "data=2,stage=4 1f1b, 8 microbatches"
    assert str(Candidate((1, 1, 2, 1), 4)) == "fsdp=2 accumulate=4"
    assert str(Candidate((1, 1, 1, 1))) == "one device"


@pytest.mark.parametrize(
    ("loss", "rules", "axes"),
    [
        (LOSS, RULES, {"data", "stage", "fsdp", "tensor"}),
        (LOSS, {}, {"data", "stage", "fsdp"}),
        (lambda params, batch: LOSS(params, batch), RULES, {"data", "fsdp", "tensor"}),
    ],
    ids=["all", "no rules", "no stages"],
)
def test_axes_follow_from_loss_and_rules(loss, rules, axes, monkeypatch):
    compared = []
    monkeypatch.setattr(Comparison, "make_plan", lambda self, *_: compared.extend(self.considered.items()))
    td.plan(loss, STATE, BATCH, devices=2, hardware="h200-sxm", has_aux=False, rules=rules)
    assert {name for one, _ in compared for name, size in one.axes.items() if size > 1} == axes
    kinds = {type(of.strategy).__name__ for _, of in compared}
    assert kinds == ({"Sharded", "Pipeline"} if "stage" in axes else {"Sharded"})


def test_sizes_are_those_of_layouts():
    candidate = Candidate((1, 2, 2, 2), 2, "1f1b")
    rules = Rules(tuple(RULES.items()), (), "blocks")
    sizes = measure_sizes(TRAINING, rules.make_strategy(candidate, make_absent_devices(8)))
    block_bytes = 4 * LAYERS * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN)
    others = 4 * VOCABULARY * WIDTH
    # `embed` is split over fsdp, then over stage; `head` over tensor and fsdp alone.
    assert sizes.layers == block_bytes // 4
    assert sizes.others == others + others // 2
    assert sizes.params == block_bytes // 8 + others // 4 + others // 4
    assert sizes.state == pytest.approx(3 * sizes.params, abs=64)
    assert sizes.batch == 2 * ROWS * TOKENS * 4 // 2


FIGURES = Figures(temporary=0.0, flops=8e12, written=0.0, traffic={("all-reduce", ("data",)): (1e9, 1.0)})
SIZES = Sizes(state=0, params=0, layers=0, others=0, batch=0)
HARDWARE = td.Hardware(
    "test", 16e12, 8e12, 1e10, 1e12, links=1e10, network=1e9, node=4, latency=0.0, efficiency=0.5, overlap=0.0
)


def test_times_are_those_of_hardware():
    time = lambda candidate, hardware=HARDWARE, share=1.0, figures=FIGURES, sizes=SIZES: estimate_times(
        candidate, sizes, figures, None, hardware, share
    )
    computed, inside, outside = 1.0, 1.5e9 / 1e10, 1.5e9 / 1e9
    within = Candidate((4, 1, 1, 1))
    assert time(within).seconds == pytest.approx(computed + inside)
    # Devices along `data` are farther apart than a node if there are others behind.
    assert time(Candidate((4, 1, 1, 2))).seconds == pytest.approx(computed + outside)
    assert time(within, share=0.0).seconds == pytest.approx(2 * computed + inside)
    hidden = dataclasses.replace(HARDWARE, overlap=0.1)
    assert time(within, hidden).seconds == pytest.approx(computed + inside - 0.1)
    assert time(within, dataclasses.replace(HARDWARE, latency=0.5)).seconds == pytest.approx(
        computed + inside + 3 * 0.5
    )
    # Two of four devices compute at a time.
    assert time(within, dataclasses.replace(HARDWARE, parallel=2)).seconds == pytest.approx(2 * (computed + inside))
    reading = dataclasses.replace(SIZES, layers=10**12)
    assert time(within, sizes=reading).parts["reading and writing memory"] == pytest.approx(3 - computed)
    writing = dataclasses.replace(FIGURES, written=1e12)
    assert time(within, figures=writing).parts["reading and writing memory"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("kind", "share"), [("all-gather", 3 / 4), ("reduce-scatter", 3), ("collective-permute", 1), ("all-to-all", 3 / 4)]
)
def test_collectives_send_what_rings_do(kind, share):
    figures = dataclasses.replace(FIGURES, flops=0.0, traffic={(kind, ("data",)): (1e9, 1.0)})
    times = estimate_times(Candidate((4, 1, 1, 1)), SIZES, figures, None, HARDWARE, 1.0)
    assert times.parts == {"exchanging over data": pytest.approx(share * 1e9 / 1e10)}


def test_branches_of_a_pipeline_run_once_a_microbatch():
    schedule = td.Pipeline(4, 4).pipeline.schedule
    make = lambda is_branch: Collective("all-reduce", ("tensor",), 2, 1, 8, schedule.num_ticks, is_branch, "")
    memory = Memory(arguments=100, results=20, reused=15, temporary=30)
    costs = ProgramCosts(
        memory, (make(True), make(False)), Flops(10 * schedule.num_ticks, True, {}), schedule.num_ticks
    )
    figures = read_figures(costs, schedule)
    assert (figures.temporary, figures.flops, figures.written) == (35, pytest.approx(40), pytest.approx(4))
    runs = 4 + schedule.num_ticks
    assert figures.traffic == {("all-reduce", ("tensor",)): (pytest.approx(8 * runs), pytest.approx(runs))}


def test_devices_of_a_pipeline_wait():
    candidate = Candidate((1, 4, 1, 1), 4, "1f1b")
    schedule = td.Pipeline(4, 4).pipeline.schedule
    figures = dataclasses.replace(FIGURES, traffic={})
    times = estimate_times(candidate, SIZES, figures, schedule, HARDWARE, 1.0)
    assert times.seconds == pytest.approx(1 / (1 - 3 / 7))
    assert times.parts["waiting in the pipeline"] == pytest.approx(times.seconds * 3 / 7)


def test_what_does_not_fit_is_last():
    shapes = {"w": jax.ShapeDtypeStruct((1024, 4096), "float32")}, jax.ShapeDtypeStruct((64, 1024), "float32")
    options = {"devices": 8, "has_aux": False, "microbatches": (1, 4), "programs": 6}
    plan = lambda memory: td.plan(
        simple_loss, *shapes, hardware=dataclasses.replace(td.HARDWARE["h100-sxm"], memory=memory), **options
    )
    found = plan(8e10).meshes
    assert all(mesh.fits for mesh in found)
    assert found[0].axes["data"] == 8
    least, most = min(mesh.memory for mesh in found), max(mesh.memory for mesh in found)
    small = plan((least + most) / 2 / 0.9)
    assert [mesh.fits for mesh in small.meshes] == sorted([mesh.fits for mesh in small.meshes], reverse=True)
    assert 0 < sum(mesh.fits for mesh in small.meshes) < len(found)
    assert small.meshes[0].axes["fsdp"] > 1
    assert "data=8 (does not fit)" in small.format(99)


def test_what_divides_nowhere_is_left_out_with_the_reason():
    plan = make_plan(devices=16, axes={"stage": (1,), "fsdp": (1,)}, microbatches=(1,), programs=2)
    reason = "0/blocks/out of shape (8, 4, 16, 64) is to be laid out P(None, 'tensor'), but its dimension 1 does not divide into 8 parts."
    assert [number for why, number in plan.left_out.items() if why.startswith(reason)] == [1]
    assert f"  Left out, with all microbatches 1: {reason}" in str(plan)


def test_a_program_that_cannot_be_compiled_is_left_out():
    def loss(params, batch):
        if len(batch) == 1:
            raise ValueError("one row is too few for the model")
        return ((batch @ params) ** 2).mean()

    shapes = jax.ShapeDtypeStruct((4, 4), "float32"), jax.ShapeDtypeStruct((8, 4), "float32")
    options = {"devices": 4, "hardware": "h100-sxm", "has_aux": False, "axes": {"fsdp": (1,)}}
    with pytest.raises(ValueError, match="one row is too few"):
        td.plan(loss, *shapes, microbatches=(2,), **options)
    plan = td.plan(lambda params, batch: loss(params, batch), *shapes, **(options | {"devices": 2}))
    assert {mesh.microbatches for mesh in plan.meshes} == {1, 2}
    assert plan.left_out == {"one row is too few for the model": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devices": 0}, r"`devices` is to be a number of 1 or more, got 0\."),
        ({"devices": True}, "got True"),
        ({"devices": "8"}, "got '8'"),
        ({"devices": []}, r"`devices` is to be a number of 1 or more, got \[\]"),
        ({"programs": 0}, r"`programs` is to be a number of 1 or more, got 0\."),
        ({"microbatches": (1, 0)}, r"`microbatches` is to be a number of 1 or more, got 0\."),
        ({"axes": {"fsdp": ("2",)}}, r"`axes\['fsdp'\]` is to be a number of 1 or more, got '2'\."),
        ({"schedules": ("1fb1",)}, r"`schedules` are of gpipe, 1f1b, interleaved, zb-h1, got '1fb1'\."),
        ({"axes": {"stage": 2}, "microbatches": (1,)}, "of which a pipeline has as many as stages or more"),
        ({"hardware": "h100"}, r"one of h200-sxm, .*, cpu, got 'h100'\. Describe others by a td\.Hardware\."),
        (
            {"axes": {"expert": (1,)}},
            "`axes` names 'expert', but meshes that are compared have data, stage, fsdp, tensor",
        ),
        ({"axes": {"data": (3,)}}, r"No mesh of 8 devices is possible for batches of 32 rows: .*rows do not divide"),
        (
            {"axes": {"stage": (16,)}, "devices": 16},
            r"No mesh of 16 devices is possible .*there are more stages than 8, as many as this loss can be divided into",
        ),
        (
            {"devices": 5},
            "No mesh of 5 devices is possible for batches of 32 rows: 0/blocks/down of shape .* does not divide",
        ),
    ],
)
def test_arguments_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        make_plan(**given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flops": 0}, r"'flops' of hardware is a number above 0, got 0\."),
        ({"node": -1}, "'node'"),
        ({"efficiency": 1.5}, "`efficiency` is above 0 and at most 1"),
        ({"overlap": -0.1}, "`overlap` from 0 to 1"),
        ({"parallel": 0}, r"`parallel` is how many devices compute at a time, 1 or more, got 0\."),
    ],
)
def test_hardware_is_checked(changed, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(HARDWARE, **changed)


def test_products_of_16_bits_are_found():
    devices = make_absent_devices(2)
    strategy = td.Mirrored(devices)
    share = lambda dtype: find_share_of_16_bits(
        dataclasses.replace(TRAINING, state=jax.eval_shape(lambda: make_state(dtype))), strategy, 1
    )
    assert share("float32") == 0
    assert share("bfloat16") > 0.85


def test_a_plan_hides_no_warning_of_what_is_trained_later():
    loss = lambda params, batch: (batch @ params["w"]).mean()
    make = lambda: {"w": jnp.zeros((521, 521))}
    batch = jax.ShapeDtypeStruct((8, 521), "float32")
    with warnings.catch_warnings(action="error"):
        td.plan(
            loss, jax.eval_shape(make), batch, devices=8, hardware="cpu", has_aux=False, microbatches=(1,), programs=1
        )
    with pytest.warns(UserWarning, match="stays whole on each device"):
        td.FSDP().init(make)


def test_a_state_is_a_tuple_that_begins_with_parameters_or_these_alone():
    assert first_of(STATE) is STATE[0]
    assert first_of(STATE[0]) is STATE[0]
    named = optax.ScaleByScheduleState(jnp.zeros(2))
    assert first_of(named) is named


SIMPLE = {"devices": 2, "hardware": "h100-sxm", "has_aux": False, "microbatches": (1,), "programs": 3}
SHAPES = {"w": jax.ShapeDtypeStruct((64, 64), "float32")}
SIMPLE_BATCH = jax.ShapeDtypeStruct((8, 64), "float32")


def simple_loss(params, batch):
    return ((batch @ params["w"]) ** 2).mean()


def test_parameters_of_16_bits_can_be_planned_for():
    shapes, batch = ({"w": jax.ShapeDtypeStruct((64, 64), "bfloat16")}, jax.ShapeDtypeStruct((8, 64), "bfloat16"))
    plan = td.plan(simple_loss, shapes, batch, rules={"w": P(None, "tensor")}, **SIMPLE)
    assert {str(mesh) for mesh in plan.meshes} == {"data=2", "fsdp=2", "tensor=2"}


def test_other_arguments_of_a_loss_count():
    frozen = jax.ShapeDtypeStruct((64, 1 << 16), "float32")
    loss = lambda params, batch, frozen: simple_loss(params, batch) + (batch @ frozen).mean()
    plan = td.plan(loss, SHAPES, SIMPLE_BATCH, frozen, **SIMPLE)
    assert all(mesh.memory > 16 << 20 for mesh in plan.meshes)


@pytest.mark.parametrize("programs", [1, 3])
def test_no_more_programs_are_compiled_than_are_allowed(programs, monkeypatch):
    compiled = []
    by_xla = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered, "compile", lambda *args, **options: compiled.append(1) or by_xla(*args, **options)
    )
    plan = make_plan(devices=2, microbatches=(2, 4), programs=programs, schedules=("1f1b", "gpipe", "zb-h1"))
    assert len(compiled) <= programs
    assert sum(mesh.is_compiled for mesh in plan.meshes) == len(compiled)
    if programs == 1:
        assert any(why.startswith("no program of") for why in plan.left_out)


def test_traffic_over_an_axis_that_no_program_had_is_not_free():
    plan = td.plan(simple_loss, SHAPES, SIMPLE_BATCH, **(SIMPLE | {"programs": 1}))
    (mesh,) = plan.meshes
    assert mesh.is_compiled
    (reason,) = plan.left_out
    assert reason in (
        "no program over 'data' was compiled to tell of others",
        "no program over 'fsdp' was compiled to tell of others",
    )


@pytest.mark.exhaustive
def test_the_first_three_rows_are_compiled_whatever_their_microbatches(plan):
    rows = {}
    for mesh in plan.meshes:
        rows.setdefault((*mesh.axes.values(), mesh.schedule), mesh)
    assert [mesh.is_compiled for mesh in rows.values()][:3] == [True] * 3


@pytest.mark.exhaustive
def test_times_of_what_was_not_compiled_are_those_of_its_program(plan):
    chosen = [mesh for mesh in plan.meshes if not mesh.is_compiled and mesh.schedule and mesh.axes["tensor"] > 1][:2]
    for mesh in chosen:
        axes = {name: (size,) for name, size in mesh.axes.items()}
        (one,) = make_plan(axes=axes, microbatches=(mesh.microbatches,), programs=1).meshes
        assert one.is_compiled
        assert mesh.seconds == pytest.approx(one.seconds, rel=0.15)
    assert chosen


def test_flax_names_of_axes_are_rules():
    class Model(nnx.Module):
        def __init__(self, rngs):
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "tensor"))
            self.dense = nnx.Linear(64, 64, kernel_init=init, use_bias=False, rngs=rngs)

    with nnx.use_eager_sharding(False):
        graph, state = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))
    loss = lambda params, batch: (nnx.merge(graph, params).dense(batch) ** 2).mean()
    plan = td.plan(loss, state, SIMPLE_BATCH, **SIMPLE)
    assert {str(mesh) for mesh in plan.meshes} == {"data=2", "fsdp=2", "tensor=2"}


def test_axes_that_divide_nothing_are_left_out_and_rules_that_match_nothing_told():
    with pytest.warns(UserWarning, match="The rules \\['nothing'\\] match the end of no path"):
        plan = td.plan(simple_loss, SHAPES, SIMPLE_BATCH, rules={"nothing": P("tensor")}, **SIMPLE)
    assert {str(mesh) for mesh in plan.meshes} == {"data=2", "fsdp=2"}
    assert plan.left_out == {"over 'tensor', neither rows nor arrays of the state are split": 1}


def test_parameters_are_found_in_any_state():
    state = {"opt": OPTIMIZER.init(SHAPES["w"]), "model": SHAPES}
    plan = td.plan(simple_loss, state, SIMPLE_BATCH, params=lambda state: state["model"], **SIMPLE)
    assert plan.meshes[0].state == 3 * 64 * 64 * 4 + 4


def test_schedules_of_many_microbatches_are_made_at_once():
    started = time.process_time()
    state = {"w": SHAPES["w"], "blocks": jax.ShapeDtypeStruct((16, 64, 64), "float32")}
    loss = td.Staged(lambda p, b: b @ p["w"], lambda w, x, b: x + jnp.tanh(x @ w), lambda p, x, b: (x**2).mean())
    rules = Rules(stack="blocks")
    comparison = Comparison(
        Training(loss, state, first_of, jax.ShapeDtypeStruct((4096, 64), "float32"), (), False),
        rules,
        make_absent_devices(64),
    )
    comparison.consider(
        find_candidates(64, 4096, max_stages=16, choices={"tensor": (1,)}, schedules=("1f1b",), microbatches=None)
    )
    assert max(one.microbatches for one in comparison.considered if one.schedule) == 256
    # Ten minutes when slots were counted anew for each operation; a second now.
    assert time.process_time() - started < 60


def test_layers_that_do_not_divide_into_stages_are_left_out():
    state = {"w": SHAPES["w"], "blocks": jax.ShapeDtypeStruct((4, 64, 64), "float32")}
    loss = td.Staged(lambda p, b: b @ p["w"], lambda w, x, b: x + jnp.tanh(x @ w), lambda p, x, b: (x**2).mean())
    options = SIMPLE | {"devices": 4, "axes": {"stage": (2, 4), "fsdp": 1}, "microbatches": (4,)}
    plan = td.plan(loss, state, SIMPLE_BATCH, schedules="interleaved", **options)
    assert {mesh.axes["stage"] for mesh in plan.meshes} == {2}
    assert plan.left_out == {"4 layers do not divide into 8 stages": 1}
