"""`tf.data.Dataset`: TensorFlow's methods over plans."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _cache, _elements, _explanation, _mapping, _plan, _sampling
from tfdist_jax.compat.tensorflow.data._batch_methods import Groups
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._element_program import tuple_of
from tfdist_jax.compat.tensorflow.data._host_values import needing_values
from tfdist_jax.compat.tensorflow.data._iterator import DatasetIterator, NumpyIterator
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE, SHARD_HINT, Options
from tfdist_jax.compat.tensorflow.data._planned import positive
from tfdist_jax.compat.tensorflow.data._prefetch import Prefetch
from tfdist_jax.compat.tensorflow.data._saving import Saving, as_path
from tfdist_jax.compat.tensorflow.data._seed_log import DataShard, SeedLog, SeedSource
from tfdist_jax.compat.tensorflow.data._selections import (
    AutoShard,
    IgnoreErrors,
    Repeat,
    Shard,
    ShardHint,
    Shuffle,
    Skip,
    Take,
)
from tfdist_jax.compat.tensorflow.data._sources import Sources
from tfdist_jax.compat.tensorflow.data._unsupported import Unsupported

_PREFETCH_DEPTH = 2


@needing_values
class Dataset(Sources, Groups, Saving, Unsupported):
    """Drop-in for `tf.data.Dataset`: elements planned with NumPy, handed out as tensors.

    Differs from TensorFlow: random orders are other ones, repeatable by the same rules.
    Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset
    """

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> "Dataset":
        """Apply `map_func` to each element; traced once and compiled where possible.

        With `num_parallel_calls`, elements are taken and computed before they are asked for, strings of many elements at once.
        """
        return self._with(_mapping.mapped(self._plan, map_func, is_ahead=num_parallel_calls is not None))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
        name: str | None = None,
    ) -> "Dataset":
        """Shuffle through a buffer of `buffer_size` elements, in another order for each iteration.

        A buffer of `tf.data.UNKNOWN_CARDINALITY` elements holds all of them.
        With `seed`, or after `tf.random.set_seed`, a program gives the same orders each time it runs.
        """
        buffer = sys.maxsize if buffer_size == _plan.UNKNOWN else positive("buffer_size", buffer_size)
        source = SeedSource.of_seed(seed, fixed=reshuffle_each_iteration is False)
        return self._select(Shuffle(buffer, source))

    def repeat(self, count: int | None = None, name: str | None = None) -> "Dataset":
        """Go over the elements `count` times; for ever if None or -1."""
        return self._select(Repeat(-1 if count is None else int(count)))

    def take(self, count: int, name: str | None = None) -> "Dataset":
        """Keep the first `count` elements; all if -1."""
        return self._select(Take(int(count)))

    def skip(self, count: int, name: str | None = None) -> "Dataset":
        """Leave the first `count` elements out."""
        return self._select(Skip(int(count)))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> "Dataset":
        """Keep each `num_shards`-th element, from number `index` on.

        With `tf.data.experimental.SHARD_HINT` for both, a strategy whose policy is AutoShardPolicy.HINT fills them in.
        """
        if num_shards == index == SHARD_HINT:
            return self._with(ShardHint(self._plan))
        if not 0 <= index < num_shards:
            raise invalid(f"`index` must be at least 0 and below `num_shards` {num_shards}, got {index}.")
        return self._select(Shard(num_shards, index))

    def explain(self) -> str:
        """Return the steps of the dataset, each with how it runs: many rows at once, compiled, or in Python for each element, and why.

        An addition of tfdist_jax. The functions are traced for the first element, which is made for it.
        """
        return _explanation.explain(self._plan)

    def cache(self, filename: str = "", name: str | None = None) -> "Dataset":
        """Keep the elements once they have been seen: in memory, or in a file, for later iterations, datasets and runs.

        The first whole iteration writes them; one that is left before its end, or is stopped, leaves nothing. Several at once, also
        in several processes, each write a file of their own, and the first that is whole is kept. The file is read until it is
        deleted, whatever has become of the dataset. Each part of data that are shared out by files has a file.

        Differs from TensorFlow: the form of the files, `<filename>.cache`; there is no lock that a stopped program leaves, and so no
        AlreadyExistsError; a `take` of all elements completes the file; `tf.data.experimental.at` reads it.
        Ref: https://www.tensorflow.org/api_docs/python/tf/data/Dataset#cache

        Args:
            filename: How the file's name begins, in a folder that is there, or in a bucket; in memory if empty.
            name: Unused.

        Raises:
            NotFoundError: In an iteration, if the folder is not there.
            InvalidArgumentError: In an iteration, if the file holds elements of another type.
            DataLossError: In an iteration, if the file is damaged.
        """
        path = as_path(filename)
        if not path:
            return self._with(_cache.cached(self._plan))
        # Protocol buffers take a third of the time that `tf.data` takes to start.
        from tfdist_jax.compat.tensorflow.data._file_cache import cached_in_file

        return self._with(cached_in_file(self._plan, path))

    def flat_map(self, map_func: Callable[..., "Dataset"], name: str | None = None) -> "Dataset":
        """Join the datasets that `map_func` makes from the elements, one after the other.

        `map_func` runs in Python for each element; TensorFlow traces it.
        """
        return self._with(_mapping.FlatMap(self._plan, _mapping.DatasetFunction(map_func)))

    def interleave(
        self,
        map_func: Callable[..., "Dataset"],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> "Dataset":
        """Take `block_length` elements in turn from `cycle_length` of the datasets that `map_func` makes.

        With `num_parallel_calls`, the files of these are read at once, each in a thread.
        """
        cycle = os.cpu_count() or 1 if cycle_length in (None, AUTOTUNE) else cycle_length
        lengths = positive("cycle_length", cycle), positive("block_length", block_length or 1)
        is_ahead = num_parallel_calls is not None
        return self._with(
            _mapping.Interleave(self._plan, _mapping.DatasetFunction(map_func), *lengths, is_ahead=is_ahead)
        )

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> "Dataset":
        """Keep the elements before the first for which `predicate` is false."""
        return self._with(_mapping.TakeWhile(self._plan, ElementFunction(predicate)))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> "Dataset":
        """Leave out elements for which an operation or a `py_function` raises; each is logged with `log_warning`."""
        return self._with(IgnoreErrors(self._plan, log_warning))

    def scan(self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None) -> "Dataset":
        """Apply `new_state, result = scan_func(state, element)` to each element; the results are the elements."""
        state = _elements.as_arrays(initial_state)
        return self._with(_mapping.Scan(self._plan, state, ElementFunction(scan_func)))

    def unique(self, name: str | None = None) -> "Dataset":
        """Leave out elements, each a single tensor, that have come before."""
        return self._with(_sampling.Unique(self._plan))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> "Dataset":
        """Leave elements out so that classes are as frequent as `target_dist`; gives pairs of class and element."""
        given = None if initial_dist is None else np.asarray(initial_dist, np.float64)
        wanted = np.asarray(target_dist, np.float64)
        class_of = ElementFunction(class_func)
        return self._with(_sampling.RejectionResample(self._plan, class_of, wanted, given, SeedSource.of_seed(seed)))

    def prefetch(self, buffer_size: int | None, name: str | None = None) -> "Dataset":
        """Prepare up to `buffer_size` elements ahead of their use, in a thread."""
        depth = _PREFETCH_DEPTH if buffer_size in (None, AUTOTUNE) else int(buffer_size)
        return self._with(Prefetch(self._plan, depth)) if depth > 0 else self

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> "Dataset":
        """Keep the elements for which `predicate` is true."""
        return self._with(_mapping.Filter(self._plan, ElementFunction(predicate)))

    def enumerate(self, start: int = 0, name: str | None = None) -> "Dataset":
        """Put the element's number (int64) before each element."""
        count = self._plan.cardinality()
        # One number more, so that the elements end first: a cache is whole once it has been asked for what is behind its last one.
        numbers = Dataset.counter(start) if count < 0 else Dataset.range(start, start + count + 1)
        return Dataset.zip(numbers, self)

    def concatenate(self, dataset: "Dataset", name: str | None = None) -> "Dataset":
        """Append the elements of `dataset`.

        Raises:
            TypeError: If its elements have another structure or other types; where only the data show that, when they do.
        """
        plans = self._plan, dataset._plan
        if all(isinstance(plan, _plan.Rows) for plan in plans):
            _elements.common_spec(*(plan.make_spec() for plan in plans))
        return self._with(_sampling.Concatenate(self._plan, dataset._plan), dataset)

    def apply(self, transformation_func: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """Return `transformation_func(self)`."""
        return transformation_func(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None) -> Any:
        """Combine all elements: `state = reduce_func(state, element)`.

        Raises:
            TypeError: If the function returns a state of another structure or type than it was given.
        """
        state = _elements.as_tensors(_elements.as_arrays(initial_state))
        types = _elements.map_structure(lambda part: as_dtype(part.dtype), state)
        for element in self:
            state = _elements.checked_state(tuple_of(reduce_func(state, element)), types)
        return state

    def with_options(self, options: Options, name: str | None = None) -> "Dataset":
        """Use `options`, where they are set, for what follows."""
        return Dataset(self._plan, self._options.merge(options).fixed(), self._files)

    def shared(self, share: DataShard) -> "Dataset":
        """Return the dataset of one part of the data, of each source its own."""
        return self._with(AutoShard(self._plan, share))

    def cardinality(self) -> Any:
        """Return the number of elements as an int64 tensor; -1 if infinite, -2 if unknown."""
        return convert_to_tensor(np.int64(self._plan.cardinality()))

    def __len__(self) -> int:
        count = self._plan.cardinality()
        if count == _plan.INFINITE:
            raise TypeError("The dataset is infinite.")
        if count == _plan.UNKNOWN:
            raise TypeError("The dataset length is unknown.")
        return count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> DatasetIterator:
        return DatasetIterator(self._plan)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield the elements with NumPy arrays."""
        require_host()
        return NumpyIterator(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """Return the only element.

        Raises:
            tf.errors.InvalidArgumentError: If there is none, or more than one.
        """
        require_host()
        elements = self._plan.elements(SeedLog())
        first, second = next(elements, None), next(elements, None)
        if first is None or second is not None:
            raise invalid(f"Dataset {'was empty' if first is None else 'had more than one element'}.")
        return _elements.as_tensors(first)

    @property
    def _type_spec(self) -> Any:
        return _elements.DatasetSpec(self.element_spec)

    def __repr__(self) -> str:
        try:
            return f"<Dataset element_spec={self.element_spec}>"
        except ValueError:
            return "<Dataset (empty)>"


def cardinality(dataset: Any) -> Any:
    """Return the number of elements of a dataset; -1 if infinite, -2 if unknown."""
    return dataset.cardinality()


def device_batches(dataset: Dataset) -> Iterator[Any]:
    """Return an iterator over a dataset's elements with NumPy arrays, as devices' programs take them: none is ragged."""
    require_host()
    return map(_elements.as_device_arrays, dataset._plan.elements(SeedLog()))
