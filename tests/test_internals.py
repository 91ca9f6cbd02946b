"""One contract per private JAX name: what this project relies on, stated and checked.

When a JAX release breaks one of these, the test's name says which name in `_internals.py` to mend.
"""

import contextlib
import dataclasses
import gc
import inspect
import os
import random
import subprocess
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from environment import LIMIT_S
from jax import lax
from jax.sharding import AbstractMesh, Mesh

from tfdist_jax import _internals, _interpreter
from tfdist_jax._thread_state import restoring_thread_state


class Recorder(_internals.Trace):
    """Hands every operation to the trace below and notes its name."""

    def __init__(self, parent):
        super().__init__()
        self.requires_low = False
        self.parent = parent
        self.seen = []

    def process_primitive(self, primitive, args, params, /):
        return self._pass(primitive, args, params)

    def process_custom_jvp_call(self, primitive, fun, jvp, args, /, **params):
        return self._pass(primitive, args, dict(params, subfuns=(fun, jvp)))

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, args, /, **params):
        return self._pass(primitive, args, dict(params, subfuns=(fun, fwd, bwd)))

    def _pass(self, primitive, args, params):
        self.seen.append(primitive.name)
        with _internals.set_current_trace(self.parent):
            return primitive.bind(*args, **params)


@pytest.fixture
def by_xla_alone():
    """The interpreter, which the facade installs, is not there."""
    was_installed = _interpreter.uninstall()
    yield
    if was_installed:
        _interpreter.install()


@pytest.fixture
def recorder():
    return Recorder(_internals.current_trace())


def test_current_trace_is_the_eval_trace_outside_transformations():
    assert _internals.current_trace() is _internals.eval_trace
    assert isinstance(_internals.eval_trace, _internals.EvalTrace)


def test_known_value_is_what_constants_give_and_none_for_what_depends_on_arguments():
    found = []

    def note(x):
        constant = jnp.sin(jnp.ones([2]) * 3.0)
        found.extend(
            _internals.known_value(array) for array in (constant, x, constant + x, jnp.where(constant > 9, 1, 2))
        )
        return x

    jax.jit(note)(jnp.ones(2))
    assert np.allclose(found[0], np.sin([3.0, 3.0]))
    assert found[1] is found[2] is None
    assert found[3].tolist() == [2, 2]


def test_known_value_follows_inputs_and_cells_whose_values_are_known_into_inner_traces():
    found, given = [], jnp.ones(2)

    def note(x):
        inner = lambda carry, _: (carry, found.append(_internals.known_value(x + 1.0, [(x, given)])))
        return lax.scan(inner, x, None, 1)[0]

    jax.jit(note)(given)
    assert found[0].tolist() == [2.0, 2.0]


def test_known_value_follows_custom_derivatives():
    found, given = [], jnp.float32([1, -1])
    jax.jit(lambda x: found.append(_internals.known_value(jax.nn.relu(x) + 1, [(x, given)])))(given)
    assert found[0].tolist() == [2, 1]


def test_tracing_constants_traces_them_where_they_would_be_computed():
    found = []

    def note(x):
        with _internals.computing_now():
            found.append(jnp.zeros(2) + 1.0)
            with _internals.tracing_constants():
                found.append(jnp.zeros(2) + 1.0)
        return x

    jax.jit(note)(jnp.ones(2))
    assert [isinstance(array, jax.core.Tracer) for array in found] == [False, True]


def test_replay_computes_traced_arrays_again_from_others():
    found = []

    def note(x, y):
        middle = jnp.sin(x) * y
        result = jax.nn.relu(middle + x)
        found.extend(_internals.replay([result], [middle])(jnp.full(2, 5.0)))
        found.extend(_internals.replay([result], [x])(x))
        return *found, result

    again, same, result = jax.jit(note)(jnp.ones(2), jnp.full(2, 2.0))
    assert np.allclose(again, 6.0)
    assert np.allclose(same, result)


def test_name_stack_says_in_which_scopes_an_equation_was_traced_also_of_its_derivative():
    def loss(x):
        with jax.named_scope("outside"), jax.named_scope("inside=cpu:1"):
            return jnp.tanh(x @ x).sum()

    stacks = list(map(_internals.name_stack, jax.make_jaxpr(jax.grad(loss))(jnp.ones((2, 2))).eqns))
    assert all("inside=cpu:1" in stack for stack in stacks if "transpose" not in stack)
    assert sum("transpose" in stack for stack in stacks) > 3
    assert all("inside=cpu:1" in stack for stack in stacks if "transpose" in stack)


