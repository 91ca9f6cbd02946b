"""Which functions a SavedModel serves by name, and how their arguments and results are called."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfdist_jax._errors import NotCompilableError
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._function import Function
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.saved_model._constants import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from tfdist_jax.compat.tensorflow.saved_model._restored import RestoredFunction

# What Keras calls the function that serves a model.
_DEFAULT_OF_OBJECT = "_default_save_signature"


class Outputs(NamedTuple):
    """The results of a function by name, in the order in which its program gives them."""

    names: list[str]
    specs: list[TensorSpec]


def find_signatures(root: Any, functions: Mapping[str, Any], signatures: Any) -> dict[str, ConcreteFunction]:
    """Return the functions to serve.

    Args:
        root: The object to save.
        functions: Its functions by name.
        signatures: What the caller of `save` wants: a function, functions by name, or None for what there is one of.

    Raises:
        ValueError: If something is no function, or has no signature.
    """
    if signatures is None:
        found = _default(root, functions)
        return {} if found is None else {DEFAULT_SERVING_SIGNATURE_DEF_KEY: found}
    if not isinstance(signatures, Mapping):
        signatures = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: signatures}
    for key in signatures:
        if not isinstance(key, str):
            raise ValueError(
                f"`signatures` must be functions by name, but has the key {key!r} of type {type(key).__name__}."
            )
    return {key: _concrete(function) for key, function in signatures.items()}


def _default(root: Any, functions: Mapping[str, Any]) -> ConcreteFunction | None:
    own = getattr(root, _DEFAULT_OF_OBJECT, None)
    if own is not None:
        return _concrete(own)
    found = [concrete for each in functions.values() if (concrete := _of_signature(each)) is not None]
    served = [concrete for concrete in found if _can_be_served(concrete)]
    return served[0] if len(served) == 1 else None


def _can_be_served(concrete: ConcreteFunction) -> bool:
    """Whether a function returns tensors that have names; what cannot be told before it is saved counts as such."""
    try:
        outputs = concrete.structured_outputs
    except NotCompilableError:
        return True
    try:
        return bool(outputs_of(DEFAULT_SERVING_SIGNATURE_DEF_KEY, concrete.function_name, outputs).names)
    except ValueError:
        return False


def _concrete(function: Any) -> ConcreteFunction:
    found = _of_signature(function)
    if found is None:
        raise ValueError(
            f"Expected a TensorFlow function for which to generate a signature, but got {function}. Only `tf.functions` with an input "
            "signature or concrete functions can be used as a signature."
        )
    return found


def _of_signature(function: Any) -> ConcreteFunction | None:
    if isinstance(function, ConcreteFunction):
        return function
    has_one = isinstance(function, Function | RestoredFunction) and function.input_signature is not None
    return function.concrete_functions[0] if has_one and function.concrete_functions else None


def outputs_of(key: str, name: str, outputs: Any) -> Outputs:
    """Return the names of results and their specs.

    Raises:
        ValueError: If they are no tensor, sequence of tensors or dictionary of tensors.
    """
    if isinstance(outputs, Mapping):
        named = dict(sorted(outputs.items(), key=lambda item: str(item[0])))
    elif isinstance(outputs, list | tuple):
        named = {f"output_{i}": each for i, each in enumerate(outputs)}
    else:
        named = {"output_0": outputs}
    for output, spec in named.items():
        if not isinstance(output, str):
            raise ValueError(
                f"Got a dictionary with the key {output!r} in the output of {name}() for the signature {key!r}: keys are strings."
            )
        if not isinstance(spec, TensorSpec):
            raise ValueError(
                f"Got a non-Tensor value {spec!r} for key {output!r} in the output of the function {name} used to generate the SavedModel "
                f"signature {key!r}. Outputs for functions used as signatures must be a single Tensor, a sequence of Tensors, or a "
                "dictionary from string to Tensor."
            )
    return Outputs(list(named), [TensorSpec.from_spec(spec, output) for output, spec in named.items()])
