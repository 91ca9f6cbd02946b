"""`tf.print`: shows values when they exist, also those of compiled functions."""

import builtins
import sys
from typing import Any, final

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax._replica import is_per_replica
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor, is_tracing
from tfdist_jax.compat.tensorflow._tensors._tensor_text import replicas_text, tensor_repr


def print(*inputs: Any, **kwargs: Any) -> None:
    """Print values, to the standard error by default.

    In a compiled function the values are printed when it runs, once per replica, not always in order.
    See https://www.tensorflow.org/api_docs/python/tf/print.

    Args:
        *inputs: What to print: tensors, or structures that hold them, or anything else.
        **kwargs: `output_stream` (sys.stderr, sys.stdout, tf.compat.v1.logging.info, ... or "file://PATH"),
            `summarize` (how many elements at both ends of an axis, 3; -1 for all), `sep`, `end`; `name` is unused.
    """
    stream, summarize = kwargs.pop("output_stream", sys.stderr), kwargs.pop("summarize", 3)
    separator, end = kwargs.pop("sep", " "), kwargs.pop("end", "\n")
    kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    leaves, tree = jax.tree.flatten(jax.tree.map(_with_parts, inputs, is_leaf=_is_leaf), is_leaf=_is_leaf)
    places = [i for i, leaf in enumerate(leaves) if is_tensor(leaf) and not _has_own_text(leaf)]
    tensors = [_array(leaves[i]) for i in places]

    def show(*values: Any) -> None:
        shown = list(leaves)
        for i, value in zip(places, values, strict=True):
            shown[i] = np.asarray(value)
        words = [_text(item, summarize) for item in jax.tree.unflatten(tree, shown)]
        _write(stream, separator.join(words) + end)

    if any(isinstance(tensor, Tracer) for tensor in tensors) or is_tracing():
        jax.debug.callback(show, *tensors)
    else:
        show(*tensors)


def _has_own_text(leaf: Any) -> bool:
    return isinstance(leaf, HostTensor) or (isinstance(leaf, Composite) and leaf.has_operators)


def _is_leaf(value: Any) -> bool:
    return is_tensor(value) or value is None or is_per_replica(value) or isinstance(value, Composite)


@final
@jax.tree_util.register_pytree_node_class
class _Replicas(list):
    """The values of replicas, each of which is printed by its own."""

    def tree_flatten(self) -> tuple[list[Any], None]:
        return list(self), None

    @classmethod
    def tree_unflatten(cls, nothing: None, values: Any) -> "_Replicas":
        return cls(values)


def _with_parts(leaf: Any) -> Any:
    return _Replicas(leaf.values) if is_per_replica(leaf) else leaf


def _array(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else value.__jax_array__()


def _write(stream: Any, text: str) -> None:
    if isinstance(stream, str):
        _write_to_path(stream, text)
    elif callable(stream):
        stream(text)
    else:
        builtins.print(text, end="", file=stream, flush=True)


def _write_to_path(path: str, text: str) -> None:
    if not path.startswith("file://"):
        raise ValueError(f"`output_stream` is a stream, a logging function or 'file://PATH', got {path!r}.")
    with open(path.removeprefix("file://"), "a") as file:
        file.write(text)


def _text(value: Any, summarize: int) -> str:
    """Write a value as TensorFlow does: arrays without commas, floats as short as they can be."""
    if isinstance(value, _Replicas):
        is_array = lambda part: isinstance(part, np.ndarray) and not isinstance(part, HostTensor)
        return replicas_text("PerReplica", (tensor_repr(v, v.dtype.name) if is_array(v) else repr(v) for v in value))
    if isinstance(value, np.ndarray | np.generic):
        return array_text(np.asarray(value), summarize)
    if isinstance(value, Composite):
        return value.printed(summarize)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item, summarize)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        left, right = "[]" if isinstance(value, list) else "()"
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return left + ", ".join(_quoted(item, summarize) for item in value) + comma + right
    return str(value)


def _quoted(value: Any, summarize: int) -> str:
    return f"'{value}'" if isinstance(value, str) else _text(value, summarize)


def array_text(array: Any, summarize: int) -> str:
    """Write an array with `summarize` elements at both ends of each axis; all if it is negative."""
    if np.ndim(array) == 0:
        return _element(array[()] if isinstance(array, np.ndarray) else array)
    edge = max(array.shape) if summarize < 0 else summarize
    shown = [array_text(part, summarize) for part in array[:edge]]
    if len(array) > 2 * edge:
        shown += ["...", *(array_text(part, summarize) for part in array[len(array) - edge :])]
    else:
        shown += [array_text(part, summarize) for part in array[edge:]]
    separator = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " "
    # Inner lines are indented by one blank for each bracket that is open.
    return "[" + separator.join(text.replace("\n", "\n ") if array.ndim > 1 else text for text in shown) + "]"


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return f'"{value.decode(errors="replace")}"'
    if isinstance(value, np.bool_):
        return str(int(value))
    return _float(value) if as_dtype(value.dtype).is_floating else str(value)


def _float(value: Any) -> str:
    """Write as many digits as it takes to get the number back: few, or else all."""
    wide = isinstance(value, np.float64)
    number, few, all_digits = (float(value), 15, 17) if wide else (float(value), 6, 9)
    short = f"{number:.{few}g}"
    same = np.float64(short) == number if wide else np.float32(short) == np.float32(number)
    return short if same or number != number else f"{number:.{all_digits}g}"
