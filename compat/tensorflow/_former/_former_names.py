"""Private functions of TensorFlow 2 and Keras 2 that programs use and that have no public name."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfdist_jax.compat.tensorflow._former._views import find_public

build_info = {"cuda_version": "", "cudnn_version": "", "is_cuda_build": False, "is_rocm_build": False}


def smart_cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None) -> Any:
    """Return what one of two functions gives: at once where the condition is known, else as `tf.cond`."""
    known = find_public("tf.get_static_value")(pred) if find_public("tf.is_tensor")(pred) else pred
    if known is None:
        return find_public("tf.cond")(pred, true_fn, false_fn)
    return true_fn() if known else false_fn()


def unknown_shape(rank: int | None = None) -> Any:
    """Return a shape of which nothing but the rank is known."""
    return find_public("tf.TensorShape")(None if rank is None else [None] * rank)


def is_resource_variable(var: Any) -> bool:
    """Whether this is a variable."""
    return isinstance(var, find_public("tf.Variable"))


def all_local_devices(num_gpus: int | None = None) -> list[str]:
    """Return the names of the GPUs, or where there are none, the processor's."""
    devices = find_public("tf.config").list_logical_devices
    return [device.name for device in (devices("GPU")[:num_gpus] or devices("CPU")[:1])]


def broadcast_weights(weights: Any, values: Any) -> Any:
    """Return weights in the shape of values.

    Raises:
        ValueError: If they have another rank, or a size that is neither the values' nor 1.
    """
    given, wanted = find_public("tf.convert_to_tensor")(weights), find_public("tf.convert_to_tensor")(values)
    sizes, whole = tuple(given.shape), tuple(wanted.shape)
    if sizes and (len(sizes) != len(whole) or any(a not in (b, 1) for a, b in zip(sizes, whole, strict=True))):
        raise ValueError(f"weights can not be broadcast to values. values.shape={whole}. weights.shape={sizes}.")
    return find_public("tf.broadcast_to")(given, whole)


def convert_variables_to_constants(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to make a graph without variables.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "There are no graphs whose variables could become constants. What a program computes and how long it takes tells "
        "`tfdist-jax explain`; `jax.export` writes a program to a file."
    )


def is_in_xla_context(graph: Any) -> bool:
    """Whether a graph is compiled by XLA as a whole: there are no graphs."""
    return False


def to_list(x: Any) -> list[Any]:
    """Return a list as it is, and anything else in one."""
    return x if isinstance(x, list) else [x]


def count_params(weights: Sequence[Any]) -> int:
    """Return how many numbers variables hold, each variable once."""
    distinct = {id(weight): weight for weight in weights}.values()
    return sum(math.prod(tuple(weight.shape)) for weight in distinct)


def shape_type_conversion(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that gets its shape as a tuple, and whose result is a `TensorShape`."""

    @functools.wraps(fn)
    def converting(self: Any, input_shape: Any) -> Any:
        shape = find_public("tf.TensorShape")
        given = tuple(input_shape.as_list()) if isinstance(input_shape, shape) else input_shape
        result = fn(self, given)
        return result if result is None else shape(result)

    return converting
