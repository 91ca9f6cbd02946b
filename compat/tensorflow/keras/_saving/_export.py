"""Models as SavedModels: `model.export`, `keras.export.ExportArchive` and `keras.layers.TFSMLayer`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, final

import keras
import keras.export

from tfdist_jax.compat.tensorflow._functions._function import Function
from tfdist_jax.compat.tensorflow._functions._function_type import several_lines
from tfdist_jax.compat.tensorflow._tensors._nest import map_structure
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._variables._module import Module
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.keras._change import Addition, Hook
from tfdist_jax.compat.tensorflow.keras._internals import export_utils
from tfdist_jax.compat.tensorflow.saved_model import _folder
from tfdist_jax.compat.tensorflow.saved_model._constants import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from tfdist_jax.compat.tensorflow.saved_model._loading import load_with
from tfdist_jax.compat.tensorflow.saved_model._objects import AutoTrackable
from tfdist_jax.compat.tensorflow.saved_model._options import SaveOptions
from tfdist_jax.compat.tensorflow.saved_model._saving import write

_JAX_ONLY = ("jax2tf_kwargs", "is_static")


@final
class SavedModelArchive:
    """Drop-in for `keras.export.ExportArchive`: functions of models, with the variables that they use, as a SavedModel.

    Ref: https://keras.io/api/models/model_saving_apis/export/
    """

    def __init__(self) -> None:
        """Have no endpoints yet."""
        self._endpoints: dict[str, Any] = {}
        self._saved: Any = AutoTrackable()
        for name in ("variables", "trainable_variables", "non_trainable_variables"):
            setattr(self._saved, name, [])

    @property
    def variables(self) -> list[Any]:
        """The variables of what is tracked."""
        return self._saved.variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable ones."""
        return self._saved.trainable_variables

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The others."""
        return self._saved.non_trainable_variables

    def track(self, resource: Any) -> None:
        """Let the variables of a layer or model be attributes of what is loaded."""
        if isinstance(resource, keras.Layer):
            if not resource.built:
                raise ValueError("The layer provided has not yet been built. It must be built before export.")
            self._saved.variables += resource.variables
            self._saved.trainable_variables += resource.trainable_variables
            self._saved.non_trainable_variables += resource.non_trainable_variables
        elif isinstance(resource, Module | AutoTrackable):
            self._saved._tracked = [*getattr(self._saved, "_tracked", []), resource]
        else:
            raise ValueError(
                "Invalid resource type. Expected a Keras `Layer` or `Model` or a TensorFlow `Trackable` object. "
                f"Received object {resource} of type '{type(resource)}'. "
            )

    def add_endpoint(self, name: str, fn: Callable[..., Any], input_signature: Any = None, **kwargs: Any) -> Any:
        """Add a function to serve, and return it compiled.

        Args:
            name: What it is called.
            fn: The function; one without `input_signature` is a `tf.function` that has been called.
            input_signature: Structures of `keras.InputSpec`, `tf.TensorSpec` or Keras's tensors.
            **kwargs: None, with Keras on TensorFlow.
        """
        if name in self._endpoints:
            raise ValueError(f"Endpoint name '{name}' is already taken.")
        if any(each in kwargs for each in _JAX_ONLY):
            raise ValueError(
                "'jax2tf_kwargs' and 'is_static' are about Keras without TensorFlow's names. Leave them out."
            )
        if input_signature is not None:
            fn = Function(fn, input_signature=map_structure(_spec_of, input_signature), autograph=False)
        elif not isinstance(fn, Function):
            raise ValueError(
                "If the `fn` argument provided is not a `tf.function`, you must provide an `input_signature` argument to specify the "
                "shape and dtype of the function arguments."
            )
        elif not fn.concrete_functions:
            raise ValueError(
                f"The provided tf.function '{fn}' has never been called. To specify the expected shape and dtype of the function's "
                "arguments, you must either provide a function that has been called at least once, or alternatively pass an "
                "`input_signature` argument in `add_endpoint()`."
            )
        setattr(self._saved, name, fn)
        self._endpoints[name] = fn
        return fn

    def track_and_add_endpoint(self, name: str, resource: Any, input_signature: Any, **kwargs: Any) -> Any:
        """Track a layer or model, and serve its calls."""
        self.track(resource)
        return self.add_endpoint(name, resource.__call__, input_signature, **kwargs)

    def add_variable_collection(self, name: str, variables: Iterable[Any]) -> None:
        """Let a list of variables be an attribute of what is loaded."""
        if not isinstance(variables, list | tuple | set):
            raise ValueError(
                f"Expected `variables` to be a list/tuple/set. Received instead object of type '{type(variables)}'."
            )
        if not all(isinstance(each, Variable | keras.Variable) for each in variables):
            raise ValueError(
                "Expected all elements in `variables` to be `tf.Variable` instances. Found instead the following types: "
                f"{list({type(each) for each in variables})}"
            )
        setattr(self._saved, name, list(variables))

    def write_out(self, filepath: Any, options: SaveOptions | None = None, verbose: bool = True) -> None:
        """Write the SavedModel; the first endpoint is "serving_default", too, unless another one has that name."""
        if not self._endpoints:
            raise ValueError("No endpoints have been set yet. Call add_endpoint().")
        signatures = {name: fn.concrete_functions[0] for name, fn in self._endpoints.items()}
        signatures.setdefault(DEFAULT_SERVING_SIGNATURE_DEF_KEY, next(iter(signatures.values())))
        results = write(self._saved, filepath, signatures, options or SaveOptions(), adopts_variables=True)
        if verbose:
            shown = [_endpoint_text(name, signatures[name], results[name]) for name in self._endpoints]
            text = "\n\n".join(shown)
            print(f"Saved artifact at '{filepath}'. The following endpoints are available:\n\n{text}")


def _spec_of(given: Any) -> TensorSpec:
    if isinstance(given, TensorSpec):
        return given
    spec: Any = export_utils.make_input_spec(given)
    return TensorSpec(spec.shape, spec.dtype, spec.name)


def _endpoint_text(name: str, concrete: Any, results: Any) -> str:
    _, *lines = several_lines(concrete.form.parameters(*concrete.signature), results, []).split("\n")
    return "\n".join([f"* Endpoint '{name}'", *lines])


def _default_save_signature(model: keras.Model) -> Function | None:
    """Return what `tf.saved_model.save(model, path)` serves: calls of the model; None for one that has not been built."""
    if not model.built:
        return None
    inputs: Any = export_utils.get_input_signature(model)
    specs = map_structure(_spec_of, tuple(inputs))
    unnamed = map_structure(lambda spec: TensorSpec(spec.shape, spec.dtype), specs)

    def serving_default(inputs: Any) -> Any:
        return model(inputs)

    return Function(serving_default, input_signature=unnamed, autograph=False)


def _loading(original: Callable[..., None]) -> Callable[..., None]:
    """Load what `tf.saved_model.save` has written here, with the variables as the layer's weights."""

    @functools.wraps(original)
    def __init__(
        self: Any,
        filepath: Any,
        call_endpoint: str = "serve",
        call_training_endpoint: str | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        keras.Layer.__init__(self, trainable=trainable, name=name, dtype=dtype)
        self._reloaded_obj = load_with(*_folder.read(filepath), _make_weight)
        self.filepath = filepath
        self.call_endpoint, self.call_training_endpoint = call_endpoint, call_training_endpoint
        self.call_endpoint_fn = _endpoint(self._reloaded_obj, call_endpoint)
        used = [self.call_endpoint_fn]
        if call_training_endpoint:
            self.call_training_endpoint_fn = _endpoint(self._reloaded_obj, call_training_endpoint)
            used.append(self.call_training_endpoint_fn)
        cells = {
            id(cell): cell
            for fn in used
            for each in getattr(fn, "concrete_functions", [fn])
            for cell in each.captured_cells
        }
        for weight in sorted(cells.values(), key=lambda cell: not cell.trainable):
            if isinstance(weight, keras.Variable):
                self._track_variable(weight)
        self._build_at_init()

    return __init__


def _make_weight(value: Any, about: Any) -> Any:
    # Keras's names have no slashes.
    options = {"trainable": about["trainable"], "name": about["name"].replace("/", "_")}
    return keras.Variable(value, dtype=str(value.dtype), **options)


def _endpoint(loaded: Any, name: str) -> Any:
    if hasattr(loaded, name):
        return getattr(loaded, name)
    if name in loaded.signatures:
        return loaded.signatures[name]
    raise ValueError(
        f"The endpoint '{name}' is neither an attribute of the reloaded SavedModel, nor an entry in the `signatures` field of the "
        "reloaded SavedModel. Select another endpoint via the `call_endpoint` argument. Available endpoints for this SavedModel: "
        f"{list(loaded.signatures)}"
    )


def _making_archive(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __new__(cls: type, format: str = "saved_model", **kwargs: Any) -> Any:
        return SavedModelArchive() if format == "saved_model" else original(cls, format, **kwargs)

    return __new__


CHANGES = (
    Hook(keras.export.ExportArchive, "__new__", _making_archive, "cls format", "Keras writes graphs of TensorFlow's"),
    Hook(
        keras.layers.TFSMLayer,
        "__init__",
        _loading,
        "self filepath call_endpoint call_training_endpoint trainable name dtype",
        "Keras loads graphs of TensorFlow's, and only on TensorFlow",
    ),
    Addition(keras.Model, "_default_save_signature", property(_default_save_signature)),
)
