"""Methods of `tf.data.Dataset` that make a dataset of tensors, of a generator or of other datasets."""

import functools
import glob
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _choosing, _elements, _plan
from tfdist_jax.compat.tensorflow.data._draws import Source
from tfdist_jax.compat.tensorflow.data._planned import Files, Planned


class Sources(Planned):
    """Where datasets begin."""

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Self:
        """Make the dataset of the rows of `tensors`: a tensor-like, or tuples and dicts of them."""
        return cls(_plan.slices(_elements.as_arrays(tensors)))

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Self:
        """Make the dataset with the one element `tensors`."""
        return cls(_plan.single(_elements.as_arrays(tensors)))

    @classmethod
    def range(cls, *args: int, output_type: Any = np.int64, name: str | None = None) -> Self:
        """Make the dataset of the numbers of `range(*args)`."""
        numbers = np.arange(*(int(arg) for arg in args))
        return cls(_plan.slices(numbers.astype(getattr(output_type, "as_numpy_dtype", output_type))))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Self:
        """Make the dataset of what `generator(*args)` yields.

        Args:
            generator: Called for each iteration. What it yields is converted to the elements' dtypes.
            output_types: The elements' dtypes, where there is no signature.
            output_shapes: The elements' shapes, with `output_types`.
            args: Arguments of `generator`, which gets the values that their tensors have now, as NumPy arrays and scalars.
            output_signature: A `tf.TensorSpec` for each tensor of an element.
            name: Unused.

        Raises:
            tf.errors.InvalidArgumentError: In an iteration, when an element does not fit its type.
        """
        spec = _signature(output_signature, output_types, output_shapes)
        given = [_elements.as_numpy(np.array(convert_to_tensor(arg))) for arg in (() if args is None else args)]
        # An iteration may go on after an element that does not fit: a generator expression would be over.
        make = lambda: map(functools.partial(_yielded, spec), generator(*given))
        return cls(_plan.generated(make, spec))

    @classmethod
    def list_files(
        cls, file_pattern: Any, shuffle: bool | None = None, seed: int | None = None, name: str | None = None
    ) -> Self:
        """Make the dataset of the names of the files that fit one of the patterns; shuffled unless that is False.

        Raises:
            tf.errors.InvalidArgumentError: If there is no such file.
        """
        patterns = [os.fsdecode(pattern) for pattern in np.ravel(_elements.as_arrays(file_pattern)).tolist()]
        names = sorted({name for pattern in patterns for name in glob.glob(pattern)})
        if not names:
            raise invalid(f"No files matched pattern: {', '.join(patterns)}")
        plan = _plan.of_files(_plan.slices(_elements.as_arrays(names)))
        # Shuffled after they are shared out: each process has the same files in each iteration.
        ordered = plan if shuffle is False else _plan.shuffled(plan, len(names), Source.of_seed(seed))
        return cls(ordered, files=Files(len(names), are_read=False))

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Self:
        """Make the dataset whose elements hold one element of each dataset."""
        given = datasets if datasets is not None else (args[0] if len(args) == 1 else args)
        plan = _plan.zipped(_elements.map_structure(lambda dataset: dataset._plan, given))
        return cls._of_all(plan, jax.tree.leaves(given))  # By the order of keys, as in TensorFlow.

    @classmethod
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Self:
        """Make an endless dataset of random int64 numbers, not negative."""
        return cls(_choosing.random_numbers(Source.of_seed(seed, fixed=not rerandomize_each_iteration)))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1, dtype: Any = np.int64, name: str | None = None) -> Self:
        """Make the endless dataset of the numbers from `start` on, `step` apart."""
        wanted = as_dtype(dtype)
        return cls(_choosing.counted(start, step, wanted.as_numpy_dtype, TensorSpec(TensorShape([]), wanted)))

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Sequence[Planned],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Self:
        """Take each element from a dataset drawn by `weights`: a list, or a dataset of lists.

        The draws are the same in each iteration, unless `rerandomize_each_iteration`.

        Raises:
            ValueError: If there is no dataset, or not one weight for each.
        """
        plans = _plans(datasets)
        if isinstance(weights, Planned):
            each = weights._plan.elements
        else:
            fixed = np.ones(len(plans)) if weights is None else np.asarray(weights, np.float64)
            if fixed.shape != (len(plans),):
                raise ValueError(f"`weights` must have one number for each dataset, {len(plans)}, got {weights!r}.")
            each = lambda draws: itertools.repeat(fixed)
        source = Source.of_seed(seed, fixed=not rerandomize_each_iteration)
        plan = _choosing.sampled(plans, each, source, stop_on_empty=stop_on_empty_dataset)
        return cls._of_all(plan, datasets)

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Planned], choice_dataset: Planned, stop_on_empty_dataset: bool = True
    ) -> Self:
        """Take each element from the dataset whose number is next in `choice_dataset`."""
        plan = _choosing.chosen(_plans(datasets), choice_dataset._plan, stop_on_empty=stop_on_empty_dataset)
        return cls._of_all(plan, [choice_dataset, *datasets])


def _plans(datasets: Sequence[Planned]) -> list[_plan.Plan]:
    if not datasets:
        raise ValueError("`datasets` must hold at least one dataset.")
    return [dataset._plan for dataset in datasets]


def _yielded(spec: Any, element: Any) -> Any:
    """Return what a generator has yielded as an element of a spec."""
    values: list[Any] = []
    try:
        _elements.map_structure(lambda _, value: values.append(value), spec, element)
    except (KeyError, TypeError, ValueError):
        raise invalid(
            "`generator` yielded an element that did not match the expected structure. The expected structure was "
            f"{spec}, but the yielded element was {element}."
        ) from None
    return _elements.rebuilt(spec, map(_yielded_array, _elements.leaves(spec), values))


def _yielded_array(spec: TensorSpec, value: Any) -> np.ndarray:
    """Convert by NumPy's rules, which are wider than those for tensors; a copy, since the generator may go on changing it."""
    try:
        is_text = spec.dtype.name == "string"
        array = np.array(convert_to_tensor(value, spec.dtype) if is_text else value)
        array = array.astype(spec.dtype.as_numpy_dtype, copy=False)
    except (TypeError, ValueError):
        raise invalid(
            "`generator` yielded an element that could not be converted to the expected type. The expected type was "
            f"{spec.dtype.name}, but the yielded element was {value}."
        ) from None
    if not spec.shape.is_compatible_with(array.shape):
        raise invalid(
            f"`generator` yielded an element of shape {array.shape} where an element of shape {spec.shape} was expected."
        )
    return array


def _signature(signature: Any, types: Any, shapes: Any) -> Any:
    if signature is not None:
        return signature
    if types is None:
        raise TypeError("Either `output_signature` or `output_types` must be specified.")
    if shapes is None:
        return _elements.map_structure(lambda dtype: TensorSpec(TensorShape(None), dtype), types)
    return _elements.map_structure(lambda dtype, shape: TensorSpec(shape, dtype), types, shapes)
