"""Models that take strings: what they compute of these runs on the host, before each step, and the rest is the step's program."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import keras
import numpy as np

from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._feature_layers import (
    FeatureColumnLayer,
    FeatureRows,
    check_strings_are_known,
    feature_layers,
    read_features,
)
from tfdist_jax.compat.tensorflow.keras._internals import Functional, JAXTrainer, functional, register_tree_node_class

_TEXT = "string"
_HASHING = keras.layers.Hashing | keras.layers.HashedCrossing
"""Layers that make strings of numbers, too."""


@final
@register_tree_node_class
@jax.tree_util.register_pytree_node_class
class FrontValues:
    """What the front of a model has computed of a batch: the model takes it in place of its inputs."""

    def __init__(self, front: "TextFront", arrays: Sequence[Any]) -> None:
        """Hold arrays whose rows are those of the batch."""
        self.front = front
        self.arrays = tuple(arrays)

    def tree_flatten(self) -> tuple[tuple[Any, ...], "TextFront"]:
        """Return the arrays, and whose they are."""
        return self.arrays, self.front

    @classmethod
    def tree_unflatten(cls, front: "TextFront", arrays: Sequence[Any]) -> "FrontValues":
        """Hold other arrays."""
        return cls(front, arrays)


@final
class TextFront:
    """The part of a functional model that computes with strings, up to its first numbers, and the rest of it.

    Layers of feature columns are parted: what they read of features is the front's, their variables are the rest's.
    """

    def __init__(self, graph: Any) -> None:
        """Part a model.

        Args:
            graph: The functional model, some inputs of which are strings, or go to layers of feature columns or of hashes.

        Raises:
            ValueError: If what it computes of strings has weights that are trained.
        """
        self._graph = graph
        nodes = [node for depth in sorted(graph._nodes_by_depth, reverse=True) for node in graph._nodes_by_depth[depth]]
        self._readers = [node for node in nodes if isinstance(node.operation, FeatureColumnLayer)]
        texts = [
            node
            for node in nodes
            if node not in self._readers
            and (isinstance(node.operation, _HASHING) or any(x.dtype == _TEXT for x in node.input_tensors))
        ]
        border = [x for node in texts for x in node.outputs if x.dtype != _TEXT]
        self._read = [x for node in self._readers for x in node.input_tensors]
        self._front = keras.Function(graph.inputs, [*border, *self._read])
        trained = [
            weight.path for layer in self._front.operations for weight in getattr(layer, "trainable_weights", ())
        ]
        if trained:
            raise ValueError(
                f"A part of {graph.name} that takes strings has weights that are trained ({trained[0]}), and its steps are programs, "
                "which take no strings. Make its layer of strings, such as TextVectorization, a layer of the outer model: "
                "Sequential([vectorize, model])."
            )
        self._numbers = [i for i, x in enumerate(graph.inputs) if x.dtype != _TEXT]
        numbers = [graph.inputs[i] for i in self._numbers]
        vectors = [x for node in self._readers for x in node.outputs]
        self._rest = keras.Function([*vectors, *border, *numbers], graph._outputs_struct)

    def prepare(self, x: Any) -> FrontValues:
        """Return what is computed of a batch's inputs on the host."""
        inputs = self._graph._standardize_inputs(x)
        # Not by a call, which would hold the batch to the number of rows that the model was built with.
        found = keras.tree.flatten(self._front._run_through_graph(inputs, operation_fn=lambda layer: layer))
        end = len(found) - len(self._read)
        values = {id(tensor): value for tensor, value in zip(self._read, found[end:], strict=True)}
        rows = []
        for node in self._readers:
            (features, *_), _ = node.arguments.fill_in(values)
            rows.append(jax.tree.map(np.asarray, node.operation.read(features)))
        numbers = [np.asarray(inputs[i]) for i in self._numbers]
        return FrontValues(self, [rows, [*map(np.asarray, found[:end]), *numbers]])

    def run(self, values: FrontValues, **options: Any) -> Any:
        """Return the model's results."""
        rows, arrays = values.arrays
        vectors = [
            node.operation(FeatureRows({}, [node.operation], [own]))
            for node, own in zip(self._readers, rows, strict=True)
        ]
        return self._rest._run_through_graph(
            [*keras.tree.flatten(vectors), *arrays],
            operation_fn=lambda layer: functional.operation_fn(layer, **options),
        )


_FRONT = "_tfdist_text_front"
"""The attribute in which a functional model keeps its front: what is kept beside it would keep the model, too."""


