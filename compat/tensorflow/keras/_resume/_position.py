"""How far a training has read its data, so that another process can go on from there."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, final

import jax
import numpy as np

from tfdist_jax._stateful import _state
from tfdist_jax.compat.tensorflow._platform._context import entering_scope
from tfdist_jax.compat.tensorflow.data._step_rows import peek_first, require_same_rows, rows_of
from tfdist_jax.compat.tensorflow.keras._change import Hook
from tfdist_jax.compat.tensorflow.keras._internals import EpochIterator, global_seed_generator
from tfdist_jax.compat.tensorflow.keras._training._adapters import OwnRows
from tfdist_jax.compat.tensorflow.keras._variables._random import host_state, set_host_state
from tfdist_jax.compat.tensorflow.random._random_state import get_streams, set_streams


@dataclasses.dataclass(frozen=True)
class Position:
    """A place in a training's data.

    Attributes:
        begun: How many iterations over the data were begun, and left, before the one that this place is in.
        taken: How many batches of that iteration are done.
        in_epoch: How many of them belong to the running epoch.
        order: The random generators of the host, as they were when the iteration began: what shuffles it. Empty if they
            are like that.
        draws: The random generators of the steps, as they are at this place. Empty if they are like that.
        pipelines: How many processes have each its own data; 1 if all have the same.
        rows: How many rows the first batch of that iteration has, on all replicas; None if it has not been read.
    """

    begun: int
    taken: int
    in_epoch: int
    order: dict[str, Any]
    draws: dict[str, Any]
    pipelines: int = 1
    rows: int | None = None


class DoneStep(NamedTuple):
    """Given to a step's function in place of batches: a step that was done before the start, and its logs."""

    logs: Mapping[str, Any]


def answer_done_step(model: Any) -> None:
    """Let a model's function of a step, which may be the user's own, answer one that is done with its logs, once."""
    function = model.train_function

    def step_function(state: Any, iterator: Any) -> Any:
        model.train_function = function
        return (iterator.logs, state) if isinstance(iterator, DoneStep) else function(state, iterator)

    model.train_function = step_function


