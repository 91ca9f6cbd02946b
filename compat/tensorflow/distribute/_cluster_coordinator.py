"""`tf.distribute.coordinator`: closures for workers, and what comes of them."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax import _coordinator
from tfdist_jax._coordinator import Coordinator, Snapshot, current_worker
from tfdist_jax._program import BEFORE_RUN
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._storage import Storage
from tfdist_jax._thread_state import having
from tfdist_jax.compat.tensorflow._functions._concrete_function import ConcreteFunction
from tfdist_jax.compat.tensorflow._functions._function import Function
from tfdist_jax.compat.tensorflow._platform._context import current_strategy
from tfdist_jax.compat.tensorflow._platform._errors import CancelledError
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._worker_elements import iterate
from tfdist_jax.compat.tensorflow.distribute._parameter_server import ParameterServerStrategy
from tfdist_jax.compat.tensorflow.distribute._per_worker_datasets import DatasetOfEachWorker

_MOST_SHOWN = 10_000


class ClosureInputError(Exception):
    """A closure has not run, since one of its inputs could not be made."""

    def __init__(self, original_exception: BaseException) -> None:
        """Say why it could not."""
        if isinstance(original_exception, ClosureInputError):
            original_exception = original_exception.original_exception
        self.original_exception = original_exception
        super().__init__(
            f"Input has an error, the original exception is {original_exception!r}, error message is {original_exception}."
        )


class RemoteValue:
    """What a scheduled function returns, once it has run.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/coordinator/RemoteValue
    """

    def __init__(self, native: _coordinator.RemoteValue) -> None:
        """Stand for a native one."""
        self.native = native

    def fetch(self) -> Any:
        """Wait until the function has run and return its results, tensors as NumPy arrays.

        Raises:
            tf.errors.CancelledError: If it has not run since another one has failed.
            RuntimeError: In a function that a worker runs, if it would have to wait.
        """
        return jax.tree.map(lambda leaf: leaf.numpy() if hasattr(leaf, "numpy") else leaf, self.get())

    def get(self) -> Any:
        """Wait until the function has run and return its results, as `fetch`, but as tensors."""
        if current_worker() is not None and not self.native.is_ready:
            raise RuntimeError(
                "A RemoteValue is fetched in a function that a worker runs, which would wait for itself if the value is its own. Fetch it "
                "where the coordinator was made."
            )
        return self.native.result()


class PerWorkerValues:
    """A value for each worker; a function that gets it as an argument finds its worker's.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/coordinator/PerWorkerValues
    """

    def __init__(self, values: Sequence[RemoteValue]) -> None:
        """Hold them, in the order of the workers."""
        if not all(isinstance(value, RemoteValue) for value in values):
            raise AssertionError("`PerWorkerValues` should only take `RemoteValue`s.")
        self.values = tuple(values)

    def of_current_worker(self) -> Any:
        """Return the value of the worker that runs this.

        Raises:
            ClosureInputError: If it could not be made.
        """
        worker: Any = current_worker()
        native = self.values[worker.index].native
        error = native.error()
        if error is not None:
            raise ClosureInputError(error)
        return native.result()


@final
class PerWorkerDistributedIterator(PerWorkerValues):
    """An iterator for each worker, to be given to scheduled functions."""

    def __next__(self) -> Any:
        """Refuse: which worker's would it be?"""
        return self.get_next()

    def get_next(self, name: str | None = None) -> Any:
        """Refuse: which worker's would it be?

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            "Iterating over the workers' iterators is not supported here: call `next` in the function that `schedule` gets it with."
        )


@final
class PerWorkerDataset:
    """A dataset for each worker; `iter` makes an iterator on each."""

    def __init__(self, make: Callable[[], Any], coordinator: "ClusterCoordinator") -> None:
        """Let `make` make each worker's."""
        self._make, self._coordinator = make, coordinator

    def build(self) -> PerWorkerValues:
        """Make the datasets, without iterators."""
        return self._coordinator.create_per_worker_resource(self._make)

    def __iter__(self) -> PerWorkerDistributedIterator:
        """Make an iterator on each worker."""
        if _state.current_scope() is not None:
            raise RuntimeError("__iter__() is not supported inside of tf.function: make the iterators outside.")
        made = self._coordinator.create_per_worker_resource(lambda: _iterate(self._make()))
        return PerWorkerDistributedIterator(made.values)

    @property
    def element_spec(self) -> Any:
        """The types of the elements."""
        return self._make().element_spec


