"""Native training with parameters on servers: asynchronous, in rounds with backup workers, and with parameters that meet seldom."""

import functools
import gc
import sys
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fake_ray import FakeRay
from flax import nnx
from sklearn.datasets import load_digits
from waiting import wait_until

import tfdist_jax as td
from tfdist_jax._coordinator import ClosureCancelledError, Statistics
from tfdist_jax._parameter_server import _asynchronous, _parameter_server
from tfdist_jax._parameter_server._engine import Engine
from tfdist_jax._parameter_server._gradients import make_result
from tfdist_jax._servers._ray_engine import RayServers, RayWorker
from tfdist_jax._stateful._remote_storage import RemoteStorage

LIMIT_S = 60
MODES = [
    td.Asynchronous(),
    td.Asynchronous(max_staleness=0),
    td.Synchronous(),
    td.Synchronous(backup_workers=1),
    td.LocalSGD(sync_every=2),
    td.LocalSGD(sync_every=2, outer_optimizer=optax.sgd(0.7, momentum=0.9, nesterov=True)),
]
each_mode = pytest.mark.parametrize("mode", MODES, ids=["async", "in order", "sync", "backup", "local", "diloco"])
DILOCO = MODES[-1]


def make_params():
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(4, 8)).astype("f4"), "b": np.zeros(8, "f4"), "v": rng.normal(size=8).astype("f4")}


def make_batches(count, rows=6):
    rng = np.random.default_rng(1)
    return [
        {"x": rng.normal(size=(rows, 4)).astype("f4"), "y": rng.normal(size=rows).astype("f4")} for _ in range(count)
    ]


def losses_of(params, batch):
    return (jnp.tanh(batch["x"] @ params["w"] + params["b"]) @ params["v"] - batch["y"]) ** 2


def loss_fn(params, batch):
    losses = losses_of(params, batch)
    return losses.mean(), {"rows": len(losses)}


def distance(params, batch):
    return ((params - batch) ** 2).sum() / 2


class Hold:
    """A loss function that waits in the workers while it is traced, for batches of one shape."""

    def __init__(self, shape=()):
        self.entered, self.go, self._shape = threading.Event(), threading.Event(), shape

    def loss(self, params, batch):
        if batch.shape == self._shape:
            self.entered.set()
            assert self.go.wait(LIMIT_S)
        return distance(params, batch)


def in_thread(fn):
    """Return a thread that runs `fn`, and a list that gets its error, or None."""
    errors = []

    def run():
        try:
            fn()
        except BaseException as error:
            errors.append(error)
        else:
            errors.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture
def serve():
    made = []

    def serve(loss=loss_fn, tx=None, *, params=None, workers=4, **options):
        made.append(td.ParameterServer(loss, tx or optax.adam(1e-2), workers=workers, **options))
        made[-1].init(make_params() if params is None else params)
        return made[-1]

    yield serve
    for server in made:
        server.stop()


def train(server, batches):
    results = [server.schedule(batch) for batch in batches]
    server.join()
    return [result.result() for result in results]


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def assert_close(found, expected, rtol=1e-6):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=1e-6), found, expected)


@jax.jit
def grads_of(params, batch):
    return jax.value_and_grad(loss_fn, has_aux=True)(params, batch)


@functools.partial(jax.jit, static_argnums=0)
def apply(tx, grads, state):
    params, opt_state = state
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def train_plainly(tx, batches):
    """Return the parameters, the optimizer's state and the losses of a loop that compiles gradients and updates, each as a program."""
    params = jax.tree.map(jnp.asarray, make_params())
    state, losses = (params, tx.init(params)), []
    for batch in batches:
        (loss, _), grads = grads_of(state[0], batch)
        state = apply(tx, grads, state)
        losses.append(np.asarray(loss))
    return *state, losses


def mean_of(trees):
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *trees)


def train_in_rounds(tx, batches, workers):
    """Return the parameters after a training on the mean gradient of so many batches at a time."""
    params = jax.tree.map(jnp.asarray, make_params())
    state = params, tx.init(params)
    for i in range(0, len(batches), workers):
        grads = [grads_of(state[0], batch)[1] for batch in batches[i : i + workers]]
        state = apply(tx, mean_of(grads), state)
    return state


def train_locally(tx, outer, batches, workers, steps):
    """Return global parameters, the outer state and the inner states of DiLoCo, as its paper describes it."""
    params = jax.tree.map(jnp.asarray, make_params())
    inner, state = [tx.init(params)] * workers, (params, outer.init(params))
    for i in range(0, len(batches), workers * steps):
        part = batches[i : i + workers * steps]
        own = [state[0]] * min(workers, len(part))
        for j, batch in enumerate(part):
            (_, grads), worker = grads_of(own[j % workers], batch), j % workers
            own[worker], inner[worker] = apply(tx, grads, (own[worker], inner[worker]))
        difference = jax.tree.map(jnp.subtract, state[0], mean_of(own))
        state = apply(outer, difference, state)
    return *state, inner


