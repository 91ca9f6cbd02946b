"""`tf.data.experimental`'s functions: most give transformations for `Dataset.apply` that are methods by now."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow._tensors._dtypes import int64, string
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements, _failures
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._plan import UNKNOWN, Plan, Stream
from tfdist_jax.compat.tensorflow.data._planned import Planned
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.data._source_plans import FromTensorSlices
from tfdist_jax.compat.tensorflow.io._parsing import parse_example

Transformation = Callable[[Dataset], Dataset]


def assert_cardinality(expected_cardinality: int) -> Transformation:
    """Return a transformation that says how many elements there are.

    An iteration that ends with another number of elements raises `tf.errors.FailedPreconditionError`.
    """

    def transformation(dataset: Dataset) -> Dataset:
        return Dataset(AssertCardinality(dataset._plan, int(expected_cardinality)), dataset.options())

    return transformation


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AssertCardinality(Stream):
    """Elements whose number is known; an iteration with another number fails."""

    parent: Plan
    expected_cardinality: int

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return _failures.raising(self._checked(_failures.guarded(self.parent.elements(seed_log))))

    def _checked(self, elements: Iterator[Any]) -> Iterator[Any]:
        found, count = 0, self.expected_cardinality
        for element in elements:
            found += type(element) is not _failures.Failure
            if count >= 0 and found > count:
                break
            yield element
        if found != count and count != UNKNOWN:
            raise FailedPreconditionError(
                None, None, f"Expected {count} elements, the dataset has {_words(found, count)}."
            )

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.expected_cardinality


def _words(found: int, count: int) -> str:
    return "more" if 0 <= count < found else str(found)


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Transformation:
    """Return `Dataset.bucket_by_sequence_length` as a transformation."""
    sizes = element_length_func, bucket_boundaries, bucket_batch_sizes, padded_shapes, padding_values
    flags = pad_to_bucket_boundary, no_padding, drop_remainder
    return methodcaller("bucket_by_sequence_length", *sizes, *flags)


def choose_from_datasets(
    datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = False
) -> Dataset:
    """Return `Dataset.choose_from_datasets`, which here goes on while one dataset is left."""
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def copy_to_device(target_device: Any, source_device: Any = "/cpu:0") -> Transformation:
    """Return a transformation that changes nothing: tensors go to the device that uses them."""
    return lambda dataset: dataset


def counter(start: int = 0, step: int = 1, dtype: Any = int64) -> Dataset:
    """Return `Dataset.counter`."""
    return Dataset.counter(start, step, dtype)


def enumerate_dataset(start: int = 0) -> Transformation:
    """Return `Dataset.enumerate` as a transformation."""
    return methodcaller("enumerate", start)


def from_list(elements: Sequence[Any], name: str | None = None) -> Dataset:
    """Return the dataset of a list's elements, all of the same structure and shapes.

    Raises:
        ValueError: If there are none.
    """
    if not elements:
        raise ValueError("`elements` must hold at least one. `tf.data.Dataset.range(0)` is an empty dataset.")
    return Dataset(FromTensorSlices(_elements.stack([_elements.as_arrays(element) for element in elements])))


def get_next_as_optional(iterator: Any) -> Any:
    """Return `iterator.get_next_as_optional()`."""
    return iterator.get_next_as_optional()


def get_single_element(dataset: Dataset) -> Any:
    """Return `dataset.get_single_element()`.

    Raises:
        TypeError: If it is no dataset.
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"Invalid `dataset`. Expected a `tf.data.Dataset` object but got {type(dataset)}.")
    return dataset.get_single_element()


def get_structure(dataset_or_iterator: Any) -> Any:
    """Return the type of the elements of a dataset or an iterator."""
    return dataset_or_iterator.element_spec


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[..., Any],
    window_size: int | None = None,
    window_size_func: Callable[..., Any] | None = None,
) -> Transformation:
    """Return `Dataset.group_by_window` as a transformation."""
    return methodcaller("group_by_window", key_func, reduce_func, window_size, window_size_func)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Transformation:
    """Return `Dataset.map` followed by `Dataset.batch` as a transformation."""
    calls = num_parallel_batches if num_parallel_calls is None else num_parallel_calls
    return lambda dataset: dataset.map(map_func, calls).batch(batch_size, drop_remainder)


def dense_to_ragged_batch(
    batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = int64
) -> Transformation:
    """Return `Dataset.ragged_batch` as a transformation."""
    return methodcaller("ragged_batch", batch_size, drop_remainder, row_splits_dtype)