@final
class ClusterCoordinator:
    """Drop-in for `tf.distribute.coordinator.ClusterCoordinator`: gives functions to the workers of a strategy.

    A strategy has one; asked for again, it is the same.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/coordinator/ClusterCoordinator
    """

    def __new__(cls, strategy: ParameterServerStrategy) -> "ClusterCoordinator":
        """Return the strategy's coordinator."""
        if not isinstance(strategy, ParameterServerStrategy):
            raise ValueError(
                "Only `tf.distribute.experimental.ParameterServerStrategy` is supported to work with "
                f"`tf.distribute.experimental.coordinator.ClusterCoordinator` currently, got {strategy!r}."
            )
        if strategy.coordinator is None:
            strategy.coordinator = super().__new__(cls)
        return strategy.coordinator

    def __init__(self, strategy: ParameterServerStrategy) -> None:
        """Give functions to the workers of `strategy`.

        Raises:
            ValueError: If it is no `ParameterServerStrategy`.
        """
        if hasattr(self, "_native"):
            return
        self._strategy = strategy
        self._native = Coordinator(
            strategy.workers,
            statistics=strategy.statistics,
            **strategy.coordinator_options,
            make_cancelled=_make_cancelled,
        )
        if strategy.rounds is not None:
            rounds = strategy.rounds
            self._native.restrict(rounds.may_take, begin=rounds.begin, settle=rounds.settle)

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy."""
        return self._strategy

    @property
    def statistics(self) -> Snapshot:
        """What has happened: closures, staleness, bytes. Beyond TensorFlow."""
        return self._strategy.statistics.snapshot()

    def write_statistics(self, step: int) -> None:
        """Write what has happened as summaries of a step, for TensorBoard, to the default writer. Beyond TensorFlow."""
        # It takes TensorBoard's library.
        from tfdist_jax.compat.tensorflow.summary._kinds import histogram, scalar

        told = self.statistics
        for name, value in told.scalars.items():
            scalar(f"parameter_server/{name}", value, step=step)
        # The histogram is written of single values: of many updates in proportion.
        share = min(1.0, _MOST_SHOWN / max(sum(told.staleness.values()), 1))
        shown = [math.ceil(count * share) for count in told.staleness.values()]
        histogram("parameter_server/staleness", np.repeat(list(told.staleness), shown), step=step)

    def schedule(
        self, fn: Any, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> RemoteValue:
        """Let a worker run `fn(*args, **kwargs)`, and return at once.

        It runs at least once: again, on another worker, if one goes meanwhile.

        Args:
            fn: A `tf.function`.
            args: Its arguments. Of `PerWorkerValues` it gets those of the worker that runs it.
            kwargs: Its arguments by name, likewise.

        Raises:
            TypeError: If `fn` is no `tf.function`, `args` no sequence or `kwargs` no dictionary.
            ValueError: If an argument is a `RemoteValue`.
            Exception: The first error of a function that was scheduled before; those that have not run are cancelled then.
        """
        if not isinstance(fn, Function | ConcreteFunction):
            raise TypeError(
                "`tf.distribute.experimental.coordinator.ClusterCoordinator.schedule` only accepts a `tf.function` or a concrete function, "
                f"got {fn!r}."
            )
        arguments = _arguments(args, kwargs)
        if any(isinstance(leaf, RemoteValue) for leaf in _leaves(arguments)):
            raise ValueError(
                "`tf.distribute.experimental.coordinator.RemoteValue` used as an input to scheduled function is not yet supported: "
                "fetch it, and give the function its value."
            )
        return RemoteValue(self._schedule(functools.partial(_call, self._strategy, fn, arguments, BEFORE_RUN.get())))

    def schedule_plainly(self, run: Callable[[], Any]) -> _coordinator.RemoteValue:
        """Let a worker call a function, which need be no `tf.function`."""
        return self._schedule(functools.partial(_call, self._strategy, run, ((), {}), BEFORE_RUN.get()))

    def _schedule(self, fn: Callable[[], Any]) -> _coordinator.RemoteValue:
        return self._native.schedule(fn)

    def join(self) -> None:
        """Wait until all scheduled functions have run.

        A last round that is not complete is ended: with `backup_workers` the mean of the gradients that there are is applied, with
        `sync_every` the copies of the workers that have made steps are put together.

        Raises:
            Exception: As `schedule`.
        """
        self._native.join()

    def done(self) -> bool:
        """Return whether all scheduled functions have run; not while another thread schedules more, or waits for them.

        If they have, a last round that is not complete is ended, as `join` does.

        Raises:
            Exception: As `schedule`.
        """
        return self._native.done()

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """Let each worker make a dataset; make iterators of it with `iter`, and give these to scheduled functions.

        Args:
            dataset_fn: A function that returns a dataset, called on each worker; or a dataset, of which each worker has all elements.

        Raises:
            ValueError: If it is neither.
            TypeError: If it wants arguments. What it returns, if that is no dataset, is an error in functions that get an iterator of it.
        """
        if isinstance(dataset_fn, Dataset | DatasetOfEachWorker):
            return PerWorkerDataset(lambda: dataset_fn, self)
        if not callable(dataset_fn):
            raise ValueError(
                f"Unexpected dataset type! Wanted a dataset, or a function that returns one, got {dataset_fn!r}."
            )
        _require_no_arguments(dataset_fn)
        return PerWorkerDataset(functools.partial(_make_dataset, dataset_fn), self)

    def create_per_worker_resource(self, fn: Callable[[], Any]) -> PerWorkerValues:
        """Let each worker make something of its own, such as a table, which scheduled functions get as an argument."""
        make = functools.partial(_call, self._strategy, fn, ((), {}))
        return PerWorkerValues([RemoteValue(native) for native in self._native.make_on_each(make)])

    def fetch(self, val: Any) -> Any:
        """Wait for all `RemoteValue`s in a structure, and return it with their results in their places."""
        return jax.tree.map(
            lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, val, is_leaf=_is_opaque
        )


def _require_no_arguments(dataset_fn: Any) -> None:
    python_function = dataset_fn.python_function if isinstance(dataset_fn, Function) else dataset_fn
    try:
        inspect.signature(python_function).bind()
    except ValueError:
        return  # Python does not know what it takes.
    except TypeError as error:
        raise TypeError(
            f"`dataset_fn` is called without arguments, but {dataset_fn!r} says: {error}. A function of a `tf.distribute.InputContext` "
            "goes into `strategy.distribute_datasets_from_function`, and what that returns is returned by `dataset_fn`."
        ) from error


def _make_dataset(dataset_fn: Callable[[], Any]) -> Any:
    """Return the dataset of a function that a program gives."""
    made = dataset_fn()
    if not hasattr(made, "element_spec"):
        raise TypeError(f"`dataset_fn` must return a `tf.data.Dataset`, or a distributed one; it returns {made!r}.")
    return made


def _iterate(dataset: Any) -> Any:
    """Return an iterator over a dataset of the worker that runs this."""
    return iterate(dataset.make() if isinstance(dataset, DatasetOfEachWorker) else dataset)


def _arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"`kwargs` must be a dictionary of a function's arguments by name, got {kwargs!r}.")
    try:
        return () if args is None else tuple(args), dict(kwargs or {})
    except TypeError as error:
        raise TypeError(
            f"`args` must be a list or tuple of a function's arguments, got {args!r}. Write `args=(x,)` for one argument."
        ) from error


def _make_cancelled() -> CancelledError:
    return CancelledError(None, None, "The corresponding function is cancelled. Please reschedule the function.")


def _call(strategy: ParameterServerStrategy, fn: Callable[..., Any], arguments: Any, tell: Any = None) -> Any:
    own = lambda leaf: leaf.of_current_worker() if isinstance(leaf, PerWorkerValues) else leaf
    args, kwargs = jax.tree.map(own, arguments, is_leaf=_is_opaque)
    # A worker's thread knows nothing of who has scheduled the function.
    with having(BEFORE_RUN, tell), strategy.scope():
        return fn(*args, **kwargs)


def _is_opaque(leaf: Any) -> bool:
    return isinstance(leaf, RemoteValue | PerWorkerValues)


def _leaves(structure: Any) -> list[Any]:
    return jax.tree.leaves(structure, is_leaf=_is_opaque)


@final
class _WorkerIndexStorage(Storage):
    """What a program finds in a cell is the index of the worker that runs it."""

    holds_arrays = False

    def load(self, held: Any) -> jax.Array:
        worker = current_worker()
        return jnp.int32(0 if worker is None else worker.index)

    def example(self, held: Any) -> jax.Array:
        return jnp.int32(0)


@final
class _WorkerIndex:
    stored = np.int32(0)
    storage: Storage = _WorkerIndexStorage()
    trainable = False


_INDEX = _WorkerIndex()


def worker_to_draw_as() -> Any:
    """Return the index of the worker that runs this, whose random numbers are to be its own; None where workers run one after another."""
    strategy: Any = current_strategy()
    is_one_by_one = strategy.coordinator_options["max_staleness"] == 0
    return None if is_one_by_one or len(strategy.workers) == 1 else _state.read(_INDEX)


def experimental_get_current_worker_index() -> Any:
    """Return the index of the worker that runs this, in a scheduled function or in one that makes a worker's dataset.

    Raises:
        RuntimeError: Elsewhere.
    """
    if current_worker() is None:
        raise RuntimeError(
            "Cannot retrieve the worker index. It is known in a function that `ClusterCoordinator.schedule` has got, and in one that "
            "`ClusterCoordinator.create_per_worker_dataset` has got."
        )
    return _state.read(_INDEX)
