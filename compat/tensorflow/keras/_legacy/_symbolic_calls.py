"""TensorFlow's functions, called on the symbolic tensors of a functional model: a call becomes an operation, as in Keras 2.

Sizes that `tf.shape` gives stay what they are, host values, through the calculations with them: so they can be parts of
shapes. Their symbolic tensors remember how they were made, and what takes them makes them again within its own trace.
"""

import functools
import importlib
import operator
from collections.abc import Callable, Iterator
from typing import Any, final

import keras
import keras._tf_keras.keras as tf_keras
import numpy as np

from tfdist_jax.compat.tensorflow._names import _symbolic
from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow._names._symbolic import PLACE
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow.keras._change import Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import KerasTensor, backend, legacy_backend

# These ask something about a symbolic tensor, or make one.
_ABOUT = (
    "int_shape ndim dtype is_keras_tensor is_tensor is_variable is_sparse count_params eval get_value "
    "set_value variable constant batch_get_value batch_set_value placeholder function gradients "
    "learning_phase clear_session in_train_phase in_test_phase get_uid reset_uids cast_to_floatx epsilon "
    "floatx image_data_format set_epsilon set_floatx set_image_data_format backend name_scope rnn result_type "
    "standardize_dtype update update_add update_sub"
)


_NAMESPACES = ("tfdist_jax.compat.tensorflow.", f"{tf_keras.backend.__name__}.")


