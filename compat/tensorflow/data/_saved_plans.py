"""Plans of elements that are in folders: what `Dataset.load` reads, and what `Dataset.snapshot` writes and then reads."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import DataLossError, OpError
from tfdist_jax.compat.tensorflow.data import _elements, _failures, _mapping
from tfdist_jax.compat.tensorflow.data._element_function import ElementFunction
from tfdist_jax.compat.tensorflow.data._element_parts import ElementParts
from tfdist_jax.compat.tensorflow.data._element_records import ElementDecoder
from tfdist_jax.compat.tensorflow.data._fingerprint import fingerprint
from tfdist_jax.compat.tensorflow.data._plan import Batches, Plan, Stream, rows_in_each
from tfdist_jax.compat.tensorflow.data._saved_folder import FolderWriter, SavedFolder, missing, open_folder, read_folder
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog
from tfdist_jax.compat.tensorflow.data._source_plans import Elements
from tfdist_jax.compat.tensorflow.data._spec_messages import fits
from tfdist_jax.compat.tensorflow.data._written import OnDisk, holding, raising_once, written


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadShard(Stream):
    """The elements of one shard of a folder."""

    folder: SavedFolder = dataclasses.field(repr=False)
    path: str
    compression: str
    spec: Any = dataclasses.field(repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        return self.folder.elements_of(self.path, ElementDecoder(ElementParts(self.spec)), self.compression)

    def make_spec(self) -> Any:
        return self.spec

    def cardinality(self) -> int:
        return self.folder.count_of(self.path)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ReadFolder(OnDisk):
    """How the elements of a folder come: what `reader_func` makes of a dataset of its shards, or those of each in turn."""

    path: str
    compression: str
    reader_func: Callable[..., Any] | None
    dataset_of: Callable[[Plan], Any] = dataclasses.field(repr=False)

    def read_plan(self, folder: SavedFolder, spec: Any) -> Plan:
        """Return the plan of the elements of a folder.

        Raises:
            TypeError: If the user's function returns no dataset.
        """
        shards = [ReadShard(folder, path, self.compression, spec) for path in folder.shards()]
        if self.reader_func is None:
            return InTurn(shards, folder.num_elements, spec)
        datasets = Elements([self.dataset_of(shard) for shard in shards], _elements.DatasetSpec(spec))
        dataset = self.reader_func(self.dataset_of(datasets))
        if not hasattr(dataset, "_plan"):
            raise TypeError(f"`reader_func` must return a `Dataset` object. Got {type(dataset).__name__}.")
        return dataset._plan


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InTurn(Stream):
    """One element of each shard in turn, of as many at a time as there are processors, as in TensorFlow."""

    shards: Sequence[Plan]
    count: int
    spec: Any

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        iterations = (
            _failures.guarded(shard.elements(seed_log.part(number))) for number, shard in enumerate(self.shards)
        )
        cycle_length = max(1, min(len(self.shards), os.cpu_count() or 1))
        return _failures.raising(self._counted(_mapping.in_turn(iterations, cycle_length, 1)))

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        found = 0
        for item in items:
            found += 1
            yield item
            if type(item) is _failures.Failure:
                found = self.count  # It has been told that some are missing.
        if found < self.count:
            raise DataLossError(None, None, f"{self.count} elements were saved, and {found} are there.")

    def make_spec(self) -> Any:
        return self.spec

    def cardinality(self) -> int:
        return self.count


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Load(Stream, ReadFolder):
    """What is saved in a folder, when an iteration begins."""

    element_spec: Any = dataclasses.field(repr=False)
    _plans: dict[str, Plan] = dataclasses.field(default_factory=dict, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        try:
            plan, held = self.plan()
        except OpError as error:
            return raising_once(error)
        return holding(plan.elements(seed_log.part("read")), held)

    def plan(self) -> tuple[Plan, Any]:
        """Return the plan of what is there now, and an object as long as which that stays.

        Raises:
            NotFoundError: If nothing is.
            InvalidArgumentError: If it is of another type.
        """
        found = open_folder(self.path)
        if found is None:
            raise missing(self.path)
        folder, held = found
        if folder.spec is not None and not fits(folder.spec, self.element_spec):
            raise invalid(f"{self.path} holds elements of the type {folder.spec}, and not {self.element_spec}.")
        if folder.run not in self._plans:
            self._plans.clear()
            self._plans[folder.run] = self.read_plan(folder, self.element_spec)
        return self._plans[folder.run], held

    def make_spec(self) -> Any:
        return self.element_spec

    def cardinality(self) -> int:
        folder = read_folder(self.path)
        return 0 if folder is None else folder.num_elements

    def explain_files(self) -> str:
        return f"records of {self.path}, element by element"


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Snapshot(Batches, ReadFolder):
    """Elements that are saved in the first whole iteration, and read afterwards; each pipeline has a folder in `path`."""

    parent: Plan
    shard_func: ElementFunction | None
    _digest: list[str] = dataclasses.field(default_factory=list, repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        path = self.folder(seed_log)
        try:
            found = open_folder(path)
        except OpError as error:
            return raising_once(error)
        if found is not None:
            folder, held = found
            drawn = seed_log.absolute(folder.manifest.get("seeds", {}))
            if not seed_log.is_again or seed_log.earlier() == drawn:
                return holding(self._read(folder, seed_log, drawn), held)
            # The iteration that is run again had another order.
            return self.parent.elements(seed_log.in_first_repetition().part("saved"))
        elements = self.parent.elements(seed_log.part("saved"))
        if seed_log.is_example:
            return elements

        def make_writer() -> FolderWriter:
            shard_of = shard_function(self.shard_func, seed_log)
            describe = lambda: {"seeds": seed_log.relative(seed_log.taken())}
            return FolderWriter(path, self.make_spec(), self.compression, shard_of, describe, keeps_first=True)

        return written(elements, make_writer, self.parent.cardinality())

    def _read(self, folder: SavedFolder, seed_log: SeedLog, drawn: dict[str, list[int]]) -> Iterator[Any]:
        spec = self.make_spec()
        if not fits(folder.spec, spec):
            raise invalid(f"{folder.path} holds elements of the type {folder.spec}, and not {spec}.")
        seed_log.take(drawn)
        return self.read_plan(folder, spec).elements(seed_log.part("read"))

    def folder(self, seed_log: SeedLog) -> str:
        """Return the folder of this pipeline, and of the part of the data that an iteration goes over."""
        if not self._digest:
            self._digest.append(fingerprint(self.parent))
        share = seed_log.share
        part = "" if share is None else f"-{share.by}-{share.index}-of-{share.count}"
        return os.path.join(self.path, f"{self._digest[0]}{part}")

    def make_spec(self) -> Any:
        return self.parent.make_spec()

    def cardinality(self) -> int:
        return self.parent.cardinality()

    def rows_in_each(self) -> int | None:
        return rows_in_each(self.parent)

    def explain_files(self) -> str:
        path = self.folder(SeedLog())
        if read_folder(path) is None:
            return f"elements of the first whole iteration go to {path}, and are read from there afterwards"
        return f"records of {path}: nothing above runs"


def shard_function(fn: ElementFunction | None, seed_log: SeedLog) -> Callable[[Any], int]:
    """Return what tells which shard an element belongs to: the first one, if there is no function."""
    if fn is None:
        return lambda element: 0
    call = fn.caller(seed_log.part("sharded"))

    def shard_of(element: Any) -> int:
        result = call(element)
        if not isinstance(result, np.ndarray | np.generic) or result.dtype != np.int64 or result.shape != ():
            raise invalid(f"`shard_func` must return a scalar int64, got {result!r}.")
        number = int(result)
        if number < 0:
            raise invalid(f"`shard_func` must return the number of a shard, 0 or more, got {number}.")
        return number

    return shard_of
