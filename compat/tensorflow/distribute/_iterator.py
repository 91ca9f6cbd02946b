"""Iterators over distributed batches, whose place checkpoints save."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, final

import jax

from tfdist_jax import PerReplica
from tfdist_jax._cluster import allgather_object
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._input import prefetch
from tfdist_jax._stateful._state import current_scope
from tfdist_jax.compat.tensorflow._functions._autograph._host import require_host
from tfdist_jax.compat.tensorflow._platform._context import in_replica
from tfdist_jax.compat.tensorflow._platform._errors import OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._ordered import map_in_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import has_own_strings
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._iterator import Resumable, raise_end
from tfdist_jax.compat.tensorflow.data._optional import Optional
from tfdist_jax.compat.tensorflow.data._step_rows import require_same_rows, skip_batches
from tfdist_jax.compat.tensorflow.distribute._options import InputOptions


class _Steps(Protocol):
    """What an iterator needs of a distributed dataset; see `_input._Distributed`."""

    is_own: bool

    @property
    def can_begin_again(self) -> bool: ...

    def begin(self, seeds: Any = None) -> tuple[Iterator[Any], Any]: ...

    def own_rows(self, own: Any) -> int: ...

    def is_beyond_end(self, own: Any) -> bool: ...

    def placed(self, rounds: Iterator[Any], note_rows: Callable[[int], None]) -> Iterator[Any]: ...

    @property
    def element_spec(self) -> Any: ...


@final
class DistributedIterator(Resumable):
    """Iterator over distributed batches.

    Differs from TensorFlow: checkpoints save it.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/DistributedIterator
    """

    def __init__(self, dataset: _Steps) -> None:
        """Hand out the batches of a distributed dataset."""
        super().__init__()
        self._dataset = dataset
        self._begin(None, 0)

    def _begin(self, seeds: Any, position: int) -> None:
        rounds, seeds = self._dataset.begin(seeds)
        self._end, rounds = None, map(self._note_end, itertools.count(), rounds)
        rows = skip_batches(rounds, position, self._dataset.own_rows)
        told = allgather_object("the seeds of data", [seeds, rows]) if self._dataset.is_own else [[seeds, rows]]
        self._seeds = [seeds for seeds, _ in told]
        known = [rows for _, rows in told if rows is not None]
        self._rows = sum(known) if position and known else None
        self._batches = self._dataset.placed(rounds, self._note_rows)
        self._position, self._is_over = position, False

    def initialize(self) -> None:
        """Begin the iteration anew, as the iterators of TensorFlow 1 do."""
        with self._lock:
            self._begin(None, 0)

    def _note_end(self, position: int, own: Any) -> Any:
        if self._dataset.is_beyond_end(own):
            self._end = position
        return own

    def _note_rows(self, rows: int) -> None:
        self._rows = rows if self._rows is None else self._rows

    def __next__(self) -> Any:
        with self._lock:
            batch = self._next()
            if self._end is not None and self._position > self._end:
                self._position, self._is_over = self._end, True
                raise_end()
            return batch

    def _next(self) -> Any:
        if in_replica():
            raise ValueError(
                "next(iterator) should be called from outside of replica_fn: a batch is for all replicas. E.g. "
                "strategy.run(replica_fn, args=(next(iterator),))"
            )
        if current_scope() is not None:
            require_host()
        return self._take(self._take_next)

    def _take_next(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._is_over = True
            raise_end()
        except Exception:
            self._position += 1  # The next one is behind what could not be made.
            raise
        self._position += 1
        return batch

    def _resume(self) -> None:
        if self._dataset.can_begin_again:
            super()._resume()
        else:
            raise RuntimeError(
                f"After step {self._position} an exception such as KeyboardInterrupt came while the next batch was made, and this "
                "process alone cannot make it again: the data is an iterator, or several processes read it together. Begin a new "
                "iteration, or restart the processes from a checkpoint."
            )

    def every_step(self) -> Iterator[Any]:
        """Yield the batches that are left, also one that some replicas have no part of."""
        with contextlib.suppress(StopIteration):
            while True:
                yield self._next()

    def _state(self) -> str:
        """Return where the iterator is, as JSON, the same in all processes.

        It says how many steps were given data, how many rows the first one had on all replicas, and the shuffles' seeds.
        """
        about = {"position": self._position, "rows": self._rows, "seeds": self._seeds, "is_over": self._is_over}
        return json.dumps(about)

    def _go_to(self, state: str) -> None:
        """Go to where an iterator over an equal dataset was, in other processes too.

        The batches before are made again and passed over. Where all processes have the same data there may be more or
        fewer of them than before.

        Raises:
            ValueError: If each process has data of its own, and there are more or fewer of them; or if the first step has
                more or fewer rows than it had.
        """
        wanted = json.loads(state)
        before, now = len(wanted["seeds"]), len(self._seeds)
        if wanted["is_over"]:
            self._batches, self._position, self._is_over = iter(()), wanted["position"], True
            self._rows = wanted.get("rows")
        elif before != now and wanted["position"]:
            raise ValueError(
                f"The checkpoint is from the middle of an iteration over data that {_owners(before)}; here {_owners(now)}. Go on "
                "with as many processes as before, or save when an iteration is over. Where all processes have the same data "
                "(`experimental_distribute_dataset`) their number may change at any time."
            )
        else:
            self._begin(wanted["seeds"][jax.process_index() % before], wanted["position"])
            if self._rows is not None:  # Not all steps before have failed.
                require_same_rows(wanted.get("rows"), self._rows)

    def get_next(self) -> Any:
        """Return the next batch.

        Raises:
            tf.errors.OutOfRangeError: At the end of the data.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Optional:
        """Return the next batch, also one that some replicas have no part of, or an empty optional at the end of the data."""
        return Optional.of_next(self._next, lambda: self.element_spec)

    @property
    def element_spec(self) -> Any:
        """Type of the batches."""
        return self._dataset.element_spec


