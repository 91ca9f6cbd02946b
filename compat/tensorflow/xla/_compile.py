"""Functions and scopes that XLA compiles."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from tfdist_jax.compat.tensorflow._functions._function import function
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tracing


def compile(computation: Callable[..., Any], inputs: Any = None) -> Any:
    """Run a function as one compiled program.

    Args:
        computation: Takes the inputs, returns tensors.
        inputs: A list or tuple of tensors.

    Returns:
        What the function returns: a mapping as it is, of a sequence the list of its tensors, a single tensor in a list;
        None for None.

    Raises:
        TypeError: If `inputs` is no list or tuple.

    Ref: https://www.tensorflow.org/api_docs/python/tf/xla/experimental/compile.
    """
    if not isinstance(inputs, list | tuple | None):
        raise TypeError("inputs must be a list or tuple")
    results = function(computation)(*(convert_to_tensor(value) for value in inputs or ()))
    if results is None or isinstance(results, Mapping):
        return results
    tensors = list(results) if isinstance(results, list | tuple) else [results]
    return jax.tree.map(convert_to_tensor, tensors)


@contextlib.contextmanager
def jit_scope(compile_ops: bool = True, separate_compiled_gradients: bool = False) -> Iterator[None]:
    """Do nothing: all operations of a function are compiled together, whatever `compile_ops` says of them.

    Raises:
        RuntimeError: Outside of a `tf.function`, as in TensorFlow.

    Ref: https://www.tensorflow.org/api_docs/python/tf/xla/experimental/jit_scope.
    """
    if not is_tracing():
        raise RuntimeError(
            "xla.experimental.jit_scope is not supported when eager execution is enabled. Use a tf.function."
        )
    yield