def test_without_staleness_each_bit_is_that_of_a_plain_loop(serve):
    tx, batches = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)), make_batches(13)
    batches[5] = make_batches(1, rows=3)[0]
    server = serve(tx=tx, mode=td.Asynchronous(max_staleness=0))
    results = train(server, batches)
    params, opt_state, losses = train_plainly(tx, batches)
    assert_equal(server.params, params)
    assert_equal(server.opt_state, opt_state)
    assert [result.loss for result in results] == losses
    assert [int(result.aux["rows"]) for result in results] == [len(batch["y"]) for batch in batches]
    assert server.statistics.staleness == {0: 13}


@pytest.fixture
def processes(monkeypatch):
    """Lets servers and workers be reached by messages, as where they are processes of their own."""
    rays = []

    def make_engine(workers):
        rays.append(FakeRay(2, workers))
        monkeypatch.setitem(sys.modules, "ray", rays[-1])
        statistics, servers = Statistics(workers), RayServers(rays[-1], 2)
        storages = [RemoteStorage(servers, i, statistics) for i in range(2)]
        return Engine([RayWorker(rays[-1], i, servers) for i in range(workers)], storages, statistics, jax.devices()[0])

    monkeypatch.setattr(_parameter_server, "make_engine", make_engine)
    yield rays
    for ray in rays:
        ray.close()


@each_mode
def test_servers_and_workers_may_be_processes(serve, processes, mode):
    batches = make_batches(11)
    server = serve(mode=mode, workers=2)
    served = server._trainer.served
    places = {cell.path: cell.storage.index for cell in served.trained.cells}
    assert places == {"['b']": 0, "['v']": 1, "['w']": 0}
    for cell in served.opt_state.cells:  # What an optimizer keeps of a parameter is where that is.
        assert cell.storage.index == places.get(cell.path[-5:], 0)
    results = train(server, batches)
    assert server.statistics.closures == 11 and all(np.isfinite(result.loss) for result in results)
    assert server.statistics.retries == 0
    if mode == td.Asynchronous(max_staleness=0):
        # Each server applies its part of an update, which XLA compiles for itself: the last bits are others.
        params, opt_state, _ = train_plainly(optax.adam(1e-2), batches)
        assert_close(server.params, params)
        assert_close(server.opt_state, opt_state)
    if mode == td.Synchronous():
        assert_close(server.params, train_in_rounds(optax.adam(1e-2), batches, 2)[0])
    server.state = server.state


@pytest.mark.parametrize(
    "mode",
    [MODES[1], MODES[2], td.LocalSGD(sync_every=6, outer_optimizer=optax.sgd(1.0))],
    ids=["in order", "sync", "local"],
)
def test_optimizers_that_want_the_loss_get_it(serve, mode):
    batches, params, tx = make_batches(6), jax.tree.map(jnp.asarray, make_params()), optax.polyak_sgd(0.1)
    opt_state = tx.init(params)
    for batch in batches:
        (loss, _), grads = grads_of(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params, value=loss)
        params = optax.apply_updates(params, updates)
    server = serve(tx=tx, mode=mode, workers=1)
    train(server, batches)
    assert_close(server.params, params, rtol=1e-5)


def test_no_gradient_is_lost_and_none_is_staler_than_allowed(serve):
    server = serve(distance, optax.sgd(1.0), params=jnp.zeros(3), has_aux=False, mode=td.Asynchronous(max_staleness=2))
    summed = serve(lambda params, batch: (params * batch).sum(), optax.sgd(1.0), params=jnp.zeros(()), has_aux=False)
    train(server, [np.ones(3, "f4")] * 50)
    train(summed, np.arange(200, dtype="f4"))
    assert max(server.statistics.staleness) <= 2 and sum(server.statistics.staleness.values()) == 50
    assert float(summed.params) == -sum(range(200))
    assert summed.statistics.closures == 200


def test_workers_compute_side_by_side_on_devices_of_their_own(serve, monkeypatch):
    meeting, devices = threading.Barrier(3, timeout=LIMIT_S), set()

    def note(loss, aux):
        devices.update(loss.devices())
        return make_result(loss, aux)

    monkeypatch.setattr(_asynchronous, "make_result", note)

    def meet(x):
        meeting.wait()
        return x

    def loss(params, batch):
        return jax.pure_callback(meet, jax.ShapeDtypeStruct((), "f4"), batch) + 0 * params

    server = serve(loss, optax.sgd(1.0), params=jnp.zeros(()), workers=3, has_aux=False)
    train(server, [np.float32(1)] * 3)
    assert devices == {worker.device for worker in server._engine.workers} and len(devices) == 3


