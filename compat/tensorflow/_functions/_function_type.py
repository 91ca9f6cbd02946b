"""What a compiled function takes and returns, written as TensorFlow writes it."""

import dataclasses
import inspect
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec

UNKNOWN = object()
"""In place of the results of a function that runs as Python: they are known when it has run."""
_LITERALS = (bool, int, float, complex, str, bytes, type(None))


@final
@dataclasses.dataclass(frozen=True)
class Parameter:
    """One argument of a function for a signature.

    Attributes:
        name: Its name.
        kind: How it is passed.
        value: Its value, tensors as `TensorSpec`s.
    """

    name: str
    kind: inspect._ParameterKind
    value: Any

    @property
    def type_constraint(self) -> Any:
        """What is passed: `TensorSpec`s, and constants as they are."""
        return self.value

    def __str__(self) -> str:
        return f"{self.name}: {type_text(self.value)}"


def bound_parameters(
    signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Parameter]:
    """Return a call's arguments by parameter; extra positional ones are `args_0`, `args_1` after positional-only ones."""
    if signature is None:
        return [Parameter(f"args_{i}", inspect.Parameter.POSITIONAL_ONLY, value) for i, value in enumerate(args)]
    found: list[Parameter] = []
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            only = inspect.Parameter.POSITIONAL_ONLY
            extra = [Parameter(f"{name}_{i}", only, each) for i, each in enumerate(value)]
            found = [dataclasses.replace(before, kind=only) for before in found] + extra
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found += [Parameter(key, inspect.Parameter.KEYWORD_ONLY, each) for key, each in value.items()]
        else:
            found.append(Parameter(name, kind, value))
    return found


@final
@dataclasses.dataclass(frozen=True)
class FunctionType:
    """What a compiled function takes and returns.

    Ref: https://www.tensorflow.org/api_docs/python/tf/types/experimental/FunctionType

    Attributes:
        parameters: The arguments by name.
        output: The results, tensors as `TensorSpec`s.
        captures: The variables that it uses, by number.
    """

    parameters: Mapping[str, Parameter]
    output: Any
    captures: Mapping[int, Any]

    def __str__(self) -> str:
        return one_line(list(self.parameters.values()), self.output)


def one_line(parameters: Sequence[Parameter], outputs: Any) -> str:
    """Write a function's type in one line."""
    parts = [str(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    by_name = kinds.count(inspect.Parameter.KEYWORD_ONLY)
    if by_name:
        parts.insert(len(parts) - by_name, "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        parts.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    return f"({', '.join(parts)}) -> {type_text(outputs)}"


def several_lines(parameters: Sequence[Parameter], outputs: Any, captured: Sequence[Any]) -> str:
    """Write a function's type with a line for each parameter and each variable that it uses."""
    taken = [f"  {each.name} ({each.kind.name}): {type_text(each.value)}" for each in parameters] or ["  None"]
    resource = "TensorSpec(shape=(), dtype=tf.resource, name=None)"
    captures = [f"  {id(each)}: {resource}" for each in captured] or ["  None"]
    lines = ["Input Parameters:", *taken, "Output Type:", f"  {type_text(outputs)}", "Captures:", *captures]
    return "\n".join(lines)


def type_text(value: Any) -> str:
    """Write the type of an argument or a result: a spec, a literal, or a structure of them."""
    if isinstance(value, TensorSpec):
        return repr(value)
    if value is UNKNOWN:
        return "<unknown>"
    if isinstance(value, Mapping):
        return f"Dict[{', '.join(f'[{key!r}, {type_text(each)}]' for key, each in value.items())}]"
    if isinstance(value, list | tuple):
        return f"{'List' if isinstance(value, list) else 'Tuple'}[{', '.join(map(type_text, value))}]"
    if isinstance(value, _LITERALS):
        return f"Literal[{value!r}]"
    try:
        return f"Weakref[{weakref.ref(value)!r}]"
    except TypeError:  # Without weak references.
        return f"Literal[{value!r}]"


def with_names(parameter: Parameter) -> Any:
    """Return a parameter's value with its specs named after it, where they have no name: `x`, `x_key`, `x_0`."""

    def named(path: Sequence[Any], leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec):
            return leaf
        keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
        return TensorSpec.from_spec(leaf, leaf.name or "_".join([parameter.name, *keys]))

    return jax.tree_util.tree_map_with_path(named, parameter.value, is_leaf=lambda leaf: isinstance(leaf, TensorSpec))
