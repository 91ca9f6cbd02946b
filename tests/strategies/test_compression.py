"""Forms of compressed gradients that keep what was lost: nothing is lost, only late."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from communication import sent_bytes
from jax.sharding import NamedSharding, PartitionSpec as P

import tfdist_jax as td

RULES = {"up": P(None, "tensor"), "down": P("tensor")}
STRATEGIES = {
    "Mirrored": td.Mirrored,
    "Mirrored on 3": lambda: td.Mirrored(tuple(jax.devices()[:3])),
    "one device": td.SingleDevice,
    "ZeRO1": td.ZeRO1,
    "TensorParallel": lambda: td.TensorParallel(4, RULES),
    "data x fsdp axes": lambda: td.Sharded({"data": 2, "fsdp": 2, "tensor": 2}, RULES, min_size=1 << 30),
    "Offloaded": lambda: td.Offloaded(td.ZeRO1()),
}
METHODS = {
    "int8": td.Int8(),
    "PowerSGD": td.PowerSGD(rank=2),
    "top-k": td.TopK(0.05),
    "top-k on one": td.TopK(1e-9),
}


def make_params(hidden=96, dtype=jnp.float32):
    random = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(random.normal(size=shape) * 0.1, dtype)
    return {"up": normal(48, hidden), "bias": normal(hidden), "down": normal(hidden, 48)}


def make_batch(rows, seed=0):
    return np.random.default_rng(100 * rows + seed).normal(size=(rows, 48)).astype(np.float32)


def loss_fn(params, x):
    return ((jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"] - x) ** 2).mean()


def residual_sums(memory):
    return {path: np.asarray(one["residual"], np.float64).sum(0) for path, one in memory.items()}


CASES = [*itertools.product(STRATEGIES, METHODS, [1]), *(("Mirrored", method, 2) for method in METHODS)]


@pytest.mark.one_in(9)
@pytest.mark.slow("the gradients of two steps, one of uneven rows, compressed and not, under seven strategies")
@pytest.mark.parametrize("name, method, accumulate", CASES)
def test_what_a_step_loses_is_kept(name, method, accumulate):
    plain = STRATEGIES[name]()
    strategy = td.Compressed(plain, method=METHODS[method])
    params, exact_params = strategy.init(make_params), plain.init(make_params)
    memory = strategy.init_compression(params)
    assert memory.keys() == {"up", "down"}
    compute, exact = (each.value_and_grad(loss_fn, has_aux=False, accumulate=accumulate) for each in (strategy, plain))
    for i, rows in enumerate((24, 13, 24)):
        batch, before = strategy.put(make_batch(rows, i)), residual_sums(memory)
        loss, grads, memory = compute(params, batch, compression=memory)
        true_loss, true_grads = exact(exact_params, batch)
        np.testing.assert_allclose(loss, true_loss, rtol=1e-6)
        np.testing.assert_allclose(grads["bias"], true_grads["bias"], rtol=1e-5, atol=1e-8)
        for path, after in residual_sums(memory).items():
            owed = true_grads[path] + before[path]
            # Sums of eight replicas in float32, in another order.
            np.testing.assert_allclose(grads[path] + after, owed, rtol=1e-5, atol=3e-7 * np.abs(owed).max())
            assert grads[path].sharding.is_equivalent_to(true_grads[path].sharding, 2)
            assert np.any(after) == (plain.num_replicas > 1)
        for leaf in jax.tree.leaves(grads):
            copies = {str(shard.index): np.asarray(shard.data) for shard in leaf.addressable_shards}
            for shard in leaf.addressable_shards:
                np.testing.assert_array_equal(shard.data, copies[str(shard.index)])


@pytest.mark.parametrize("method", METHODS)
def test_memory_lies_on_its_replicas_and_stays_there(method):
    strategy = td.Compressed(td.TensorParallel(2, RULES), method=METHODS[method])
    params = strategy.init(make_params)
    memory = strategy.init_compression(jax.eval_shape(make_params))
    again = strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(make_batch(16)), compression=memory)[2]
    for one in (memory, again):
        assert one["up"]["residual"].sharding.shard_shape((4, 48, 96)) == (1, 48, 48)
        for each in jax.tree.leaves(one):
            assert each.shape[0] == 4 and each.sharding.shard_shape(each.shape)[0] == 1


def test_replicas_of_a_rows_tokens_keep_what_is_theirs():
    plain = td.Sharded({"data": 2, "sequence": 2}, {}, devices=tuple(jax.devices()[:4]))
    strategy = td.Compressed(plain, method=td.TopK(0.1))
    mean_loss = lambda w, x: (jnp.tanh(x @ w) ** 2).mean()
    w, batch = jnp.asarray(make_batch(32)), strategy.put(make_batch(32)[:, :32].reshape(4, 8, 32))
    memory = strategy.init_compression(w)
    _, grads, memory = strategy.value_and_grad(mean_loss, has_aux=False)(w, batch, compression=memory)
    exact = plain.value_and_grad(mean_loss, has_aux=False)(w, batch)[1]
    residual = np.asarray(memory["params"]["residual"])
    assert residual.shape == (4, 32, 48) and np.abs(residual).max((1, 2)).all()
    np.testing.assert_allclose(grads + residual.sum(0), exact, rtol=1e-5, atol=1e-8)


def test_gradients_of_short_parameters_are_fed_back_in_float32():
    strategy = td.Compressed(td.Mirrored(), method=td.Int8())
    make = lambda: make_params(dtype=jnp.bfloat16)
    params = strategy.init(make)
    memory = strategy.init_compression(params)
    assert memory["up"]["residual"].dtype == jnp.float32
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    batch = strategy.put(make_batch(16).astype(jnp.bfloat16))
    grads, memory = compute(params, batch, compression=memory)[1:]
    exact = td.Mirrored().value_and_grad(loss_fn, has_aux=False)(params, batch)[1]
    assert grads["up"].dtype == jnp.bfloat16
    # Of eight replicas' gradients in bfloat16, which without compression are added up in bfloat16, too.
    error = np.abs(
        np.asarray(grads["up"], np.float32) + residual_sums(memory)["up"] - np.asarray(exact["up"], np.float32)
    )
    assert error.max() < 0.02 * np.abs(np.asarray(exact["up"], np.float32)).max()


def count_bytes(strategy):
    """Bytes that a device sends for gradients of a matrix [1024, 512]."""
    params = strategy.init(lambda: jnp.zeros((1024, 512)))
    compute = strategy.value_and_grad(lambda w, x: ((x @ w) ** 2).mean(), has_aux=False)
    step = jax.jit(lambda params, batch, memory: compute(params, batch, compression=memory))
    batch, memory = strategy.put(np.zeros((16, 1024), np.float32)), strategy.init_compression(params)
    return sent_bytes(strategy.explain(step, params, batch, memory).collectives)


EXPECTED_SHARES = {
    "bfloat16": (td.BFloat16(), 0.5),
    "int8": (td.Int8(), 260 / 1024),
    "int8 without memory": (td.Int8(error_feedback=False), 260 / 1024),
    "PowerSGD": (td.PowerSGD(rank=4), 4 * (1024 + 512) / (1024 * 512)),
    "top-k": (td.TopK(0.01), 8 * 8 * 0.01 / (2 * 4)),
}


@pytest.mark.parametrize("name", EXPECTED_SHARES)
def test_programs_send_as_many_bytes_as_the_form_has(name, bound):
    method, share = EXPECTED_SHARES[name]
    found = count_bytes(td.Compressed(td.Mirrored(), method=method)) / count_bytes(td.Mirrored())
    assert found == pytest.approx(share, rel=1e-3)
    if "int8" in name:
        bound("bytes of gradients in int8, of those in float32", found, 0.27)


TARGET = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)


def train(method, steps=400):
    """Return the loss after a training in which a large gradient that changes its sign hides the small ones."""
    strategy = td.Mirrored() if method is None else td.Compressed(td.Mirrored(), method=method)
    hidden_loss = lambda w: ((w - TARGET)[:, 1:] ** 2).sum() / 2
    compute = strategy.value_and_grad(lambda w, x: x.mean() * w[:, 0].sum() + hidden_loss(w), has_aux=False)

    @strategy.jit
    def step(state, x):
        params, memory = state
        _, grads, memory = compute(params, x, compression=memory)
        return (params - 0.01 * grads, memory), None

    params = strategy.init(lambda: jnp.zeros((32, 32)))
    state = params, strategy.init_compression(params)
    batches = [strategy.put(np.full(8, sign, np.float32)) for sign in (100, -100)]
    for i in range(steps):
        state, _ = step(state, batches[i % 2])
    return float(hidden_loss(state[0]) / hidden_loss(jnp.zeros((32, 32))))


@pytest.mark.parametrize("method", [td.BFloat16(), td.Int8(), td.PowerSGD(rank=2), td.TopK(0.06)])
def test_a_training_comes_as_far_as_without_compression(method):
    assert train(method) == pytest.approx(train(None), abs=5e-4)


@pytest.mark.parametrize(
    "make", [td.Int8, lambda **how: td.PowerSGD(rank=2, **how), lambda **how: td.TopK(0.06, **how)]
)
def test_without_feeding_errors_back_a_training_stalls(make):
    assert train(None) < 1e-3
    assert train(make(error_feedback=False)) > 0.1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 3])
def test_other_replicas_go_on_with_what_is_still_to_be_sent(method, count, tmp_path):
    strategy = td.Compressed(td.Mirrored(), method=METHODS[method])
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    memory = compute(params, strategy.put(make_batch(16)), compression=strategy.init_compression(params))[2]
    fewer = td.Compressed(td.Mirrored(tuple(jax.devices()[:count])), method=METHODS[method])
    few_params = fewer.init(make_params)
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"params": params, "memory": memory})
        same = checkpointer.restore({"params": params, "memory": memory}).state["memory"]
        whole = jax.tree.map(lambda _: NamedSharding(fewer.mesh, P()), fewer.init_compression(few_params))
        restored = checkpointer.restore({"memory": whole}).state["memory"]
    jax.tree.map(np.testing.assert_array_equal, same, memory)
    assert jax.tree.map(lambda one: one.sharding, same) == jax.tree.map(lambda one: one.sharding, memory)

    with pytest.raises(ValueError, match=r"but has \(8, .*resume=memory"):
        fewer.value_and_grad(loss_fn, has_aux=False)(few_params, fewer.put(make_batch(16)), compression=memory)
    resumed = fewer.init_compression(few_params, resume=restored)
    for path, before in residual_sums(memory).items():
        np.testing.assert_allclose(residual_sums(resumed)[path], before, rtol=1e-5, atol=1e-9)
    grads, after = fewer.value_and_grad(loss_fn, has_aux=False)(
        few_params, fewer.put(make_batch(18)), compression=resumed
    )[1:]
    exact = td.Mirrored().value_and_grad(loss_fn, has_aux=False)(params, td.Mirrored().put(make_batch(18)))[1]
    for path, before in residual_sums(memory).items():
        np.testing.assert_allclose(grads[path] + residual_sums(after)[path], exact[path] + before, rtol=1e-4, atol=1e-8)


def test_memory_of_as_many_replicas_resumes_as_it_is():
    strategy = td.Compressed(td.Mirrored(), method=td.Int8())
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(loss_fn, has_aux=False)
    memory = compute(params, strategy.put(make_batch(16)), compression=strategy.init_compression(params))[2]
    jax.tree.map(np.testing.assert_array_equal, strategy.init_compression(params, resume=memory), memory)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_that_is_not_finite_leaves_what_is_kept(method, number):
    strategy = td.Compressed(td.Mirrored(), method=METHODS[method])
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(lambda p, x: ((x @ p["up"]) @ p["down"]).mean(), has_aux=False)
    memory = compute(params, strategy.put(make_batch(16)), compression=strategy.init_compression(params))[2]
    batch = make_batch(16)
    batch[3, 5] = number
    _, grads, after = compute(params, strategy.put(batch), compression=memory)
    assert not np.isfinite(np.asarray(grads["up"])).all()
    jax.tree.map(np.testing.assert_array_equal, after, memory)
    _, grads, _ = compute(params, strategy.put(make_batch(16)), compression=after)
    assert np.isfinite(np.asarray(grads["up"])).all()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["Mirrored", "ZeRO1", "TensorParallel"])
@pytest.mark.parametrize("too_large", ["up", "bias", "down"])
@pytest.mark.parametrize("method", METHODS)
def test_one_gradient_that_is_not_finite_leaves_what_is_kept_of_all(method, too_large, name):
    # What overflows is the gradient in float16, not its sum in float32: a step that loss scaling leaves out.
    plain = {**STRATEGIES, "ZeRO1": lambda: td.ZeRO1(min_size=1)}[name]()
    strategy = td.Compressed(plain, method=METHODS[method])
    params = strategy.init(lambda: make_params(dtype=jnp.float16))
    random = np.random.default_rng(0)
    factors = {path: random.uniform(0.5, 1, each.shape) for path, each in make_params().items()}
    # In one replica's part only, where gradients are scattered.
    factors["bias"] = np.eye(1, 96)[0]

    def weighted_sum(params, batch):
        sums = [batch[path].mean() * (params[path].astype(jnp.float32) * factors[path]).sum() for path in params]
        return sum(sums)

    def make_scales(**given):
        return strategy.put({path: np.full(16, given.get(path, 1), np.float32) for path in params})

    compute = strategy.value_and_grad(weighted_sum, has_aux=False)
    memory = compute(params, make_scales(), compression=strategy.init_compression(params))[2]
    _, grads, after = compute(params, make_scales(**{too_large: 1e5}), compression=memory)
    assert [path for path, each in grads.items() if not np.isfinite(np.asarray(each)).all()] == [too_large]
    jax.tree.map(np.testing.assert_array_equal, after, memory)
    _, grads, after = compute(params, make_scales(), compression=memory)
    assert all(np.isfinite(np.asarray(each)).all() for each in grads.values())
    assert all((after[path]["residual"] != memory[path]["residual"]).any() for path in memory)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_begin_to_travel_after_steps_without_any(method):
    strategy = td.Compressed(td.Mirrored(), method=METHODS[method])
    params = strategy.init(make_params)
    compute = strategy.value_and_grad(lambda p, x: ((x @ p["up"]) @ p["down"]).mean(), has_aux=False)
    memory = compute(
        params, strategy.put(np.zeros((16, 48), np.float32)), compression=strategy.init_compression(params)
    )[2]
    _, grads, _ = compute(params, strategy.put(make_batch(16)), compression=memory)
    assert np.asarray(grads["up"]).any() and np.isfinite(np.asarray(grads["up"])).all()


@pytest.mark.parametrize("make", [td.FSDP, lambda: td.HSDP(shards=4)])
@pytest.mark.parametrize("method", METHODS)
def test_forms_with_memory_refuse_parameters_in_parts(method, make):
    with pytest.raises(ValueError, match=r"is to travel as .*error_feedback=False\)` or `td.BFloat16"):
        td.Compressed(make(), method=METHODS[method]).init(lambda: make_params(128))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["Mirrored", "ZeRO1", "FSDP", "HSDP", "TensorParallel"])
def test_bfloat16_travels_under_all_strategies(name):
    strategy = {**STRATEGIES, "FSDP": td.FSDP, "HSDP": lambda: td.HSDP(shards=4)}[name]()
    for rows in (24, 13):
        batch = strategy.put(make_batch(rows))
        exact, rounded = (
            each.value_and_grad(loss_fn, has_aux=False)(each.init(lambda: make_params(128)), batch)[1]
            for each in (strategy, td.Compressed(strategy, method=td.BFloat16()))
        )
        for path in ("up", "down"):
            error = np.abs(np.asarray(rounded[path]) - exact[path]).max() / np.abs(exact[path]).max()
            assert 1e-6 < error < 0.01


def test_a_form_with_memory_asks_for_it():
    strategy = td.Compressed(td.Mirrored(), method=td.PowerSGD(rank=2))
    params = strategy.init(make_params)
    with pytest.raises(ValueError, match=r"travel as PowerSGD\(rank=2.*init_compression\(params\)"):
        strategy.value_and_grad(loss_fn, has_aux=False)(params, strategy.put(make_batch(16)))


def test_memory_of_other_parameters_is_refused():
    strategy = td.Compressed(td.Mirrored(), method=td.TopK())
    memory = strategy.init_compression({"up": jnp.zeros((48, 96))})
    with pytest.raises(ValueError, match=r"'residual' of 'down' should have the shape \(8, 96, 48\), but has None"):
        strategy.value_and_grad(loss_fn, has_aux=False)(
            strategy.init(make_params), strategy.put(make_batch(16)), compression=memory
        )
    with pytest.raises(ValueError, match=r"'residual' of 'down' .* Make it anew"):
        strategy.init_compression(make_params(), resume=memory)


@pytest.mark.parametrize("strategy", [td.Mirrored(), td.Compressed(td.Mirrored()), td.FSDP()])
def test_forms_without_memory_return_none_of_it(strategy):
    params = strategy.init(make_params)
    memory = strategy.init_compression(params)
    assert memory == {}
    (loss, aux), _, after = strategy.value_and_grad(lambda *args: (loss_fn(*args), 1))(
        params, strategy.put(make_batch(16)), compression=memory
    )
    assert after == {} and aux == 1 and loss > 0


@pytest.mark.parametrize("make", [lambda: td.PowerSGD(rank=0), lambda: td.TopK(0), lambda: td.TopK(1.5)])
def test_options_are_checked(make):
    with pytest.raises(ValueError, match="got "):
        make()


def test_power_sgd_takes_what_is_worth_it():
    method = td.PowerSGD(rank=4)
    assert method.takes((64, 64)) and method.takes((3, 3, 64, 64)) and method.takes((2, 128, 64))
    assert not method.takes((8, 64)) and not method.takes((4096,)) and not method.takes(())
