"""Methods of `tf.data.Dataset` that make a dataset of tensors, of a generator or of other datasets."""

import functools
import glob
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int64
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, is_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _sampling, _source_plans
from tfdist_jax.compat.tensorflow.data._host_values import needing_values
from tfdist_jax.compat.tensorflow.data._plan import Plan, select
from tfdist_jax.compat.tensorflow.data._planned import Files, Planned
from tfdist_jax.compat.tensorflow.data._seed_log import SeedSource
from tfdist_jax.compat.tensorflow.data._selections import Shuffle


@needing_values
class Sources(Planned):
    """Where datasets begin."""

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Self:
        """Make the dataset of the rows of `tensors`: a tensor-like, or tuples and dicts of them."""
        parts = _elements.leaves(tensors)
        if any(isinstance(part, Composite) or _holds_datasets(part) for part in parts):
            return cls(_slices_of_each(tensors))
        return cls(_source_plans.FromTensorSlices(_elements.as_arrays(tensors)))

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Self:
        """Make the dataset with the one element `tensors`."""
        return cls(_source_plans.FromTensors(_elements.as_arrays(tensors)))

    @classmethod
    def range(cls, *args: int, output_type: Any = np.int64, name: str | None = None) -> Self:
        """Make the dataset of the numbers of `range(*args)`."""
        bounds = [int(arg if is_tensor(arg) else host_value(arg, int64)) for arg in args]
        if bounds[2:] == [0]:
            raise invalid("step must be a non-zero integer.")
        numbers = np.arange(*bounds)
        return cls(_source_plans.FromTensorSlices(numbers.astype(getattr(output_type, "as_numpy_dtype", output_type))))

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
        return cls(_source_plans.FromGenerator(generator, given, spec))

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
        plan = _source_plans.ListFiles(_elements.as_arrays(names))
        # Shuffled after they are shared out: each process has the same files in each iteration.
        ordered = plan if shuffle is False else select(plan, Shuffle(len(names), SeedSource.of_seed(seed)))
        return cls(ordered, files=Files(len(names), are_read=False))

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Self:
        """Make the dataset whose elements hold one element of each dataset."""
        if not args and datasets is None:
            raise TypeError("Must pass at least one dataset to `zip`.")
        if args and datasets is not None:
            raise TypeError("Both `*args` and `datasets` cannot be set.")
        given = datasets if datasets is not None else (args[0] if len(args) == 1 else args)
        plan = _sampling.Zip(_elements.map_structure(operator.attrgetter("_plan"), given))
        return cls._of_all(plan, jax.tree.leaves(given))  # By the order of keys, as in TensorFlow.

    @classmethod
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Self:
        """Make an infinite dataset of random int64 numbers, not negative."""
        return cls(_source_plans.Random(SeedSource.of_seed(seed, fixed=not rerandomize_each_iteration)))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1, dtype: Any = np.int64, name: str | None = None) -> Self:
        """Make the infinite dataset of the numbers from `start` on, `step` apart."""
        return cls(_source_plans.Counter(start, step, as_dtype(dtype)))

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
            given = weights._plan
        else:
            given = np.ones(len(plans)) if weights is None else np.asarray(weights, np.float64)
            if given.shape != (len(plans),):
                raise ValueError(f"`weights` must have one number for each dataset, {len(plans)}, got {weights!r}.")
        source = SeedSource.of_seed(seed, fixed=not rerandomize_each_iteration)
        plan = _sampling.SampleFromDatasets(plans, given, source, stop_on_empty_dataset=stop_on_empty_dataset)
        return cls._of_all(plan, datasets)

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Planned], choice_dataset: Planned, stop_on_empty_dataset: bool = True
    ) -> Self:
        """Take each element from the dataset whose number is next in `choice_dataset`.

        Raises:
            TypeError: If its elements are not int64 scalars.
        """
        if choice_dataset.element_spec != TensorSpec(TensorShape([]), int64):
            raise TypeError(
                "Invalid `choice_dataset`. Elements of `choice_dataset` must be scalar `tf.int64` tensors but are "
                f"{choice_dataset.element_spec}."
            )
        plan = _sampling.ChooseFromDatasets(
            _plans(datasets), choice_dataset._plan, stop_on_empty_dataset=stop_on_empty_dataset
        )
        return cls._of_all(plan, [choice_dataset, *datasets])


def _holds_datasets(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(map(_elements.is_dataset, part))


def _slices_of_each(tensors: Any) -> Plan:
    """Plan the slices of tensors some of which are sparse or ragged, or lists of datasets."""

    def slices(part: Any) -> list[Any]:
        if isinstance(part, Composite):
            return part.entries()
        return part if _holds_datasets(part) else list(_elements.rows(_elements.as_arrays(part)))

    columns = [slices(part) for part in _elements.leaves(tensors)]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"Slices need the same first dimension, got {[len(column) for column in columns]}.")
    specs = [_slices_spec(part, column) for part, column in zip(_elements.leaves(tensors), columns, strict=True)]
    elements = [_elements.rebuilt(tensors, parts) for parts in zip(*columns, strict=True)]
    return _source_plans.Elements(elements, _elements.rebuilt(tensors, specs))


def _slices_spec(part: Any, slices: list[Any]) -> Any:
    if isinstance(part, Composite):
        return _elements.unbatched_spec(_elements.spec_of(part))
    return functools.reduce(_elements.common_spec, map(_elements.spec_of, slices))


def _plans(datasets: Sequence[Planned]) -> list[Plan]:
    if not datasets:
        raise ValueError("`datasets` must hold at least one dataset.")
    return [dataset._plan for dataset in datasets]


def _signature(signature: Any, types: Any, shapes: Any) -> Any:
    if signature is not None:
        return signature
    if types is None:
        raise TypeError("Either `output_signature` or `output_types` must be specified.")
    if shapes is None:
        return _elements.map_structure(lambda dtype: TensorSpec(TensorShape(None), dtype), types)
    return _elements.map_structure(lambda dtype, shape: TensorSpec(shape, dtype), types, shapes)
