"""`tf.types.experimental.ConcreteFunction`: a compiled function for one signature."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax

from tfdist_jax._errors import NotCompilableError
from tfdist_jax.compat.tensorflow._functions._function_type import UNKNOWN, FunctionType, several_lines
from tfdist_jax.compat.tensorflow._functions._signatures import Call, CallForm, is_same_constant
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow._variables._variable import Variable


@final
class ConcreteFunction:
    """A function of the tensors that a signature describes; everything else in the signature is a constant.

    A signature with unknown sizes stands for one program for each size that comes.
    Ref: https://www.tensorflow.org/api_docs/python/tf/types/experimental/ConcreteFunction
    """

    def __init__(
        self,
        name: str,
        form: CallForm,
        call: Callable[..., Any],
        find: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        owner: Any = None,
        *,
        outputs: Any = None,
        by_position: int | None = None,
    ) -> None:
        """Hold a signature.

        Args:
            name: The Python function's name.
            form: The form of its calls.
            call: Runs the compiled function.
            find: Returns its program and the inputs for some arguments.
            args: The positional arguments, tensors as `TensorSpec`s.
            kwargs: The arguments by name, likewise.
            owner: The object whose method it is, kept as long as this function.
            outputs: The results as `TensorSpec`s; found by tracing if None.
            by_position: How many tensors may be given one by one without a name; all if None.
        """
        self._name, self._form, self._number = name, form, next(_numbers)
        self._call, self._find, self._owner = call, find, owner
        self._known_outputs, self._by_position = outputs, by_position
        self._signature = (tuple(args), dict(kwargs))
        self._leaves, self._tree = jax.tree.flatten(in_order(self._signature), is_leaf=_is_spec)

    @property
    def name(self) -> bytes:
        """A name that no other function has."""
        return f"__inference_{self._name}_{self._number}".encode()

    @property
    def function_name(self) -> str:
        """The Python function's name."""
        return self._name

    @property
    def names_of_inputs(self) -> list[str]:
        """A name for each of `inputs`, that of its spec or parameter, made different by numbers."""
        return list(self._names)

    @property
    def form(self) -> CallForm:
        """The form of its calls."""
        return self._form

    @property
    def signature(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in that form, tensors as `TensorSpec`s with the names that they were given: `(args, kwargs)`."""
        return self._signature

    @property
    def structured_input_signature(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, tensors as `TensorSpec`s named after their parameters: `(args, kwargs)`."""
        return self._form.named(*self._signature)

    @property
    def function_type(self) -> FunctionType:
        """What it takes and returns."""
        parameters = {each.name: each for each in self._form.parameters(*self._signature)}
        outputs, captured = self._told()
        return FunctionType(parameters, outputs, {id(each): each for each in captured})

    def _told(self) -> tuple[Any, list[Any]]:
        """Return the results as specs, and the variables that it uses, as far as they are known before it runs."""
        try:
            return self.structured_outputs, self.captured_inputs
        except NotCompilableError:
            return UNKNOWN, []

    @property
    def inputs(self) -> list[TensorSpec]:
        """The specs of the tensors."""
        return [leaf for leaf in self._leaves if _is_spec(leaf)]

    @property
    def structured_outputs(self) -> Any:
        """The results as `TensorSpec`s; a size, or a rank, that follows from an unknown one is not known."""
        if self._known_outputs is not None:
            return self._known_outputs
        small, large = (self._outputs(size) for size in (2, 3))
        return restore_dict_order(jax.tree.map(merged, small, large, is_leaf=_is_spec))

    @property
    def outputs(self) -> list[TensorSpec]:
        """The specs of the results' tensors, in order."""
        return jax.tree.leaves(self.structured_outputs, is_leaf=_is_spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of the results."""
        return jax.tree.map(lambda spec: spec.shape, self.structured_outputs, is_leaf=_is_spec)

    @property
    def output_dtypes(self) -> Any:
        """The dtypes of the results."""
        return jax.tree.map(lambda spec: spec.dtype, self.structured_outputs, is_leaf=_is_spec)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that the function reads or writes."""
        return tuple(cell for cell in self.captured_cells if isinstance(cell, Variable))

    @property
    def captured_cells(self) -> tuple[Any, ...]:
        """All that holds a value for it: such variables, Keras's, and the states of random numbers."""
        return self._program(2).captured.cells

    @property
    def captured_inputs(self) -> list[Any]:
        """What it uses besides its arguments: variables."""
        return list(self.variables)

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those of them that are trainable."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def graph(self) -> Any:
        """There is none.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "A compiled function is an XLA program and has no TensorFlow graph. `tf.function(...).lower(*args).as_text()` "
            "shows the program."
        )

    def trace(self) -> None:
        """Trace the program now, if its sizes are known; a function that has to run as Python is traced by its calls."""
        if all(spec.shape.is_fully_defined() for spec in self.inputs):
            with contextlib.suppress(NotCompilableError):
                self._program(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function on arguments like those of the signature, in its structures, or on its tensors one by one.

        Tensors given one by one have the names of their specs or parameters. Constants may be left out.

        Raises:
            TypeError: If arguments are missing or left over, or have another structure.
            InvalidArgumentError: If a tensor's type or shape does not fit.
        """
        call_args, call_kwargs = self._complete(args, kwargs)
        return self._call(call_args, call_kwargs)

    def fitted(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call | None:
        """Return arguments in the form of its calls as tensors and constants of the signature; None if they are others."""
        try:
            given = self._tree.flatten_up_to(in_order((tuple(args), dict(kwargs))))
            if not all(map(_fits, self._leaves, given)):
                return None
            pairs = zip(self._leaves, given, strict=True)
            filled = [self._checked(leaf, value) if _is_spec(leaf) else leaf for leaf, value in pairs]
        except (TypeError, ValueError, InvalidArgumentError):
            return None
        return restore_dict_order(self._tree.unflatten(filled))

    def describes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether `TensorSpec`s and constants in the form of its calls are those of the signature."""
        try:
            given = self._tree.flatten_up_to(in_order((tuple(args), dict(kwargs))))
        except ValueError:
            return False
        return all(map(_is_described, self._leaves, given))

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the function on arguments that `fitted` has returned."""
        return self._call(args, kwargs)

    def _complete(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        tensors = self._tensors_one_by_one(args, kwargs)
        if tensors is None:
            tensors = self._tensors_in_structures(args, kwargs)
        filled = iter([self._checked(spec, leaf) for spec, leaf in zip(self.inputs, tensors, strict=True)])
        return restore_dict_order(
            self._tree.unflatten([next(filled) if _is_spec(leaf) else leaf for leaf in self._leaves])
        )

    def _tensors_one_by_one(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Return the tensors that a call passes without structures, in order; None if it is not such a call."""
        if any(isinstance(value, list | tuple | dict) for value in (*args, *kwargs.values())):
            return None
        given = jax.tree.leaves(tuple(args))
        if self._by_position is not None and len(given) > self._by_position:
            return None
        names = self._names[len(given) :]
        if len(given) + len(names) != len(self._names) or kwargs.keys() != set(names):
            return None
        return [*given, *jax.tree.leaves([kwargs[name] for name in names])]

    def _tensors_in_structures(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the tensors of a call whose arguments have the structures of the signature."""
        try:
            given = self._tree.flatten_up_to(in_order(self._form.of(args, kwargs)))
        except ValueError:
            given = None
        if given is None or not all(map(_fits, self._leaves, given)):
            names = ", ".join(map(str, self._form.parameters(*self._signature)))
            raise TypeError(
                f"{self._name}() takes ({names}), or its tensors {self._names} one by one; got {tuple(args)} and {dict(kwargs)}."
            )
        return [value for leaf, value in zip(self._leaves, given, strict=True) if _is_spec(leaf)]

    @functools.cached_property
    def _names(self) -> list[str]:
        return self._form.flat_names(*self._signature)

    def _checked(self, spec: TensorSpec, value: Any) -> Any:
        tensor = convert_to_tensor(value) if is_tensor(value) else convert_to_tensor(value, dtype=spec.dtype)
        if not spec.is_compatible_with(TensorSpec.from_tensor(tensor)):
            raise InvalidArgumentError(
                None,
                None,
                f"{self._name}() was compiled for {spec}, but got a tensor of shape {tuple(tensor.shape)} and dtype "
                f"{tensor.dtype.name}.",
            )
        return tensor

    def _program(self, size: int) -> Any:
        """Return the program for a size in place of the unknown ones."""
        return self.program_for([_with_size(spec, size) for spec in self.inputs])

    def program_for(self, types: Sequence[Any]) -> Any:
        """Return the program for types in place of the specs, in the order of `inputs`.

        Raises:
            NotCompilableError: If the function has to run as Python.
        """
        given = iter(types)
        known = [next(given) if _is_spec(leaf) else leaf for leaf in self._leaves]
        args, kwargs = restore_dict_order(self._tree.unflatten(known))
        return self._find(args, kwargs)[0]

    def _outputs(self, size: int) -> Any:
        captured = self._program(size).captured
        shapes = captured.jaxpr.out_avals[: captured.out_tree.num_leaves]
        return captured.out_tree.unflatten([TensorSpec(TensorShape(a.shape), a.dtype) for a in shapes])

    def pretty_printed_signature(self, verbose: bool = True) -> str:
        """Return what it takes and returns as a string; if `verbose`, with a line for each argument and variable."""
        if not verbose:
            return str(self.function_type)
        return several_lines(self._form.parameters(*self._signature), *self._told())

    def __str__(self) -> str:
        return f"ConcreteFunction {self.pretty_printed_signature()}"

    def __repr__(self) -> str:
        return f"<ConcreteFunction {self.function_type} at {id(self):#x}>"


_numbers = itertools.count(1)


def _fits(leaf: Any, given: Any) -> bool:
    """Tell whether an argument may stand at a place of the signature: a tensor, or the constant that is there."""
    if _is_spec(leaf):
        return not isinstance(given, dict | TensorSpec)
    return is_same_constant(leaf, given)


def _is_described(leaf: Any, given: Any) -> bool:
    if not _is_spec(leaf):
        return is_same_constant(leaf, given)
    return _is_spec(given) and given.is_subtype_of(leaf)


def _is_spec(value: Any) -> bool:
    return isinstance(value, TensorSpec)


def merged(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    """Return the spec with None where two sizes differ."""
    return TensorSpec(one.shape.most_specific_compatible_shape(other.shape), one.dtype)


def _with_size(spec: TensorSpec, size: int) -> Any:
    """Return a type with `size` in place of unknown sizes, and for an unknown rank one that differs with it, too."""
    shape = [size] * max(size - 1, 0) if spec.shape.rank is None else spec.shape.as_list()
    if spec.dtype == "string":
        raise NotCompilableError("A function of strings cannot be compiled.")
    return jax.ShapeDtypeStruct([size if n is None else n for n in shape], spec.dtype.dtype)