def front_of(model: keras.Model) -> TextFront | None:
    """Return the front of a model that takes strings; None of one that takes none, or is not functional."""
    graph: Any = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    if not isinstance(graph, Functional):
        return None
    if _FRONT not in vars(graph):
        has_front = any(x.dtype == _TEXT for x in graph.inputs) or any(
            isinstance(layer, FeatureColumnLayer | _HASHING) for layer in graph.operations
        )
        object.__setattr__(graph, _FRONT, TextFront(graph) if has_front else None)
    return vars(graph)[_FRONT]


def with_front_values(model: keras.Model, batch: Any) -> Any:
    """Return a batch with what the front of a model computes of its inputs in their place."""
    front = front_of(model)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if front is not None:
        return front.prepare(x), y, sample_weight
    rows = read_features(model, x)
    return _without_texts(batch) if rows is None else (rows, y, sample_weight)


def _running_rest(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], FrontValues):
            return args[0].front.run(args[0], training=kwargs.get("training"))
        return original(self, *args, **kwargs)

    return __call__


def _reading_strings_of_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Mapping) and feature_layers(self):
            check_strings_are_known(args[0])
        return original(self, *args, **kwargs)

    return __call__


def _building_rest(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build models that take strings from what their front makes of a batch."""

    @functools.wraps(original)
    def _symbolic_build(self: keras.Model, iterator: Any = None, data_batch: Any = None) -> Any:
        if not _may_take_texts(self):
            checked = None if iterator is None else _checked(iterator)
            return original(self, checked, None if data_batch is None else _without_texts(data_batch))
        if data_batch is None:
            data_batch = _first_batch(iterator)
        x, *_ = keras.utils.unpack_x_y_sample_weight(data_batch)
        if isinstance(self, keras.Sequential) and not self.built and _is_text(x):
            self.build((None, *np.shape(x)[1:]))
        return original(self, data_batch=with_front_values(self, data_batch))

    return _symbolic_build


def _building_in_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let models that are given strings, or what layers have read of them, be built by the call itself."""

    @functools.wraps(original)
    def _maybe_build(self: Any, call_spec: Any) -> None:
        if not isinstance(self, keras.Model) or self.built or not _holds_texts(call_spec.first_arg):
            original(self, call_spec)
        elif isinstance(self, keras.Sequential):
            self.build(None)

    return _maybe_build


def _holds_texts(features: Any) -> bool:
    if isinstance(features, FeatureRows):
        return True
    return isinstance(features, Mapping) and any(map(_is_text, jax.tree.leaves(dict(features))))


def _may_take_texts(model: keras.Model) -> bool:
    if feature_layers(model):
        return True
    if isinstance(model, keras.Sequential) and not model.built:
        return bool(model.layers) and getattr(model.layers[0], "compute_dtype", None) == _TEXT
    return front_of(model) is not None


def _checked(iterator: Any) -> Iterator[Any]:
    for first, last, data in iterator:
        yield (
            first,
            last,
            list(map(_without_texts, data)) if isinstance(data, list | tuple) else map(_without_texts, data),
        )


def _without_texts(batch: Any) -> Any:
    """Return a batch, which must not hold strings.

    Raises:
        ValueError: If it does.
    """
    if any(map(_is_text, jax.tree.leaves(batch))):
        raise ValueError(
            "The batches hold strings, which are no inputs of this model's steps: XLA has no strings. Make the model of layers, as "
            "keras.Sequential or keras.Model(inputs, outputs), with its layer of strings among them; or turn strings into numbers "
            "in the dataset: `dataset.map(lambda text, y: (vectorize(text), y))`."
        )
    return batch


def _first_batch(iterator: Any) -> Any:
    for _, _, data in iterator:
        return data[0] if isinstance(data, list | tuple) else next(data)
    return None


def _is_text(x: Any) -> bool:
    return isinstance(x, str | bytes) or (isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "OSU")


CHANGES = (
    Hook(
        keras.Model,
        "__call__",
        _reading_strings_of_replicas,
        "self",
        "Keras would make arrays of strings that a traced step does not know",
    ),
    *(
        Hook(kind, "__call__", _running_rest, "self", "what a front has computed takes the place of its inputs")
        for kind in (Functional, keras.Sequential)
    ),
    Hook(
        keras.layers.Layer,
        "_maybe_build",
        _building_in_call,
        "self call_spec",
        "Keras would trace a model's call with strings",
    ),
    Hook(
        JAXTrainer,
        "_symbolic_build",
        _building_rest,
        "self iterator data_batch",
        "strings are no arrays of JAX's",
    ),
)
