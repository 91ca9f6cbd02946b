"""The optimizer's state in the hosts' memory: the same training, bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import tfdist_jax as td

OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))
RULES = {"up": P(None, "tensor"), "down": P("tensor")}
STRATEGIES = {
    "one device": td.SingleDevice,
    "Mirrored": td.Mirrored,
    "FSDP": td.FSDP,
    "ZeRO1": td.ZeRO1,
    "data x FSDP x tensor": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES),
}


def make_state():
    normal = lambda seed, *shape: jax.random.normal(jax.random.key(seed), shape)
    params = {"up": normal(0, 16, 128), "down": normal(1, 128, 16)}
    return params, OPTIMIZER.init(params)


def loss_fn(params, x):
    return ((jnp.tanh(x @ params["up"]) @ params["down"] - x) ** 2).mean()


def make_step(strategy):
    @strategy.jit
    def step(state, batch):
        params, opt_state = state
        loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, batch)
        updates, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return step


def train(strategy, state=None, steps=3):
    step, batch = make_step(strategy), strategy.put(np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 16))
    state = strategy.init(make_state) if state is None else state
    for _ in range(steps):
        state, _ = step(state, batch)
    return state


def memory_kinds(tree):
    return {leaf.sharding.memory_kind for leaf in jax.tree.leaves(tree) if leaf.size >= 1024}


@pytest.mark.parametrize("name", STRATEGIES)
def test_training_is_the_same(name):
    strategy = STRATEGIES[name]()
    state, expected = train(td.Offloaded(strategy)), train(strategy)
    jax.tree.map(np.testing.assert_array_equal, state, expected)
    for leaf, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert leaf.sharding.spec == other.sharding.spec
    assert (memory_kinds(state[0]), memory_kinds(state[1])) == ({"device"}, {"pinned_host"})
    # A count of steps is not worth a transfer.
    assert all(leaf.sharding.memory_kind == "device" for leaf in jax.tree.leaves(state[1]) if leaf.size < 1024)


@pytest.mark.parametrize(
    ("first", "second"), [(td.Offloaded(td.FSDP()), td.ZeRO1()), (td.FSDP(), td.Offloaded(td.ZeRO1()))]
)
def test_checkpoints_move_into_and_out_of_the_hosts_memory(first, second, tmp_path):
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, train(first))
        state = checkpointer.restore(like=jax.eval_shape(make_state), strategy=second).state
    jax.tree.map(np.testing.assert_array_equal, state, train(first))
    wanted = {"pinned_host"} if isinstance(second, td.Offloaded) else {"device"}
    assert memory_kinds(state[1]) == wanted
    train(second, state)


def test_parameters_in_the_hosts_memory_are_brought_to_the_devices_by_whatever_computes_with_them():
    class EverythingOnHosts(td.Strategy):
        mesh = td.Mirrored().mesh

        def state_layout(self, leaf):
            return td.Layout(memory_kind="pinned_host")

    strategy, x = EverythingOnHosts(), np.ones((8, 16), np.float32)
    params, _ = strategy.init(make_state)
    assert memory_kinds(params) == {"pinned_host"}
    loss, grads = strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(x))
    expected = jax.jit(jax.value_and_grad(loss_fn))(make_state()[0], x)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-5, atol=2e-5), (loss, grads), expected)
    assert memory_kinds(grads) == {"device"}
    np.testing.assert_allclose(strategy.evaluate(loss_fn)(params, strategy.put(x)), expected[0], rtol=1e-6)


def test_a_memory_that_is_not_there_is_named():
    class Elsewhere(td.Strategy):
        mesh = td.Mirrored().mesh

        def state_layout(self, leaf):
            return td.Layout(memory_kind="disk")

    with pytest.raises(ValueError, match="disk"):
        Elsewhere().init(make_state)
