"""Shapes of symbolic tensors and of `build`: tuples, as in Keras 3, that also answer as the `TensorShape` they were in Keras 2."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, final

import jax
import keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow.keras._change import Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import backend, register_tree_node_class

_ANSWERED = {
    "as_list",
    "assert_has_rank",
    "assert_is_compatible_with",
    "assert_is_fully_defined",
    "assert_same_rank",
    "concatenate",
    "dims",
    "is_compatible_with",
    "is_fully_defined",
    "merge_with",
    "ndims",
    "num_elements",
    "rank",
    "with_rank",
    "with_rank_at_least",
    "with_rank_at_most",
}


@final
class ShapeTuple(tuple[int | None, ...]):
    """A shape, with None for sizes that are not known."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name not in _ANSWERED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        tell_old_form(f"`shape.{name}` of a symbolic tensor, or in `build`", "`tuple(shape)`", "methods of shapes")
        return getattr(TensorShape(tuple(self)), name)

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return ShapeTuple(found) if isinstance(key, slice) else found

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)

    def tree_flatten(self) -> tuple[tuple[int | None, ...], None]:
        """Return the sizes: Keras's structures are made of tuples, too."""
        return tuple(self), None

    @classmethod
    def tree_unflatten(cls, metadata: None, children: Iterable[Any]) -> Any:
        """Return a tuple of what a function has made of the sizes."""
        return tuple(children)


ShapeTuple.__name__ = ShapeTuple.__qualname__ = "tuple"  # What programs and messages show of a shape is Keras 3's.
register_tree_node_class(ShapeTuple)
jax.tree_util.register_pytree_node(ShapeTuple, ShapeTuple.tree_flatten, ShapeTuple.tree_unflatten)


def _answering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def standardize_shape(shape: Any) -> ShapeTuple:
        if isinstance(shape, int):
            tell_old_form("a shape that is one number", f"`shape=({shape},)`")
            shape = (shape,)
        return ShapeTuple(original(shape))

    return standardize_shape


def _building_with_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a layer that is loaded with shapes of the kind that it was built with first."""

    @functools.wraps(original)
    def build_from_config(self: keras.Layer, config: Any) -> Any:
        return original(self, _as_shapes(config))

    return build_from_config


def _as_shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_shapes(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        is_shape = all(size is None or isinstance(size, int) for size in value)
        return ShapeTuple(value) if is_shape else type(value)(map(_as_shapes, value))
    return value


CHANGES: tuple[Change, ...] = (
    Hook(backend, "standardize_shape", _answering, "shape", "shapes answer as Keras 2's"),
    Hook(keras.Layer, "build_from_config", _building_with_shapes, "self config", "the same for layers that are loaded"),
)
