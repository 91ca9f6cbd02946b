"""`tf.distribute.ParameterServerStrategy`: variables on servers, which workers change one after another, without waiting for each other."""

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax

import tfdist_jax
from tfdist_jax._cluster import are_processes
from tfdist_jax._coordinator import EmbeddedWorker, LocalRounds, Rounds, Statistics, Worker, check_options
from tfdist_jax._parameter_server._modes import Asynchronous, LocalSGD, Mode, Synchronous, check_mode
from tfdist_jax._servers import connect
from tfdist_jax._stateful._remote_storage import RemoteStorage
from tfdist_jax._stateful._served_storage import EmbeddedServedStorage
from tfdist_jax._stateful._storage import Storage
from tfdist_jax.compat.tensorflow._functions._execution_plan import ExecutionPlan
from tfdist_jax.compat.tensorflow._platform._context import entering_replica
from tfdist_jax.compat.tensorflow._platform._devices import local_devices
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import TFConfigClusterResolver
from tfdist_jax.compat.tensorflow.distribute._execution_contexts import OnlyReplicaContext
from tfdist_jax.compat.tensorflow.distribute._input import InputContext
from tfdist_jax.compat.tensorflow.distribute._local_rounds import LocalUpdates, TrainingWorker
from tfdist_jax.compat.tensorflow.distribute._parameter_jobs import find_jobs
from tfdist_jax.compat.tensorflow.distribute._partitioned_variables import make_partitioned
from tfdist_jax.compat.tensorflow.distribute._per_worker_datasets import DatasetOfEachWorker
from tfdist_jax.compat.tensorflow.distribute._resolver_base import ClusterResolver
from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy
from tfdist_jax.compat.tensorflow.distribute._worker_rounds import RoundUpdates, RoundWorker

_WORKERS = 2