@keras.saving.register_keras_serializable("tensorflow")
class TFOpLambda(keras.Operation):
    """An operation of a functional model that calls a function of TensorFlow's, or of Keras 2's backend.

    Args:
        function: The function, or its module and name, as "module:name".
        name: The operation's name.
    """

    def __init__(self, function: Callable[..., Any] | str, name: str | None = None) -> None:
        super().__init__(name=name)
        self._where = function if isinstance(function, str) else _where(function)
        found = find_function(function) if isinstance(function, str) else function
        if found is None:
            raise ValueError(f"A model may call functions of TensorFlow that compute tensors; {function!r} is none.")
        self._function = found

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return symbolic tensors for the results: host values remember this call."""
        roots = list({id(root): root for root in _roots((args, kwargs))}.values())
        are_sizes: list[bool] = []

        def of_roots(*values: Any) -> Any:
            known = {id(root): value for root, value in zip(roots, values, strict=True)}
            result = self.call(*_filled(args, known), **_filled(kwargs, known))
            are_sizes[:] = [isinstance(leaf, HostTensor) for leaf in keras.tree.flatten(result)]
            return keras.tree.map_structure(_array_like, result)

        outputs = backend.compute_output_spec(of_roots, *map(_dense, roots))
        flat = [
            Sizes(leaf, (self, args, kwargs), i) if are_sizes[i] else leaf
            for i, leaf in enumerate(keras.tree.flatten(outputs))
        ]
        return keras.tree.pack_sequence_as(outputs, flat)

    def get_config(self) -> dict[str, Any]:
        """Return where the function is found."""
        return {"name": self.name, "function": self._where}


def find_function(where: str) -> Callable[..., Any] | None:
    """Return the function at "module:name" if it computes tensors; None for any other, which a file must not call."""
    module, _, name = where.partition(":")
    if where == _where(slice_tensor):
        return slice_tensor
    if module == operator.add.__module__:
        return getattr(operator, name) if name in (*_ARITHMETIC, "getitem", "neg") else None
    if not f"{module}.".startswith(_NAMESPACES):
        return None
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None
    return function if PLACE in getattr(function, "__dict__", ()) else None


def slice_tensor(tensor: Any, slice_spec: Any) -> Any:
    """Return a part of a tensor, with the indices as Keras 2 saved them: slices are dictionaries."""

    def index_of(one: Any) -> Any:
        if not isinstance(one, dict):
            return one
        return slice(one["start"], one["stop"], one["step"]) if "start" in one else Ellipsis

    return tensor[tuple(map(index_of, slice_spec)) if isinstance(slice_spec, list | tuple) else index_of(slice_spec)]


def _where(function: Any) -> str:
    """Return the module and name under which a function is found."""
    return getattr(function, PLACE, f"{function.__module__}:{function.__name__}")


@final
class Sizes(KerasTensor):
    """A symbolic tensor of sizes, which are known while a program is traced."""

    def __init__(self, like: KerasTensor, made_by: tuple[TFOpLambda, Any, Any], index: int) -> None:
        super().__init__(like.shape, like.dtype)
        self.made_by, self.index = made_by, index

    def make(self, known: dict[int, Any]) -> Any:
        """Return the sizes again, from the values of what they come from."""
        if id(self) not in known:
            operation, args, kwargs = self.made_by
            result = operation.call(*_filled(args, known), **_filled(kwargs, known))
            known[id(self)] = keras.tree.flatten(result)[self.index]
        return known[id(self)]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return int(self.shape[0] or 0)


def _of_sizes(function: Callable[..., Any], turned: bool = False) -> Callable[..., Any]:
    def method(self: Sizes, *others: Any) -> Any:
        return TFOpLambda(function)(*((*others, self) if turned else (self, *others)))

    return method


_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "truediv")
for _name in (*_ARITHMETIC, "getitem", "neg"):
    setattr(Sizes, f"__{_name}__", _of_sizes(getattr(operator, _name)))
for _name in _ARITHMETIC:
    setattr(Sizes, f"__r{_name}__", _of_sizes(getattr(operator, _name), turned=True))


def _array_like(value: Any) -> Any:
    return np.zeros(value.shape, np.int32) if isinstance(value, HostTensor) else value


def _dense(root: Any) -> KerasTensor:
    """Return a symbolic tensor that is sparse only if a sparse input is: Keras takes the product with a number for sparse, too."""
    is_input = isinstance(root._keras_history.operation, keras.layers.InputLayer)
    return root if is_input or not root.sparse else KerasTensor(root.shape, root.dtype)


def _roots(structure: Any) -> Iterator[KerasTensor]:
    """Yield the symbolic tensors of values in a call, those behind sizes included."""
    for leaf in keras.tree.flatten(structure):
        if isinstance(leaf, Sizes):
            yield from _roots(leaf.made_by[1:])
        elif isinstance(leaf, KerasTensor):
            yield leaf


def _filled(structure: Any, known: dict[int, Any]) -> Any:
    def fill(leaf: Any) -> Any:
        if isinstance(leaf, Sizes):
            return leaf.make(known)
        return known[id(leaf)] if isinstance(leaf, KerasTensor) else leaf

    return keras.tree.map_structure(fill, structure)


def has_symbols(structure: Any) -> bool:
    """Whether there is a symbolic tensor among arguments."""
    return any(isinstance(leaf, KerasTensor) for leaf in keras.tree.flatten(structure))


def _call_on_symbols(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not has_symbols((args, kwargs)):
        return NotImplemented
    tell_old_form("a function of TensorFlow's on a symbolic tensor", "`keras.ops`, or a layer that calls the function")
    return TFOpLambda(function)(*args, **kwargs)


def _taking_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:
        result = _call_on_symbols(taking, args, kwargs) if has_symbols((args, kwargs)) else NotImplemented
        return function(*args, **kwargs) if result is NotImplemented else result

    setattr(taking, PLACE, f"{tf_keras.backend.__name__}:{function.__name__}")
    return taking


def _backend_functions() -> Iterator[Change]:
    for name, value in vars(tf_keras.backend).items():
        if (
            getattr(value, "__module__", None) == legacy_backend.__name__
            and callable(value)
            and name not in _ABOUT.split()
        ):
            yield Hook(tf_keras.backend, name, _taking_symbols, "", "also symbolic tensors, as in Keras 2")


# Not a hook: it is this project's, and does nothing where there are no symbolic tensors.
_symbolic.handle_with(_call_on_symbols)

CHANGES: tuple[Change, ...] = tuple(_backend_functions())
