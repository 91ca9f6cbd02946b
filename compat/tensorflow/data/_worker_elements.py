"""Datasets in the processes of workers: their plans go there, and elements stay there until a function takes them."""

import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, final

import jax
import numpy as np

from tfdist_jax._coordinator import DataWorker, EmbeddedWorker, HeldArray, HeldElement, being_worker, current_worker
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._iterator import DatasetIterator
from tfdist_jax.compat.tensorflow.data._plan import Plan, Stream
from tfdist_jax.compat.tensorflow.data._portable_plan import NotPortableError, PortablePlan
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

_log = logging.getLogger("tfdist_jax")


def iterate(dataset: Any) -> Any:
    """Return an iterator over a dataset, whose elements the worker that runs this makes in its process, if it has one.

    Where they cannot be made there, which is told, this process makes them.
    """
    worker = current_worker()
    if not isinstance(worker, DataWorker) or not isinstance(dataset, Dataset):
        return iter(dataset)
    try:
        return DatasetIterator(_OnWorker.of(dataset._plan, worker))
    except NotPortableError as error:
        _tell(str(error))
        return iter(dataset)


@functools.cache
def _tell(reason: str) -> None:
    """Tell once."""
    _log.warning(
        "A worker's dataset is read in the coordinator's process, and its elements are sent to the worker, since %s. See "
        "docs/parameter-server.md.",
        reason,
    )


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _OnWorker(Stream):
    """The elements of a plan, which a worker makes in its process; their arrays stay there."""

    is_elsewhere: ClassVar[bool] = True
    parent: Plan
    worker: DataWorker
    portable: PortablePlan

    @classmethod
    def of(cls, plan: Plan, worker: DataWorker) -> "_OnWorker":
        """Let a worker make the elements of a plan.

        Raises:
            NotPortableError: If it cannot.
        """
        portable = PortablePlan.of(plan)
        try:
            specs = _elements.leaves(plan.make_spec())
        except Exception as error:  # The first element has it, too, and tells whoever takes that.
            raise NotPortableError(f"the types of its elements are not known: {error}") from error
        if not all(isinstance(spec, TensorSpec) for spec in specs):
            raise NotPortableError("its elements are made of other things than tensors")
        return cls(plan, worker, portable)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        self.parent.elements(seed_log)  # Takes its seeds here, where those of the next iteration follow from them.
        return map(_standing_for, self.worker.iterate(_begin, self.portable, seed_log.seeds(), self.worker.index))

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()


@final
@dataclasses.dataclass(frozen=True)
class _Kind:
    """Tells of an array of an element that is not sent."""

    shape: tuple[int, ...]
    dtype: np.dtype


def _standing_for(taken: tuple[HeldElement, Any]) -> Any:
    """Return an element in which something stands for the arrays that the worker's process holds."""
    (element, told), places = taken, itertools.count()

    def stand_for(leaf: Any) -> Any:
        return HeldArray(element, next(places), leaf.shape, leaf.dtype) if isinstance(leaf, _Kind) else leaf

    return _elements.map_structure(stand_for, told)


def _begin(portable: PortablePlan, seeds: Mapping[str, list[int]], worker: int) -> "_Made":
    """Begin an iteration in the worker's process, with seeds that have been taken for it."""
    try:
        plan = portable.load()
    except Exception as error:
        raise NotPortableError(f"the worker's process cannot load it: {error!r}") from error
    return _Made(plan.elements(SeedLog(seeds)), worker)


@final
class _Made(Iterator[tuple[Sequence[np.ndarray], Any]]):
    """In the worker's process: the arrays of elements, and the elements with what tells of these in their places.

    It goes on after an element that could not be made.
    """

    def __init__(self, elements: Iterator[Any], worker: int) -> None:
        self._elements = elements
        self._worker = EmbeddedWorker(worker, jax.local_devices(backend="cpu")[0])

    def __next__(self) -> tuple[Sequence[np.ndarray], Any]:
        with being_worker(self._worker):
            element = next(self._elements)
        arrays: list[np.ndarray] = []

        def tell(leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind in "OSU":
                return leaf
            arrays.append(np.asarray(leaf))
            return _Kind(leaf.shape, leaf.dtype)

        return arrays, _elements.map_structure(tell, element)

    def __iter__(self) -> Self:
        return self
