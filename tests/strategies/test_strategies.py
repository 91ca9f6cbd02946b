"""What holds for every strategy: the same training as on one device, in another layout."""

import dataclasses
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td


@final
@dataclasses.dataclass(frozen=True)
class Laid(td.Strategy):
    """Two replicas of four devices each; the leaves with two dimensions that divide are laid out by `spec`."""

    spec: P
    axes: tuple[tuple[str, int], ...] = (("data", 2), ("tensor", 4))

    @property
    def mesh(self):
        return td.make_mesh(dict(self.axes))

    def state_layout(self, leaf):
        return td.Layout(self.spec if leaf.shape in ((16, 8), (8, 8)) else P())


STRATEGIES = {
    "tensor columns": lambda: Laid(P(None, "tensor")),
    "tensor rows": lambda: Laid(P("tensor"), (("tensor", 4), ("data", 2))),
    "rows over data, columns over tensor": lambda: Laid(P("data", "tensor")),
    "one dimension over both": lambda: Laid(P(("data", "tensor"))),
    "one dimension over both, tensor first": lambda: Laid(P(None, ("tensor", "data"))),
    "mirrored": lambda: td.Mirrored(),
    "mirrored on three": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "mirrored on one": lambda: td.Mirrored(tuple(jax.devices()[:1])),
    "fsdp": lambda: td.FSDP(min_size=8),
    "hsdp": lambda: td.HSDP(shards=2, min_size=8),
    "central storage": lambda: td.CentralStorage(min_size=8),
    "zero1": lambda: td.ZeRO1(min_size=8),
    "data, fsdp and tensor": lambda: td.Sharded(
        {"data": 2, "fsdp": 2, "tensor": 2}, {"w": P(None, "tensor")}, min_size=8
    ),
    "fsdp on four": lambda: td.FSDP(tuple(jax.devices()[4:]), min_size=8),
}
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))


def make_state():
    keys = jax.random.split(jax.random.key(0))
    params = {"w": jax.random.normal(keys[0], (16, 8)), "b": jnp.zeros(8), "v": jax.random.normal(keys[1], (8, 3))}
    return params, OPTIMIZER.init(params)


def loss_fn(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
    error = hidden @ params["v"] - batch["y"]
    return jnp.mean(error**2), {"mean": jnp.mean(hidden), "steps": jnp.int32(7)}


def batches(sizes):
    random = np.random.RandomState(0)
    return [{"x": random.randn(n, 16).astype("f4"), "y": random.randn(n, 3).astype("f4")} for n in sizes]


def train(strategy, sizes):
    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        (loss, aux), grads = strategy.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), (loss, aux)

    state, logs = strategy.init(make_state), []
    for batch in strategy.prefetch(batches(sizes)):
        state, log = step(state, batch)
        logs.append(log)
    return jax.device_get(state), jax.device_get(logs)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("sizes", [[24, 24], [24, 10, 5, 1, 24]], ids=["even", "uneven"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_training_equals_one_device(name, sizes):
    expected, expected_logs = train(td.SingleDevice(), sizes)
    actual, logs = train(STRATEGIES[name](), sizes)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=2e-5, atol=1e-6), actual, expected)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=2e-5, atol=1e-6), logs, expected_logs)


def test_state_is_laid_out_at_birth():
    params, _ = td.FSDP(min_size=8).init(make_state)
    assert params["w"].sharding.spec == P("data")
    assert params["w"].addressable_shards[0].data.shape == (2, 8)
    assert params["v"].sharding.spec == P("data")
    params, _ = td.Mirrored().init(make_state)
    assert params["w"].sharding.is_fully_replicated


def test_fsdp_holds_a_fraction_of_the_state_on_each_device():
    held = lambda strategy: sum(
        leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(strategy.init(make_state))
    )
    assert held(td.FSDP(min_size=1)) < held(td.Mirrored()) / 4


def compiled_step(strategy):
    step = strategy.jit(lambda params, batch: (strategy.value_and_grad(loss_fn)(params, batch)[1], ()))
    state = strategy.init(lambda: make_state()[0])
    return step.lower(state, strategy.put(batches([24])[0])).compile().as_text()


def test_mirrored_gradients_take_one_all_reduce():
    text = compiled_step(td.Mirrored())
    assert text.count(" all-reduce(") + text.count(" all-reduce-start(") == 1


def test_fsdp_gradients_are_reduce_scattered():
    text = compiled_step(td.FSDP(min_size=1))
    assert text.count(" reduce-scatter(") == 3
    assert text.count(" all-gather(") == 3


def test_a_step_is_lowered_for_a_state_that_is_not_there():
    strategy = td.Mirrored()
    state = strategy.init(lambda: jnp.ones((8, 8)))
    types = jax.ShapeDtypeStruct(state.shape, state.dtype, sharding=state.sharding)
    assert "add" in strategy.jit(lambda state: (state + 1, ())).lower(types).as_text()


def test_losses_over_a_second_axis_are_whole():
    strategy = Laid(P(None, "tensor"))
    params, batch = strategy.init(lambda: jnp.ones((8, 8))), strategy.put(np.ones((4, 8), np.float32))
    loss, grad = strategy.jit(
        lambda p, b: (p, strategy.value_and_grad(lambda p, b: jnp.mean(jnp.sum(b @ p, 1)), has_aux=False)(p, b))
    )(params, batch)[1]
    assert (float(loss), grad.shape) == (64.0, (8, 8))


