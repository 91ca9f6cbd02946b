"""A step that needs more memory than there is does not run, and takes nothing of the state that it is given."""

import concurrent.futures
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfdist_jax as td
from tfdist_jax import _host_memory, _memory
from tfdist_jax._errors import OutOfMemoryError
from tfdist_jax._multiprocess import _agreed_program

HUGE = 1 << 36  # Elements, of which each row has so many: more than machines have, and less than XLA can count.


def sort_many(x, count):
    numbers = jax.lax.broadcasted_iota(jnp.float32, (1, count), 1)
    return jnp.sort(jnp.sin(x[:, None] * numbers))[:, 3].sum()


@pytest.fixture(params=[td.SingleDevice, td.Mirrored, td.FSDP])
def strategy(request):
    return request.param()


def test_a_step_that_is_too_large_leaves_the_state_as_it_was(strategy):
    size = 8

    @strategy.jit
    def step(state, x):
        return {"w": state["w"] + 1, "sum": state["sum"] + sort_many(x, size)}, x.sum()

    state = strategy.init(lambda: {"w": jnp.ones((1024, 1024)), "sum": jnp.zeros(())})
    state, _ = step(state, jnp.ones(8))
    size = HUGE
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match=r"`step` needs [\d,.]+ GiB, .* has [\d,.]+ GiB\. It has not run"):
            step(state, jnp.ones(16))
    np.testing.assert_array_equal(state["w"], np.full((1024, 1024), 2))
    size = 8
    state, _ = step(state, jnp.ones(8))
    np.testing.assert_array_equal(state["w"], np.full((1024, 1024), 3))


@jax.tree_util.register_pytree_node_class
class Slow:
    """A batch that lets another thread come first, at one of the times at which JAX looks at it."""

    def __init__(self, x, come_first):
        self.x, self.come_first = x, come_first

    def tree_flatten(self):
        self.come_first()
        return (self.x,), self.come_first

    @classmethod
    def tree_unflatten(cls, come_first, children):
        return cls(*children, come_first)


@pytest.mark.parametrize("time", range(1, 8))
def test_threads_may_make_programs_of_one_step_at_the_same_time(monkeypatch, time):
    strategy, looks, checked = td.Mirrored(), [], []
    monkeypatch.setattr(_agreed_program, "require_memory", lambda program, name: checked.append(name))
    step = strategy.jit(lambda state, batch: (state, (state + batch.x).sum()))
    state = strategy.init(lambda: jnp.ones(()))

    def come_first():
        looks.append(time)
        if len(looks) == time:
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                assert float(threads.submit(step, state, Slow(jnp.ones(2), bool)).result(60)[1]) == 4

    assert float(step(state, Slow(jnp.ones(3), come_first))[1]) == 6
    assert len(looks) >= time and len(checked) == 2


def test_a_step_may_run_without_being_compiled():
    strategy = td.Mirrored()
    step = strategy.jit(
        lambda state, x: (state + x, float(x) if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) else x)
    )
    state = strategy.init(lambda: jnp.ones(()))
    with jax.disable_jit():
        for _ in range(2):
            state, seen = step(state, jnp.ones(()))
            assert seen == 1
    assert float(state) == 3


def test_devices_of_one_processor_share_its_memory(monkeypatch):
    def compile_for(count):
        mesh = td.make_mesh({"data": count}, devices=jax.devices()[-count:])
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return jax.jit(lambda x: x + 1, donate_argnums=0).lower(jax.device_put(jnp.zeros(1 << 20), whole)).compile()

    one, eight = compile_for(1), compile_for(8)
    for total, is_enough in ((8 << 22, True), ((8 << 22) - 1, False)):
        monkeypatch.setattr(_memory, "_memory_of", lambda device, total=total: total)
        _memory.require_memory(one, "add")
        if is_enough:
            _memory.require_memory(eight, "add")
        else:
            with pytest.raises(OutOfMemoryError, match=r"`add` needs 0\.0 GiB"):
                _memory.require_memory(eight, "add")
    monkeypatch.setattr(_memory, "_memory_of", lambda device: None)
    _memory.require_memory(eight, "add")


def test_limits_of_a_container_count(monkeypatch, tmp_path):
    whole = _memory._memory_of(jax.devices()[0])
    assert whole > 1 << 28
    for text, wanted in (("max\n", whole), (f"{1 << 20}\n", 1 << 20), (f"{1 << 62}\n", whole)):
        (tmp_path / "limit").write_text(text)
        monkeypatch.setattr(_host_memory, "_CGROUP_LIMITS", (str(tmp_path / "limit"), str(tmp_path / "missing")))
        assert _memory._memory_of(jax.devices()[0]) <= wanted == min(wanted, whole)
    for stats, wanted in (({"bytes_limit": 7}, 7), ({}, None), (None, None)):
        device = type("Gpu", (), {"platform": "gpu", "memory_stats": lambda self, stats=stats: stats})()
        assert _memory._memory_of(device) == wanted


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there is an allocator that has the settings")
def test_the_allocator_keeps_blocks_of_a_64th_of_what_a_container_has(monkeypatch, tmp_path):
    calls = []
    library = type("Library", (), {"mallopt": lambda self, *call: calls.append(call)})
    monkeypatch.setattr(_host_memory.ctypes, "CDLL", lambda name: library())
    monkeypatch.setattr(_host_memory, "_OWN_SETTINGS", ("TFDIST_OF_THIS_TEST",))
    (tmp_path / "limit").write_text(f"{2 << 30}")
    monkeypatch.setattr(_host_memory, "_CGROUP_LIMITS", (str(tmp_path / "limit"),))
    _host_memory.keep_freed_memory(in_one_arena=False)
    assert calls == [(-3, 32 << 20), (-1, (64 << 20) - 1)], "M_MMAP_THRESHOLD, M_TRIM_THRESHOLD"
    _host_memory.keep_freed_memory(in_one_arena=True)
    assert calls[2:] == [*calls[:2], (-8, 1)], "M_ARENA_MAX"
    monkeypatch.setenv("TFDIST_OF_THIS_TEST", "1")
    _host_memory.keep_freed_memory(in_one_arena=True)
    assert len(calls) == 5, "the user has set the allocator"