def test_equation_of_is_what_gives_a_traced_array():
    found = []

    def fn(x):
        with jax.named_scope("inside"):
            y = x * 2
        found.extend([_internals.equation_of(x), _internals.equation_of(y).primitive.name])
        found.append(_internals.name_stack(_internals.equation_of(y)))
        return y

    jax.make_jaxpr(fn)(1.0)
    assert found == [None, "mul", "inside"]


def test_current_trace_is_another_one_inside_jit():
    inside = []

    def note(x):
        inside.append(_internals.current_trace())
        return x

    jax.jit(note)(1.0)
    assert isinstance(inside[0], _internals.Trace)
    assert not isinstance(inside[0], _internals.EvalTrace)
    assert _internals.current_trace() is _internals.eval_trace


def test_set_current_trace_comes_back_after_the_block_and_after_an_error(recorder):
    with _internals.set_current_trace(recorder):
        assert _internals.current_trace() is recorder
    with pytest.raises(KeyError), _internals.set_current_trace(recorder):
        raise KeyError
    assert _internals.current_trace() is _internals.eval_trace


def test_set_trace_stays_until_set_back(recorder):
    _internals.set_trace(recorder)
    try:
        assert _internals.current_trace() is recorder
        lax.sin(1.0)
    finally:
        _internals.set_trace(_internals.eval_trace)
    assert "sin" in recorder.seen


def test_set_trace_reaches_only_its_own_thread(recorder):
    seen = []
    _internals.set_trace(recorder)
    try:
        thread = threading.Thread(target=lambda: seen.append(_internals.current_trace()))
        thread.start()
        thread.join(timeout=LIMIT_S)
    finally:
        _internals.set_trace(_internals.eval_trace)
    assert seen == [_internals.eval_trace]


def test_a_thread_can_go_on_with_the_trace_of_another():
    """Lock-step replicas: each thread adds to the jaxpr that the main thread is tracing."""

    def body(x):
        trace, results = _internals.current_trace(), []

        def work():
            _internals.set_trace(trace)
            try:
                results.append(jnp.sin(x) * 2)
            finally:
                _internals.set_trace(_internals.eval_trace)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(timeout=LIMIT_S)
        return results[0]

    names = [eqn.primitive.name for eqn in jax.make_jaxpr(body)(1.0).eqns]
    assert names == ["sin", "mul"]


def test_set_current_trace_puts_an_equation_into_an_outer_jaxpr():
    """Variables found late: the read is one equation of the root trace, wherever it happens."""

    def body(x):
        root = _internals.current_trace()

        def inner(y):
            with _internals.set_current_trace(root):
                outer_value = jnp.cos(x)
            return y * outer_value

        return jax.jit(inner)(x)

    jaxpr = jax.make_jaxpr(body)(1.0)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["cos", "jit"]


def test_trace_subclass_sees_operations_of_plain_arrays(recorder):
    with _internals.set_current_trace(recorder):
        result = lax.add(lax.tanh(jnp.ones(3)), jnp.ones(3))
    assert {"tanh", "add"} <= set(recorder.seen)
    np.testing.assert_allclose(result, np.tanh(1) + 1, rtol=1e-6)


def test_trace_subclass_sees_every_call_of_a_compiled_function(recorder):
    """The C++ fast path of jit must not go round the current trace."""
    double = jax.jit(lambda x: x * 2)
    x = jnp.ones(3)
    double(x), double(x)
    with _internals.set_current_trace(recorder):
        double(x), double(x)
    assert recorder.seen == ["jit", "jit"]


def test_trace_subclass_sees_custom_derivatives_whole(recorder):
    @jax.custom_jvp
    def sin_jvp(x):
        return jnp.sin(x)

    @jax.custom_vjp
    def sin_vjp(x):
        return jnp.sin(x)

    sin_jvp.defjvp(lambda primals, tangents: (jnp.sin(*primals), 3 * tangents[0]))
    sin_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda _, g: (7 * g,))

    def derivative(fn):
        def run(x):
            with _internals.set_current_trace(Recorder(_internals.current_trace())):
                return fn(x)

        return float(jax.grad(run)(0.5))

    assert derivative(sin_jvp) == pytest.approx(3)
    assert derivative(sin_vjp) == pytest.approx(7)


def test_trace_weakref_is_the_jit_cache_key_and_may_be_shared():
    """Trace subclasses may share one `_weakref`; without it each new trace compiles anew."""
    anchor = Recorder(_internals.eval_trace)
    double = jax.jit(lambda x: x * 2)
    x = jnp.ones(3)
    for _ in range(4):
        recorder = Recorder(_internals.eval_trace)
        recorder._weakref = weakref.ref(anchor)
        with _internals.set_current_trace(recorder):
            double(x)
        del recorder
    gc.collect()
    assert double._cache_size() == 1


