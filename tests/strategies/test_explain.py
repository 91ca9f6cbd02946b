"""What an explanation says of a step, held to what was computed by hand: layouts, memory, collectives, operations."""

import functools
import html.parser
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import tfdist_jax as td
from tfdist_jax._explain._collectives import find_collectives, parse_groups
from tfdist_jax._explain._flops import count_bytes_written, count_flops
from tfdist_jax._explain._hlo import parse_module
from tfdist_jax._explain._mesh_axes import draw_mesh
from tfdist_jax._hardware import find_hardware

WIDTH, HIDDEN, ROWS = 64, 256, 64
RULES = {"up": P(None, None, "tensor"), "down": P(None, "tensor")}
LAYER_BYTES = 2 * WIDTH * HIDDEN * 4
X_BYTES = ROWS * WIDTH * 4
PRODUCT = 2 * ROWS * WIDTH * HIDDEN
OPTIMIZER = optax.adam(1e-3)
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "FSDP": td.FSDP,
    "ZeRO1": td.ZeRO1,
    "HSDP": lambda: td.HSDP(shards=4),
    "TensorParallel": lambda: td.TensorParallel(4, RULES),
    "data x fsdp x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES),
    "in another order": lambda: td.Sharded(
        {"tensor": 2, "data": 2, "fsdp": 2}, RULES, devices=tuple(jax.devices()[::-1])
    ),
}


def apply_layer(params, x):
    hidden = jnp.tanh(x @ params["up"])
    return x + hidden @ params["down"]


def loss_fn(params, x):
    apply = td.layer(apply_layer)
    return jax.lax.scan(lambda x, layer: (apply(layer, x), None), x, params)[0].mean()


def make_params(layers=4):
    return {"up": jnp.full((layers, WIDTH, HIDDEN), 0.01), "down": jnp.full((layers, HIDDEN, WIDTH), 0.01)}


def make_state(layers=4):
    params = make_params(layers)
    return params, OPTIMIZER.init(params)


def make_step(strategy, loss_fn=loss_fn):
    @strategy.jit
    def step(state, x):
        params, opt_state = state
        loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, x)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return step


@functools.cache
def explain(strategy, layers=4, rows=ROWS, **options):
    state = jax.eval_shape(lambda: make_state(layers))
    return strategy.explain(make_step(strategy), state, strategy.put(np.ones((rows, WIDTH), np.float32)), **options)


def runs_and_bytes(explanation):
    """Kind and axes to how many collectives a step runs, and how many bytes these give a device."""
    found = {}
    for one in explanation.collectives:
        runs, total = found.get((one.kind, *one.axes), (0, 0))
        found[one.kind, *one.axes] = runs + one.runs, total + one.bytes_per_step
    return found


def expected_collectives(name, layers):
    """In a loop of `layers` rounds, each gathers two matrices forward and backward; a loss has four bytes."""
    params = layers * LAYER_BYTES
    return {
        "one device": {},
        "Mirrored": {("all-reduce", "data"): (1, params + 4)},
        "FSDP": {
            ("all-gather", "data"): (4 * layers, 2 * params),
            ("reduce-scatter", "data"): (2 * layers, params / 8),
            ("all-reduce", "data"): (1, 4),
        },
        "ZeRO1": {
            ("all-gather", "data"): (2, params),
            ("reduce-scatter", "data"): (2, params / 8),
            ("all-reduce", "data"): (1, 4),
        },
        "HSDP": {
            ("all-gather", "fsdp"): (4 * layers, 2 * params),
            ("reduce-scatter", "fsdp"): (2 * layers, params / 4),
            ("all-reduce", "data"): (1, params / 4),
            ("all-reduce", "data", "fsdp"): (1, 4),
        },
        "TensorParallel": {
            ("all-reduce", "tensor"): (2 * layers, 2 * layers * X_BYTES / 2),
            ("all-reduce", "data"): (1, params / 4 + 4),
        },
        "data x fsdp x tensor": {
            ("all-gather", "fsdp"): (4 * layers, 2 * params / 2),
            ("reduce-scatter", "fsdp"): (2 * layers, params / 4),
            ("all-reduce", "tensor"): (2 * layers, 2 * layers * X_BYTES / 4),
            ("all-reduce", "data"): (1, params / 4),
            ("all-reduce", "data", "fsdp"): (1, 4),
        },
    }["data x fsdp x tensor" if name == "in another order" else name]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layers", [4, 8])
@pytest.mark.parametrize("name", STRATEGIES)
def test_collectives_are_those_of_the_strategy(name, layers):
    assert runs_and_bytes(explain(STRATEGIES[name](), layers)) == expected_collectives(name, layers)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("layers", [4, 8])