def test_replicas_of_several_devices_run_and_reduce():
    strategy = Laid(P())
    assert strategy.num_replicas == 2
    rows = strategy.split(np.arange(6.0))
    totals = strategy.run(lambda x: (x.sum(), jax.lax.psum(x.sum(), td.DATA)), rows)
    np.testing.assert_array_equal([total.values for total in totals], [[3, 12], [15, 15]])
    np.testing.assert_array_equal(strategy.gather(strategy.split(np.arange(5.0))), np.arange(5.0))


def test_a_mesh_without_a_data_axis_is_refused():
    with pytest.raises(ValueError, match=r"needs an axis 'data'.*\{'tensor': 8\}"):
        Laid(P(), (("tensor", 8),)).put(np.ones((8, 2)))


def test_a_loss_that_is_no_scalar_is_refused():
    strategy = td.Mirrored()
    with pytest.raises(ValueError, match=r"has shape \(2,\).*Take its mean"):
        strategy.value_and_grad(lambda p, b: (b["x"][:, 0] * p, {}))(jnp.float32(1), strategy.put(batches([16])[0]))


def test_a_loss_without_aux_says_what_to_do():
    strategy = td.Mirrored()
    batch = strategy.put(batches([16])[0])
    with pytest.raises(TypeError, match="has_aux=False"):
        strategy.value_and_grad(lambda p, b: jnp.mean(b["x"]) * p)(jnp.float32(1), batch)
    loss, grad = strategy.value_and_grad(lambda p, b: jnp.mean(b["x"]) * p, has_aux=False)(jnp.float32(1), batch)
    np.testing.assert_allclose(loss, grad, rtol=1e-6)


def test_a_state_of_numbers_says_how_to_make_one():
    with pytest.raises(TypeError, match=r"\['lr'\] is 0.1.*strategy.init"):
        td.Mirrored().jit(lambda state: (state, ()))({"lr": 0.1})


STEPS = {
    "only the state": (lambda state: {"w": state["w"]}, r"tuple of two.*returned dict.*state, None"),
    "three": (lambda state: (state, 1, 2), r"tuple of two.*returned tuple of 3"),
    "a part of the state": (
        lambda state: ({"w": state["w"]}, ()),
        r"structures differ: missing are \[\"\['key'\]\"\], new are \[\]",
    ),
    "more than the state": (lambda state: ({**state, "step": 0}, ()), r"missing are \[\], new are \[\"\['step'\]\"\]"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_returns_no_state_says_what_it_should(name):
    strategy, (step, message) = td.Mirrored(), STEPS[name]
    state = strategy.init(lambda: {"w": jnp.ones(3), "key": jax.random.key(0)})
    with pytest.raises(TypeError, match=f"(?s){message}"):
        strategy.jit(step)(state)
    assert not state["w"].is_deleted()


def test_a_state_whose_memory_is_gone_says_where_the_new_one_is():
    strategy = td.SingleDevice()
    step = strategy.jit(lambda state: ({**state, "w": state["w"] + 1}, ()))
    state = strategy.init(lambda: {"w": jnp.ones((1 << 18, 8)), "b": jnp.ones(3)})
    step(state)
    with pytest.raises(RuntimeError, match=r"(?s)\['b'\].*\['w'\].*are gone.*state, out = step\(state, batch\)"):
        step(state)


def test_a_padded_batch_in_a_program_of_ones_own_says_what_to_do():
    batch = td.Mirrored().put({"x": np.ones(13)})
    for use in (lambda batch: batch["x"], lambda batch: jnp.mean(batch)):
        with pytest.raises(TypeError, match=r"13 rows do not divide evenly over 8 replicas.*mask='mask'"):
            jax.jit(use)(batch)


def test_large_arrays_that_stay_whole_are_told_of_once():
    make_state = lambda: {"embedding": jnp.ones((1031, 257)), "small": jnp.ones((31, 37))}
    with pytest.warns(UserWarning, match=r"embedding of shape \(1031, 257\).*1\.0 MiB.*divisible by 8.*1032") as warned:
        state = td.FSDP().init(make_state)
        td.FSDP().value_and_grad(lambda p, b: (p["embedding"] * b.mean()).sum(), has_aux=False)(state, np.ones(8))
    assert len(warned) == 1


@pytest.mark.parametrize("rows", [8, 1 << 18], ids=["small", "large"])
@pytest.mark.parametrize("strategy", [td.SingleDevice(), td.Mirrored()], ids=["one device", "several"])
def test_memory_is_reused_but_of_small_states_over_several_cpu_devices(strategy, rows):
    state = strategy.init(lambda: {"w": jnp.ones((rows, 8)), "key": jax.random.key(0)})
    strategy.jit(lambda state: ({**state, "w": state["w"] + 1}, ()))(state)
    assert state["w"].is_deleted() == (rows > 8 or strategy.num_replicas == 1)


def test_extra_arguments_are_the_same_on_every_replica():
    strategy = td.Mirrored()
    scaled = strategy.value_and_grad(lambda p, b, scale: jnp.mean(b["x"]) * p * scale, has_aux=False)
    batch = strategy.put({"x": np.ones((16, 2), np.float32)})
    assert float(scaled(jnp.float32(1), batch, jnp.float32(3))[0]) == 3
