"""Every private JAX name this project uses; nothing else may import `jax._src`.

`tests/test_internals.py` holds a contract test per name: a JAX release that drops or changes one
fails the test that carries its name.
"""

from jax._src import array as _array, core as _core, xla_bridge as _xla_bridge
from jax.core import Tracer
from jax.extend.linear_util import StoreException, WrappedFun

# What every JAX operation of a thread is handed to. The gradient tape is one more subclass.
Trace = _core.Trace

# The trace that computes at once: tells eager code from code inside a transformation.
EvalTrace = _core.EvalTrace

# The process's one EvalTrace: where a fresh thread starts and must end.
eval_trace = _core.eval_trace

# Context manager: runs a block on the given trace, then comes back to the one before.
set_current_trace = _core.set_current_trace


def current_trace() -> Trace:
    """The trace that this thread's next JAX operation goes to."""
    return _core.trace_ctx.trace


def set_trace(trace: Trace) -> None:
    """Send this thread's JAX operations to `trace` until told otherwise."""
    _core.trace_ctx.set_trace(trace)


def trace_of(tracer: Tracer) -> Trace:
    """The trace that a traced array belongs to."""
    return tracer._trace


# The class of arrays that hold values; the facade gives it TensorFlow's methods before JAX has started.
ArrayImpl = _array.ArrayImpl

# Whether JAX has started, so that devices and memory settings are fixed. Asking does not start it.
backends_are_initialized = _xla_bridge.backends_are_initialized


def has_run(fun: WrappedFun) -> bool:
    """Whether a flattened function, or rule of one, has been called and so knows the structure of its result."""
    try:
        return all(store.val is not None for store in fun.stores if store is not None)
    except StoreException:
        return False


def forget_run(fun: WrappedFun) -> None:
    """Undo what a call of a flattened function left: JAX wants either the function or its rule to have run."""
    for store in fun.stores:
        if store is not None:
            store.reset()