@pytest.mark.parametrize("name", STRATEGIES)
def test_products_of_matrices_are_counted_with_their_loops_and_what_is_computed_again(name, layers):
    """Two products forward, one of them again, four backward; each device has its share."""
    strategy = STRATEGIES[name]()
    flops = explain(strategy, layers).flops
    assert (flops.count, flops.is_exact, flops.not_counted) == (7 * layers * PRODUCT // strategy.mesh.size, True, {})


def test_collectives_have_the_lines_of_the_user():
    """Forward, the second product needs a sum over `tensor`, and backward the first."""
    _, start = inspect.getsourcelines(apply_layer)
    lines = [one.line for one in explain(STRATEGIES["TensorParallel"]()).collectives if one.axes == ("tensor",)]
    assert lines == [
        f'{__file__}:{start + 2} (`return x + hidden @ params["down"]`)',
        f'{__file__}:{start + 1} (`hidden = jnp.tanh(x @ params["up"])`)',
    ]


def test_lines_are_not_those_of_another_program_that_is_the_same():
    """Which JAX has kept in a file, and for which it takes it."""
    fns = [
        lambda x: jax.lax.psum(x * 3, "fsdp"),
        lambda x: jax.lax.psum(x * 3, "fsdp"),
    ]
    lines = [explain_over_axes(fn, P("data")).collectives[0].line for fn in fns]
    rows = [fn.__code__.co_firstlineno for fn in fns]
    assert [line.split()[0] for line in lines] == [f"{__file__}:{row}" for row in rows]


@pytest.mark.parametrize("name", STRATEGIES)
def test_memory_is_what_xla_says(name):
    strategy = STRATEGIES[name]()
    memory = explain(strategy).memory
    held = sum(row.bytes_on_device for row in explain(strategy).state)
    assert memory.arguments == held + X_BYTES // strategy.num_replicas
    # The loss, what tells that the step is done, and XLA's list of nine results.
    assert memory.results == held + 4 + 4 + 9 * 8
    assert memory.total == memory.arguments + memory.results - memory.reused + memory.temporary
    # Of a device alone the memory is always reused, on several virtual ones that of large states.
    assert memory.reused == (held if name == "one device" else 0)


SHARES = {"one device": 1, "Mirrored": 1, "FSDP": 8, "HSDP": 4, "TensorParallel": 4, "data x fsdp x tensor": 4}


@pytest.mark.parametrize("name", SHARES)
def test_the_state_is_listed_with_what_a_device_holds(name):
    rows = explain(STRATEGIES[name]()).state
    assert [row.path for row in rows] == [
        "0/down",
        "0/up",
        "1/0/count",
        *(f"1/0/{m}/{n}" for m in ("mu", "nu") for n in ("down", "up")),
    ]
    sizes = {row.path: (row.shape, row.dtype, row.bytes, row.bytes_on_device) for row in rows}
    assert sizes["1/0/count"] == ((), "int32", 4, 4)
    total = 4 * LAYER_BYTES // 2
    assert sizes["0/up"] == sizes["1/0/nu/up"] == ((4, WIDTH, HIDDEN), "float32", total, total // SHARES[name])


def test_optimizer_state_alone_is_split_under_zero1():
    explanation = explain(td.ZeRO1())
    whole = {row.path: row.bytes_on_device == row.bytes for row in explanation.state}
    assert whole == {row.path: row.path[0] == "0" or row.path == "1/0/count" for row in explanation.state}
    assert [axis.purpose for axis in explanation.axes] == ["rows of the batch; the optimizer's state"]


def test_alike_arrays_are_one_row():
    make = lambda: {"blocks": [{"w": jnp.ones((8, 8)), "b": jnp.ones(8)} for _ in range(12)], "head": jnp.ones((8, 8))}
    strategy = td.FSDP(min_size=16)
    found = strategy.explain(jax.jit(lambda state: state), jax.eval_shape(make)).state
    assert [(row.path, row.count, row.layout, row.bytes, row.bytes_on_device) for row in found] == [
        ("blocks/*/b", 12, "P()", 12 * 32, 12 * 32),
        ("blocks/*/w", 12, "P('data',)", 12 * 256, 12 * 32),
        ("head", 1, "P('data',)", 256, 32),
    ]


@pytest.mark.filterwarnings("ignore:.*stays whole")
def test_large_arrays_that_stay_whole_are_marked():
    make = lambda: {"odd": jnp.ones((523, 511)), "even": jnp.ones((512, 512)), "small": [jnp.ones((511, 511))] * 2}
    explanation = td.FSDP().explain(jax.jit(lambda state: state), jax.eval_shape(make))
    assert {row.path: row.is_large_and_whole for row in explanation.state} == {
        "even": False,
        "odd": True,
        "small/*": False,
    }
    assert [line.split()[0] for line in str(explanation).splitlines() if "whole on each device" in line] == ["odd"]


def test_what_is_on_one_device_is_not_marked():
    explanation = td.SingleDevice().explain(jax.jit(lambda x: x), jax.ShapeDtypeStruct((1024, 1024), "float32"))
    assert [row.is_large_and_whole for row in explanation.state] == [False]


def test_arrays_are_explained_as_their_shapes_and_can_be_used_afterwards():
    strategy = td.FSDP()
    state, batch = strategy.init(make_state), strategy.put(np.ones((ROWS, WIDTH), np.float32))
    step = make_step(strategy)
    explanation = strategy.explain(step, state, batch)
    assert str(explanation) == str(explain(strategy))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    step(state, batch)


def test_functions_of_value_and_grad_and_evaluate_are_explained():
    strategy, batch = td.FSDP(), td.FSDP().put(np.ones((ROWS, WIDTH), np.float32))
    params = strategy.init(make_params)
    gradients = strategy.explain(strategy.value_and_grad(loss_fn, has_aux=False), params, batch)
    assert runs_and_bytes(gradients) == expected_collectives("FSDP", 4)
    evaluation = strategy.explain(strategy.evaluate(loss_fn), params, batch)
    assert runs_and_bytes(evaluation)["all-gather", "data"][1] == 4 * LAYER_BYTES
    assert evaluation.flops.count == 2 * 4 * PRODUCT // 8


def test_what_axes_are_for():
    purposes = {axis.name: (axis.size, axis.purpose) for axis in explain(STRATEGIES["data x fsdp x tensor"]()).axes}
    assert purposes == {
        "data": (2, "rows of the batch"),
        "fsdp": (2, "rows of the batch; parameters, gathered where they are used"),
        "tensor": (2, "arrays, with which XLA divides what is computed"),
    }


def test_axes_of_tokens_and_experts():
    strategy = td.Sharded({"expert": 4, "sequence": 2}, {"experts/.*": P("expert")})
    explanation = strategy.explain(jax.jit(lambda x: x), {"experts": {"up": jax.ShapeDtypeStruct((8, 4), "float32")}})
    assert [axis.purpose for axis in explanation.axes] == [
        "rows of the batch; experts, to which tokens are sent",
        "tokens of each row",
    ]


def explain_over_axes(fn, out, **options):
    """Explain a function of what a device has, 32 numbers, over a mesh whose devices are in another order."""
    devices = np.array(jax.devices())[[3, 1, 7, 0, 5, 2, 4, 6]]
    strategy = td.Sharded({"data": 2, "fsdp": 4}, devices=tuple(devices))
    x = jax.ShapeDtypeStruct((256,), "float32", sharding=NamedSharding(strategy.mesh, P(("data", "fsdp"))))
    mapped = jax.shard_map(fn, mesh=strategy.mesh, in_specs=x.sharding.spec, out_specs=out, check_vma=False)
    return strategy.explain(jax.jit(mapped), x, **options)


def rotate(x):
    return jax.lax.ppermute(x, "fsdp", [(i, (i + 1) % 4) for i in range(4)])


@pytest.mark.parametrize(
    ("fn", "out", "found"),
    [
        (lambda x: jax.lax.psum(x, "data"), P("fsdp"), ("all-reduce", ("data",), 2, 128)),
        (lambda x: jax.lax.psum(x, ("data", "fsdp")), P(), ("all-reduce", ("data", "fsdp"), 8, 128)),
        (lambda x: jax.lax.all_gather(x, "fsdp"), P("data"), ("all-gather", ("fsdp",), 4, 512)),
        (lambda x: jax.lax.psum_scatter(x, "fsdp", tiled=True), P("fsdp"), ("reduce-scatter", ("fsdp",), 4, 32)),
        (
            lambda x: jax.lax.all_to_all(x.reshape(4, 8), "fsdp", 0, 1),
            P("data", "fsdp"),
            ("all-to-all", ("fsdp",), 4, 128),
        ),
        (rotate, P(("data", "fsdp")), ("collective-permute", ("fsdp",), 4, 128)),
        (
            lambda x: jax.lax.psum(x, "fsdp", axis_index_groups=[[0, 1], [2, 3]]),
            P(("data", "fsdp")),
            ("all-reduce", ("fsdp",), 2, 128),
        ),
    ],
)
def test_kinds_axes_and_bytes(fn, out, found):
    (one,) = explain_over_axes(fn, out).collectives
    assert (one.kind, one.axes, one.group, one.bytes) == found
    assert (one.count, one.times, one.is_branch) == (1, 1, False)


def loop_until_large(x):
    return jax.lax.while_loop(lambda x: x.sum() < 100, lambda x: jax.lax.psum(x @ jnp.ones((32, 32)), "fsdp"), x)


def test_a_loop_whose_rounds_depend_on_values_is_not_multiplied():
    explanation = explain_over_axes(loop_until_large, P("fsdp"), seconds=1.0, peak_flops=1e9)
    (one,) = explanation.collectives
    assert (one.count, one.bytes, one.times, one.runs, one.bytes_per_step) == (1, 128, None, None, None)
    assert "1 x ?" in str(explanation)
    assert "and what loops get whose rounds are not known" in str(explanation)
    assert not explanation.flops.is_exact
    assert explanation.speed.mfu is None
    assert "a loop's rounds" in explanation.speed.why_not
    with pytest.raises(AssertionError, match="all-reduce: 1 expected, a number that depends on values found"):
        td.assert_collectives(explanation, {"all-reduce": 1})


def test_loops_in_loops_are_multiplied():
    inner = lambda x: jax.lax.fori_loop(0, 5, lambda _, x: jax.lax.pmax(x * 2, "data"), x)
    (one,) = explain_over_axes(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: inner(x + 1), x), P("fsdp")).collectives
    assert (one.axes, one.count, one.times, one.bytes_per_step) == (("data",), 1, 15, 15 * 128)


def test_what_is_in_a_branch_may_not_run():
    branch = lambda x: jax.lax.psum(x, "data")
    explanation = explain_over_axes(lambda x: jax.lax.cond(x[0] > 0, branch, lambda x: x, x), P(("data", "fsdp")))
    (one,) = explanation.collectives
    assert (one.is_branch, one.times) == (True, 1)
    assert "1 at most" in str(explanation)
    with pytest.raises(AssertionError, match="depends on values"):
        td.assert_collectives(explanation, {"all-reduce": 1})


def test_a_loop_in_a_branch_may_not_run_either():
    loop = lambda x: jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.pmax(x * 2, "data"), x)
    explanation = explain_over_axes(lambda x: jax.lax.cond(x[0] > 0, loop, lambda x: x, x), P(("data", "fsdp")))
    (one,) = explanation.collectives
    assert (one.is_branch, one.times) == (True, 3)


