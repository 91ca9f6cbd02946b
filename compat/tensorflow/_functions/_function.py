"""`tf.function`: Python functions of tensors, traced once per signature and compiled."""

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax._stateful._state import leaving_programs
from tfdist_jax._thread_state import restoring_variables
from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted, converting, with_features
from tfdist_jax.compat.tensorflow._functions._calls import CallCache, is_input, is_traced, signature
from tfdist_jax.compat.tensorflow._functions._closure_guard import ById
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._retracing import trace_counter
from tfdist_jax.compat.tensorflow._functions._signatures import CallForm, run_unchanged
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, entering_scope
from tfdist_jax.compat.tensorflow._platform._errors import InaccessibleTensorError, OperatorNotAllowedInGraphError
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._host_part import is_stood_for
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_spec import PerReplicaSpec
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._variable_creators import noting_creations

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

    Python `if`, `while` and `for` on tensors become part of the program. Elements of a dataset's iterator are inputs, which are taken
    before each run, in the order of the function; if there is none, the function runs as Python up to there. A function that iterates
    over a dataset, or asks for elements in the program's loops and conditionals, runs as Python around the compiled functions and
    strategy steps that it calls. So does one whose shapes depend on values, or with a gradient through a `while` loop without a bound:
    XLA's programs have neither.
    Ref: https://www.tensorflow.org/api_docs/python/tf/function
    """

    def __init__(
        self,
        python_function: Callable[..., Any],
        *,
        input_signature: Any = None,
        autograph: bool = True,
        features: frozenset[Any] = with_features(None),
        owner: Callable[[], Any] | None = None,
    ) -> None:
        """Compile `python_function` at its first call.

        Args:
            python_function: The function.
            input_signature: `tf.TensorSpec`s that the arguments must fit, or None.
            autograph: Whether its control flow is converted.
            features: What is converted besides.
            owner: Returns the object whose method it is, or None.
        """
        functools.update_wrapper(self, python_function)
        self._function = python_function
        self._name = getattr(python_function, "__name__", "function")
        self._owner = owner
        self._input_signature = input_signature
        self._autograph, self._features = autograph, features
        self._form = CallForm(self.python_function, input_signature)
        if owner is not None and self._form.signature is not None:
            self.__signature__ = self._form.signature  # That of what it wraps has `self`, which a method's has not.
        self._cache = CallCache(own_random=True, run=functools.partial(run_unchanged, self._name, self._form))
        self._trace_counter = trace_counter(python_function)
        self._concrete: dict[Any, ConcreteFunction] = {}
        self._bound: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()

    @property
    def python_function(self) -> Callable[..., Any]:
        """The function as it was written."""
        return self._of_owner(self._function)

    def _of_owner(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self._owner is None else types.MethodType(function, self._owner())

    @property
    def input_signature(self) -> Any:
        """The signature given to `tf.function`, or None."""
        return self._input_signature

    @property
    def function_spec(self) -> CallForm:
        """The form of its calls."""
        return self._form

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, compiled unless it is part of a program or functions run eagerly."""
        if _run_eagerly:
            return self.python_function(*args, **kwargs)
        args, kwargs = self._form.of(args, kwargs)
        with restoring_variables(), converting(self._autograph, self._features):
            if is_traced((args, kwargs)):
                return run_unchanged(self._name, self._form, self._traceable, args, kwargs)
            return self._run(args, kwargs)

    def _run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        traces = self._cache.traces
        try:
            results = self._cache.call(self._traceable, args, kwargs)
        except jax.errors.TracerBoolConversionError as error:
            raise OperatorNotAllowedInGraphError(
                f"Using a tensor as a Python `bool` is not allowed in {self._name}(), which is being traced: its value is "
                "not known yet. Use tf.cond, or let AutoGraph convert the function that does it."
            ) from error
        except jax.errors.UnexpectedTracerError as error:
            raise InaccessibleTensorError(
                f"{self._name}() uses a tensor of another function, which is out of scope: it had no value but in that "
                "function's program. Return it from there instead of keeping it in a variable, list or attribute."
            ) from error
        if self._cache.traces == traces:
            self._trace_counter.calls += 1
        else:
            self._trace_counter.count_trace(self._name)
            self._concrete_of(args, kwargs)
        return results

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the program for arguments in the form of its calls, and their tensors.

        Raises:
            NotCompilableError: If the function has to run as Python.
        """
        with converting(self._autograph, self._features):
            return self._cache.find(self._traceable, args, kwargs)

    @property
    def _traceable(self) -> Callable[..., Any]:
        return self._of_owner(self._converted)

    @functools.cached_property
    def _converted(self) -> Callable[..., Any]:
        if not self._autograph:
            return self._function
        with converting(True, self._features):
            return converted(self._function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of `instance`, whose programs are its own."""
        if instance is None:
            return self
        try:
            if instance not in self._bound:
                self._bound[instance] = self._method(weakref.ref(instance))
            return self._bound[instance]
        except TypeError:  # Not hashable, or without weak references.
            return self._method(lambda: instance)

    def _method(self, owner: Callable[[], Any]) -> "Function":
        return Function(
            self._function,
            input_signature=self._input_signature,
            autograph=self._autograph,
            features=self._features,
            owner=owner,
        )

    def _decorate(self, decorator: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put a decorator around the Python function, as Sonnet does with its modules' methods.

        Raises:
            ValueError: If the function has been traced.
        """
        if self._cache.traces or self._concrete:
            raise ValueError(f"Functions cannot be decorated after they have been traced: {self._name}().")
        decorated = decorator(self._function)
        if not hasattr(decorated, "__wrapped__"):
            functools.update_wrapper(decorated, self._function)
        self._function = decorated

    def __getstate__(self) -> dict[str, Any]:
        """Return what it was made of: programs are of their process, and of this function."""
        return {
            "python_function": self._function,
            "input_signature": self._input_signature,
            "autograph": self._autograph,
            "features": self._features,
            "owner": self._owner and self._owner(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        owner = state["owner"]
        self.__init__(**{**state, "owner": None if owner is None else lambda: owner})

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Return the function for one signature: tensors or `tf.TensorSpec`s, and constants."""
        if self._input_signature is not None and not args and not kwargs:
            args = tuple(self._input_signature)
        args, kwargs = self._form.of(args, kwargs)
        concrete, is_new = self._concrete_of(args, kwargs)
        if is_new:
            concrete.trace()
        return concrete

    def _concrete_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ConcreteFunction, bool]:
        """Return the function for a call's signature, and whether it is new."""
        joined = lambda leaf: leaf.joined() if isinstance(leaf, PerReplicaSpec) else leaf
        is_spec = lambda leaf: isinstance(leaf, TensorSpec)
        given = jax.tree.map(joined, in_order((tuple(args), dict(kwargs))), is_leaf=is_spec)
        leaves, tree = jax.tree.flatten(given, is_leaf=is_spec)
        spec_of = lambda leaf: TensorSpec.from_tensor(convert_to_tensor(leaf))
        leaves = [spec_of(leaf) if is_input(leaf) or isinstance(leaf, HostTensor) else leaf for leaf in leaves]
        # An iterator is a constant of a function for one signature.
        kind_of = lambda leaf: ById(leaf) if is_stood_for(leaf) else signature(leaf)
        key = (tree, *(repr(leaf) if isinstance(leaf, TensorSpec) else kind_of(leaf) for leaf in leaves))
        is_new = key not in self._concrete
        if is_new:
            args, kwargs = restore_dict_order(tree.unflatten(leaves))
            owner = self._owner and self._owner()
            self._concrete[key] = ConcreteFunction(self._name, self._form, self._run, self.find, args, kwargs, owner)
        return self._concrete[key], is_new

    @property
    def concrete_functions(self) -> list[ConcreteFunction]:
        """The function for each signature that it was called with, or asked for; that of its `input_signature` in any case."""
        if self._input_signature is not None and not self._concrete:
            self.get_concrete_function()
        return list(self._concrete.values())

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """Return, as a string, what the function takes and returns for each signature that it was compiled for."""
        texts = [concrete.pretty_printed_signature(verbose) for concrete in self._concrete.values()]
        return ("\n\n" if verbose else "\n").join(texts)

    def experimental_get_tracing_count(self) -> int:
        """Return how often the Python function has been traced."""
        return self._cache.traces

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower the program for these arguments without running it, as `jax.jit(fn).lower` does."""
        program, tensors = self.find(*self._form.of(args, kwargs))
        return program.lower(tensors)

    def experimental_get_compiler_ir(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """Return a function of a stage, "hlo" or "optimized_hlo", that returns the program's text for these arguments."""
        lowered = self.lower(*args, **kwargs)

        def text(stage: str = "hlo", device_name: str | None = None, platform_name: str | None = None) -> str:
            texts = {"hlo": lambda: lowered.as_text("hlo"), "optimized_hlo": lambda: lowered.compile().as_text()}
            if stage not in texts:
                raise ValueError(f"Stage {stage!r} is not one of {sorted(texts)}.")
            return texts[stage]()

        return text


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
        input_signature: `tf.TensorSpec`s, in structures, that the arguments must fit. Python numbers become tensors.
        autograph: Whether Python control flow on tensors becomes part of the program.
        jit_compile: Accepted; every function is compiled by XLA.
        reduce_retracing: Accepted; programs are specialised to shapes, as XLA needs.
        experimental_implements: Accepted and unused.
        experimental_autograph_options: `tf.autograph.experimental.Feature`s: `BUILTIN_FUNCTIONS` lets `print` of a tensor
            print when the function runs, rather than when it is traced.
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
    decorate = functools.partial(
        Function,
        input_signature=input_signature,
        autograph=autograph,
        features=with_features(experimental_autograph_options),
    )
    return decorate if func is None else decorate(func)


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Leave the program that is being traced: what runs inside is computed now, and no tape sees it."""
    with leaving_programs(), entering_scope(current_strategy()), noting_creations():
        yield
