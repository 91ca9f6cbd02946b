"""`tf.saved_model.save`: an object's variables, and its functions as programs, in a folder."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax._sharding._placement import local
from tfdist_jax._stateful._state import Cell, current_scope, read_now
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._function import Function
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.saved_model import _folder
from tfdist_jax.compat.tensorflow.saved_model._constants import SERVING
from tfdist_jax.compat.tensorflow.saved_model._objects import (
    Nodes,
    StateOf,
    is_function,
    is_object,
    is_variable,
)
from tfdist_jax.compat.tensorflow.saved_model._options import SaveOptions
from tfdist_jax.compat.tensorflow.saved_model._programs import Exported, export, export_by_rank, outputs_of_ranks
from tfdist_jax.compat.tensorflow.saved_model._restored import RestoredFunction
from tfdist_jax.compat.tensorflow.saved_model._signatures import find_signatures, outputs_of
from tfdist_jax.compat.tensorflow.saved_model._structures import NotSavableError, encode, encode_parameters
from tfdist_jax.compat.tensorflow.train._objects import slot_of

_log = logging.getLogger("tfdist_jax")


def save(obj: Any, export_dir: Any, signatures: Any = None, options: SaveOptions | None = None) -> None:
    """Save an object's variables, and its functions as programs that need no Python code.

    The folder gets a folder `saved_model` inside, which is there completely or not at all.

    Args:
        obj: A `tf.Module`, `tf.train.Checkpoint`, Keras model, or an object that `load` has returned.
        export_dir: The folder.
        signatures: A function with an `input_signature`, a concrete function, or several by name, to be served; the only
            such function of `obj` if None.
        options: How.

    Raises:
        ValueError: If `obj` is none of these, or a signature is no function, or cannot be a program.
        AssertionError: If a function uses a variable that does not hang on `obj`.

    Differs from TensorFlow: the functions are XLA's programs (StableHLO), and what they do outside of programs is not saved: a
    signature that computes with strings is refused; another function is left out, with a warning, and says why when it is called.
    Ref: https://www.tensorflow.org/api_docs/python/tf/saved_model/save
    """
    write(obj, export_dir, signatures, options or SaveOptions())


def write(
    obj: Any, export_dir: Any, signatures: Any, options: SaveOptions, *, adopts_variables: bool = False
) -> dict[str, Any]:
    """Do as `save`; return the results of the signatures as specs.

    Args:
        obj: The object.
        export_dir: The folder.
        signatures: What is served.
        options: How.
        adopts_variables: Whether variables that functions use need not hang on `obj`.
    """
    if current_scope() is not None:
        raise AssertionError(
            "tf.saved_model.save is not supported inside a traced @tf.function. Move the call to the outer eagerly-executed context."
        )
    if not is_object(obj):
        raise ValueError(
            "Expected an object of type `Trackable`, such as `tf.Module` or a subclass of the `Trackable` class, for export. "
            f"Got {obj} with type {type(obj)}."
        )
    model = _Model(obj, signatures, adopts_variables=adopts_variables)
    _folder.begin_writing(export_dir, *model.described(options))()
    return model.results


@final
class _Model:
    """What is written of an object: arrays, and a description of the rest."""

    def __init__(self, root: Any, signatures: Any, *, adopts_variables: bool) -> None:
        self._adopts_variables = adopts_variables
        self._nodes = Nodes(root)
        own = {str(name): self._nodes.owners[child] for name, child in self._nodes.children[0]}
        self._served = find_signatures(
            root, {name: each for name, each in own.items() if is_function(each)}, signatures
        )
        self._arrays: dict[str, Any] = {}
        self._programs: list[dict[str, Any]] = []
        self._known: dict[int, tuple[ConcreteFunction, int, Any]] = {}
        self._hidden: list[Cell] = []
        self.results: dict[str, Any] = {}

    def described(self, options: SaveOptions) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays by name, and the description."""
        served = {key: self._signature(key, concrete) for key, concrete in self._served.items()}
        nodes = [self._node(number, owner) for number, owner in enumerate(self._nodes.owners)]
        hidden = [self._variable(f"hidden/{i}", cell, read_now(cell)) for i, cell in enumerate(self._hidden)]
        about = {
            "tags": sorted({SERVING, *(options.extra_tags or ())}),
            "jax": jax.__version__,
            "nodes": nodes,
            "hidden": hidden,
            "programs": self._programs,
            "signatures": served,
        }
        return self._arrays, about

    def _node(self, number: int, owner: Any) -> dict[str, Any]:
        if is_variable(owner):
            return self._variable(f"variables/{number}", owner, _value_of(owner))
        if isinstance(owner, ConcreteFunction):
            return self._concrete_node(owner)
        if is_function(owner):
            return self._function(owner)
        kind = "dict" if isinstance(owner, dict) else "list" if isinstance(owner, list | tuple) else "object"
        return {"kind": kind, "children": [list(child) for child in self._nodes.children[number]]}

    def _variable(self, key: str, cell: Any, value: Any) -> dict[str, Any]:
        # A program may reuse a JAX array's memory before this is written.
        self._arrays[key] = np.array(local(value) if isinstance(value, jax.Array) else value)
        is_plain = isinstance(cell, Variable)
        path = getattr(cell, "path", None)
        return {
            "kind": "variable",
            "key": key,
            "name": path or getattr(cell, "name", "state").removesuffix(":0"),
            "trainable": bool(getattr(cell, "trainable", False)),
            "synchronization": cell.synchronization.name if is_plain else "AUTO",
            "aggregation": cell.aggregation.name if is_plain else "NONE",
        }

    def _signature(self, key: str, concrete: ConcreteFunction) -> dict[str, Any]:
        name = concrete.name.decode()
        try:
            number, results = self._program(concrete)
        except NotSavableError as error:
            raise ValueError(f"The function {name} of the signature {key!r} cannot be saved: {error}.") from error
        outputs, self.results[key] = outputs_of(key, name, results), results
        inputs = zip(concrete.names_of_inputs, concrete.inputs, strict=True)
        return {
            "program": number,
            "inputs": [[each, encode(_named(spec, each))] for each, spec in inputs],
            "outputs": [[each, encode(spec)] for each, spec in zip(outputs.names, outputs.specs, strict=True)],
        }

    def _concrete_node(self, concrete: ConcreteFunction) -> dict[str, Any]:
        function = self._described_function(concrete.name.decode(), concrete.form, None, [concrete])
        return {**function, "kind": "concrete"}

    def _function(self, function: Function | RestoredFunction) -> dict[str, Any]:
        form, specs = function.function_spec, function.input_signature
        return self._described_function(
            getattr(function, "__name__", "function"), form, specs, function.concrete_functions
        )

    def _described_function(
        self, name: str, form: Any, input_signature: Any, concrete: Sequence[ConcreteFunction]
    ) -> dict[str, Any]:
        programs, reasons = [], []
        for each in concrete:
            try:
                programs.append(self._program(each)[0])
            except NotSavableError as error:
                reasons.append(str(error))
                _log.warning("%s() is not saved for one of its signatures, since %s.", name, error)
        return {
            "kind": "function",
            "name": name,
            "parameters": encode_parameters(form.signature),
            "input_signature": None if input_signature is None else encode(tuple(input_signature)),
            "programs": programs,
            "reasons": reasons,
        }

    def _program(self, concrete: ConcreteFunction) -> tuple[int, Any]:
        """Return the number of a function's program, and its results as specs."""
        if id(concrete) not in self._known:
            # With the function: another may get the number of one that is gone.
            self._known[id(concrete)] = (concrete, *self._add(concrete))
        _, number, outputs = self._known[id(concrete)]
        return number, outputs

    def _add(self, concrete: ConcreteFunction) -> tuple[int, Any]:
        args, kwargs = concrete.signature
        about = {"name": concrete.function_name, "arguments": [encode(tuple(args)), encode(dict(kwargs))]}
        if all(spec.shape.rank is not None for spec in concrete.inputs):
            exported = export(concrete, concrete.inputs)
            return self._add_exported(concrete, exported, about), exported.outputs
        by_rank = export_by_rank(concrete)
        numbers = [[rank, self._add_exported(concrete, each, about)] for rank, each in by_rank.items()]
        places = [i for i, spec in enumerate(concrete.inputs) if spec.shape.rank is None]
        outputs = outputs_of_ranks(by_rank)
        self._programs.append({**about, "results": encode(outputs), "ranks_of": places, "by_rank": numbers})
        return len(self._programs) - 1, outputs

    def _add_exported(self, concrete: ConcreteFunction, exported: Exported, about: Mapping[str, Any]) -> int:
        number = len(self._programs)
        key = f"programs/{number}"
        numbers = [self._number(concrete, cell) for cell in exported.cells]
        by_cell = {id(cell): place for cell, place in zip(exported.cells, numbers, strict=True)}
        self._programs.append(
            {
                **about,
                "key": key,
                "results": encode(exported.outputs),
                "cells": numbers,
                "written": [by_cell[id(cell)] for cell in exported.written],
                "not_differentiable": exported.not_differentiable,
            }
        )
        self._arrays[key] = exported.code
        return number

    def _number(self, concrete: ConcreteFunction, cell: Any) -> list[Any]:
        """Return where the value of a cell is found: among the nodes, or what no attribute leads to."""
        number = self._nodes.number_of_cell(cell)
        if number is not None:
            return ["node", number]
        if is_variable(cell) and self._adopts_variables:
            return ["node", self._nodes.add(cell)]
        if is_variable(cell):
            raise AssertionError(
                "Tried to export a function which references an 'untracked' resource: "
                f"{concrete.function_name}() uses {cell!r}. TensorFlow objects (e.g. tf.Variable) captured by functions must be "
                "'tracked' by assigning them to an attribute of a tracked object or assigned to an attribute of the main object "
                "directly."
            )
        if cell not in self._hidden:
            self._hidden.append(cell)
        return ["hidden", self._hidden.index(cell)]


def _named(spec: Any, name: str) -> Any:
    return type(spec)(spec.shape, spec.dtype, name)


def _value_of(owner: Any) -> Any:
    if isinstance(owner, StateOf):
        return owner.generator.state
    slot = slot_of(owner)
    return owner if slot is None else slot.read()