@pytest.mark.filterwarnings("ignore:.*all layers are gathered at once")
def test_of_an_uneven_batch_the_largest_branch_counts():
    """Thirteen rows over eight devices: some have two, others one."""
    flops = explain(td.Mirrored(), rows=13).flops
    assert (flops.count, flops.is_exact) == (7 * 4 * PRODUCT // ROWS * 2, False)


GROUPS = {
    "replica_groups={{0,2},{1,3}}, dimensions={0}": [[0, 2], [1, 3]],
    "channel_id=1, replica_groups={}, to_apply=%add": [[0, 1, 2, 3]],
    "channel_id=1, to_apply=%add": [[0, 1, 2, 3]],
    "replica_groups=[2,4]<=[8], to_apply=%add": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add": [[0, 2, 4, 6], [1, 3, 5, 7]],
    "replica_groups=[4,2]<=[2,2,2]T(0,2,1), x=1": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "replica_groups=mesh['a'=2,'b'=2,'c'=2] {'b'}, dimensions={0}": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "replica_groups=mesh['a'=2,'b'=2] {'a','b'}, x={y}": [[0, 1, 2, 3]],
    "replica_groups=mesh['a'=8] {'a':(2)2}": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "replica_groups=mesh['a'=8] {'a':(1)2}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}": [[0, 2], [1, 3]],
    "replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}": [[0, 1], [2, 3]],
}


@pytest.mark.parametrize("written", GROUPS)
def test_groups_of_devices_are_read_in_all_forms(written):
    assert sorted(map(sorted, parse_groups(written, 4))) == GROUPS[written]


# As XLA prints programs of a TPU, and what a GPU starts and waits for later, shortened: a gather that goes on while other instructions run
# is printed in each of these; loops have no known number of rounds; transfers between slices are sent and received by the host.
TPU = """HloModule jit_step, is_scheduled=true

FileNames
1 "/home/user/train.py"
2 "/lib/site-packages/jax/_src/lax.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=4}
2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=4 end_column=4}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


%begin (p: bf16[512,1024]) -> (bf16[512,1024], bf16[4096,1024], u32[]) {
  %p = bf16[512,1024]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %all-gather.1 = bf16[4096,1024]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, \
dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, metadata={op_name="x" stack_frame_id=2}
  ROOT %start = (bf16[512,1024]{1,0}, bf16[4096,1024]{1,0}, u32[]{:S(2)}) custom-call(%all-gather.1), \
custom_call_target="AsyncCollectiveStart"
}

%meanwhile (p.1: bf16[512,1024], q: bf16[8,1024]) -> (f32[8,4096], bf16[4096,1024]) {
  %p.1 = bf16[512,1024]{1,0} parameter(0)
  %q = bf16[8,1024]{1,0} parameter(1)
  %all-gather.2 = bf16[4096,1024]{1,0:T(8,128)(2,1)} all-gather(%p.1), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, \
dimensions={0}, frontend_attributes={chain_id="0"}
  %convolution.1 = f32[8,4096]{1,0:T(8,128)} convolution(%q, %all-gather.2), dim_labels=bf_oi->bf
  ROOT %both = (f32[8,4096]{1,0}, bf16[4096,1024]{1,0}) tuple(%convolution.1, %all-gather.2)
}

%body (s: (s32[], bf16[512,1024], /*index=2*/bf16[8,1024])) -> (s32[], bf16[512,1024], bf16[8,1024]) {
  %s = (s32[]{:T(128)}, bf16[512,1024]{1,0}, /*index=2*/bf16[8,1024]{1,0}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%s), index=0
  %part = bf16[512,1024]{1,0} get-tuple-element(%s), index=1
  %x = bf16[8,1024]{1,0} get-tuple-element(%s), index=2
  %one = s32[]{:T(128)} constant(STEP)
  %copy = s32[]{:T(128)S(6)} copy(%i)
  %next = s32[]{:T(128)} add(%copy, %one)
  %fusion.1 = (bf16[512,1024]{1,0}, bf16[4096,1024]{1,0}, u32[]{:S(2)}) fusion(%part), kind=kCustom, calls=%begin
  %fusion.2 = (f32[8,4096]{1,0}, bf16[4096,1024]{1,0}) fusion(%part, %x), kind=kCustom, calls=%meanwhile
  ROOT %made = (s32[]{:T(128)}, bf16[512,1024]{1,0}, bf16[8,1024]{1,0}) tuple(%next, %part, %x)
}

%condition (s.1: (s32[], bf16[512,1024], bf16[8,1024])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, bf16[512,1024]{1,0}, bf16[8,1024]{1,0}) parameter(0)
  %i.1 = s32[]{:T(128)} get-tuple-element(%s.1), index=0
  %limit = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[]{:T(512)} compare(%i.1, %limit), direction=DIRECTION
}

ENTRY %main (a: bf16[512,1024], b: bf16[8,1024]) -> f32[512] {
  %a = bf16[512,1024]{1,0} parameter(0)
  %b = bf16[8,1024]{1,0} parameter(1)
  %zero = s32[]{:T(128)} constant(START)
  %copy.1 = s32[]{:T(128)} copy(%zero)
  %tuple = (s32[]{:T(128)}, bf16[512,1024]{1,0}, bf16[8,1024]{1,0}) tuple(%copy.1, %a, %b)
  %while = (s32[]{:T(128)}, bf16[512,1024]{1,0}, bf16[8,1024]{1,0}) while(%tuple), condition=%condition, body=%body
  %scattered = ((f32[2048]{0}), f32[512]{0}) async-start(%b), calls=%scattering
  %done = f32[512]{0} async-done(%scattered)
  %scatter = ((f32[64]{0}), f32[16]{0}, u32[]) reduce-scatter-start(%b), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
  %reduce = (f32[64]{0}, f32[16]{0}) all-reduce-start(%b, %b), replica_groups=[2,4]<=[8], to_apply=%add
  %product = ((f32[4,8]{1,0}, f32[8,2]{1,0}), f32[4,2]{1,0}, u32[]) fusion-start(%b, %b), kind=kCustom, calls=%multiplying
  %permute = (f32[24,8]{1,0}, f32[24,8]{1,0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%b), \
source_target_pairs={{0,1},{1,2},{2,3},{4,5},{5,6},{6,7}}
  %gather = ((f32[4]{0}, f32[2]{0}), (f32[8]{0}, f32[4]{0})) all-gather-start(%b, %b), replica_groups=[4,2]<=[2,4]T(1,0)
  %alone = f32[4]{0} all-reduce(%b), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add
  %after = token[] after-all()
  %send = (f32[512,8]{1,0}, u32[], token[]) send(%b, %after), frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}
  ROOT %recv = (f32[512,8]{1,0}, u32[], token[]) recv(%after), frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}
}

%multiplying (l: f32[4,8], r: f32[8,2]) -> f32[4,2] {
  %l = f32[4,8]{1,0} parameter(0)
  %r = f32[8,2]{1,0} parameter(1)
  ROOT %dot.1 = f32[4,2]{1,0} dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%scattering (c: f32[2048]) -> f32[512] {
  %c = f32[2048]{0} parameter(0)
  ROOT %reduce-scatter.1 = f32[512]{0} reduce-scatter(%c), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
}
"""


class Chip:
    """A device of one of two slices."""

    def __init__(self, number):
        self.id, self.slice_index = number, number // 4


def parse_tpu(start=0, step=1, direction="LT"):
    return parse_module(TPU.replace("START", str(start)).replace("STEP", str(step)).replace("DIRECTION", direction))


def two_slices():
    class Slices:
        axis_names, shape, size = ("data", "fsdp"), {"data": 2, "fsdp": 4}, 8
        devices = np.array([Chip(number) for number in range(8)]).reshape(2, 4)

    return Slices()


def test_collectives_of_a_tpu_are_counted_once_however_they_are_printed():
    found = [
        (one.kind, one.axes, one.group, one.count, one.bytes, one.times)
        for one in find_collectives(parse_tpu(), two_slices())
    ]
    assert found == [
        ("all-gather", ("fsdp",), 4, 1, 4096 * 1024 * 2, 12),
        ("reduce-scatter", ("fsdp",), 4, 2, (512 + 16) * 4, 1),
        ("all-reduce", ("fsdp",), 4, 1, (64 + 16) * 4, 1),
        ("collective-permute", ("fsdp",), 4, 1, 24 * 8 * 4, 1),
        ("all-gather", ("data",), 2, 1, 12 * 4, 1),
        ("all-reduce", ("data",), 2, 1, 512 * 8 * 4, 1),
    ]


def test_the_line_is_the_innermost_of_the_user():
    one, *others = find_collectives(parse_tpu(), two_slices())
    assert one.line == "/home/user/train.py:7"
    assert {other.line for other in others} == {""}


@pytest.mark.parametrize(
    ("loop", "rounds"),
    [
        ((0, 1, "LT"), 12),
        ((2, 1, "LT"), 10),
        ((0, 5, "LT"), 3),
        ((20, 1, "LT"), 0),
        ((0, 0, "LT"), None),
        ((0, 1, "NE"), None),
    ],
)
def test_rounds_of_a_loop_from_one_constant_to_another(loop, rounds):
    module = parse_tpu(*loop)
    gather = find_collectives(module, two_slices())[0]
    assert (gather.kind, gather.times) == ("all-gather", rounds)
    product, flops = 2 * 8 * 4096 * 1024, count_flops(module)
    once = 2 * 4 * 2 * 8
    assert (flops.count, flops.is_exact) == (product * (1 if rounds is None else rounds) + once, rounds is not None)
    assert flops.not_counted == {}


def test_a_loops_condition_runs_once_more_than_its_body():
    (one,) = find_collectives(
        parse_module("""HloModule m

%body (x: s32[]) -> s32[] {
  ROOT %x = s32[] parameter(0)
}

%condition (y: s32[]) -> pred[] {
  %y = s32[] parameter(0)
  ROOT %any = pred[] all-reduce(%y), replica_groups={}, to_apply=%or
}

ENTRY %main (z: s32[]) -> s32[] {
  %z = s32[] parameter(0)
  ROOT %loop = s32[] while(%z), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""),
        two_slices(),
    )
    assert (one.axes, one.group, one.bytes, one.times) == (("data", "fsdp"), 8, 1, 6)


CONVOLUTIONS = {
    "valid": {"padding": "VALID"},
    "same": {"padding": "SAME"},
    "strides": {"padding": "SAME", "window_strides": (2, 3)},
    "holes in the kernel": {"padding": ((3, 1), (0, 2)), "rhs_dilation": (2, 1)},
    "holes in the input": {"padding": ((2, 2), (1, 0)), "lhs_dilation": (2, 3)},
    "groups of features": {"padding": "SAME", "feature_group_count": 2},
    "groups of the batch": {"padding": "SAME", "batch_group_count": 2},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_counted_without_padding(name):
    """Of ones, a convolution gives how many products it has added up."""
    options = {"window_strides": (1, 1), "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **CONVOLUTIONS[name]}
    features = 4 // options.get("feature_group_count", 1)
    convolve = lambda x, kernel: jax.lax.conv_general_dilated(x, kernel, **options)
    x, kernel = jnp.ones((4, 9, 7, 4)), jnp.ones((3, 2, features, 8))
    found = td.SingleDevice().explain(jax.jit(convolve), x, kernel)
    assert found.flops.count == 2 * int(convolve(x, kernel).sum())


def test_products_with_batches_and_complex_numbers():
    explain_product = lambda dtype: td.SingleDevice().explain(
        jax.jit(lambda x, y: jnp.einsum("bij,bjk->bik", x, y)),
        *(jax.ShapeDtypeStruct(shape, dtype) for shape in ((4, 32, 48), (4, 48, 16))),
    )
    assert explain_product("float32").flops.count == 2 * 4 * 32 * 48 * 16
    assert explain_product("complex64").flops.count == 8 * 4 * 32 * 48 * 16
    assert explain_product("int32").flops.count == 0


def test_a_product_of_cublas_is_counted_and_other_kernels_are_named():
    module = parse_module("""HloModule m

ENTRY %main (a: bf16[64,128], b: bf16[128,32]) -> bf16[64,32] {
  %a = bf16[64,128]{1,0} parameter(0)
  %b = bf16[128,32]{1,0} parameter(1)
  %gemm = (bf16[64,32]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %kernel = bf16[64,32]{1,0} custom-call(%a), custom_call_target="my_kernel"
  ROOT %out = bf16[64,32]{1,0} get-tuple-element(%gemm), index=0
}
""")
    flops = count_flops(module)
    assert (flops.count, flops.not_counted) == (2 * 64 * 32 * 128, {"my_kernel": 1})


def test_bytes_written_are_those_of_results_and_of_parts_that_are_changed_in_place():
    module = parse_module("""HloModule m

%fused (p: f32[8,16], u: f32[1,16], i: s32[]) -> (f32[8,16], f32[4]) {
  %p = f32[8,16]{1,0} parameter(0)
  %u = f32[1,16]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %more = f32[1,16]{1,0} add(%u, %u)
  %changed = f32[8,16]{1,0} dynamic-update-slice(%p, %more, %i, %i)
  %other = f32[4]{0} iota(), iota_dimension=0
  %sum = f32[4]{0} add(%other, %other)
  ROOT %both = (f32[8,16]{1,0}, f32[4]{0}) tuple(%changed, %sum)
}

%body (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} multiply(%x, %x)
}

%condition (c: f32[4]) -> pred[] {
  %c = f32[4]{0} parameter(0)
  ROOT %known = pred[] constant(true)
}

%large (l: f32[4]) -> f32[4] {
  %l = f32[4]{0} parameter(0)
  %once = f32[4]{0} negate(%l)
  ROOT %twice = f32[4]{0} negate(%once)
}

ENTRY %main (p: f32[8,16], u: f32[1,16], i: s32[], f: pred[]) -> f32[4] {
  %p.1 = f32[8,16]{1,0} parameter(0)
  %u.1 = f32[1,16]{1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %f.1 = pred[] parameter(3)
  %f.2 = (f32[8,16]{1,0}, f32[4]{0}) fusion(%p.1, %u.1, %i.1), kind=kLoop, calls=%fused
  %made = f32[4]{0} get-tuple-element(%f.2), index=1
  %loop = f32[4]{0} while(%made), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %chosen = f32[4]{0} conditional(%f.1, %loop, %loop), true_computation=%body, false_computation=%large
}
""")
    part, sums, rounds, branch = 16 * 4, 4 * 4, 5 * 4 * 4, 2 * 4 * 4
    assert count_bytes_written(module) == part + sums + rounds + branch


def test_kernels_that_are_not_counted_are_named():
    explanation = td.SingleDevice().explain(jax.jit(jnp.linalg.cholesky), jax.ShapeDtypeStruct((8, 8), "float32"))
    (name,) = explanation.flops.not_counted
    assert f"Not counted is what XLA cannot look into: {name} x 1." in str(explanation)


def test_of_what_is_not_counted_as_well_the_mfu_may_be_larger():
    fn = jax.jit(lambda x: jnp.linalg.cholesky(x @ x))
    explain_alone = functools.partial(td.SingleDevice().explain, seconds=1.0, peak_flops=1e6)
    assert "; at least MFU 102.4 % of 1 MFLOP/s" in str(explain_alone(fn, jax.ShapeDtypeStruct((80, 80), "float32")))
    assert "; MFU 102.4 % of 1 MFLOP/s" in str(
        explain_alone(jax.jit(lambda x: x @ x), jax.ShapeDtypeStruct((80, 80), "float32"))
    )


def test_speed_is_compared_with_the_peak():
    explanation = explain(td.Mirrored(), seconds=0.5, peak_flops=1e9)
    count = 7 * 4 * PRODUCT / 8
    assert explanation.speed.flops_per_second == count / 0.5
    assert explanation.speed.mfu == count / 0.5 / 1e9
    assert f"MFU {100 * explanation.speed.mfu:.1f} % of 1 GFLOP/s" in str(explanation)


def test_without_a_known_peak_there_is_no_mfu():
    explanation = explain(td.Mirrored(), seconds=0.5)
    assert explanation.speed.mfu is None
    assert "no MFU: the peak of 'cpu' is not known: give `peak_flops=`" in str(explanation)
    assert explain(td.Mirrored()).speed is None
    with pytest.raises(ValueError, match="more than 0, got 0"):
        explain(td.Mirrored(), seconds=0)


def test_peaks_go_by_what_jax_calls_devices():
    kinds = {
        "NVIDIA H100 80GB HBM3": 989e12,
        "NVIDIA H100 PCIe": 756e12,
        "NVIDIA A100-SXM4-40GB": 312e12,
        "TPU v4": 275e12,
        "TPU v5 lite": 197e12,
        "TPU v5": 459e12,
        "TPU v6 lite": 918e12,
        "TPU v2": None,
    }
    found = {kind: find_hardware(kind) for kind in kinds}
    assert {kind: hardware and hardware.flops for kind, hardware in found.items()} == kinds


def test_a_function_that_is_not_compiled_is_refused():
    with pytest.raises(TypeError, match=r"strategy\.jit\(step\)"):
        td.Mirrored().explain(lambda state: state, jnp.ones(8))


@pytest.mark.parametrize("devices", [lambda: jax.devices()[:4], lambda: jax.devices()[::-1]])
def test_a_step_on_other_devices_is_refused(devices):
    strategy = td.Mirrored(tuple(devices()))
    state, batch = strategy.init(make_state), strategy.put(np.ones((ROWS, WIDTH), np.float32))
    with pytest.raises(ValueError, match=r"runs on \d devices.*the strategy's mesh has 8"):
        td.Mirrored().explain(make_step(strategy), state, batch)


MESHES = {
    (8,): ["x0", "0 1 2 3 4 5 6 7"],
    (1, 8): ["x1", "0 1 2 3 4 5 6 7"],
    (1,): ["x0", "0"],
    (2, 4): ["   x1", "x0 0 1 2 3", "   4 5 6 7"],
    (2, 2, 2): ["x0 0", "   x2", "x1 0 1", "   2 3", "x0 1", "   x2", "x1 4 5", "   6 7"],
}


@pytest.mark.parametrize("shape", MESHES)
def test_a_mesh_is_drawn(shape):
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    assert draw_mesh(Mesh(devices, [f"x{i}" for i in range(len(shape))])) == MESHES[shape]


def test_of_a_large_mesh_both_ends_are_drawn():
    devices = np.array(jax.devices()).reshape(1, 8)
    assert draw_mesh(Mesh(devices, ("a", "b")), most=4) == ["b", "0 1 ... 6 7"]
    assert draw_mesh(Mesh(devices.reshape(4, 2), ("a", "b")), most=2) == ["  b", "a 0 1", "  ...", "  6 7"]


class Page(html.parser.HTMLParser):
    """Counts tags and gathers attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs).get("class")))
        self.attributes += [name for name, _ in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs).get("class")))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_says_what_the_report_says_and_needs_no_other_files(tmp_path):
    explanation = explain(STRATEGIES["data x fsdp x tensor"](), seconds=0.5)
    explanation.write_html(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.tags.count(("rect", "device")) == 8
    assert page.tags.count(("rect", "bar")) == len(explanation.state) + 3 + len(explanation.collectives)
    assert {"src", "href"}.isdisjoint(page.attributes)
    text = "\n".join(page.text)
    for cell in (
        "P(None, 'fsdp', 'tensor')",
        "data x fsdp",
        "4 x 4",
        "A device gets",
        *(one.line for one in explanation.collectives),
    ):
        assert cell in text


def test_collectives_of_a_step_are_asserted():
    explanation = explain(STRATEGIES["HSDP"]())
    # A kind alone stands for what is not named with its axes.
    td.assert_collectives(
        explanation, {"all-gather": 16, "reduce-scatter": 8, "all-reduce": 1, ("all-reduce", "data"): 1}
    )
    td.assert_collectives(explanation, {"all-gather": 16, ("reduce-scatter", "fsdp"): range(1, 9), "all-reduce": 2})
    td.assert_collectives(
        explanation,
        {("all-gather", "fsdp"): 16, "reduce-scatter": 8, ("all-reduce", "fsdp", "data"): 1, ("all-reduce", "data"): 1},
    )


@pytest.mark.parametrize(
    ("expected", "wrong"),
    [
        ({}, "all-gather over fsdp: 0 expected, 16 found"),
        ({"all-gather": 15}, "all-gather: 15 expected, 16 found"),
        ({"all-gather": range(1, 16)}, "all-gather: 1 to 15 expected, 16 found"),
        ({("all-gather", "data"): 16}, "all-gather over data: 16 expected, 0 found"),
        ({"all-to-all": 1}, "all-to-all: 1 expected, 0 found"),
        ({("all-reduce", "data"): 1}, "all-reduce over data x fsdp: 0 expected, 1 found"),
    ],
)
def test_other_collectives_than_expected_are_told_with_all_that_there_are(expected, wrong):
    explanation = explain(STRATEGIES["HSDP"]())
    with pytest.raises(AssertionError) as raised:
        td.assert_collectives(explanation, expected)
    told = str(raised.value).splitlines()
    assert f"  {wrong}" in told
    found = told[told.index("Found are:") + 1 :]
    assert len(found) == len(explanation.collectives)
    assert found[0].startswith("  4 x 4 all-gather over fsdp, 0.25 MiB, for ")
    assert __file__ in found[0]


def test_kinds_and_axes_that_are_not_there_are_refused():
    explanation = explain(td.Mirrored())
    with pytest.raises(ValueError, match=r"one of all-reduce, .*got 'all_reduce'"):
        td.assert_collectives(explanation, {"all_reduce": 1})
    with pytest.raises(ValueError, match=r"no axis 'fsdp', only \{'data': 8\}"):
        td.assert_collectives(explanation, {("all-reduce", "fsdp"): 1})


def test_flax_models_are_explained():
    model = linen.Dense(8)
    strategy = td.FSDP(min_size=8)
    make = lambda: model.init(jax.random.key(0), jnp.ones((1, 16)))
    compute = strategy.value_and_grad(lambda params, x: model.apply(params, x).mean(), has_aux=False)
    explanation = strategy.explain(compute, strategy.init(make), strategy.put(np.ones((16, 16), np.float32)))
    assert [row.path for row in explanation.state] == ["params/bias", "params/kernel"]


def test_a_pipeline_is_drawn(tmp_path):
    """As text, a row for each device; on the page, a rectangle for each operation, as long as it takes."""
    loss_fn = td.Staged(
        lambda params, x: x, lambda w, x, batch: jnp.tanh(x @ w), lambda params, x, batch: (x**2).mean()
    )
    state = {"blocks": jax.ShapeDtypeStruct((8, 4, 4), "float32")}

    def explained(*args, **options):
        strategy = td.Pipeline(*args, axes={"data": 1}, devices=tuple(jax.devices()[: args[0]]), **options)
        compute = strategy.value_and_grad(loss_fn, has_aux=False)
        return strategy.explain(compute, state, strategy.put(np.ones((80, 4), np.float32)))

    found = explained(2, 3)
    lines = str(found).splitlines()
    assert lines[lines.index("Pipeline") + 1 :][:2] == ["  0  F0 F1   F2B0 B1   B2", "  1  .  F0B0 F1B1 F2B2 ."]
    assert "2 devices along 'stage', 3 microbatches, 5 ticks" in str(found)
    assert "devices wait for 25.0 % of the time" in str(found)
    assert "3 of what forward passes save" in str(found)
    found.write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert (page.count('class="tick F"'), page.count('class="tick B"')) == (6, 6)
    several = str(explained(2, 4, "interleaved"))
    assert "F2.0B0.1" in several and "F3.1 is of the second stage of a device" in several
    long = str(explained(4, 40)).splitlines()
    assert " ... " in long[long.index("Pipeline") + 1] and len(long[long.index("Pipeline") + 1]) < 300