@final
class Reader:
    """Follows one training's reading."""

    def __init__(self, start: Position | None, done: DoneStep | None, *, is_epoch_done: bool) -> None:
        """Follow the training that begins next.

        Args:
            start: Where it begins, if not at the beginning.
            done: The last step that was done of the epoch that is begun again, if there is one.
            is_epoch_done: Whether it was the epoch's last one; then `start` is where the next epoch begins.
        """
        self._start, self._done, self._is_epoch_done = start, done, is_epoch_done
        self._source: Any = None
        self._iterator: Any = None
        self._batches: Iterator[Any] = iter(())
        self._rows: int | None = None
        self._begun, self._taken, self._in_epoch = (-1 if start is None else start.begun - 1), 0, 0
        self._pending = 0
        self._generator: Any = None
        self._order: dict[str, Any] = {}

    def is_epoch_done(self) -> bool:
        """Tell whether all batches of the epoch are done, if their number is known."""
        if self._iterator is None:
            return self._is_epoch_done
        count = self._source.num_batches
        return bool(count) and self._in_epoch - self._pending >= count

    def finish_batch(self) -> None:
        """Count the batches that were given out last as done."""
        self._pending = 0

    def position(self, *, is_epoch_over: bool) -> Position:
        """Return where the training is."""
        source = self._source
        if self._iterator is None:  # Nothing has been read.
            start = self._start or Position(0, 0, 0, {}, {})
            return dataclasses.replace(start, order=start.order or host_state(), draws=start.draws or self._draws())
        is_at_end = source._current_iterator is not self._iterator or source._steps_seen == source._num_batches
        if is_epoch_over and (source.steps_per_epoch is None or is_at_end):
            return Position(self._begun + 1, 0, 0, host_state(), self._draws())
        in_epoch = 0 if is_epoch_over else self._in_epoch - self._pending
        taken = self._taken - self._pending
        return Position(self._begun, taken, in_epoch, self._order, self._draws(), _pipelines(source), self._rows)

    def _draws(self) -> dict[str, Any]:
        """Return the random generators of the steps; arrays stay arrays, for which nobody has to wait."""
        self._generator = self._generator or _keras_generator()
        return {"tensorflow": get_streams(), "keras": _state.load(self._generator.state)}

    def follows(self, source: Any) -> bool:
        """Tell whether `source` is the training's own; the first one that is read is."""
        self._source = self._source or source
        return self._source is source

    def enumerate(self, source: Any, executions: Iterator[Any]) -> Iterator[Any]:
        """Go through the calls of an epoch, without those that were done before the start."""
        self._in_epoch, self._pending, self._generator, skipped = 0, 0, None, 0
        steps = source.steps_per_execution
        done, self._done = self._done, None
        if done is not None:
            if self._is_epoch_done:
                self._restore_random_state()
            # `fit` ends an epoch with a step's logs, so that there has to be one. It has no number.
            yield None, None, done
            if self._is_epoch_done:
                return
        for begin, end, iterator in executions:
            if iterator is not self._iterator:
                skipped = self._begin(source, iterator)
            self._in_epoch += steps
            if self._in_epoch <= skipped:
                _drop(self._batches, steps)
                continue
            self._taken += steps
            self._pending = steps
            yield begin, end, self._batches

    def _restore_random_state(self) -> None:
        """Give validation, which comes before the next epoch's data, what it draws from."""
        start: Any = self._start
        _set_draws_state(start.draws)
        self._start = dataclasses.replace(start, draws={})
        if not start.taken:
            set_host_state(start.order)
            self._start = dataclasses.replace(start, draws={}, order={})

    def _begin(self, source: Any, iterator: Any) -> int:
        """Begin an iteration; return how many of the epoch's batches are to be left out."""
        self._iterator, self._begun, self._taken = iterator, self._begun + 1, 0
        start, self._start = self._start, None
        self._rows = None
        self._batches = self._of_equal_size(iterator, start.rows if start is not None and start.taken else None)
        if start is None:
            self._order = host_state()
            return 0
        if start.taken and start.pipelines != _pipelines(source):
            raise ValueError(
                f"The backup is from the middle of an iteration over data of {start.pipelines} process(es); now there are "
                f"{_pipelines(source)}, which have other data each. Go on with as many as before, or let all processes have the "
                "same data: then their number may change at any time."
            )
        order = start.order or host_state()
        if hasattr(source.data_adapter, "begin_again"):
            for _ in range(start.begun):
                source.data_adapter.begin_again()
        set_host_state(order)
        self._order, self._taken = order, start.taken
        # An iteration may have begun epochs ago.
        _drop(self._batches, start.taken - start.in_epoch)
        source._steps_seen += start.taken - start.in_epoch
        if start.draws:
            _set_draws_state(start.draws)
        return start.in_epoch

    def _of_equal_size(self, batches: Iterator[Any], rows: int | None) -> Iterator[Any]:
        """Return an iteration's batches, of which the first one must have so many rows, if they are given."""

        def note(first: Any) -> None:
            self._rows = _rows_on_all(first)
            require_same_rows(rows, self._rows)

        return peek_first(batches, note)


_reader: Reader | None = None


def follow(start: Position | None, done: DoneStep | None = None, *, is_epoch_done: bool = False) -> Reader:
    """Follow the training that is about to begin; see `Reader`."""
    global _reader
    _reader = Reader(start, done, is_epoch_done=is_epoch_done)
    return _reader


def stop_following() -> None:
    """Let trainings read their data unwatched."""
    global _reader
    _reader = None


@contextlib.contextmanager
def following_again() -> Iterator[None]:
    """Follow afterwards whom one has followed before: a training may run another one inside of it, and any may fail."""
    global _reader
    before = _reader
    try:
        yield
    finally:
        _reader = before


def _followed(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    @functools.wraps(original)
    def enumerate_iterator(self: EpochIterator) -> Iterator[Any]:
        executions = original(self)
        if _reader is None or not _reader.follows(self):
            return executions
        return _reader.enumerate(self, executions)

    return enumerate_iterator


def _pipelines(source: Any) -> int:
    return getattr(source.data_adapter, "pipelines", 1)


def _rows_on_all(batch: Any) -> int:
    own = next((leaf for leaf in jax.tree.leaves(batch) if isinstance(leaf, OwnRows)), None)
    return rows_of(batch) if own is None else sum(own.sizes)


def _drop(iterator: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(iterator, None)


def _set_draws_state(state: dict[str, Any]) -> None:
    set_streams(state["tensorflow"])
    _keras_generator().state.assign(np.asarray(state["keras"], np.uint32))


def _keras_generator() -> Any:
    with entering_scope(None):  # It is made when somebody first asks for it: one for the process, of no strategy.
        return global_seed_generator()


CHANGES = (
    Hook(EpochIterator, "_enumerate_iterator", _followed, "self", "count the batches of a training that is backed up"),
)
