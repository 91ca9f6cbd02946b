"""Layers of Keras 2 that Keras 3 does not have: LocallyConnected1D and 2D, the LSTM and GRU that were NVIDIA's alone; code in Lambda."""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar, final

import keras
import keras._tf_keras.keras as tf_keras

from tfdist_jax.compat.tensorflow._names._old_forms import tell_old_form
from tfdist_jax.compat.tensorflow.keras._change import Addition, Change, Hook
from tfdist_jax.compat.tensorflow.keras._internals import legacy_layers


class _LocallyConnected(keras.layers.Layer):
    """A convolution whose kernel is another one at each position.

    Attributes:
        rank: How many axes the kernel moves along.
    """

    rank: ClassVar[int]

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        implementation: int = 1,
        **kwargs: Any,
    ) -> None:
        """Make a layer, with the arguments of Keras 2's.

        Raises:
            NotImplementedError: If positions are beyond the edges, or the kernel is to lie otherwise than Keras 2's default.
        """
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        if padding.lower() != "valid" or implementation != 1:
            raise NotImplementedError(
                f'{type(self).__name__} has `padding="valid"` and `implementation=1` alone; got {padding!r} and {implementation}. '
                "Pad by a ZeroPadding layer before it."
            )
        self.filters = filters
        self.kernel_size = _per_axis(kernel_size, self.rank)
        self.strides = _per_axis(strides, self.rank)
        self.padding, self.implementation = "valid", 1
        self.data_format = keras.config.image_data_format() if data_format is None else data_format.lower()
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.input_spec = keras.layers.InputSpec(ndim=self.rank + 2)

    def build(self, input_shape: Any) -> None:
        """Make the kernel, of shape (positions, kernel * channels, filters), and the bias, of shape (*positions, filters).

        Raises:
            ValueError: If the sizes of the input are not known.
        """
        *sizes, channels = self._channels_last(tuple(input_shape)[1:])
        if None in (*sizes, channels):
            raise ValueError(
                f"{type(self).__name__} has weights for each position: all sizes of its input must be known, got {tuple(input_shape)}."
            )
        positions = self._positions(sizes)
        weights = math.prod(self.kernel_size) * channels
        count = math.prod(positions)
        self.kernel = self.add_weight(
            shape=(count, weights, self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(*positions, self.filters),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name="bias",
            )

    def call(self, inputs: Any) -> Any:
        """Return the values at each position, of shape (batch, *positions, filters), or filters before positions."""
        ops = keras.ops
        if self.data_format == "channels_first":
            inputs = ops.moveaxis(inputs, 1, -1)
        positions = self._positions(inputs.shape[1:-1])
        # One slice for each place in the kernel: as many as it has values, whatever the size of the input.
        places = itertools.product(*map(range, self.kernel_size))
        windows = [inputs[(slice(None), *self._steps(place, positions))] for place in places]
        patches = ops.reshape(ops.concatenate(windows, axis=-1), (-1, *self.kernel.shape[:2]))
        outputs = ops.einsum("bpk,pkf->bpf", patches, self.kernel)
        outputs = ops.reshape(outputs, (-1, *positions, self.filters))
        if self.bias is not None:
            outputs = outputs + self.bias
        if self.data_format == "channels_first":
            outputs = ops.moveaxis(outputs, -1, 1)
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """Return the shape of what `call` returns."""
        batch, *rest = input_shape
        *sizes, _ = self._channels_last(tuple(rest))
        positions = self._positions(sizes)
        last = self.data_format != "channels_first"
        return (batch, *positions, self.filters) if last else (batch, self.filters, *positions)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        keras_objects = {
            "activation": keras.activations.serialize(self.activation),
            **{
                name: keras.initializers.serialize(getattr(self, name))
                for name in ("kernel_initializer", "bias_initializer")
            },
            **{
                name: keras.regularizers.serialize(getattr(self, name))
                for name in ("kernel_regularizer", "bias_regularizer", "activity_regularizer")
            },
            **{
                name: keras.constraints.serialize(getattr(self, name))
                for name in ("kernel_constraint", "bias_constraint")
            },
        }
        names = ("filters", "kernel_size", "strides", "padding", "data_format", "use_bias", "implementation")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}, **keras_objects}

    def _channels_last(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*shape[1:], shape[0]) if self.data_format == "channels_first" else shape

    def _positions(self, sizes: Any) -> tuple[Any, ...]:
        pairs = zip(sizes, self.kernel_size, self.strides, strict=True)
        return tuple(None if size is None else (size - kernel) // stride + 1 for size, kernel, stride in pairs)

    def _steps(self, place: tuple[int, ...], positions: tuple[int, ...]) -> list[slice]:
        triples = zip(place, positions, self.strides, strict=True)
        return [slice(start, start + stride * (count - 1) + 1, stride) for start, count, stride in triples]


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * rank
    if len(values) != rank:
        raise ValueError(f"One number or {rank} were wanted, for each axis that the kernel moves along; got {value}.")
    return values


@final
class LocallyConnected1D(_LocallyConnected):
    """A convolution along one axis whose kernel is another one at each position."""

    rank = 1


@final
class LocallyConnected2D(_LocallyConnected):
    """A convolution along two axes whose kernel is another one at each position."""

    rank = 2


def _cudnn(layer: type) -> Callable[..., Any]:
    name = f"CuDNN{layer.__name__}"

    def make(units: int, **kwargs: Any) -> Any:
        tell_old_form(f"`{name}`", f"`keras.layers.{layer.__name__}`")
        return layer(units, **kwargs)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Return a {layer.__name__}, with one bias where NVIDIA's library had two that were added up."
    return make


def _in_its_module(original: Any) -> Any:
    """Let code in a file of Keras 2 find the names of the module that it was written in, as there."""

    @functools.wraps(original.__func__)
    def from_config(cls: type, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        held = config["function"]
        name = held["config"].get("module") if isinstance(held, dict) and held["class_name"] == "__lambda__" else None
        layer = original.__func__(cls, config, *args, **kwargs)
        if name in sys.modules:
            code = layer.function
            names = vars(sys.modules[name])
            layer.function = FunctionType(code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
        return layer

    return classmethod(from_config)


_NEW: Mapping[str, Any] = {
    "LocallyConnected1D": LocallyConnected1D,
    "LocallyConnected2D": LocallyConnected2D,
    "CuDNNLSTM": _cudnn(keras.layers.LSTM),
    "CuDNNGRU": _cudnn(keras.layers.GRU),
}
_PLACES = (keras.layers, tf_keras.layers)
CHANGES: tuple[Change, ...] = (
    *(Addition(place, name, value) for place in _PLACES for name, value in _NEW.items()),
    Addition(keras.layers, "ThresholdedReLU", legacy_layers.ThresholdedReLU),
    Hook(keras.layers.Lambda, "from_config", _in_its_module, "config", "code of Keras 2 finds its module's names"),
)
