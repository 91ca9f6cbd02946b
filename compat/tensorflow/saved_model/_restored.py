"""Functions that come out of a SavedModel: programs that are called as the functions were that they have been."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.export

from tfdist_jax.compat.tensorflow._functions._calls import CallCache, is_traced
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._signatures import CallForm
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow.saved_model._structures import as_decoded


@final
class Program:
    """A saved program with the variables that it reads and writes."""

    def __init__(
        self,
        exported: jax.export.Exported,
        name: str,
        cells: Sequence[Any],
        written: Sequence[Any],
        not_differentiable: str | None,
    ) -> None:
        """Hold a program.

        Args:
            exported: Takes tensors, then the values of `cells`; gives results, then new values of `written`.
            name: What the function is called.
            cells: The variables that it takes.
            written: Those that it gives new values.
            not_differentiable: Why it has no gradient, or None.
        """
        self.name = name
        self._cells, self._written = cells, written
        self._call = (
            exported.call if not_differentiable is None else _without_gradient(exported, name, not_differentiable)
        )

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the results one by one, computed with the variables' present values; then the variables have their new ones."""
        try:
            outputs = list(self._call(*tensors, *map(_value, self._cells)))
        except ValueError as error:
            if "polymorphic shapes specification" not in str(error):
                raise
            raise ValueError(
                f"{self.name}() of a SavedModel does not take tensors of these sizes: {[tuple(tensor.shape) for tensor in tensors]}. Sizes "
                "that its signature leaves open are at least 1, and equal where the function needs them to be: leave empty batches out; "
                f"save it for what comes. {error}"
            ) from error
        split = len(outputs) - len(self._written)
        for variable, value in zip(self._written, outputs[split:], strict=True):
            variable.assign(value)
        return outputs[:split]


@final
class ProgramOfRanks:
    """A saved program for tensors of several ranks: one for each."""

    def __init__(self, name: str, places: Sequence[int], by_rank: Mapping[int, Any]) -> None:
        """Hold the programs.

        Args:
            name: What the function is called.
            places: Which of the tensors may be of several ranks, all of the same in a call.
            by_rank: The program for each rank.
        """
        self.name = name
        self._places, self._by_rank = places, by_rank

    def __call__(self, tensors: Sequence[jax.Array]) -> list[Any]:
        """Return the results of the program for the tensors' rank.

        Raises:
            ValueError: If there is none, or the tensors have different ranks.
        """
        ranks = {tensors[place].ndim for place in self._places}
        rank = min(ranks)
        if len(ranks) > 1 or rank not in self._by_rank:
            raise ValueError(
                f"{self.name}() of a SavedModel was saved for tensors of unknown rank, of which it takes those of one rank in "
                f"{sorted(self._by_rank)}, got {sorted(ranks)}. Save it with a shape in its TensorSpecs."
            )
        return self._by_rank[rank](tensors)


def _value(variable: Any) -> jax.Array:
    return variable.value() if isinstance(variable, Variable) else variable.value


def _without_gradient(exported: jax.export.Exported, name: str, reason: str) -> Any:
    """Return what a program computes, as a function whose gradient is an error."""

    def refuse(_: Any, __: Any) -> Any:
        raise NotImplementedError(
            f"{name}() of a SavedModel has no gradient, since it had none when it was saved: {reason}"
        )

    call = jax.custom_vjp(lambda *inputs: exported.call(*inputs))
    call.defvjp(lambda *inputs: (exported.call(*inputs), None), refuse)
    return call


def make_concrete_function(
    program: Program | ProgramOfRanks, form: CallForm, args: Any, kwargs: Any, outputs: Any
) -> ConcreteFunction:
    """Return a program as the function that it was saved from.

    Args:
        program: The program.
        form: The form of the function's calls.
        args: The positional arguments in that form, tensors as `TensorSpec`s.
        kwargs: Those by name, likewise.
        outputs: The results, likewise.
    """
    is_input = [_is_spec(leaf) for leaf in jax.tree.leaves(in_order((args, kwargs)), is_leaf=_is_spec)]
    out_tree = jax.tree.structure(in_order(outputs), is_leaf=_is_spec)
    constants = jax.tree.leaves(in_order(outputs), is_leaf=_is_spec)

    def run(*args: Any, **kwargs: Any) -> Any:
        given = jax.tree.leaves(in_order((args, kwargs)))
        results = iter(program([leaf for leaf, is_tensor in zip(given, is_input, strict=True) if is_tensor]))
        leaves = [next(results) if _is_spec(leaf) else leaf for leaf in constants]
        return restore_dict_order(out_tree.unflatten(leaves))

    function = _Compiled(run, program.name)
    return ConcreteFunction(program.name, form, function.run, function.find, args, kwargs, outputs=outputs)