def test_trace_requires_low_exists_and_may_be_switched_off(recorder):
    assert _internals.Trace().requires_low is True
    assert recorder.requires_low is False


def test_array_impl_is_the_class_of_arrays_and_takes_new_attributes():
    assert type(jnp.zeros(())) is _internals.ArrayImpl
    assert isinstance(_internals.ArrayImpl.shape, property)
    assert isinstance(_internals.ArrayImpl.dtype, property)
    _internals.ArrayImpl.added_in_a_test = lambda self: self.ndim
    try:
        assert jnp.zeros(3).added_in_a_test() == 1
    finally:
        del _internals.ArrayImpl.added_in_a_test


def test_released_from_device_meets_arrays_of_other_devices():
    first, second = (jax.device_put(jnp.arange(3.0) + i, jax.devices()[i]) for i in (1, 2))
    with pytest.raises(ValueError, match="incompatible devices"):
        first + second
    free, other = _internals.released_from_device(first), _internals.released_from_device(second)
    assert not free.committed and free.devices() == first.devices()
    assert free.unsafe_buffer_pointer() == first.unsafe_buffer_pointer()
    for _ in range(3):  # JAX has a shorter way for calls like one that was before.
        np.testing.assert_array_equal(free + other, [3, 5, 7])
        np.testing.assert_array_equal(jax.jit(jnp.stack)([free, other]), [[1, 2, 3], [2, 3, 4]])
        assert (free + second).devices() == second.devices()


def test_forget_calls_gives_calls_their_short_way_back_and_keeps_programs(by_xla_alone):
    fails, traced, through_python = True, [], []

    def f(x):
        if fails:
            raise ValueError
        traced.append(x.shape)
        return x + 1

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith("pjit.py"):
            through_python.append(frame.f_code.co_name)

    def calls(x):
        through_python.clear()
        jitted(x)
        sys.setprofile(note)
        jitted(x)
        sys.setprofile(None)
        return bool(through_python)

    jitted, x = jax.jit(f), jnp.ones([3])
    with pytest.raises(ValueError):
        jitted(x)
    fails = False
    assert calls(x)  # Else `forget_calls` is not needed any more.
    _internals.forget_calls(jitted)
    assert not calls(x)
    assert traced == [(3,)]


def test_is_compiling_knows_a_thread_that_waits_for_the_compiler():
    new = random.SystemRandom().random()  # Not in the compilation cache, whatever has seeded `random`.

    def slow(x):
        for _ in range(2000):
            x = jnp.sin(x)
        return x + new

    lowered, me, seen, over = jax.jit(slow).lower(1.0), threading.get_ident(), set(), threading.Event()

    def look():
        while not over.wait(0.005):
            seen.add(_internals.is_compiling(sys._current_frames()[me]))

    looking = threading.Thread(target=look)
    looking.start()
    compiled = lowered.compile()
    over.set()
    looking.join()
    assert True in seen
    assert float(compiled(1.0)) > 0


def test_replace_compilation_cache_is_asked_for_each_program_unless_the_user_has_named_a_folder(tmp_path):
    program = """
import os, sys, jax
from tfdist_jax import _internals
kept, platforms, events = {}, set(), []
class Cache:
    get, put = kept.get, kept.__setitem__
is_on = True
_internals.replace_compilation_cache(lambda platform: platforms.add(platform) or (Cache if is_on else None))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
def compile():
    jax.clear_caches()
    events.clear()
    jax.jit(lambda x: x * 2)(1.0)
    return events.count("cache_hits"), events.count("cache_misses")
loaded, put = compile()
assert loaded == 0 < put and platforms == {"cpu"}
assert all(key.startswith("jit_") and "/" not in key and isinstance(value, bytes) for key, value in kept.items())
assert compile() == (put, 0)
is_on = False
assert compile()[0] == 0
is_on = True
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
assert compile() == (0, put)
assert len(os.listdir(sys.argv[1])) >= put
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, check=True, timeout=LIMIT_S, env={**env, "JAX_PLATFORMS": "cpu"})


def test_bypass_compilation_cache_neither_keeps_nor_gives_what_is_asked_for():
    program = """
import types, jax
from tfdist_jax import _internals
kept, asked, events = {}, [], []
is_bypassed = False
_internals.replace_compilation_cache(lambda platform: types.SimpleNamespace(get=kept.get, put=kept.__setitem__))
_internals.bypass_compilation_cache(lambda platform, executable: asked.append((platform, executable)) or is_bypassed)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
def compile(constant):
    jax.clear_caches()
    events.clear()
    asked.clear()
    assert jax.jit(lambda x: x * constant)(1.0) == constant
    return events.count("cache_hits")
