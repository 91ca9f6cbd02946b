"""`tf.data.experimental.at`: single elements of datasets by number, without those before."""

import functools
import operator
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError, OutOfRangeError, UnimplementedError
from tfdist_jax.compat.tensorflow._tensors._tensor import is_tensor
from tfdist_jax.compat.tensorflow.data import (
    _cache,
    _elements,
    _file_cache,
    _mapping,
    _sampling,
    _selections,
    _source_plans,
)
from tfdist_jax.compat.tensorflow.data._batching import Batch
from tfdist_jax.compat.tensorflow.data._plan import Plan, Select, SelectRows
from tfdist_jax.compat.tensorflow.data._planned import Planned
from tfdist_jax.compat.tensorflow.data._prefetch import Prefetch
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

# What a dataset that caches has been asked for.
_kept: WeakKeyDictionary[Plan, dict[int, Any]] = WeakKeyDictionary()


def at(dataset: Planned, index: Any) -> Any:
    """Return an element by its number.

    The orders of `shuffle` are others than those of iterations, the same for all numbers.
    See https://www.tensorflow.org/api_docs/python/tf/data/experimental/at.

    Raises:
        OutOfRangeError: If there are not so many elements.
        FailedPreconditionError: If nobody knows how many there are, or if they are without end.
        UnimplementedError: If elements of such a dataset can only be had one after the other.
        InvalidArgumentError: If `index` is a tensor of another type than int64.
    """
    require_host()
    if is_tensor(index) and np.asarray(index).dtype != np.int64:
        raise invalid(f"The index of an element must be an int64 tensor or a number, got {index}.")
    number = operator.index(index)
    _require_ways(dataset._plan)
    return _elements.as_tensors(_at(dataset._plan, number))


def _way(plan: Plan) -> Callable[[Any, int], Any] | None:
    return next((get for kind, get in _WAYS.items() if isinstance(plan, kind)), None)


def _require_ways(plan: Plan) -> None:
    """Raise if an element of the plan, or of what it is made of, cannot be had by number."""
    if _way(plan) is None:
        raise UnimplementedError(None, None, f"Random access is not implemented for the dataset {plan!r}.")
    for name in ("parent", "dataset", "datasets"):
        for part in _elements.leaves(getattr(plan, name, ())):
            _require_ways(part)


def _at(plan: Plan, index: int) -> Any:
    get = _way(plan)
    if get is None:
        raise RuntimeError(f"{plan!r} had a way to its elements before, and has none now.")
    count = plan.cardinality()
    if count < 0:
        raise FailedPreconditionError(
            None,
            None,
            f"Random access needs a known and finite number of elements, which the dataset {plan!r} has not.",
        )
    if not 0 <= index < count:
        raise OutOfRangeError(None, None, f"Index out of range [0, {count}):{index}")
    return get(plan, index)


def _row(plan: Any, index: int) -> Any:
    return next(_elements.rows(plan.get(np.array([index]))))


def _mapped(plan: Any, index: int) -> Any:
    return plan.map_func.caller(SeedLog())(_at(plan.parent, index))


def _batched(plan: Batch, index: int) -> Any:
    start = index * plan.batch_size
    stop = min(start + plan.batch_size, plan.parent.cardinality())
    return _elements.stack([_at(plan.parent, number) for number in range(start, stop)])


def _zipped(plan: _sampling.Zip, index: int) -> Any:
    return _elements.rebuilt(plan.datasets, [_at(part, index) for part in _elements.leaves(plan.datasets)])


def _concatenated(plan: _sampling.Concatenate, index: int) -> Any:
    count = plan.parent.cardinality()
    return _at(plan.parent, index) if index < count else _at(plan.dataset, index - count)


def _cached_in_file(plan: Any, index: int) -> Any:
    reader = plan.files.reader()
    return _cached(plan, index) if reader is None else reader.at(index)


def _cached(plan: Any, index: int) -> Any:
    kept = _kept.setdefault(plan, {})
    if index not in kept:
        kept[index] = _at(plan.parent, index)
    return kept[index]


def _selected(plan: Any, index: int) -> Any:
    return _at(plan.parent, _place(plan.selection, index, plan.parent.cardinality()))


def _place(selection: Any, index: int, count: int) -> int:
    """Return which of `count` elements a selection has at a number."""
    match selection:
        case _selections.Shuffle():
            return int(_permutation(selection, count)[index])
        case _selections.Repeat():
            return index % count
        case _selections.Skip():
            return index + selection.count
        case _selections.Shard():
            return selection.index + index * selection.num_shards
    return index


@functools.lru_cache(maxsize=8)
def _permutation(shuffle: _selections.Shuffle, count: int) -> np.ndarray:
    return np.random.default_rng(shuffle.seed.first_seed()).permutation(count)


_WAYS: dict[Any, Callable[[Any, int], Any]] = {
    (_source_plans.FromTensorSlices, _source_plans.ListFiles): _row,
    _source_plans.FromTensors: lambda plan, index: plan.tensors,
    _source_plans.Elements: lambda plan, index: plan.items[index],
    (_mapping.MapRows, _mapping.Map): _mapped,
    Batch: _batched,
    _sampling.Zip: _zipped,
    _sampling.Concatenate: _concatenated,
    Prefetch: lambda plan, index: _at(plan.parent, index),
    (_cache.CacheRows, _cache.Cache): _cached,
    (_file_cache.FileCacheRows, _file_cache.FileCache): _cached_in_file,
    (SelectRows, Select): _selected,
}