def test_rounds_of_all_workers_are_steps_on_the_mean_gradient_and_have_equal_bits(serve):
    batches, tx = make_batches(26), optax.adam(1e-2)
    found = []
    for _ in range(2):
        server = serve(tx=tx, mode=td.Synchronous())
        results = train(server, batches)
        found.append(server.state)
        told = server.statistics
        assert (told.rounds, told.dropped, told.staleness) == (7, 0, {0: 7})
        assert not any(result.is_dropped for result in results)
    assert_equal(*found)
    params, opt_state = train_in_rounds(tx, batches, 4)  # The last round is of two batches.
    assert_close(found[0]["params"], params)
    assert_close(found[0]["opt_state"], opt_state)


def test_bytes_of_rounds_are_those_of_each_workers_parameters_and_gradients(serve):
    server = serve(tx=optax.sgd(0.1), mode=td.Synchronous())
    train(server, make_batches(8))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(make_params()))
    # Beside the gradients, the loss and its weight.
    assert (server.statistics.pulled_bytes, server.statistics.pushed_bytes) == (8 * size, 8 * (size + 8))


def test_a_round_waits_for_no_late_worker_whose_gradient_is_dropped(serve):
    entered, go = threading.Event(), threading.Event()

    def loss(params, batch):
        if batch.shape == (3,):  # While it is compiled, its worker waits.
            entered.set()
            assert go.wait(LIMIT_S)
        return ((params - batch) ** 2).mean() / 2

    server = serve(
        loss, optax.sgd(0.5), params=jnp.zeros(()), workers=3, has_aux=False, mode=td.Synchronous(backup_workers=1)
    )
    train(server, [np.float32([0.0])] * 2)
    late = server.schedule(np.full(3, 1e6, "f4"))
    assert entered.wait(LIMIT_S)
    values = np.random.default_rng(0).normal(size=10).astype("f4")
    results = [server.schedule(value[None]) for value in values]
    assert not any(result.result().is_dropped for result in results)
    assert server.statistics.rounds == 6 and not late.is_ready
    expected = functools.reduce(lambda params, pair: params - 0.5 * (params - pair.mean()), values.reshape(5, 2), 0.0)
    assert float(server.params) == pytest.approx(expected, rel=1e-5)
    go.set()
    server.join()
    assert late.result().is_dropped and late.result().loss > 1e11
    assert (server.statistics.rounds, server.statistics.dropped) == (6, 1)
    assert float(server.params) == pytest.approx(expected, rel=1e-5)
    # It takes part again.
    assert not any(result.is_dropped for result in train(server, [np.float32([0.0])] * 2))


def test_with_backup_workers_each_batch_is_applied_or_dropped(serve):
    server = serve(
        lambda params, batch: params * batch,
        optax.sgd(1.0),
        params=jnp.zeros(()),
        has_aux=False,
        mode=td.Synchronous(backup_workers=3),  # A round is one gradient.
    )
    results = train(server, 2.0 ** np.arange(20, dtype="f4"))
    dropped = [result.is_dropped for result in results]
    told = server.statistics
    assert (told.dropped, told.rounds) == (sum(dropped), 20 - sum(dropped))
    assert -float(server.params) == sum(2.0**i for i, late in enumerate(dropped) if not late)


@pytest.mark.parametrize("weigh", [lambda params, mask: mask.sum(), lambda params, mask: (mask * params["w"][0]).sum()])
def test_weighted_losses_of_a_round_are_one_mean_over_all(serve, weigh):
    masks = [np.float32([1, 1, 0, 1]), np.float32([0, 0, 0, 0]), np.float32([1, 0, 0, 0]), np.float32([1, 1, 1, 1])]
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=4).astype("f4"), "mask": mask} for mask in masks]
    params = {"w": np.float32([2.0])}

    def sums(params, batch):
        return ((params["w"] * batch["x"]) ** 2 * batch["mask"]).sum(), weigh(params, batch["mask"])

    def mean(params, batch):
        total, weight = sums(params, batch)
        return total / weight

    server = serve(sums, optax.sgd(0.1), params=params, has_aux=False, mode=td.Synchronous())
    results = train(server, batches)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    grads = jax.grad(mean)(params, whole)
    assert_close(server.params["w"], params["w"] - 0.1 * grads["w"])
    assert results[0].loss == pytest.approx(float(mean(params, batches[0]))) and np.isnan(results[1].loss)