assert compile(2) == 0 and kept
assert compile(2) > 0
platform, executable = asked[-1]
assert platform == "cpu" and "HloModule" in executable.hlo_modules()[0].to_string()
is_bypassed, had = True, dict(kept)
assert compile(2) == compile(3) == 0
assert kept == had
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S, env={**env, "JAX_PLATFORMS": "cpu"})


def test_write_compilation_cache_in_all_processes_is_by_keys_of_their_own():
    program = """
import sys, types, jax
from jax._src import distributed
from tfdist_jax import _internals
kept = {}
_internals.replace_compilation_cache(lambda platform: types.SimpleNamespace(get=kept.get, put=kept.__setitem__))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
distributed.global_state.process_id = 1
jax.jit(lambda x: x * 2)(1.0)
assert not kept
_internals.write_compilation_cache_in_all_processes()
jax.jit(lambda x: x * 3)(1.0)
assert kept
had = len(kept)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e6)
jax.jit(lambda x: x * 4)(1.0)
assert len(kept) == had
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S, env={**env, "JAX_PLATFORMS": "cpu"})


def test_setting_is_what_the_environment_or_the_program_has_set():
    assert _internals.setting("jax_platforms") == "cpu"
    assert _internals.setting("jax_compilation_cache_max_size") == -1


def test_backends_are_initialized_tells_whether_jax_has_started():
    program = (
        "import jax; from tfdist_jax._internals import backends_are_initialized as started\n"
        "assert not started(); jax.devices(); assert started()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S)


def test_releasing_failed_trace_lets_go_of_the_arrays_that_it_uses():
    def fail(x):
        with _internals.releasing_failed_trace():
            raise ValueError(x + 1)

    def trace_in_vain():
        x = jnp.ones(2)
        with pytest.raises(ValueError, match="JitTracer"):
            jax.make_jaxpr(lambda: fail(x))()
        return weakref.ref(x)

    kept = trace_in_vain()
    gc.collect()
    assert kept() is None


def test_trace_of_tells_where_a_traced_array_belongs():
    inside = []
    jax.jit(lambda x: inside.append(_internals.trace_of(x) is _internals.current_trace()) or x)(1.0)
    jax.vmap(lambda x: inside.append(_internals.trace_of(x) is _internals.current_trace()) or x)(jnp.ones(2))
    assert inside == [True, True]


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad, jax.checkpoint])
def test_parent_trace_leads_from_inside_a_transformation_to_the_trace_outside(transform, recorder):
    """Tapes outside a transformation are found by following `parent_trace`."""
    found = []

    def walk(x):
        trace = _internals.current_trace()
        while trace is not None:
            found.append(trace)
            trace = getattr(trace, "parent_trace", None)
        return x

    recorder.parent_trace = recorder.parent
    with _internals.set_current_trace(recorder):
        transform(walk)(jnp.ones(2) if transform is jax.vmap else 1.0)
    assert recorder in found
    assert found[-1] is _internals.eval_trace


def test_has_run_and_forget_run_settle_which_of_function_and_rule_was_called():
    """After a custom derivative JAX asks the one that ran for the structure of the result, and only one may have."""
    seen = []

    class Both(Recorder):
        def process_custom_jvp_call(self, primitive, fun, jvp, args, /, **params):
            seen.append((_internals.has_run(fun), _internals.has_run(jvp)))
            with _internals.set_current_trace(self.parent):
                (result,) = fun.call_wrapped(*args)
                jvp.call_wrapped(*args, *args)
            seen.append((_internals.has_run(fun), _internals.has_run(jvp)))
            _internals.forget_run(fun)
            seen.append((_internals.has_run(fun), _internals.has_run(jvp)))
            return [result]

    @jax.custom_jvp
    def double(x):
        return {"doubled": 2 * x}

    double.defjvp(lambda primals, tangents: ({"doubled": 2 * primals[0]}, {"doubled": 2 * tangents[0]}))
    with _internals.set_current_trace(Both(_internals.current_trace())):
        assert double(jnp.float32(1)) == {"doubled": 2}
    assert seen == [(False, False), (True, True), (False, True)]


def test_detect_processes_knows_what_a_scheduler_has_set(monkeypatch):
    assert _internals.detect_processes(1) is None
    for name, value in {"hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}.items():
        monkeypatch.setenv(f"OMPI_MCA_orte_{name}", value)
    for name, value in {"SIZE": "3", "RANK": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert _internals.detect_processes(1) == ("OmpiCluster", "10.96.0.1:62624", 3, 1, [0])
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "1234")
    assert _internals.detect_processes(1) == ("OmpiCluster", "10.96.0.1:1234", 3, 1, [0])


def test_joined_processes_and_key_value_client_are_there_once_jax_has_connected():
    program = """
