"""How calls of a compiled function become one form, and what an `input_signature` asks of them."""

import inspect
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax.compat.tensorflow._functions._function_type import Parameter, bound_parameters, with_names
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_spec import PerReplicaSpec
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow._tensors._type_spec import TypeSpec

Call = tuple[tuple[Any, ...], dict[str, Any]]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@final
class CallForm:
    """Brings equal calls of a function to one form: arguments by position where that is possible, defaults filled in."""

    def __init__(self, fn: Callable[..., Any], input_signature: Sequence[Any] | None = None) -> None:
        """Read the parameters of `fn`.

        Raises:
            TypeError: If `input_signature` has more entries than `fn` has parameters.
        """
        self._name = getattr(fn, "__name__", repr(fn))
        self._specs = None if input_signature is None else tuple(input_signature)
        try:
            self._signature = inspect.signature(fn)
        except (TypeError, ValueError):  # A builtin that does not tell.
            self._signature = None
            return
        parameters = self._signature.parameters.values()
        positional = [p for p in parameters if p.kind in _POSITIONAL]
        takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._plain = len(positional) if len(positional) == len(parameters) else None
        if self._specs is not None and len(self._specs) > len(positional) and not takes_any:
            raise TypeError(
                f"`input_signature` of {self._name}() has {len(self._specs)} entries, but the function has only "
                f"{len(positional)} positional arguments."
            )

    @property
    def signature(self) -> inspect.Signature | None:
        """The function's parameters; None of a builtin that does not tell them."""
        return self._signature

    def parameters(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Parameter]:
        """Return the arguments of a call in the one form by parameter."""
        return bound_parameters(self._signature, args, kwargs)

    def flat_names(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
        """Return a name for each tensor among the arguments: its spec's or its parameter's, made different by numbers.

        They are in JAX's order of the arguments: those by name come last, sorted.
        """
        names: list[str] = []
        in_jax_order = lambda each: (each.name in kwargs, each.name if each.name in kwargs else "")
        for parameter in sorted(self.parameters(args, kwargs), key=in_jax_order):
            for leaf in jax.tree.leaves(in_order(parameter.value), is_leaf=_is_spec):
                if isinstance(leaf, TensorSpec):
                    wanted = leaf.name or parameter.name
                    numbered = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(1)))
                    names.append(next(name for name in numbered if name not in names))
        return names

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Return the arguments with specs named after their parameters."""
        names = [(parameter, with_names(parameter)) for parameter in self.parameters(args, kwargs)]
        by_name = {each.name: value for each, value in names if each.name in kwargs}
        return tuple(value for each, value in names if each.name not in kwargs), by_name

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Return a call's arguments in the one form.

        Raises:
            TypeError: If the function has no such parameters, or the arguments do not fit the input signature.
        """
        if self._signature is None or (self._specs is None and not kwargs and len(args) == self._plain):
            return tuple(args), dict(kwargs)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"Binding inputs to {self._name}() failed: {error}. Its parameters are {self._signature}."
            ) from None
        if self._specs is not None:
            self._must_have_defaults(bound)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
        if self._specs is not None:
            args = self._fitted(args)
        return args, kwargs

    def _must_have_defaults(self, bound: inspect.BoundArguments) -> None:
        """Refuse other values than the defaults for parameters that the input signature leaves out: they are constants."""
        parameters = bound.signature.parameters
        for name in list(bound.arguments)[len(self._specs or ()) :]:
            default, value = parameters[name].default, bound.arguments[name]
            constant = parameters[name].kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            if constant and default is not inspect.Parameter.empty and not is_same_constant(default, value):
                raise TypeError(
                    f"Can not cast {value!r} to {default!r}, the default of {name!r} of {self._name}(): `input_signature` does not "
                    "name the parameter, so that it is a constant."
                )

    def _fitted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        specs, parameters = self._specs or (), (self._signature.parameters if self._signature else {}).values()
        named = sum(parameter.kind in _POSITIONAL for parameter in parameters)
        if len(args) < len(specs) or len(args) > max(len(specs), named):
            raise TypeError(f"{self._name}() takes {len(specs)} arguments, as `input_signature` says; got {len(args)}.")
        return (*map(fitted, specs, args), *args[len(specs) :])


def run_unchanged(
    name: str, form: CallForm, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a function that is being traced, which must not put other things into its arguments: only its trace would do so.

    Args:
        name: The function's, for the message.
        form: The form of its calls.
        fn: The function.
        args: Its positional arguments.
        kwargs: Its arguments by name.

    Raises:
        ValueError: If it has changed them.
    """
    before, tree = jax.tree.flatten(in_order((args, kwargs)))
    results = fn(*args, **kwargs)
    after, new_tree = jax.tree.flatten(in_order((args, kwargs)))
    if tree == new_tree and all(map(operator.is_, before, after)):
        return results
    old = restore_dict_order(tree.unflatten(before))
    pairs = zip(form.parameters(*old), form.parameters(args, kwargs), strict=True)
    changed = [new.name for was, new in pairs if _parts(was) != _parts(new)]
    raise ValueError(
        f"{name}() should not modify its Python input arguments, which are passed as copies. Modifying a copy of them is allowed. The "
        f"following parameter(s) were modified: {', '.join(changed)}."
    )


def _parts(parameter: Parameter) -> Any:
    leaves, tree = jax.tree.flatten(in_order(parameter.value))
    return tree, list(map(id, leaves))


def is_same_constant(one: Any, other: Any) -> bool:
    """Tell whether two Python values are the same constant to a compiled function."""
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, bool | int | float | complex | str | bytes) and one == other


def fitted(spec: Any, value: Any) -> Any:
    """Return an argument as the tensors that a structure of `TensorSpec`s and `PerReplicaSpec`s asks for.

    Raises:
        TypeError: If the structure, a type or a shape does not fit.
    """
    specs, tree = jax.tree.flatten(spec, is_leaf=_is_spec)
    try:
        values = tree.flatten_up_to(value)
    except ValueError as error:
        raise TypeError(f"Structure of the argument does not match the signature {spec}: got {value!r}.") from error
    return tree.unflatten([_tensor(one, leaf) for one, leaf in zip(specs, values, strict=True)])


def _is_spec(value: Any) -> bool:
    return isinstance(value, TensorSpec | PerReplicaSpec)


def _tensor(spec: Any, value: Any) -> Any:
    if isinstance(spec, PerReplicaSpec):
        if value == spec if isinstance(value, PerReplicaSpec) else spec.is_compatible_with(value):
            return value
        raise TypeError(f"Can not cast {value!r} to the signature's {spec}.")
    if not isinstance(spec, TensorSpec):
        if isinstance(spec, TypeSpec) and not spec.is_compatible_with(value):
            raise TypeError(f"Can not cast {value!r} to the signature's {spec}.")
        return value
    if isinstance(value, TensorSpec):
        if value.is_subtype_of(spec):
            return spec
        raise TypeError(f"Can not cast {value} to the signature's {spec}.")
    try:
        tensor = convert_to_tensor(value) if is_tensor(value) else convert_to_tensor(value, dtype=spec.dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Can not cast {value!r} to the signature's {spec}.") from error
    if not spec.is_compatible_with(TensorSpec.from_tensor(tensor)):
        raise TypeError(
            f"Can not cast TensorSpec(shape={tuple(tensor.shape)}, dtype={tensor.dtype.name}) to the signature's {spec}."
        )
    return tensor