def dense_to_sparse_batch(batch_size: int, row_shape: Any) -> Transformation:
    """Return `Dataset.sparse_batch` as a transformation."""
    return methodcaller("sparse_batch", batch_size, row_shape)


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool = False,
    buffer_output_elements: int | None = None,
    prefetch_input_elements: int | None = None,
) -> Transformation:
    """Return `Dataset.interleave` as a transformation."""
    return methodcaller("interleave", map_func, cycle_length, block_length, num_parallel_calls=cycle_length)


def prefetch_to_device(device: Any, buffer_size: int | None = None) -> Transformation:
    """Return `Dataset.prefetch` as a transformation; tensors go to the device that uses them."""
    return methodcaller("prefetch", -1 if buffer_size is None else buffer_size)


@final
class RandomDataset(Dataset):
    """`Dataset.random`, as a class; what is made of it is a `Dataset` like any other.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/RandomDataset
    """

    def __init__(
        self, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> None:
        """Make an infinite dataset of random int64 numbers, not negative."""
        super().__init__(Dataset.random(seed, rerandomize_each_iteration)._plan)

    def _with(self, plan: Plan, *beside: Planned) -> Any:
        return Dataset._of_all(plan, [self, *beside])  # noqa: SLF001


def rejection_resample(
    class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: int | None = None
) -> Transformation:
    """Return `Dataset.rejection_resample` as a transformation."""
    return methodcaller("rejection_resample", class_func, target_dist, initial_dist, seed)


def sample_from_datasets(
    datasets: Sequence[Dataset], weights: Any = None, seed: int | None = None, stop_on_empty_dataset: bool = False
) -> Dataset:
    """Return `Dataset.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def scan(initial_state: Any, scan_func: Callable[..., Any]) -> Transformation:
    """Return `Dataset.scan` as a transformation."""
    return methodcaller("scan", initial_state, scan_func)


def shuffle_and_repeat(buffer_size: int, count: int | None = None, seed: int | None = None) -> Transformation:
    """Return `Dataset.shuffle` followed by `Dataset.repeat` as a transformation."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def ignore_errors(log_warning: bool = False) -> Transformation:
    """Return `Dataset.ignore_errors` as a transformation."""
    return methodcaller("ignore_errors", log_warning)


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """Return `Dataset.take_while` as a transformation."""
    return methodcaller("take_while", predicate)


def unbatch() -> Transformation:
    """Return `Dataset.unbatch` as a transformation."""
    return methodcaller("unbatch")


def unique() -> Transformation:
    """Return `Dataset.unique` as a transformation."""
    return methodcaller("unique")


def pad_to_cardinality(cardinality: int, mask_key: str = "valid") -> Transformation:
    """Return a transformation that fills a dataset of dictionaries up with zeros, to so many elements.

    Args:
        cardinality: How many elements there will be.
        mask_key: Where each element says whether it was there before, `[]` bool.

    Raises:
        ValueError: If elements are no dictionaries, it is not known how many there are, or there are more; when it is applied.
    """

    def transformation(dataset: Dataset) -> Dataset:
        spec, count = dataset.element_spec, dataset._plan.cardinality()
        if not isinstance(spec, Mapping):
            raise ValueError(f"`pad_to_cardinality` requires its input dataset to be a dictionary. Received: {spec}")
        if not 0 <= count <= cardinality:
            raise ValueError(
                f"The dataset passed into `pad_to_cardinality` must have a known cardinality of at most {cardinality}, "
                f"but has cardinality {count}"
            )
        zeros = _elements.map_structure(np.zeros_like, _elements.example_of(spec))
        texts = _elements.map_structure(lambda zero: np.full_like(zero, b"") if zero.dtype == object else zero, zeros)
        filling = Dataset.from_tensors({**texts, mask_key: np.bool_(False)}).repeat(cardinality - count)
        return dataset.map(lambda element: {**element, mask_key: True}).concatenate(filling)

    return transformation


def parse_example_dataset(
    features: Any, num_parallel_calls: int | None = 1, deterministic: bool | None = None
) -> Transformation:
    """Return a transformation that parses vectors of examples, as `tf.io.parse_example` does.

    Raises:
        ValueError: If there are no features.
        TypeError: If elements are something else than vectors of strings; when it is applied.
    """
    if features is None:
        raise ValueError("Argument `features` is required, but not specified.")

    def transformation(dataset: Dataset) -> Dataset:
        spec = dataset.element_spec
        if not isinstance(spec, TensorSpec) or spec.dtype != string or spec.shape.rank != 1:
            raise TypeError(f"Input dataset should be a dataset of vectors of strings. Instead it is `{spec}`.")
        return dataset.map(lambda records: parse_example(records, features), num_parallel_calls)

    return transformation