def test_the_weight_may_depend_on_parameters_for_some_kinds_of_batches_only(serve):
    batches, params = [np.float32([1, 2]), np.float32([3, 4, 5])], jnp.float32(2)
    sums = lambda params, x: ((params * x).sum(), (params**2 if len(x) == 3 else jnp.ones(())) * len(x))

    def mean(params):
        totals, weights = zip(*(sums(params, batch) for batch in batches), strict=True)
        return sum(totals) / sum(weights)

    for order in (batches, batches[::-1]):
        server = serve(sums, optax.sgd(1.0), params=params, workers=2, has_aux=False, mode=td.Synchronous())
        train(server, order)
        assert float(server.params) == pytest.approx(float(params - jax.grad(mean)(params)), rel=1e-5)


@pytest.mark.parametrize("mode", [td.Asynchronous(), td.LocalSGD(sync_every=1)])
def test_weighted_losses_of_a_worker_are_its_batchs_mean(serve, mode):
    loss = lambda params, batch: (((params - batch["x"]) ** 2 * batch["mask"]).sum(), batch["mask"].sum())
    server = serve(loss, optax.sgd(0.25), params=jnp.float32(1), workers=1, has_aux=False, mode=mode)
    (result,) = train(server, [{"x": np.float32([3, 9]), "mask": np.int32([1, 0])}])
    assert (result.loss, float(server.params), result.aux) == (4, 2, ())


def test_auxiliary_results_are_what_the_loss_says_of_them(serve):
    loss = lambda params, x: (
        params * td.Sum(x.sum()).value,
        {"sum": td.Sum(x.sum()), "mean": td.Mean(x.sum(), jnp.float32(4)), "rows": td.Rows(x)},
    )
    (result,) = train(serve(loss, optax.sgd(0.1), params=jnp.float32(1)), [np.float32([1, 5])])
    assert result.aux["sum"] == 6 and result.aux["mean"] == 1.5 and list(result.aux["rows"]) == [1, 5]
    assert isinstance(result.loss, np.ndarray | np.generic) and isinstance(result.aux["rows"], np.ndarray)


def test_local_sgd_of_single_steps_is_synchronous_sgd(serve):
    batches, tx = make_batches(12), optax.sgd(0.1)
    server = serve(tx=tx, mode=td.LocalSGD(sync_every=1))
    train(server, batches)
    params, _ = train_in_rounds(tx, batches, 4)
    assert_close(server.params, params)
    assert server.statistics.rounds == 3


@pytest.mark.parametrize("count", [24, 21, 14])
def test_diloco_is_that_of_its_paper_and_has_equal_bits(serve, count):
    batches, tx, outer = make_batches(count), optax.adam(1e-2), DILOCO.outer_optimizer
    found = []
    for _ in range(2):
        server = serve(tx=tx, mode=td.LocalSGD(sync_every=3, outer_optimizer=outer))
        train(server, batches)
        found.append(server.state)
    assert_equal(*found)
    params, outer_state, inner = train_locally(tx, outer, batches, workers=4, steps=3)
    # The workers that have made steps in a last round that is not complete are as many as it has batches, or all.
    assert_close(found[0]["params"], params, rtol=1e-5)
    assert_close(found[0]["opt_state"], outer_state, rtol=1e-5)
    assert_close(found[0]["workers"], inner, rtol=1e-5)


def test_local_sgd_sends_parameters_only_when_they_meet(serve):
    server = serve(mode=td.LocalSGD(sync_every=5))
    train(server, make_batches(40))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(make_params()))
    told = server.statistics
    assert (told.rounds, told.pulled_bytes, told.pushed_bytes) == (2, 2 * 4 * size, 2 * 4 * size)
    train(server, make_batches(3))
    assert (server.statistics.rounds, server.statistics.pushed_bytes) == (3, 11 * size)


@each_mode
def test_a_training_goes_on_from_a_checkpoint(serve, mode, tmp_path):
    batches = make_batches(18)
    is_deterministic = mode not in (MODES[0], MODES[3])
    server, resumed, whole = (serve(mode=mode) for _ in range(3))
    train(server, batches[:10])
    with td.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(10, server.state)
    like = resumed.state
    resumed.state = td.Checkpointer(tmp_path).restore(like).state
    assert_equal(resumed.state, server.state)
    train(resumed, batches[10:])
    for part in (batches[:10], batches[10:]):
        train(whole, part)
    if is_deterministic:
        assert_equal(resumed.state, whole.state)
    assert resumed.statistics.closures == 8


