"""`tf.print`: shows values when they exist, also those of compiled functions."""

import builtins
import pprint
import sys
from typing import Any, final

import jax
import numpy as np
from jax.core import Tracer

from tfdist_jax._replica import is_per_replica
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor, is_tracing
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
    if len(inputs) == 1 and isinstance(inputs[0], HostTensor) and not inputs[0].ndim:
        inputs = (inputs[0].numpy().decode(errors="replace"),)  # A string by itself is printed as it is.
    leaves, tree = jax.tree.flatten(jax.tree.map(_with_parts, inputs, is_leaf=_is_leaf), is_leaf=_is_leaf)
    places = [i for i, leaf in enumerate(leaves) if is_tensor(leaf) and not _has_own_text(leaf)]
    tensors = [_array(leaves[i]) for i in places]

    def show(*values: Any) -> None:
        shown = [_Shown(_own_text(leaf, summarize), leaf) if _has_own_text(leaf) else leaf for leaf in leaves]
        for i, value in zip(places, map(np.asarray, values), strict=True):
            shown[i] = _Shown(array_text(value, summarize), value)
        _write(stream, separator.join(map(_layout, jax.tree.unflatten(tree, shown))) + end)

    if any(isinstance(tensor, Tracer) for tensor in tensors) or is_tracing():
        jax.debug.callback(show, *tensors)
    else:
        show(*tensors)


def _has_own_text(leaf: Any) -> bool:
    return isinstance(leaf, HostTensor) or (isinstance(leaf, Composite) and leaf.has_operators)


def _is_leaf(value: Any) -> bool:
    return is_tensor(value) or value is None or is_per_replica(value) or isinstance(value, Composite | _Shown)


@final
class _Shown:
    """A tensor and its text. While what it is within is laid out, it takes as much room as TensorFlow's mark for it, '{}'."""

    def __init__(self, text: str, value: Any = None, room: int = 4) -> None:
        self.text, self.value, self.room = text, value, room
        self.mark = ""

    def __repr__(self) -> str:
        return self.mark


def _layout(value: Any) -> str:
    """Write an input: lists and dictionaries over several lines if they are long."""
    if isinstance(value, str):
        return value
    plain = _plain(value)
    texts = [leaf for leaf in jax.tree.leaves(plain, is_leaf=_is_leaf) if isinstance(leaf, _Shown)]
    for number, shown in enumerate(texts):
        shown.mark = chr(_MARKS + number).rjust(shown.room, "\0")
    laid_out = pprint.pformat(plain)
    for shown in texts:
        laid_out = laid_out.replace(shown.mark, shown.text)
    return laid_out


# Where Unicode has letters for private use.
_MARKS = 0xF0000


def _plain(value: Any) -> Any:
    """Return what is laid out: lists in place of ranges, and texts in place of replicas' values and sparse tensors."""
    if isinstance(value, _Replicas):
        return _Shown(replicas_text("PerReplica", map(_replica_text, value)))
    if isinstance(value, _Sparse):
        indices, values, sizes = (part.text for part in value)
        write = "'SparseTensor(indices={}, values={}, shape={})'".format
        return _Shown(write(indices, values, sizes), room=len(write("{}", "{}", "{}")))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if type(value) is tuple:
        return tuple(map(_plain, value))
    return list(map(_plain, value)) if type(value) in (list, range) else value


def _replica_text(part: Any) -> str:
    is_number = isinstance(part, _Shown) and type(part.value) is np.ndarray
    return tensor_repr(part.value, part.value.dtype.name) if is_number else repr(getattr(part, "value", part))


@final
@jax.tree_util.register_pytree_node_class
class _Sparse(list):
    """The indices, values and sizes of a sparse tensor."""

    def tree_flatten(self) -> tuple[list[Any], None]:
        return list(self), None

    @classmethod
    def tree_unflatten(cls, nothing: None, values: Any) -> "_Sparse":
        return cls(values)


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
    if isinstance(leaf, SparseTensor):
        return _Sparse(map(convert_to_tensor, (leaf.indices, leaf.values, leaf.dense_shape)))
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


def _own_text(value: Any, summarize: int) -> str:
    return value.printed(summarize) if isinstance(value, Composite) else array_text(np.asarray(value), summarize)


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


_ESCAPES = {number: f"\\{number:03o}" for number in (*range(32), 127)}
_ESCAPES |= {ord(letter): f"\\{escape}" for letter, escape in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}


def _element(value: Any) -> str:
    if isinstance(value, bytes):
        return f'"{value.decode(errors="replace").translate(_ESCAPES)}"'
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
