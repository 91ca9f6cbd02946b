"""A functional model as calls of its layers, one after another."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import keras

from tfdist_jax.compat.tensorflow.keras._internals import Functional, functional, get_keras_mask, set_keras_mask


@final
@dataclasses.dataclass(frozen=True)
class LayerCall:
    """One call of a layer, or of an operation.

    Attributes:
        name: The layer's name, behind those of the models that it is in: "backbone/block_1".
        reads: The numbers of the tensors that it takes.
        writes: Those of the tensors that it gives.
        run: From the values that it takes, and whether it trains, to those that it gives.
        is_entry: Whether it only hands a model's inputs to the layers in it.
    """

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    run: Callable[[Sequence[Any], bool], Sequence[Any]]
    is_entry: bool = False


@final
class LayerCalls:
    """The calls that a functional model's graph is made of.

    Models in it that are functional themselves are opened, so that they can be cut as well.

    Attributes:
        calls: In the order in which Keras runs them.
        inputs: The numbers of the model's inputs.
        outputs: Those of its outputs.
    """

    def __init__(self, model: keras.Model) -> None:
        """List the calls of a model.

        Raises:
            TypeError: If it is not functional.
        """
        graph = graph_of(model)
        if graph is None:
            raise TypeError(f"{model.name!r} is no functional or sequential model, but a {type(model).__name__}.")
        self._model, self._graph = model, graph
        self._numbers = itertools.count()
        self.calls: list[LayerCall] = []
        numbers = {id(tensor): next(self._numbers) for tensor in self._graph.inputs}
        self.inputs = tuple(numbers.values())
        self._open(self._graph, numbers, "")
        self.outputs = _find(numbers, self._graph.outputs)

    def take_inputs(self, x: Any) -> Sequence[Any]:
        """Return the values of the inputs, from what a batch has for the model."""
        return _take_inputs(self._model, self._graph, x)

    def pack_outputs(self, values: Sequence[Any]) -> Any:
        """Return outputs as the model does, from their values."""
        outputs = keras.tree.pack_sequence_as(self._graph._outputs_struct, list(values))
        return outputs[0] if isinstance(outputs, list | tuple) and len(outputs) == 1 else outputs

    def group(self, begins: Sequence[str] | None) -> list[list[LayerCall]]:
        """Divide the calls into groups, which layers begin; each into one of its own if None.

        Raises:
            ValueError: If there is no such layer, or several, or they come in another order.
        """
        if begins is None:
            return [[call] for call in self.calls]
        starts = [0, *map(self._find_call, begins), len(self.calls)]
        for name, (before, start) in zip(begins, itertools.pairwise(starts), strict=False):
            if start <= before:
                raise ValueError(
                    f"`split_before` has {list(begins)}, but {name!r} leaves no layer for the stage before it: the layers of "
                    f"{self._model.name!r} are called in the order {self._names}."
                )
        return [self.calls[slice(*pair)] for pair in itertools.pairwise(starts)]

    def _find_call(self, name: str) -> int:
        found = {call.name: i for i, call in reversed([*enumerate(self.calls)]) if f"/{call.name}".endswith(f"/{name}")}
        if name in found:
            return found[name]
        if len(found) != 1:
            several = f"and several are called so: {[*found]}" if found else "and none is called so"
            raise ValueError(
                f"`split_before` names a layer of {self._model.name!r}, got {name!r}, {several}. Its layers are, in order, {self._names}."
            )
        return next(iter(found.values()))

    @property
    def _names(self) -> list[str]:
        return [*dict.fromkeys(call.name for call in self.calls)]

    def _open(self, graph: Functional, numbers: dict[int, int], prefix: str) -> None:
        """Add the calls of a graph, whose tensors have numbers by their identity."""
        for node in _nodes(graph):
            reads, layer = _find(numbers, node.input_tensors), node.operation
            name = f"{prefix}{layer.name}"
            inner = graph_of(layer)
            given = {key for key, value in node.arguments.kwargs.items() if value is not None}
            if inner is None or given - {"training"}:
                outputs = [(id(tensor), next(self._numbers)) for tensor in node.outputs]
                numbers.update(outputs)
                run = functools.partial(_call, node)
                self.calls.append(LayerCall(name, reads, tuple(number for _, number in outputs), run))
                continue
            within = {id(tensor): next(self._numbers) for tensor in inner.inputs}
            run = functools.partial(_enter, node, layer, inner)
            self.calls.append(LayerCall(name, reads, tuple(within.values()), run, is_entry=True))
            self._open(inner, within, f"{name}/")
            numbers.update(zip(map(id, node.outputs), _find(within, inner.outputs), strict=True))


def graph_of(model: Any) -> Functional | None:
    """Return the graph that a functional or sequential model runs, if that is all that a call of it does; else None."""
    if not isinstance(model, keras.Sequential | Functional) or model.activity_regularizer is not None:
        return None
    kind = keras.Sequential if isinstance(model, keras.Sequential) else Functional
    if any(getattr(type(model), name) is not getattr(kind, name) for name in ("__call__", "call", "compute_mask")):
        return None
    return model._functional if isinstance(model, keras.Sequential) else model


def _nodes(graph: Functional) -> Iterator[Any]:
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        yield from (node for node in graph._nodes_by_depth[depth] if node.operation and not node.is_input)


def _find(numbers: dict[int, int], tensors: Sequence[Any]) -> tuple[int, ...]:
    return tuple(numbers[id(tensor)] for tensor in tensors)


def _call(node: Any, values: Sequence[Any], training: bool) -> Sequence[Any]:
    args, kwargs = _fill_in(node, values)
    return keras.tree.flatten(functional.operation_fn(node.operation, training=training)(*args, **kwargs))


def _enter(node: Any, layer: Any, graph: Functional, values: Sequence[Any], training: bool) -> Sequence[Any]:
    del training
    (x,), _ = _fill_in(node, values)
    return _take_inputs(layer, graph, x)


def _fill_in(node: Any, values: Sequence[Any]) -> tuple[Any, Any]:
    return node.arguments.fill_in(dict(zip(map(id, node.input_tensors), values, strict=True)))


def _take_inputs(model: Any, graph: Functional, x: Any) -> Sequence[Any]:
    if model._convert_input_args:
        x = keras.tree.map_structure(functools.partial(_convert_input, model), x)
    model._assert_input_compatibility(x)
    return graph._standardize_inputs(x)


def _convert_input(model: Any, leaf: Any) -> Any:
    """Do what Keras does with what a sequential model is called with."""
    converted = model.dtype_policy.convert_input(leaf, model.autocast, model.input_dtype)
    if (mask := get_keras_mask(leaf)) is not None:
        set_keras_mask(converted, mask)
    return converted