def test_a_state_must_be_like_the_one_that_it_replaces(serve):
    server, local = serve(), serve(mode=td.LocalSGD(sync_every=2), workers=2)
    state = server.state
    for wrong, message in [
        ({"params": state["params"]}, r"must be a dict of \['opt_state', 'params'\].*got \['params'\]"),
        (3, "got int"),
        ({**state, "params": {"w": state["params"]["w"]}}, "`params` has the structure"),
        (
            {**state, "params": {**state["params"], "b": np.zeros(9, "f4")}},
            r"`params\['b'\]` has the type float32\[8\]",
        ),
        ({**state, "params": {**state["params"], "b": np.zeros(8)}}, r"`params\['b'\]` has .*got float64\[8\]"),
        ({**state, "params": {**state["params"], "b": np.zeros(8, "i4")}}, r"`params\['b'\]` has .*got int32\[8\]"),
        ({**state, "opt_state": ()}, "`opt_state` has the structure"),
    ]:
        with pytest.raises(ValueError, match=message):
            server.state = wrong
    with pytest.raises(ValueError, match=r"`workers\[0\].*got float64"):
        local.state = {**local.state, "workers": jax.tree.map(np.float64, local.state["workers"])}
    with pytest.raises(ValueError, match="number of workers"):
        local.state = {**local.state, "workers": local.state["workers"][:1]}
    assert_equal(server.state, state)


def test_what_is_given_and_returned_is_a_copy(serve):
    batch = np.ones((), "f4")
    server = serve(distance, optax.sgd(1.0), params=jnp.zeros(()), has_aux=False, mode=td.Synchronous(), workers=1)
    returned = server.params
    result = server.schedule(batch)
    batch[...] = 7
    assert result.result().loss == 0.5
    server.join()
    jax.tree.map(lambda leaf: leaf.delete(), (returned, server.state, server.params))
    assert float(server.params) == 1


@pytest.mark.parametrize("mode", [MODES[0], MODES[2], DILOCO], ids=["async", "sync", "diloco"])
def test_flax_modules_train_with_what_has_no_gradient_as_it_is(serve, mode):
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.linear, self.dropout = nnx.Linear(4, 1, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    graph = nnx.graphdef(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))

    def loss(state, batch):
        model = nnx.merge(graph, state, copy=True)
        return ((model.dropout(model.linear(batch["x"]))[:, 0] - batch["y"]) ** 2).mean()

    server = serve(loss, params=lambda: nnx.state(Model(nnx.Rngs(0))), has_aux=False, mode=mode)
    before = server.params
    losses = [result.loss for result in train(server, make_batches(8))]
    after = server.params
    assert np.isfinite(losses).all() and type(after) is type(before)
    assert not np.array_equal(before["linear"]["kernel"][...], after["linear"]["kernel"][...])
    assert_equal(*(jax.random.key_data(state["dropout"]["rngs"]["key"][...]) for state in (before, after)))
    server.state = server.state


def test_batches_may_have_random_keys(serve):
    loss = lambda params, key: params * jax.random.normal(key)
    server = serve(loss, optax.sgd(1.0), params=jnp.zeros(()), has_aux=False)
    keys = jax.random.split(jax.random.key(0), 5)
    train(server, list(keys))
    assert float(server.params) == pytest.approx(-float(sum(map(jax.random.normal, keys))), rel=1e-5)


@each_mode
def test_the_first_error_of_a_batch_is_raised_and_the_training_goes_on(serve, mode):
    server = serve(mode=mode)
    train(server, make_batches(3))
    before = server.statistics.closures
    failed = server.schedule({"x": np.zeros((2, 5), "f4"), "y": np.zeros(2, "f4")})
    rest = []
    with pytest.raises(TypeError, match="dot_general"):
        for batch in make_batches(40):
            rest.append(server.schedule(batch))
        server.join()
    with pytest.raises(TypeError, match="dot_general"):
        failed.result()
    errors = [type(result.error()) for result in rest]
    assert set(errors) <= {type(None), ClosureCancelledError}
    assert server.statistics.closures == before + errors.count(type(None))
    results = train(server, make_batches(10))
    assert len(results) == 10 and np.isfinite(jax.tree.leaves(server.params)[0]).all()


def ask_until_it_fails(server):
    while not server.done():
        time.sleep(0.001)


def schedule_after_it_has_failed(server):
    wait_until(lambda: server._coordinator.is_idle)
    server.schedule(make_batches(1)[0])


@each_mode
@pytest.mark.parametrize("ask", [td.ParameterServer.join, schedule_after_it_has_failed, ask_until_it_fails])
def test_no_round_waits_for_a_batch_that_has_failed(serve, mode, ask):
    server, (good, *rest) = serve(mode=mode, workers=2), make_batches(4)
    for before in ([good], []):
        for batch in before:
            server.schedule(batch).result()
        server.schedule({})
        with pytest.raises(KeyError):
            ask(server)
        train(server, rest)
    assert server.statistics.closures == 7
    train(server, rest[:2])
    assert set(server.state) >= {"params", "opt_state"}


