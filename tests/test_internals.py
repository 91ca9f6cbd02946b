"""One contract per private JAX name: what this project relies on, stated and checked.

When a JAX release breaks one of these, the test's name says which name in `_internals.py` to mend.
"""

import gc
import subprocess
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tfdist_jax import _internals


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
def recorder():
    return Recorder(_internals.current_trace())


def test_current_trace_is_the_eval_trace_outside_transformations():
    assert _internals.current_trace() is _internals.eval_trace
    assert isinstance(_internals.eval_trace, _internals.EvalTrace)


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
        thread.join(timeout=30)
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
        thread.join(timeout=30)
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


def test_backends_are_initialized_tells_whether_jax_has_started():
    program = (
        "import jax; from tfdist_jax._internals import backends_are_initialized as started\n"
        "assert not started(); jax.devices(); assert started()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


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