def make_signature(
    program: Program | ProgramOfRanks, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> ConcreteFunction:
    """Return a program as a function of tensors by name, to results by name; `inputs` and `outputs` are in the program's order."""
    name = f"signature_wrapper_{program.name}"
    only = inspect.Parameter.KEYWORD_ONLY
    named = dict(sorted(inputs.items()))
    form = make_form(name, inspect.Signature([inspect.Parameter(each, only) for each in named]))

    def run(**tensors: Any) -> Any:
        results = program([tensors[each] for each in inputs])
        return dict(sorted(zip(outputs, results, strict=True)))

    function = _Compiled(run, name)
    shown = dict(sorted(outputs.items()))
    return ConcreteFunction(
        name, form, function.run, function.find, (), named, outputs=shown, by_position=int(len(named) == 1)
    )


@final
class _Compiled:
    """A function as a concrete function calls it; each size has a program, which is no reason to warn of."""

    def __init__(self, run: Callable[..., Any], name: str) -> None:
        run.__name__ = name
        self._run, self._cache = run, CallCache()

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the function, compiled unless it is part of a program that is being traced."""
        return self._run(*args, **kwargs) if is_traced((args, kwargs)) else self._cache.call(self._run, args, kwargs)

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the program for arguments, and their tensors."""
        return self._cache.find(self._run, args, kwargs)


def make_form(name: str, signature: inspect.Signature, input_signature: Any = None) -> CallForm:
    """Return the form of the calls of a function that is no longer there."""

    def stand_in(*args: Any, **kwargs: Any) -> None: ...

    stand_in.__name__ = name
    stand_in.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return CallForm(stand_in, input_signature)


@final
class RestoredFunction:
    """A `tf.function` that was saved: it takes arguments like those that it had been called with, or was saved for.

    Differs from TensorFlow: it has no other attributes of `tf.function` than these.
    """

    def __init__(
        self,
        name: str,
        form: CallForm,
        input_signature: Any,
        concrete: Sequence[ConcreteFunction],
        reasons: Sequence[str],
    ) -> None:
        """Hold the function for each signature that was saved.

        Args:
            name: Its name.
            form: The form of its calls.
            input_signature: What it was compiled for, or None.
            concrete: The functions.
            reasons: Why others were not saved.
        """
        self.__name__ = name
        self._form, self._concrete, self._reasons = form, list(concrete), reasons
        self.input_signature = input_signature

    @property
    def concrete_functions(self) -> list[ConcreteFunction]:
        """The function for each signature."""
        return list(self._concrete)

    @property
    def function_spec(self) -> CallForm:
        """The form of its calls."""
        return self._form

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function for the signature that the arguments fit.

        Raises:
            ValueError: If they fit none.
            TypeError: If the function has no such parameters, or the arguments do not fit its input signature.
        """
        found, (args, kwargs) = self._find(args, kwargs)
        return found.run(args, kwargs)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Return the function for one signature: tensors or `tf.TensorSpec`s, and constants."""
        if not args and not kwargs and len(self._concrete) == 1:
            return self._concrete[0]
        given = self._form.of(*as_decoded((args, kwargs)))
        for concrete in self._concrete:
            if concrete.describes(*given):
                return concrete
        return self._find(args, kwargs)[0]

    def _find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[ConcreteFunction, Any]:
        if not self._concrete:
            reasons = "".join(f" It was not saved, since {reason}." for reason in self._reasons)
            raise ValueError(f"Found zero restored functions for caller function: {self.__name__}().{reasons}")
        given = self._form.of(*as_decoded((args, dict(kwargs))))
        for concrete in self._concrete:
            fitted = concrete.fitted(*given)
            if fitted is not None:
                return concrete, fitted
        raise ValueError(self._no_match(given))

    def _no_match(self, given: Any) -> str:
        options = [
            f"Option {i}:\n{_call_text(*concrete.structured_input_signature)}"
            for i, concrete in enumerate(self._concrete, 1)
        ]
        missing = "".join(f"\n\nAnother option was not saved, since {reason}." for reason in self._reasons)
        return (
            f"Could not find matching concrete function to call loaded from the SavedModel. Got:\n{_call_text(*given)}\n\n Expected "
            f"these arguments to match one of the following {len(options)} option(s):\n\n"
            + "\n\n".join(options)
            + missing
        )

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """Return, as a string, what the function takes and returns for each signature."""
        return ("\n\n" if verbose else "\n").join(each.pretty_printed_signature(verbose) for each in self._concrete)


def _call_text(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    shown = "".join(f"    * {_text(value)}\n" for value in args)
    return f"  Positional arguments ({len(args)} total):\n{shown}  Keyword arguments: { ({k: _text(v) for k, v in kwargs.items()}) }"


def _text(value: Any) -> str:
    leaves = jax.tree.map(
        lambda leaf: TensorSpec.from_tensor(leaf) if is_tensor(leaf) else leaf, value, is_leaf=_is_spec
    )
    return repr(leaves)


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec)


@final
class SignatureMap(Mapping[str, ConcreteFunction]):
    """The signatures of a loaded object by name."""

    def __init__(self, signatures: Mapping[str, ConcreteFunction]) -> None:
        """Hold them."""
        self._signatures = dict(signatures)

    def __getitem__(self, key: str) -> ConcreteFunction:
        return self._signatures[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def __len__(self) -> int:
        return len(self._signatures)

    def __repr__(self) -> str:
        return f"_SignatureMap({self._signatures!r})"
