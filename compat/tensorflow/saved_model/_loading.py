"""`tf.saved_model.load`: an object with the attributes of the one that was saved."""

from collections.abc import Callable, Mapping
from typing import Any, final

import jax.export

from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._platform import _version
from tfdist_jax.compat.tensorflow._variables._variable import Variable, VariableAggregation, VariableSynchronization
from tfdist_jax.compat.tensorflow.saved_model import _folder
from tfdist_jax.compat.tensorflow.saved_model._objects import AutoTrackable, CallableTrackable
from tfdist_jax.compat.tensorflow.saved_model._options import LoadOptions
from tfdist_jax.compat.tensorflow.saved_model._restored import (
    Program,
    ProgramOfRanks,
    RestoredFunction,
    SignatureMap,
    make_concrete_function,
    make_form,
    make_signature,
)
from tfdist_jax.compat.tensorflow.saved_model._structures import ANY_PARAMETERS, decode, decode_parameters


def load(export_dir: Any, tags: Any = None, options: LoadOptions | None = None) -> Any:
    """Return an object with the attributes of the one that was saved: variables, functions, and objects with such.

    In a strategy's scope the variables are that strategy's. Nothing of what is read is run but programs, when their functions
    are called.

    Args:
        export_dir: The folder that `save` or `model.export` has written.
        tags: Accepted if it was saved for them; "serve" without others.
        options: How.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it was saved for other tags.
        NotImplementedError: If it is TensorFlow's own, or written by a newer version of this project or of JAX.
        DataLossError: If it is damaged.

    Differs from TensorFlow: see `tf.saved_model.save`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/saved_model/load
    """
    arrays, model = _folder.read(export_dir)
    _must_have_tags(export_dir, model["tags"], tags)
    return load_with(arrays, model, make_variable)


def load_with(
    arrays: Mapping[str, Any], model: Mapping[str, Any], make: Callable[[Any, Mapping[str, Any]], Any]
) -> Any:
    """Return the object that arrays and a description make, with variables that `make(value, description)` returns."""
    loaded = _Loaded(arrays, model, make)
    root = loaded.node(0)
    root.signatures = loaded.signatures()
    root.tensorflow_version, root.tensorflow_git_version = _version.VERSION, _version.GIT_VERSION
    return root


def make_variable(value: Any, about: Mapping[str, Any]) -> Variable:
    """Return a variable as one was saved, of the strategy in whose scope this is called."""
    variable = Variable(
        value,
        trainable=about["trainable"],
        name=about["name"],
        dtype=value.dtype,
        synchronization=VariableSynchronization[about["synchronization"]],
        aggregation=VariableAggregation[about["aggregation"]],
    )
    if variable.storage.per_replica:
        variable.assign(value)  # What was saved is the replicas' values together, a sum perhaps.
    return variable


def _must_have_tags(export_dir: Any, found: list[str], wanted: Any) -> None:
    if wanted is None:
        return
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    if set(wanted) != set(found):
        raise ValueError(
            f"Got an incompatible argument to `tags`: {wanted}. The SavedModel at {export_dir} has one MetaGraph with tags {found}. You "
            "may omit the argument, pass 'None', or pass matching tags."
        )


@final
class _Loaded:
    """Makes objects of what was saved, each once."""

    def __init__(
        self, arrays: Mapping[str, Any], model: Mapping[str, Any], make: Callable[[Any, Mapping[str, Any]], Any]
    ) -> None:
        self._arrays, self._model, self._make = arrays, model, make
        self._made: dict[int, Any] = {}
        self._hidden: dict[int, Any] = {}
        self._programs: dict[int, Program | ProgramOfRanks] = {}

    def node(self, number: int) -> Any:
        """Return what a node of the saved object stands for."""
        if number not in self._made:
            self._make_node(number, self._model["nodes"][number])
        return self._made[number]

    def _make_node(self, number: int, about: Mapping[str, Any]) -> None:
        match about["kind"]:
            case "variable":
                self._made[number] = self._make(self._arrays[about["key"]], about)
            case "function":
                self._made[number] = self._function(about)
            case "concrete":
                self._made[number] = next(iter(self._function(about).concrete_functions), None)
            case "list":
                self._made[number] = []
                self._made[number].extend(self.node(child) for _, child in about["children"])
            case "dict":
                self._made[number] = {}
                self._made[number].update((key, self.node(child)) for key, child in about["children"])
            case "object":
                # Before what hangs on it, which may lead back to it.
                is_callable = any(name == "__call__" for name, _ in about["children"])
                made = self._made[number] = CallableTrackable() if is_callable else AutoTrackable()
                for name, child in about["children"]:
                    setattr(made, name, self.node(child))

    def _function(self, about: Mapping[str, Any]) -> RestoredFunction:
        name, specs = about["name"], about["input_signature"]
        signature = ANY_PARAMETERS if about["parameters"] is None else decode_parameters(about["parameters"])
        input_signature = None if specs is None else decode(specs)
        form = make_form(name, signature, input_signature)
        concrete = [self._concrete(number, form) for number in about["programs"]]
        return RestoredFunction(name, form, input_signature, concrete, about["reasons"])

    def _concrete(self, number: int, form: Any) -> ConcreteFunction:
        about = self._model["programs"][number]
        args, kwargs = map(decode, about["arguments"])
        return make_concrete_function(self._program(number), form, args, kwargs, decode(about["results"]))

    def _program(self, number: int) -> Program | ProgramOfRanks:
        if number not in self._programs:
            about = self._model["programs"][number]
            if "by_rank" in about:
                by_rank = {rank: self._program(each) for rank, each in about["by_rank"]}
                self._programs[number] = ProgramOfRanks(about["name"], about["ranks_of"], by_rank)
                return self._programs[number]
            cells, written = ([self._cell(*place) for place in about[which]] for which in ("cells", "written"))
            exported = _deserialized(about["name"], self._arrays[about["key"]])
            self._programs[number] = Program(exported, about["name"], cells, written, about["not_differentiable"])
        return self._programs[number]

    def _cell(self, where: str, number: int) -> Any:
        if where == "node":
            return self.node(number)
        if number not in self._hidden:
            about = self._model["hidden"][number]
            self._hidden[number] = make_variable(self._arrays[about["key"]], about)
        return self._hidden[number]

    def signatures(self) -> SignatureMap:
        """Return the functions that are served."""
        return SignatureMap({key: self._signature(about) for key, about in self._model["signatures"].items()})

    def _signature(self, about: Mapping[str, Any]) -> ConcreteFunction:
        inputs, outputs = ({name: decode(spec) for name, spec in about[which]} for which in ("inputs", "outputs"))
        return make_signature(self._program(about["program"]), inputs, outputs)


def _deserialized(name: str, code: Any) -> jax.export.Exported:
    try:
        return jax.export.deserialize(bytearray(code.tobytes()))
    except ValueError as error:
        raise NotImplementedError(
            f"The program of {name}() cannot be read by jax {jax.__version__}: {error}. Load the SavedModel with the version of jax that "
            "has written it, or a newer one."
        ) from error