def test_not_all_is_done_while_another_thread_waits_for_it(serve):
    hold = Hold()
    server = serve(hold.loss, optax.sgd(0.1), params=jnp.zeros(()), has_aux=False, mode=td.LocalSGD(sync_every=1))
    server.schedule(np.float32(1))
    thread, errors = in_thread(server.join)
    wait_until(lambda: server._lock.locked())
    assert not server.done()
    hold.go.set()
    thread.join(LIMIT_S)
    assert server.done() and errors == [None]


@pytest.mark.parametrize("mode", [MODES[2], DILOCO], ids=["sync", "diloco"])
def test_who_waits_while_workers_are_stopped_is_told_and_nothing_computed_is_lost(serve, mode):
    hold = Hold(shape=(2,))
    server = serve(hold.loss, optax.sgd(0.1), params=jnp.zeros(()), workers=3, has_aux=False, mode=mode)
    server.schedule(np.ones(1, "f4")).result()
    server.schedule(np.ones(2, "f4"))
    assert hold.entered.wait(LIMIT_S)
    waiting, errors = in_thread(server.join)
    wait_until(lambda: server._lock.locked())
    stopping, _ = in_thread(server.stop)
    waiting.join(LIMIT_S)
    assert isinstance(errors[0], RuntimeError) and "has been stopped" in str(errors[0])
    with pytest.raises(RuntimeError, match="after `stop`, while a worker still trained, `stop` again"):
        _ = server.state
    assert float(server.params) == 0
    hold.go.set()
    stopping.join(LIMIT_S)
    assert float(server.state["params"]) != 0 and server.statistics.rounds == 1


@pytest.mark.parametrize("mode", [MODES[2], MODES[4]], ids=["sync", "local"])
def test_an_interrupt_after_a_batch_has_come_leaves_no_worker_without_its_turn(serve, mode, monkeypatch):
    hold, values = Hold(), np.arange(1, 13, dtype="f4")
    server = serve(hold.loss, optax.sgd(0.1), params=jnp.zeros(()), workers=3, has_aux=False, mode=mode)
    server.schedule(values[0])
    assert hold.entered.wait(LIMIT_S)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(server._coordinator._queue, "_raise_error", interrupt)
        server.schedule(values[1])
    for value in values[2:]:
        server.schedule(value)
    hold.go.set()
    joining, errors = in_thread(server.join)
    joining.join(LIMIT_S)
    assert errors == [None]
    assert (server.statistics.closures, server.statistics.rounds) == (12, 4 if isinstance(mode, td.Synchronous) else 2)
    whole = serve(distance, optax.sgd(0.1), params=jnp.zeros(()), workers=3, has_aux=False, mode=mode)
    train(whole, values)
    assert_close(server.state, whole.state)


@each_mode
def test_workers_trace_one_after_another(serve, mode):
    tracing, errors = threading.Lock(), []

    def loss(params, batch):
        if not tracing.acquire(blocking=False):
            errors.append("Another worker traces.")
            return params * batch
        time.sleep(0.05)
        tracing.release()
        return params * batch

    server = serve(loss, optax.sgd(0.1), params=jnp.zeros(()), has_aux=False, mode=mode)
    train(server, np.arange(8, dtype="f4"))
    assert not errors


def test_a_state_that_is_read_while_workers_train_is_of_one_moment(serve):
    server = serve(
        lambda params, batch: params * batch,
        optax.adam(0.1),
        params=jnp.zeros(()),
        workers=1,
        has_aux=False,
        mode=td.LocalSGD(sync_every=1, outer_optimizer=optax.adam(0.1)),
    )
    train(server, [np.float32(1)] * 2)
    for _ in range(300):
        server.schedule(np.float32(1))
    for _ in range(100):
        state = server.state  # Each round is one step, and so is complete.
        assert state["opt_state"][0].count == state["workers"][0][0].count


@pytest.mark.parametrize("workers", [2, 3])
def test_local_rounds_go_on_without_a_worker_that_has_gone_and_with_it_again(serve, processes, workers):
    batches = make_batches(48)
    server = serve(mode=td.LocalSGD(sync_every=2, outer_optimizer=optax.sgd(1.0)), workers=workers)
    train(server, batches[: 2 * workers])
    processes[0].actors["worker", 1].end()
    results = [server.schedule(batch) for batch in batches[2 * workers :]]
    deadline = time.monotonic() + LIMIT_S
    while server.statistics.closures < 30 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.statistics.closures >= 30
    processes[0].start("worker", 1)
    server.join()
    assert server.statistics.closures == 48 and all(np.isfinite(result.result().loss) for result in results)
    states = server.state["workers"]
    assert all(int(state[0].count) >= 2 for state in states)


