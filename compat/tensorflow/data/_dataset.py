"""`tf.data.Dataset`: TensorFlow's methods over plans."""

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _elements, _plan
from tfdist_jax.compat.tensorflow.data._iterator import DatasetIterator
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE, Options

_PREFETCH_DEPTH = 2


@final
class Dataset:
    """Drop-in for `tf.data.Dataset`: elements planned with NumPy, handed out as tensors.

    Differs from TensorFlow: random orders are other ones, repeatable by the same rules.
    Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset
    """

    def __init__(self, plan: _plan.Plan, options: Options | None = None) -> None:
        """Hold a plan; users make datasets with `from_tensor_slices` and its like."""
        self._plan = plan
        self._options = options or Options()

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> "Dataset":
        """Make the dataset of the rows of `tensors`: a tensor-like, or tuples and dicts of them."""
        return Dataset(_plan.slices(_elements.as_arrays(tensors)))

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> "Dataset":
        """Make the dataset with the one element `tensors`."""
        return Dataset(_plan.single(_elements.as_arrays(tensors)))

    @staticmethod
    def range(*args: int, output_type: Any = np.int64, name: str | None = None) -> "Dataset":
        """Make the dataset of the numbers of `range(*args)`."""
        numbers = np.arange(*(int(arg) for arg in args))
        return Dataset(_plan.slices(numbers.astype(getattr(output_type, "as_numpy_dtype", output_type))))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> "Dataset":
        """Make the dataset of what `generator(*args)` yields.

        Args:
            generator: Called for each iteration.
            output_types: The elements' dtypes, where there is no signature.
            output_shapes: The elements' shapes, with `output_types`.
            args: Arguments of `generator`.
            output_signature: A `tf.TensorSpec` for each tensor of an element.
            name: Unused.
        """
        spec = _signature(output_signature, output_types, output_shapes)
        typed = lambda value, s: np.asarray(convert_to_tensor(value, dtype=s.dtype))
        make = lambda: (_elements.map_structure(lambda s, v: typed(v, s), spec, e) for e in generator(*(args or ())))
        return Dataset(_plan.generated(make, spec))

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> "Dataset":
        """Make the dataset whose elements hold one element of each dataset."""
        given = datasets if datasets is not None else (args[0] if len(args) == 1 else args)
        return Dataset(_plan.zipped(_elements.map_structure(lambda dataset: dataset._plan, given)))

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> "Dataset":
        """Apply `map_func` to each element; traced once and compiled where possible."""
        return self._with(_plan.mapped(self._plan, map_func))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> "Dataset":
        """Join `batch_size` elements at a time."""
        size = _positive("batch_size", batch_size)
        return self._with(_plan.batched(self._plan, size, drop_remainder=bool(drop_remainder)))

    def unbatch(self, name: str | None = None) -> "Dataset":
        """Take batches apart."""
        return self._with(_plan.unbatched(self._plan))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> "Dataset":
        """Shuffle through a buffer of `buffer_size` elements, in another order for each iteration.

        With `seed`, a program gives the same orders each time it runs.
        """
        buffer = _positive("buffer_size", buffer_size)
        root = np.random.SeedSequence(seed)
        again = np.random.SeedSequence(root.entropy) if reshuffle_each_iteration is False else None
        make_rng = lambda: np.random.default_rng(again or root.spawn(1)[0])
        return self._with(_plan.shuffled(self._plan, buffer, make_rng))

    def repeat(self, count: int | None = None, name: str | None = None) -> "Dataset":
        """Go over the elements `count` times; for ever if None or -1."""
        return self._with(_plan.repeated(self._plan, -1 if count is None else int(count)))

    def take(self, count: int, name: str | None = None) -> "Dataset":
        """Keep the first `count` elements; all if -1."""
        return self._with(_plan.taken(self._plan, int(count)))

    def skip(self, count: int, name: str | None = None) -> "Dataset":
        """Leave the first `count` elements out."""
        return self._with(_plan.skipped(self._plan, int(count)))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> "Dataset":
        """Keep each `num_shards`-th element, from number `index` on."""
        if not 0 <= index < num_shards:
            raise ValueError(f"`index` must be at least 0 and below `num_shards` {num_shards}, got {index}.")
        return self._with(_plan.sharded(self._plan, num_shards, index))

    def cache(self, filename: str = "", name: str | None = None) -> "Dataset":
        """Keep the elements in memory once they have been seen."""
        if filename:
            raise NotImplementedError("Dataset.cache keeps elements in memory only. Leave `filename` out.")
        return self._with(_plan.cached(self._plan))

    def prefetch(self, buffer_size: int, name: str | None = None) -> "Dataset":
        """Prepare up to `buffer_size` elements ahead of their use, in a thread."""
        depth = _PREFETCH_DEPTH if buffer_size == AUTOTUNE else int(buffer_size)
        return self._with(_plan.ahead(self._plan, depth)) if depth > 0 else self

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> "Dataset":
        """Keep the elements for which `predicate` is true."""
        return self._with(_plan.filtered(self._plan, predicate))

    def enumerate(self, start: int = 0, name: str | None = None) -> "Dataset":
        """Put the element's number (int64) before each element."""
        numbers = (
            Dataset.range(start, np.iinfo(np.int64).max)
            if self._plan.count < 0
            else Dataset.range(start, start + self._plan.count)
        )
        return Dataset.zip(numbers, self)

    def concatenate(self, dataset: "Dataset", name: str | None = None) -> "Dataset":
        """Append the elements of `dataset`."""
        return self._with(_plan.joined(self._plan, dataset._plan))

    def apply(self, transformation_func: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """Return `transformation_func(self)`."""
        return transformation_func(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None) -> Any:
        """Combine all elements: `state = reduce_func(state, element)`."""
        state = _elements.as_tensors(_elements.as_arrays(initial_state))
        for element in self:
            state = reduce_func(state, element)
        return state

    def with_options(self, options: Options, name: str | None = None) -> "Dataset":
        """Use `options` for what follows."""
        return Dataset(self._plan, options)

    def options(self) -> Options:
        """Return the options in force."""
        return self._options

    @property
    def element_spec(self) -> Any:
        """A `tf.TensorSpec` for each tensor of an element."""
        return self._plan.make_spec()

    def cardinality(self) -> Any:
        """Return the number of elements as an int64 tensor; -1 if infinite, -2 if unknown."""
        return convert_to_tensor(np.int64(self._plan.count))

    def __len__(self) -> int:
        if self._plan.count == _plan.INFINITE:
            raise TypeError("The dataset is infinite.")
        if self._plan.count == _plan.UNKNOWN:
            raise TypeError("The dataset length is unknown.")
        return self._plan.count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> DatasetIterator:
        return DatasetIterator(self._plan.elements(), self._plan.make_spec)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the elements with NumPy arrays."""
        return map(_elements.as_numpy, self._plan.elements())

    def get_single_element(self, name: str | None = None) -> Any:
        """Return the only element.

        Raises:
            tf.errors.InvalidArgumentError: If there is none, or more than one.
        """
        from tfdist_jax.compat.tensorflow._errors import InvalidArgumentError

        elements = self._plan.elements()
        first, second = next(elements, None), next(elements, None)
        if first is None or second is not None:
            raise InvalidArgumentError(
                None, None, f"Dataset {'was empty' if first is None else 'had more than one element'}."
            )
        return _elements.as_tensors(first)

    def __repr__(self) -> str:
        try:
            return f"<Dataset element_spec={self.element_spec}>"
        except ValueError:
            return "<Dataset (empty)>"

    def _with(self, plan: _plan.Plan) -> "Dataset":
        return Dataset(plan, self._options)


def _positive(name: str, value: Any) -> int:
    if int(value) < 1:
        raise ValueError(f"`{name}` must be 1 or more, got {value!r}.")
    return int(value)


def _signature(signature: Any, types: Any, shapes: Any) -> Any:
    from tfdist_jax.compat.tensorflow._shape import TensorSpec

    if signature is not None:
        return signature
    if types is None:
        raise TypeError("Either `output_signature` or `output_types` must be specified.")
    if shapes is None:
        return _elements.map_structure(lambda dtype: TensorSpec(None, dtype), types)
    return _elements.map_structure(lambda dtype, shape: TensorSpec(shape, dtype), types, shapes)


def cardinality(dataset: Any) -> Any:
    """Return the number of elements of a dataset; -1 if infinite, -2 if unknown."""
    return dataset.cardinality()