@final
class ParameterServerStrategy(Strategy):
    """Drop-in for `tf.distribute.ParameterServerStrategy`: variables on servers, functions that a coordinator gives to workers.

    Servers and workers are threads of this process where all tasks have addresses of the loopback, but for
    TFDIST_PARAMETER_SERVERS=processes: each worker computes on a device of its own, as far as there are enough, and variables are in the
    host's memory. Else each task is a process, which calls `tf.distribute.Server(...).join()`.

    A function reads the variables that it uses when it starts; what `optimizer.apply_gradients`, `assign_add` and so on do is done to the
    values that the servers have by then, one function's after another's. `assign` replaces a value.

    Beyond TensorFlow, `backup_workers` makes training synchronous: a function's gradients are what optimizers apply; they do so when a
    round has ended, after the function, which therefore cannot use the variables any more. All else that it changes, such as metrics and
    counters, it changes at once, whether its gradients count or are dropped.

    With `sync_every`, also beyond TensorFlow, functions read and change their worker's copies of trainable variables, and what optimizers
    keep of these; the coordinator sees the common values, which `join` brings up to date. Other variables are on servers as before.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/ParameterServerStrategy
    """

    keeps_replica_values = False
    workers: Sequence[Worker]

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Any = None,
        *,
        max_staleness: int | None = None,
        backup_workers: int | None = None,
        sync_every: int | None = None,
        outer_optimizer: Any = None,
        report_every_s: float | None = None,
    ) -> None:
        """Have as many servers and workers as there are tasks "ps" and "worker".

        Args:
            cluster_resolver: Says which tasks there are. If None, TF_CONFIG does; without it there are a server and a worker for each of
                the process's devices, but at least two.
            variable_partitioner: Called with the shape and the type of each new variable but scalars; says into how many parts it is cut
                along its first axis, such as `tf.distribute.experimental.partitioners` do. The parts are on one server after another. None
                if variables stay whole. Keras's variables always do.
            max_staleness: Beyond TensorFlow: how many other functions may end, at most, while one runs, so many updates has it not seen.
                With 0 they run one after another, as they are scheduled: synchronous training. None for any number.
            backup_workers: Beyond TensorFlow: workers train in rounds, synchronously, and for so many of them, the slowest ones, a round
                does not wait. In a round each worker runs one function; as soon as all but `backup_workers` have run, optimizers apply the
                mean of their gradients, and the next round begins. What comes later is dropped, and counted. With 0 that is training on
                all their batches together. None for asynchronous training.
            sync_every: Beyond TensorFlow: each worker trains a copy of its own of the trainable variables, with an optimizer's state of its
                own, and after so many functions of each, all go on from the mean of their copies: local SGD. None for no copies.
            outer_optimizer: Beyond TensorFlow: a Keras optimizer that changes the variables, which all workers begin a round with, by their
                mean difference: DiLoCo, with `SGD(0.7, momentum=0.9, nesterov=True)`. None if they become the mean. Its state, such as
                momentum, is not in a checkpoint of the model: give it to the `tf.train.Checkpoint`, too, and training goes on exactly. For
                variables that are made after the first round there is another one of its configuration, whose state is not saved.
            report_every_s: Beyond TensorFlow: after how many seconds each time the coordinator's statistics are logged; None for never.

        Raises:
            ValueError: If there is no server or no worker, if the cluster has tasks of another kind, if an option is no such number, or
                there are options of several ways of training.
            RuntimeError: In a process that is a worker, a server or an evaluator, where these are processes of their own.
            TypeError: If the partitioner cannot be called, a number is no whole one, or `outer_optimizer` is none.
        """
        if cluster_resolver is not None and not isinstance(cluster_resolver, ClusterResolver):
            raise ValueError(
                f"`cluster_resolver` must be a tf.distribute.cluster_resolver.ClusterResolver, got {cluster_resolver!r}."
            )
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise TypeError(
                "`variable_partitioner` must be a tf.distribute.experimental.partitioners.Partitioner, or another function of a shape and "
                f"a type, got {variable_partitioner!r}."
            )
        check_options(max_staleness, report_every_s)
        mode = _find_mode(max_staleness, backup_workers, sync_every)
        _check_outer_optimizer(outer_optimizer, mode)
        resolver = cluster_resolver or TFConfigClusterResolver()
        jobs = find_jobs(resolver, is_given=cluster_resolver is not None)
        devices = [device for device in jax.local_devices() if device.platform != "cpu"] or jax.local_devices()
        super().__init__(tfdist_jax.SingleDevice(devices[0]))
        self._cluster_resolver = resolver
        count = len(jobs["worker"]) or max(_WORKERS, len(devices))
        check_mode(mode, count)
        self.statistics = Statistics(count)
        self.parameter_devices = tuple(f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(len(jobs["ps"]) or 1))
        (host, *_) = local_devices("CPU")
        if are_processes(jobs):
            servers, self.workers = connect(jobs)
            places = enumerate(self.parameter_devices)
            self._servers = [RemoteStorage(servers, i, self.statistics, name) for i, name in places]
        else:
            self.workers = [EmbeddedWorker(i, devices[i % len(devices)]) for i in range(count)]
            self._servers = [EmbeddedServedStorage(host, self.statistics, name) for name in self.parameter_devices]
        self._num_variables = 0
        if variable_partitioner is not None:
            self.variable_creator = functools.partial(make_partitioned, variable_partitioner)
        self.coordinator_options = {"max_staleness": max_staleness, "report_every_s": report_every_s}
        self.coordinator: Any = None
        self.rounds: Rounds | LocalRounds | None = None
        self.backup_workers, self.sync_every, self._copies = backup_workers, sync_every, None
        if isinstance(mode, Synchronous):
            updates = self._updates = RoundUpdates(self, host, self.statistics)
            rounds = self.rounds = Rounds(count, count - mode.backup_workers, _weakly(updates.apply), self.statistics)
            self.workers = [RoundWorker(worker, rounds, self.statistics) for worker in self.workers]
        if isinstance(mode, LocalSGD):
            servers = self._servers[0].servers if isinstance(self._servers[0], RemoteStorage) else None
            local = self._updates = LocalUpdates(self, host, outer_optimizer, self.statistics, servers)
            self._copies = local.weights
            # Workers' threads end with the strategy, and must not keep it; while one runs something, it is there.
            rounds = self.rounds = LocalRounds(count, mode.sync_every, weakref.ref(local), self.statistics)
            self.workers = [TrainingWorker(worker, rounds) for worker in self.workers]

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """Says which tasks there are, and which this is."""
        return self._cluster_resolver

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept: on the first server."""
        return self._servers[0]

    def storage_for_variable(self, *, has_own_values: bool = False, is_weight: bool = False) -> Storage:
        """Return the server of a new variable: one after another's turn; of weights that workers train copies of, where these are."""
        if is_weight and self._copies is not None:
            return self._copies
        self._num_variables += 1
        return self._servers[(self._num_variables - 1) % len(self._servers)]

    def _trace(
        self,
        plan: ExecutionPlan,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        finish: Callable[[Any], Any] = lambda results: results,
    ) -> tuple[ExecutionPlan, Any]:
        """Run the step of the one replica that a worker is."""
        with entering_replica(self, OnlyReplicaContext(self)):
            return plan, finish(fn(*args, **kwargs))

    def _run_with_values(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        with entering_replica(self, OnlyReplicaContext(self)):
            return fn(*args, **kwargs)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Return `dataset`: each worker takes batches of it as they are."""
        return dataset

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Any], options: Any = None) -> Any:
        """Let `dataset_fn` make a dataset on each worker, once iterators are made of it."""
        return DatasetOfEachWorker(lambda: dataset_fn(InputContext(1, 0, self.num_replicas_in_sync)))


def _find_mode(max_staleness: int | None, backup_workers: int | None, sync_every: int | None) -> Mode:
    """Return how workers train."""
    options = {"max_staleness": max_staleness, "backup_workers": backup_workers, "sync_every": sync_every}
    given = {name: value for name, value in options.items() if value is not None}
    if len(given) > 1:
        raise ValueError(
            "`max_staleness` is of asynchronous training, `backup_workers` of rounds whose gradients are averaged, and `sync_every` of "
            f"workers with copies of their own, which are other ways of training; got {given}. Give one of them."
        )
    if backup_workers is not None:
        return Synchronous(backup_workers)
    return Asynchronous(max_staleness) if sync_every is None else LocalSGD(sync_every)


def _weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a method that does not keep what it is of: workers' threads end with the strategy, and must not keep it."""
    ref: Any = weakref.WeakMethod(method)
    return lambda argument: ref()(argument)  # Of a closure that runs, the strategy is there.


def _check_outer_optimizer(optimizer: Any, mode: Mode) -> None:
    if optimizer is None:
        return
    if not isinstance(mode, LocalSGD):
        raise ValueError(
            f"`outer_optimizer` changes variables after `sync_every` functions of each worker, which is not given; got {optimizer!r}."
        )
    if not all(callable(getattr(optimizer, method, None)) for method in ("apply", "build")):
        raise TypeError(
            "`outer_optimizer` must be a Keras optimizer, such as keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True), got "
            f"{optimizer!r}."
        )
