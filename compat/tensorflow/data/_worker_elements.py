"""Datasets in the processes of workers: their plans go there, and elements stay there until a function takes them."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, final

import jax
import numpy as np

from tfdist_jax._coordinator import (
    ArrayKind,
    DataSource,
    DataWorker,
    EmbeddedWorker,
    HeldElement,
    being_worker,
    current_worker,
)
from tfdist_jax.compat.tensorflow._tensors._shape import TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._iterator import DatasetIterator
from tfdist_jax.compat.tensorflow.data._plan import Plan, Stream
from tfdist_jax.compat.tensorflow.data._portable_plan import NotPortableError, PortablePlan, load_error, pack_error
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.random._random_state import global_seed, set_seed

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
    source: DataSource

    @classmethod
    def of(cls, plan: Plan, worker: DataWorker) -> "_OnWorker":
        """Let a worker make the elements of a plan, which has one copy there, however often it is iterated over.

        Raises:
            NotPortableError: If it cannot.
        """
        try:
            specs = _elements.leaves(plan.make_spec())
        except Exception as error:  # The first element has it, too, and tells whoever takes that.
            raise NotPortableError(f"the types of its elements are not known: {error}") from error
        if not all(isinstance(spec, TensorSpec) for spec in specs):
            raise NotPortableError("its elements are made of other things than tensors")
        return cls(plan, worker.source_of(plan, lambda: (_Loaded, (PortablePlan.of(plan), worker.index))))

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        self.parent.elements(seed_log)  # Takes its seeds here, where those of the next iteration follow from them.
        taken, found = self.source.iterate(seed_log.seeds())
        seed_log.take(taken)
        return map(functools.partial(_standing_for, self.make_spec()), found)

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()


@final
@dataclasses.dataclass(frozen=True)
class _Failed:
    """Tells that an element could not be made."""

    error: bytes


def _standing_for(spec: Any, taken: tuple[HeldElement, Any]) -> Any:
    """Return an element in which something stands for the arrays that the worker's process holds."""
    element, told = taken
    if isinstance(told, _Failed):
        raise load_error(told.error)
    return _elements.rebuilt(spec, element.stand_for(told))


@final
class _Loaded:
    """In the worker's process: a plan."""

    def __init__(self, portable: PortablePlan, worker: int) -> None:
        try:
            self._plan = portable.load()
        except Exception as error:
            raise NotPortableError(f"the worker's process cannot load it: {error!r}") from error
        self._seed = portable.seed
        self._worker = EmbeddedWorker(worker, jax.local_devices(backend="cpu")[0])

    def __call__(self, seeds: Mapping[str, list[int]]) -> tuple[dict[str, list[int]], "_Made"]:
        """Begin an iteration with seeds that have been taken for it; return those that it has."""
        seed_log = SeedLog(seeds)
        with self._being_program():
            elements = self._plan.elements(seed_log)
        return seed_log.seeds(), _Made(elements, self._being_program)

    @contextlib.contextmanager
    def _being_program(self) -> Iterator[None]:
        """Let functions find what they find in the program's process: the worker, and the seed that was set."""
        if global_seed() != self._seed:
            set_seed(self._seed)
        with being_worker(self._worker):
            yield


@final
class _Made(Iterator[tuple[Sequence[np.ndarray], Any]]):
    """In the worker's process: the arrays of elements, and their parts, with what tells of these in their places."""

    def __init__(self, elements: Iterator[Any], being_program: Callable[[], Any]) -> None:
        self._elements, self._being_program = elements, being_program

    def __next__(self) -> tuple[Sequence[np.ndarray], Any]:
        try:
            with self._being_program():
                element = next(self._elements)
        except StopIteration:
            raise
        except Exception as error:  # Another element may come after it.
            return [], _Failed(pack_error(error))
        arrays: list[np.ndarray] = []

        def tell(leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind in "OSU":
                return leaf
            arrays.append(np.asarray(leaf))
            return ArrayKind(leaf.shape, leaf.dtype)

        return arrays, list(map(tell, _elements.leaves(element)))

    def __iter__(self) -> Self:
        return self