import socket, sys, jax
from tfdist_jax import _internals
assert _internals.joined_processes() is None
assert _internals.key_value_client() is None
with socket.create_server(("127.0.0.1", 0)) as held:
    address = f"127.0.0.1:{held.getsockname()[1]}"
jax.distributed.initialize(address, 1, 0, coordinator_bind_address=address, cluster_detection_method="deactivate")
assert _internals.joined_processes() == (address, 1, 0)
client = _internals.key_value_client()
client.key_value_set("folder/a", "1")
client.key_value_set("folder/a", "2", allow_overwrite=True)
client.key_value_set("folder/b", "3")
assert sorted(client.key_value_dir_get("folder")) == [("folder/a", "2"), ("folder/b", "3")]
assert client.blocking_key_value_get("folder/a", 1000) == "2"
assert client.key_value_try_get("folder/b") == "3"
assert [client.key_value_increment("folder/count", 1) for _ in range(2)] == [1, 2]
client.key_value_delete("folder/a")
client.key_value_delete("folder/never-there")
try:
    client.key_value_try_get("folder/a")
except jax.errors.JaxRuntimeError as error:
    assert "NOT_FOUND" in str(error)
else:
    raise AssertionError
try:
    client.blocking_key_value_get("folder/a", 100)
except jax.errors.JaxRuntimeError as error:
    assert "DEADLINE_EXCEEDED" in str(error)
else:
    raise AssertionError
client.wait_at_barrier("here", 1000)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S)


