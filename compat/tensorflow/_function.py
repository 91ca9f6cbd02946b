"""`tf.function`: Python functions of tensors, traced once per signature and compiled."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._calls import CallCache, is_traced

_run_eagerly = False


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Let functions decorated with `tf.function` run as plain Python, for debugging, or compiled again."""
    global _run_eagerly
    _run_eagerly = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """Tell whether `run_functions_eagerly(True)` is in force."""
    return _run_eagerly


@final
class Function:
    """A Python function whose calls run as one compiled program; made by `tf.function`.

    Tensors and NumPy arrays are inputs; other arguments are constants, a new value of which is traced anew.
    Variables that the function reads or writes are inputs and outputs too. Called inside another compiled
    function it becomes part of that.

    Differs from TensorFlow: Python `if`, `while` and `for` on tensors are not converted; `tf.cond` and
    `tf.while_loop` are.
    Ref: https://www.tensorflow.org/api_docs/python/tf/function
    """

    def __init__(
        self, python_function: Callable[..., Any], *, input_signature: Any = None, name: str | None = None
    ) -> None:
        """Compile `python_function` at its first call."""
        functools.update_wrapper(self, python_function)
        self._python_function = python_function
        self._input_signature = input_signature
        self._cache = CallCache()

    @property
    def python_function(self) -> Callable[..., Any]:
        """The function as it was written."""
        return self._python_function

    @property
    def input_signature(self) -> Any:
        """The signature given to `tf.function`, or None."""
        return self._input_signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, compiled unless it is part of a program or functions run eagerly."""
        if _run_eagerly or is_traced((args, kwargs)):
            return self._python_function(*args, **kwargs)
        return self._cache.call(self._python_function, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def experimental_get_tracing_count(self) -> int:
        """Return how often the Python function has been traced."""
        return self._cache.traces

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the program for these arguments without running it, as `jax.jit(fn).lower` does."""
        program, tensors = self._cache.find(self._python_function, args, kwargs)
        return program.lower(tensors)


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
    """Compile a Python function of tensors; also usable as a decorator with arguments.

    Args:
        func: The function, or None to get a decorator.
        input_signature: `tf.TensorSpec`s of the arguments, kept for inspection.
        autograph: Accepted; Python control flow on tensors is not converted yet.
        jit_compile: Accepted; every function is compiled by XLA.
        reduce_retracing: Accepted; programs are specialised to shapes, as XLA needs.
        experimental_implements: Accepted and unused.
        experimental_autograph_options: Accepted and unused.
        experimental_attributes: Accepted and unused.
        experimental_relax_shapes: Old name of `reduce_retracing`.
        experimental_compile: Old name of `jit_compile`.
        experimental_follow_type_hints: Accepted and unused.

    Returns:
        A `Function`, or a decorator that makes one.

    Example:
        >>> import tfdist_jax.compat.tensorflow as tf
        >>> double = tf.function(lambda x: 2 * x)
        >>> float(double(tf.constant(3.0)))
        6.0
    """
    decorate = functools.partial(Function, input_signature=input_signature)
    return decorate if func is None else decorate(func)


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Leave the program that is being traced: what runs inside is computed now."""
    with jax.ensure_compile_time_eval():
        yield
