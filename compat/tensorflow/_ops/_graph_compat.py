"""Names and orders of operations, and Python functions among them."""

import builtins
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, final

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._ops._elementwise import identity
from tfdist_jax.compat.tensorflow._platform._errors import (
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
    UnknownError,
)
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tracing

_scopes: ContextVar[str] = ContextVar("name_scope", default="")


@final
class name_scope:
    """A context whose name XLA's profiles and dumps show for the operations inside.

    A name that ends in "/" is that of a whole scope, wherever it is entered; an empty name leaves all scopes. The same
    scope can be entered again while it is open.
    """

    def __init__(self, name: str) -> None:
        """Name the scope.

        Raises:
            ValueError: If `name` is not a string.
        """
        if not isinstance(name, str):
            raise ValueError(f"name_scope takes a name, got {name!r}.")
        self._name = name
        self._entered: list[contextlib.ExitStack] = []

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    def __enter__(self) -> str:
        """Return the name with those of the scopes around, ending in "/"."""
        around, name = _scopes.get(), self._name
        full = name if not name or name.endswith("/") else f"{around}{name}/"
        contexts = contextlib.ExitStack()
        _scopes.set(full)
        contexts.callback(_scopes.set, around)  # A token is of one context; a generator may be closed in another.
        if shown := full.removeprefix(around).rstrip("/"):
            contexts.enter_context(jax.named_scope(shown))
        self._entered.append(contexts)
        return full

    def __exit__(self, *exception: Any) -> None:
        """Leave the scope."""
        self._entered.pop().close()


def get_current_name_scope() -> str:
    """Return the name of the scopes around."""
    return _scopes.get().rstrip("/")


@contextlib.contextmanager
def control_dependencies(control_inputs: Any) -> Iterator[None]:
    """Do nothing: what a function does to variables is in the order of its lines anyway."""
    for dependency in control_inputs or ():
        if callable(dependency):
            dependency()
    yield


def group(*inputs: Any, **kwargs: Any) -> None:
    """Do nothing: the operations have run, or are part of the program, already."""


def no_op(name: str | None = None) -> None:
    """Do nothing."""


def tuple(tensors: Any, control_inputs: Any = None, name: str | None = None) -> list[Any]:
    """Return the tensors as a list."""
    return [None if tensor is None else identity(tensor) for tensor in tensors]


def executing_eagerly() -> bool:
    """Whether operations compute at once: true outside of functions that are being traced."""
    return not is_tracing()


def inside_function() -> bool:
    """Whether the code is part of a function that is being traced."""
    return is_tracing()


# TensorFlow's errors for those of Python functions; others are unknown ones.
_KINDS: dict[type[Exception], type[OpError]] = {
    TypeError: InvalidArgumentError,
    ValueError: InvalidArgumentError,
    StopIteration: OutOfRangeError,
    MemoryError: ResourceExhaustedError,
    NotImplementedError: UnimplementedError,
}


def py_function(
    func: Callable[..., Any] | None = None, inp: Any = None, Tout: Any = None, name: str | None = None
) -> Any:
    """Return `func(*inp)` as tensors of types `Tout`; `func` gets tensors that have values.

    A function that calls it runs as Python: the sizes of the result are not known while it is traced. Without `func` it
    is a decorator.
    """
    if func is None:
        return lambda func: functools.wraps(func)(lambda *inp: py_function(func, inp, Tout))
    return _call_python(func, [convert_to_tensor(value) for value in inp or ()], Tout, "tf.py_function")


def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Return `func(*inp)` as tensors of types `Tout`; `func` gets NumPy arrays. Without `func` it is a decorator."""
    if func is None:
        return lambda func: functools.wraps(func)(lambda *inp: numpy_function(func, inp, Tout))
    tensors = [convert_to_tensor(value) for value in inp or ()]
    known = [t if isinstance(t, Tracer) else np.asarray(t) for t in tensors]
    return _call_python(func, known, Tout, "tf.numpy_function")


def _call_python(func: Any, arguments: list[Any], wanted: Any, name: str) -> Any:
    if is_tracing() or any(isinstance(argument, Tracer) for argument in arguments):
        raise ConcreteValueRequiredError(
            f"{name} calls Python whenever the function runs, and gives tensors of unknown shape, which XLA cannot compile. Call the "
            "function outside of tf.function, in Dataset.map, or use jax.pure_callback with the result's shape."
        )
    # A call of `numpy_function` outside of a graph is Python's own.
    is_plain = name == "tf.numpy_function" and current_scope() is None
    results = func(*arguments) if is_plain else _with_tensorflows_errors(func, arguments)
    if wanted is None:
        return None
    if isinstance(wanted, list | builtins.tuple):
        listed = results if isinstance(results, list | builtins.tuple) else [] if results is None else [results]
        return [convert_to_tensor(result, dtype) for result, dtype in zip(listed, wanted, strict=True)]
    return convert_to_tensor(results, wanted)


def _with_tensorflows_errors(func: Any, arguments: list[Any]) -> Any:
    """Call a Python function; what it raises is TensorFlow's error of that kind."""
    try:
        return func(*arguments)
    except (OpError, ConcreteValueRequiredError, jax.errors.JAXTypeError):
        raise
    except Exception as error:
        kind = next((kind for raised, kind in _KINDS.items() if isinstance(error, raised)), UnknownError)
        raise kind(None, None, f"{type(error).__name__}: {error}") from error


def guarantee_const(input: Any, name: str | None = None) -> Any:
    """Return the tensor; XLA finds out itself what is constant."""
    return convert_to_tensor(input)


def timestamp(name: str | None = None) -> Any:
    """Return the seconds since 1970, float64; in a function those when it runs."""
    now = lambda: np.float64(time.time())
    return numpy_function(now, [], _dtypes.float64) if is_tracing() else convert_to_tensor(now())


@final
class CriticalSection:
    """Runs functions one after another, which effects of a program do anyway.

    Ref: https://www.tensorflow.org/api_docs/python/tf/CriticalSection.
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: Any = None,
        import_scope: Any = None,
    ) -> None:
        """Keep the name."""
        self.name = name or shared_name or "critical_section"
        self._lock = threading.RLock()

    def execute(self, fn: Any, exclusive_resource_access: bool = True, name: str | None = None) -> Any:
        """Return `fn()`, which no other thread runs in this section at the same time."""
        if not callable(fn):
            raise TypeError(f"Argument `fn` must be callable. Received: {fn}")
        with self._lock:
            return fn()