def test_before_threads_end_comes_before_the_end_of_threads_and_asyncio_needs_no_new_ones_then():
    program = """
import asyncio, atexit, threading
from tfdist_jax import _internals
saying = lambda text: asyncio.new_event_loop().run_until_complete(asyncio.to_thread(print, text))
ended = threading.Event()
threading.Thread(target=lambda: (ended.wait(), saying("other"))).start()
_internals.let_asyncio_end_without_threads()
_internals.before_threads_end(lambda: (saying("end"), ended.set()))
atexit.register(print, "atexit")
saying("over")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["over", "end", "other", "atexit"], ran.stderr


def test_replace_array_lets_an_array_that_was_taken_hold_another():
    for make, change in (
        (lambda: jnp.zeros(5), lambda x: x + 1),
        (lambda: jax.random.key(0), lambda x: jax.random.fold_in(x, 1)),
    ):
        old, new = make(), make()
        jax.block_until_ready(jax.jit(change, donate_argnums=0)(old))
        assert old.is_deleted()
        _internals.replace_array(old, new)
        assert not old.is_deleted() and old.dtype == new.dtype and (old == new).all()


@pytest.mark.skipif(not _internals.takes_trace_away(), reason="This JAX leaves threads their traces.")
def test_a_thread_that_was_left_without_a_trace_goes_on():
    def work():
        _internals.set_trace(None)
        found.append(float(jnp.ones(()) + 1))

    found = []
    _internals.restore_trace_after_interrupts()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [2.0]


def test_is_computed_does_not_wait():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x @ x), x))
    given = jnp.ones((500, 500))
    result = slow(given)
    assert not _internals.is_computed(result)
    result.block_until_ready()
    assert _internals.is_computed(result) and _internals.is_computed(given)
    given.delete()
    assert not _internals.is_computed(given)


def test_collectives_between_processors_are_made_by_a_factory_that_takes_an_address():
    registered = _internals._xla_bridge._backend_factories["cpu"]
    assert callable(registered.factory)
    assert list(inspect.signature(_internals._xla_bridge.make_cpu_client).parameters) == ["collectives"]
    assert "hostname: str | None" in _internals._jax.make_gloo_tcp_collectives.__doc__
    assert _internals.setting("jax_cpu_collectives_implementation") == "gloo"
    try:
        _internals.listen_for_collectives_on("127.0.0.1")
        changed = _internals._xla_bridge._backend_factories["cpu"]
        assert changed.factory is not registered.factory
        assert changed.factory().platform == "cpu", "a process alone has no collectives"
    finally:
        _internals._xla_bridge._backend_factories["cpu"] = registered


def test_the_client_that_is_given_collectives_is_made_within_what_surrounds_it(monkeypatch):
    registered, events = _internals._xla_bridge._backend_factories["cpu"], []

    @contextlib.contextmanager
    def note():
        events.append("entered")
        yield

    def factory(*collectives):
        return (*events, *collectives)

    monkeypatch.setitem(
        _internals._xla_bridge._backend_factories, "cpu", dataclasses.replace(registered, factory=factory)
    )
    monkeypatch.setattr(_internals._distributed.global_state, "client", "client")
    monkeypatch.setattr(_internals, "setting", {"jax_cpu_collectives_implementation": "gloo"}.get)
    monkeypatch.setattr(_internals._jax, "make_gloo_tcp_collectives", lambda **given: given)
    _internals.around_cpu_client(note)
    _internals.listen_for_collectives_on("127.0.0.1")
    made = _internals._xla_bridge._backend_factories["cpu"].factory()
    assert made == ("entered", {"distributed_client": "client", "hostname": "127.0.0.1"})


def test_around_cpu_client_holds_while_the_client_is_made():
    registered, events = _internals._xla_bridge._backend_factories["cpu"], []

    @contextlib.contextmanager
    def note():
        events.append("before")
        yield
        events.append("after")

    try:
        _internals.around_cpu_client(note)
        assert not events and _internals._xla_bridge._backend_factories["cpu"].factory().platform == "cpu"
        assert events == ["before", "after"]
        # Also where the client is given what carries collectives between processes.
        assert _internals._xla_bridge._backend_factories["cpu"].factory(None).platform == "cpu" and len(events) == 4
    finally:
        _internals._xla_bridge._backend_factories["cpu"] = registered


@pytest.mark.parametrize("own", [None, "--xla_cpu_use_xnnpack=false"])
def test_xla_flag_is_read_and_not_handed_on_and_separates_kept_programs(monkeypatch, own):
    monkeypatch.setattr(_internals._cache_key, "custom_hook", lambda: "the user's")
    read = []
    monkeypatch.setattr(_internals._jax, "CompileOptions", lambda: read.append(os.environ["XLA_FLAGS"]))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if own:
        monkeypatch.setenv("XLA_FLAGS", own)
    for _ in range(2):
        with _internals.xla_flag("--xla_new=1"):
            pass
    assert read == [f"{own} --xla_new=1" if own else "--xla_new=1"] * 2
    assert os.environ.get("XLA_FLAGS") == own
    assert _internals._cache_key.custom_hook() == "the user's --xla_new=1"


def test_xla_flag_leaves_a_file_of_flags_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "/a/file")
    with _internals.xla_flag("--xla_new=1"):
        assert os.environ["XLA_FLAGS"] == "/a/file"


def test_xla_reads_its_flags_once_from_the_environment_and_jax_keeps_programs_by_the_hook_too(run_script):
    ran = run_script("""
        import pathlib
        import jax
        from tfdist_jax import _internals
        jax.config.update("jax_compilation_cache_dir", "kept")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        def compile():
            jax.clear_caches()
            jax.jit(lambda x: x + 1).lower(1.0).compile()
            return len([*pathlib.Path("kept").glob("*-cache")])
        with _internals.xla_flag("--xla_dump_to=dumped"):
            pass
        counts = compile(), compile()
        _internals._cache_key.custom_hook = lambda: ""
        print(*counts, compile(), any(pathlib.Path("dumped").iterdir()))
    """)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", "1", "2", "True"]


def test_lowering_rule_is_that_of_the_platform_or_of_all():
    rules = _internals._mlir._platform_specific_lowerings["cpu"], _internals._mlir._lowerings
    assert (
        _internals.lowering_rule(jax.lax.conv_general_dilated_p, "cpu") is rules[0][jax.lax.conv_general_dilated_p].rule
    )
    assert _internals.lowering_rule(jax.lax.reduce_window_max_p, "tpu") is rules[1][jax.lax.reduce_window_max_p].rule


def test_breaks_by_exceptions_knows_where_caches_call_python():
    """JAX 0.10 goes on to raise RecursionError; where a later JAX survives an exception there, nothing needs to wait for it."""
    seen = []

    def interrupt(frame, event, arg):
        if event == "call" and _internals.breaks_by_exceptions(frame):
            seen.append(frame.f_code.co_filename)
            raise KeyboardInterrupt

    function = jax.jit(lambda x: jnp.sin(x) * 2)
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            function(1.0)
    finally:
        sys.settrace(before)
    assert len(seen) == 1 and seen[0].endswith("jax/_src/util.py")
    if jax.__version_info__ < (0, 11):
        with pytest.raises(RecursionError):
            function(1.0)
    assert not _internals.breaks_by_exceptions(sys._getframe())
    assert not _internals.breaks_by_exceptions(None)


@pytest.fixture
def seen_calls(by_xla_alone):
    """Programs that were asked for, with their options; each is run by JAX."""
    seen = []

    def call(by_jax, *arguments, jaxpr, **options):
        seen.append((jaxpr, options))
        return by_jax(*arguments, jaxpr=jaxpr, **options)

    undo = _internals.wrap_first_calls(call)
    yield seen
    undo()


def test_first_calls_are_those_that_have_no_executable_yet(seen_calls):
    program = jax.jit(lambda x: x + 21)
    for _ in range(3):
        assert program(jnp.zeros(2)).tolist() == [21, 21]
    # Eager operations, and those while something else is traced, are such programs too.
    jax.jit(lambda x: _internals.known_value(x) or x)(1.0)
    with _internals.computing_now():
        jnp.negative(jnp.zeros((3, 5, 7)))
    jaxprs = [jaxpr for jaxpr, _ in seen_calls]
    assert sum("21.0" in str(jaxpr) for jaxpr in jaxprs) == 1
    assert sum("neg" in str(jaxpr) for jaxpr in jaxprs) == 1
    assert all(isinstance(weakref.ref(jaxpr)(), type(jaxpr)) for jaxpr in jaxprs)


def test_results_without_executable_are_asked_for_each_time(by_xla_alone):
    calls = []

    def call(by_jax, *arguments, jaxpr, **options):
        calls.append(jaxpr)
        device = jax.devices()[1]
        arrays = [
            _internals.make_array(aval, np.full(aval.shape, 5, aval.dtype), device, True) for aval in jaxpr.out_avals
        ]
        return _internals.results_without_executable(arrays)

    undo = _internals.wrap_first_calls(call)
    try:
        program = jax.jit(lambda x: (x + 22, 2.0 * jnp.ones(3)))
        results = [program(np.float32(1)) for _ in range(3)]
    finally:
        undo()
    assert len({id(jaxpr) for jaxpr in calls}) == 1
    assert len(calls) == 3
    (first, second) = results[0]
    assert (first.tolist(), second.tolist()) == (5, [5, 5, 5])
    assert first.devices() == {jax.devices()[1]}
    assert first.committed
    assert program(np.float32(1))[0] == 23


@pytest.mark.parametrize("dtype", ["int64", "float64", "int32", "bool"])
def test_make_array_keeps_64_bits_while_they_are_switched_off(dtype):
    with jax.enable_x64(True):
        aval = jax.jit(lambda: jnp.ones(3, dtype)).trace().jaxpr.out_avals[0]
    array = _internals.make_array(aval, np.array([1, 0, 3], dtype), jax.devices()[0], False)
    assert (array.dtype, np.asarray(array).dtype, np.asarray(array).tolist()) == (
        dtype,
        dtype,
        np.array([1, 0, 3], dtype).tolist(),
    )


@pytest.mark.parametrize("dtype", ["int64", "float32", "float16", "bool", "uint8"])
def test_copy_to_device_gives_what_jax_gives_in_memory_of_its_own(dtype):
    value = np.array([[1, 0, 3]], dtype)
    array = _internals.copy_to_device(value)
    with jax.enable_x64(True):
        expected = jnp.array(value)
    assert (array.aval, array.sharding, array.committed) == (expected.aval, expected.sharding, False)
    value[0, 0] = 0
    assert np.asarray(array).tolist() == np.asarray(expected).tolist()
    with jax.default_device(jax.devices()[1]):
        assert _internals.copy_to_device(value).devices() == {jax.devices()[1]}
    assert _internals.copy_to_device(np.float32(2)[None][0:1].reshape(())).shape == ()


def test_copy_to_device_leaves_what_is_not_plain_to_jax():
    value = np.ones(4, np.float32)
    assert _internals.copy_to_device(value.astype(jnp.bfloat16)) is None
    with jax.set_mesh(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])):
        assert _internals.copy_to_device(value) is None
    with jax.default_device("cpu"):
        assert _internals.copy_to_device(value) is None


def test_make_array_keeps_weak_types():
    aval = jax.jit(lambda: 2.0).trace().jaxpr.out_avals[0]
    array = _internals.make_array(aval, np.asarray(3, np.float32), jax.devices()[0], False)
    assert (array.weak_type, array.committed, float(array)) == (True, False, 3)


@pytest.mark.parametrize(
    ("options", "is_plain"),
    [
        ({}, True),
        ({"static_argnums": 0}, True),
        ({"donate_argnums": 0}, False),
        ({"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])}, False),
        ({"compiler_options": {"xla_embed_ir_in_executable": True}}, False),
    ],
)
def test_plain_options_are_those_of_jit_alone(seen_calls, options, is_plain):
    jax.jit(lambda x: x - 23, **options)(1.0 if "static_argnums" in options else jnp.zeros(5))
    assert [_internals.has_plain_options(options) for _, options in seen_calls][-1] == is_plain


def test_programs_of_a_mesh_have_no_plain_options(seen_calls):
    with jax.set_mesh(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])):
        jax.jit(lambda x: x - 24)(jnp.zeros(5))
    assert not _internals.has_plain_options(seen_calls[-1][1])


def test_watches_calls_knows_jaxs_settings():
    assert not _internals.watches_calls()
    for watched in (
        jax.debug_nans(True),
        jax.debug_infs(True),
        jax.transfer_guard("disallow"),
        jax.transfer_guard("log"),
    ):
        with watched:
            assert _internals.watches_calls()
    with jax.transfer_guard("allow"):
        assert not _internals.watches_calls()


def test_scan_sizes_are_how_many_operands_are_constants_and_carried():
    def step(x, constant):
        return lax.scan(lambda carry, row: ((carry[0] + constant * row, -carry[1]), row), (x[0], x[0]), x)

    equation = jax.jit(step).trace(jnp.ones(3), 2.0).jaxpr.jaxpr.eqns[-1]
    assert _internals.scan_sizes(equation.params) == (1, 2)


def test_forget_all_calls_lets_programs_that_had_no_executable_find_their_short_way(by_xla_alone):
    is_compiled, asked = False, []

    def call(by_jax, *arguments, jaxpr, **options):
        asked.append(jaxpr)
        if is_compiled:
            return by_jax(*arguments, jaxpr=jaxpr, **options)
        array = _internals.make_array(jaxpr.out_avals[0], np.float32(26), jax.devices()[0], False)
        return _internals.results_without_executable([array])

    undo = _internals.wrap_first_calls(call)
    try:
        program = jax.jit(lambda x: x + 25)
        times_asked = lambda: [float(program(1.0)) for _ in range(3)].count(26) and len(asked)
        assert times_asked() == 3
        is_compiled = True
        assert times_asked() == 6
        assert _internals.kept_calls() > 0
        _internals.forget_all_calls()
        assert times_asked() == 7
    finally:
        undo()


def test_programs_are_compiled_for_devices_of_another_client():
    devices = _internals.make_cpu_client(12).devices()
    assert (len(devices), devices[0].platform, jax.device_count()) == (12, "cpu", 8)
    mesh = jax.sharding.Mesh(np.array(devices), "x")
    rows = jax.ShapeDtypeStruct((24,), "float32", sharding=jax.sharding.NamedSharding(mesh, jax.P("x")))
    compiled = jax.jit(lambda x: x.sum()).lower(rows).compile()
    assert "all-reduce" in compiled.as_text()
    assert compiled.memory_analysis().argument_size_in_bytes == 2 * 4


class Axis:
    """An axis name, as `jax.vmap` makes one."""

    def __enter__(self):
        _internals._core.trace_ctx.set_axis_env(_internals._core.trace_ctx.axis_env.extend_pure([("rows", 2)]))

    def __exit__(self, *error):
        _internals._core.trace_ctx.set_axis_env(_internals._core.top_axis_env)


BLOCKS_OF_JAX = {
    "axis": (Axis, lambda: _internals._core.trace_ctx.axis_env.axis_exists("rows")),
    "device": (lambda: jax.default_device(jax.devices()[-1]), lambda: jnp.zeros(()).devices()),
    "mesh": (
        lambda: jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("data",))),
        lambda: jax.sharding.get_abstract_mesh().axis_names,
    ),
    "names": (lambda: jax.named_scope("inner"), lambda: str(_internals._source_info_util.current_name_stack())),
    "older mesh": (lambda: Mesh(np.array(jax.devices()[:1]), ("data",)), lambda: _internals._mesh.thread_resources.env),
    "trace": (lambda: _internals.set_current_trace(_internals._core.EvalTrace()), _internals.current_trace),
    "transfers": (
        lambda: jax.transfer_guard_host_to_device("disallow"),
        lambda: is_refused(lambda: jnp.add(1, np.ones(1))),
    ),
    "types": (lambda: jax.enable_x64(True), lambda: jnp.asarray(np.float64(1)).dtype),
}


def is_refused(action):
    try:
        action()
    except Exception as error:
        return "Disallowed" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:`with mesh")
@pytest.mark.parametrize("name", BLOCKS_OF_JAX)
def test_blocks_of_jax_that_do_not_end_are_left_with_the_block_around(name):
    make, find = BLOCKS_OF_JAX[name]
    before = find()
    with pytest.raises(KeyError), restoring_thread_state():
        entered = make()
        entered.__enter__()
        assert find() != before
        raise KeyError
    assert find() == before
    with restoring_thread_state():  # One that ends puts nothing back.
        entered = make()
        entered.__enter__()
    assert find() != before
    entered.__exit__(None, None, None)
    assert find() == before