def _owners(count: int) -> str:
    return f"{count} processes have each of its own" if count > 1 else "all processes have"


def start_iteration(dataset: Any, seeds: Any = None) -> tuple[Iterator[Any], Any]:
    """Begin an iteration over a dataset's batches on the host, and return it with the seeds that it has taken.

    Args:
        dataset: Ours, TensorFlow's or any iterable of batches; other than ours have no seeds.
        seeds: What an earlier iteration has taken, which is run again.
    """
    if isinstance(dataset, RoundRobin):
        return dataset.begin(seeds)
    if isinstance(dataset, Dataset):
        iterator = iter(dataset)
        if seeds is not None:
            iterator.restore_state(json.dumps({"position": 0, "seeds": seeds}))
        return iterator.as_numpy(), json.loads(iterator.state())["seeds"]
    iterate = getattr(dataset, "as_numpy_iterator", None)
    return iter(dataset) if iterate is None else iterate(), None


def prefetch_to_device(batches: Iterator[Any], place: Callable[[Any], Any], options: InputOptions) -> Iterator[Any]:
    """Bring batches to the devices, a few ahead of the steps that use them; or leave them on the host."""
    if options.experimental_fetch_to_device is False:
        host = jax.local_devices(backend="cpu")[0]
        to_host = lambda batch: map_in_order(lambda value: _parts_on(value, host), place(batch), is_leaf=is_per_replica)
        return map(to_host, batches)
    return prefetch(batches, place, depth=1 + options.experimental_per_replica_buffer_size)


def _parts_on(value: Any, device: Any) -> Any:
    if has_own_strings(value) or isinstance(value, HostTensor):
        return value
    if not isinstance(value, PerReplica):
        return jax.device_put(value, device)
    return PerReplica.uneven([jax.device_put(part, device) for part in value.values])


@final
class RoundRobin:
    """The elements of several datasets, one of each in turn, until all are at their end; None for one that is already."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = datasets

    def begin(self, seeds: Any = None) -> tuple[Iterator[Any], list[Any]]:
        """Do as `start_iteration`."""
        earlier = [None] * len(self.datasets) if seeds is None else seeds
        iterations = [start_iteration(dataset, own) for dataset, own in zip(self.datasets, earlier, strict=True)]
        together = itertools.zip_longest(*(elements for elements, _ in iterations))
        return itertools.chain.from_iterable(together), [taken for _, taken in iterations]

    @property
    def element_spec(self) -> Any:
        return self.datasets[0].element_spec