@each_mode
def test_no_round_waits_for_a_worker_that_has_gone(serve, processes, mode):
    batches = make_batches(16)
    server = serve(mode=mode)
    train(server, batches[:8])
    for i in range(4):
        processes[0].actors["worker", i].end()
        processes[0].start("worker", i)
    train(server, batches[8:])
    assert server.statistics.closures == 16
    assert server.statistics.retries >= 1
    if mode == td.Synchronous():
        assert server.statistics.rounds == 4
        assert_close(server.params, train_in_rounds(optax.adam(1e-2), batches, 4)[0], rtol=1e-5)


@pytest.mark.parametrize("mode", [MODES[0], MODES[2], DILOCO], ids=["async", "sync", "diloco"])
@pytest.mark.parametrize("name", ["params", "state", "opt_state", "schedule", "join", "done"])
def test_what_would_wait_for_itself_is_refused(serve, mode, name):
    def loss(params, batch):
        found = getattr(server, name)
        return found(batch) if name == "schedule" else found()

    server = serve(loss, optax.sgd(0.1), params=jnp.zeros(()), has_aux=False, mode=mode)
    server.schedule(np.float32(1))
    with pytest.raises(RuntimeError, match=f"`{name}` is used by what a worker runs"):
        server.join()


def test_wrong_options_are_refused():
    make = functools.partial(td.ParameterServer, loss_fn, optax.sgd(0.1))
    for workers, error in [(0, ValueError), (-1, ValueError), (2.0, TypeError), ("2", TypeError), (True, TypeError)]:
        with pytest.raises(error, match="`workers` must be a whole number, 1 or more"):
            make(workers=workers)
    with pytest.raises(TypeError, match=r"`mode` must be .* got 'sync'"):
        make(workers=2, mode="sync")
    with pytest.raises(ValueError, match=r"Of 2 worker.*may be 1 at most.*got 2"):
        make(workers=2, mode=td.Synchronous(backup_workers=2))
    for wrong, error in [(-1, ValueError), (0.5, TypeError), (True, TypeError), (None, TypeError)]:
        with pytest.raises(error, match="`backup_workers` must be a whole number, 0 or more"):
            td.Synchronous(backup_workers=wrong)
    for wrong, error in [(0, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)]:
        with pytest.raises(error, match="`sync_every` must be a whole number, 1 or more"):
            td.LocalSGD(sync_every=wrong)
    for wrong, error in [(-1, ValueError), (0.5, TypeError), (True, TypeError), ("2", TypeError)]:
        with pytest.raises(error, match="`max_staleness` must be a whole number, 0 or more"):
            td.Asynchronous(max_staleness=wrong)
    with pytest.raises(TypeError, match=r"`outer_optimizer` must be an optax.GradientTransformation.*got 0.7"):
        td.LocalSGD(sync_every=2, outer_optimizer=0.7)
    with pytest.raises(TypeError, match="`tx` must be"):
        td.ParameterServer(loss_fn, 0.1, workers=1)
    with pytest.raises(TypeError, match="`loss_fn` must be a function"):
        td.ParameterServer(None, optax.sgd(0.1), workers=1)


def test_whole_numbers_may_be_numpys(serve):
    assert len(serve(workers=np.int64(3))._engine.workers) == 3
    assert repr(td.Synchronous(backup_workers=np.int32(1))) == "Synchronous(backup_workers=1)"
    assert td.LocalSGD(sync_every=np.uint8(2)) == td.LocalSGD(sync_every=2)
    assert td.Asynchronous(max_staleness=np.int64(0)) == td.Asynchronous(max_staleness=0)


def test_calls_at_the_wrong_moment_are_refused(serve):
    with td.ParameterServer(loss_fn, optax.sgd(0.1), workers=2, mode=td.LocalSGD(sync_every=2)) as server:
        for use in (lambda: server.schedule(1), server.join, lambda: server.params, lambda: server.state):
            with pytest.raises(RuntimeError, match=r"call `init\(params\)` first"):
                use()
        with pytest.raises(ValueError, match="No parameter has a gradient"):
            server.init({"n": np.int32(1)})
        server.init(make_params())
        with pytest.raises(RuntimeError, match="`init` has been called before"):
            server.init(make_params())
        state = server.state
        server.schedule(make_batches(1)[0]).result()
        for use in (lambda: server.state, lambda: setattr(server, "state", state)):
            with pytest.raises(RuntimeError, match="call `join` before"):
                use()
    # Leaving has joined.
    assert server.statistics.rounds == 1 and server.done()
    for use in (lambda: server.schedule(1), server.join, lambda: server.init(make_params())):
        with pytest.raises(RuntimeError, match="after `stop`"):
            use()
    assert set(server.params) == set(server.state["params"]) == {"w", "b", "v"}


