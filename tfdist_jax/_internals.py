"""Every private JAX name this project uses; nothing else may import `jax._src`.

`tests/test_internals.py` holds one contract test per name, so that a JAX release which drops or
changes one says which.
"""

from jax._src.core import (
    # What every JAX operation is handed to; the gradient tape is one more of these.
    Trace as Trace,
)
from jax._src.core import (
    # The trace that computes at once: tells "eager" from "inside a transformation".
    EvalTrace as EvalTrace,
)
from jax._src.core import (
    # The one EvalTrace of the process; what a fresh thread starts on.
    eval_trace as eval_trace,
)
from jax._src.core import (
    # Context manager: run a block on another trace, then come back.
    set_current_trace as set_current_trace,
)
from jax._src.core import trace_ctx as _trace_ctx


def current_trace() -> Trace:
    """The trace of this thread that the next JAX operation goes to."""
    return _trace_ctx.trace


def set_trace(trace: Trace) -> None:
    """Send this thread's JAX operations to `trace` from now on (no block, unlike the above)."""
    _trace_ctx.set_trace(trace)