def test_losses_that_are_none_are_told(serve):
    for loss, error, message in [
        (lambda params, batch: params + batch, ValueError, "must be a scalar"),
        (lambda params, batch: {"loss": 1.0}, TypeError, "must be a scalar"),
        (lambda params, batch: jnp.int32(1), TypeError, "floating"),
    ]:
        server = serve(loss, params=jnp.zeros(2), has_aux=False)
        server.schedule(np.ones(2, "f4"))
        with pytest.raises(error, match=message):
            server.join()
    server = serve(lambda params, batch: params.sum(), params=jnp.zeros(2))
    server.schedule(np.ones(2, "f4"))
    with pytest.raises(TypeError, match=r"must return \(loss, aux\)"):
        server.join()


@each_mode
def test_an_optimizer_whose_state_changes_its_type_is_told(serve, mode):
    tx = optax.GradientTransformation(
        lambda params: jnp.int32(0), lambda grads, state, params: (grads, state + jnp.float32(1))
    )
    server = serve(tx=tx, mode=mode)
    for batch in make_batches(4):
        server.schedule(batch)
    with pytest.raises(ValueError, match=r"`opt_state` has the type int32.*got float32"):
        server.join()


def test_batches_that_wait_are_bounded_in_number(serve):
    hold = Hold()
    server = serve(hold.loss, optax.sgd(0.1), params=jnp.zeros(()), workers=1, has_aux=False)
    queue, waited = server._coordinator._queue, []

    def schedule_many():
        for _ in range(100):
            server.schedule(np.float32(1))
            waited.append(queue._num_waiting())

    scheduling, errors = in_thread(schedule_many)
    wait_until(lambda: queue._num_waiting() >= 32)
    assert len(waited) <= 33  # The worker holds another one.
    hold.go.set()
    scheduling.join(LIMIT_S)
    assert errors == [None] and max(waited) == 32


def test_leaving_with_an_error_waits_for_nothing(serve):
    with pytest.raises(KeyError), td.ParameterServer(distance, optax.sgd(1.0), workers=1, has_aux=False) as server:
        server.init(jnp.zeros(()))
        assert isinstance(server.schedule("a batch").error(), TypeError)
        raise KeyError
    with pytest.raises(ZeroDivisionError), td.ParameterServer(lambda p, b: 1 // 0, optax.sgd(1.0), workers=1) as server:
        server.init(jnp.zeros(()))
        server.schedule(1)
    assert server._is_stopped


@each_mode
def test_threads_end_with_their_server(mode):
    server = td.ParameterServer(loss_fn, optax.sgd(0.1), workers=2, mode=mode)
    server.init(make_params())
    train(server, make_batches(3))
    threads, gone = list(server._coordinator._threads), weakref.ref(server)
    del server
    gc.collect()
    for thread in threads:
        thread.join(LIMIT_S)
    assert gone() is None and not any(thread.is_alive() for thread in threads)


class Digits(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(64, 64, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "mode",
    [
        td.Asynchronous(),
        td.Asynchronous(max_staleness=2),
        td.Synchronous(backup_workers=1),
        td.LocalSGD(sync_every=10),
        td.LocalSGD(sync_every=10, outer_optimizer=optax.sgd(0.7, momentum=0.9, nesterov=True)),
    ],
    ids=["async", "bounded", "backup", "local", "diloco"],
)
def test_digits_are_learned(serve, mode):
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype("f4"), y[order].astype("i4")
    graph = nnx.graphdef(nnx.eval_shape(lambda: Digits(nnx.Rngs(0))))

    def loss(params, batch):
        logits = nnx.merge(graph, params)(batch["x"])
        hits = (logits.argmax(-1) == batch["y"]).sum()
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean(), hits

    server = serve(loss, optax.adam(3e-3), params=lambda: nnx.state(Digits(nnx.Rngs(0)), nnx.Param), mode=mode)
    rng, count = np.random.default_rng(0), 800 if isinstance(mode, td.Asynchronous) else 2000
    for _ in range(count):
        rows = rng.integers(0, 1500, 32)
        server.schedule({"x": x[rows], "y": y[rows]})
    server.join()
    predicted = nnx.merge(graph, server.params)(x[1500:]).argmax(-1)
    accuracy, told = (predicted == y[1500:]).mean(), server.statistics
    print(f"{mode}: {accuracy:.4f}; {told}")
    assert accuracy >= 0.95
    assert told.closures == count and (max(told.staleness, default=0) > 0) == isinstance(mode, td.Asynchronous)
