"""Training of Flax models, or of any parameters, with an optax optimizer and several workers that do not wait for each other."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, final

import jax
import numpy as np

from tfdist_jax._coordinator import Coordinator, LocalWorker, RemoteValue, Snapshot, current_worker
from tfdist_jax._parameter_server._asynchronous import AsynchronousTrainer
from tfdist_jax._parameter_server._engine import count_workers, find_processes, jobs_of, make_engine
from tfdist_jax._parameter_server._gradients import Loss
from tfdist_jax._parameter_server._local_sgd import LocalTrainer
from tfdist_jax._parameter_server._modes import (
    Asynchronous,
    LocalSGD,
    Mode,
    Synchronous,
    check_mode,
    check_optimizer,
    whole_number,
)
from tfdist_jax._parameter_server._served_trees import ServedParams, copy_arrays, fetch
from tfdist_jax._parameter_server._synchronous import SynchronousTrainer
from tfdist_jax._parameter_server._trainer import Trainer
from tfdist_jax._servers import serve

if TYPE_CHECKING:
    import optax

_DEFAULT = Asynchronous()
# Each holds a batch: data that are read faster than workers train on them would fill the memory.
_WAITING_PER_WORKER = 32
_LAST_S = 10


@final
class ParameterServer:
    """Trains parameters with several workers: each takes a batch and computes gradients, which are applied to the parameters on a server.

    Workers are threads of this process. Each computes on a device of its own, as far as there are enough; the parameters and the state of
    the optimizer are in the host's memory. Where TF_CONFIG has a cluster whose servers and workers are processes, as under
    `tfdist-jax launch --parameter-servers 1`, these are taken instead: the program begins with `td.ParameterServer.serve()`, which lets
    them be that. `schedule` hands a batch over, without waiting for it; `join` waits for all.

    A batch is trained on at least once: should a worker go, another one takes its batch. (Threads do not go by themselves.) The
    first error of a batch is raised by the next `schedule`, `join` or `done`, when no worker trains any more; the batches that wait are
    cancelled then, the error is forgotten, and the training may go on.

    Parameters of types that have no gradient, such as integers, stay as they are.

    Example:
        >>> import jax.numpy as jnp, numpy as np, optax, tfdist_jax as td
        >>> def loss_fn(params, batch):
        ...     errors = batch["x"] * params["scale"] - batch["y"]
        ...     return (errors**2).mean(), {"largest": abs(errors).max()}
        >>> with td.ParameterServer(loss_fn, optax.sgd(0.1), workers=4, mode=td.Asynchronous(max_staleness=3)) as server:
        ...     server.init({"scale": jnp.float32(0)})
        ...     for i in range(100):
        ...         x = np.random.default_rng(i).normal(size=32).astype(np.float32)
        ...         result = server.schedule({"x": x, "y": 2 * x})
        ...     server.join()
        >>> f"{server.params['scale']:.2f}", server.statistics.closures, max(server.statistics.staleness) <= 3
        ('2.00', 100, True)
        >>> result.result().loss < 0.01
        np.True_
    """

    def __init__(
        self,
        loss_fn: Callable[[Any, Any], Any],
        tx: "optax.GradientTransformation",
        *,
        workers: int | None = None,
        mode: Mode = _DEFAULT,
        has_aux: bool = True,
    ) -> None:
        """Have so many workers, which train as `mode` says.

        Args:
            loss_fn: `loss_fn(params, batch)` giving `(loss, aux)`. The loss is a scalar, the mean over the batch, or `(sum, weight)`; `aux`
                any pytree. It is compiled, once for each kind of batch.
            tx: The optimizer; of `td.LocalSGD` each worker's. One that wants the loss as `value` gets it, such as `optax.polyak_sgd`; those
                that want more than this, such as `optax.lbfgs`, cannot be used.
            workers: Their number. None for as many as the cluster has; without one for each device, but at least two.
            mode: `td.Asynchronous(...)`, `td.Synchronous(...)` or `td.LocalSGD(...)`. Synchronous gradients are those of the mean of a
                round's losses, whatever their batches' sizes; where losses are `(sum, weight)`, of the sum of all divided by the
                weight of all.
            has_aux: False if `loss_fn` returns the loss alone.

        Raises:
            ValueError: If there are no workers, or not enough for the mode, or another number than the cluster has.
            TypeError: If something is of another type.
            RuntimeError: If this process is a server or a worker of a cluster.
        """
        count = count_workers() if workers is None else whole_number("workers", workers, least=1)
        check_mode(mode, count)
        check_optimizer("tx", tx)
        if not callable(loss_fn):
            raise TypeError(f"`loss_fn` must be a function of parameters and a batch, got {loss_fn!r}.")
        self._loss, self._tx, self._mode = Loss(loss_fn, has_aux), tx, mode
        self._engine = make_engine(count)
        if isinstance(mode, LocalSGD):
            local = [LocalWorker(worker) for worker in self._engine.workers]
            self._engine = dataclasses.replace(self._engine, workers=local)
        self._coordinator = Coordinator(
            self._engine.workers,
            statistics=self._engine.statistics,
            max_staleness=mode.max_staleness if isinstance(mode, Asynchronous) else None,
        )
        self._trainer: Trainer | None = None
        self._is_stopped = False
        # How many batches had been scheduled when `join` or an error ended the last round.
        self._scheduled_before = 0
        # Held while batches are scheduled or waited for.
        self._lock = threading.Lock()

    @staticmethod
    def serve() -> None:
        """Be a server or a worker until the process is ended, if this process is one of TF_CONFIG's cluster; else do nothing.

        Raises:
            SystemExit: If what a server holds is lost.
            ImportError: If Ray is missing.
            ValueError: If the process knows no secret.
        """
        cluster = find_processes()
        if cluster is not None and cluster.task.type in ("ps", "worker"):
            serve(jobs_of(cluster), cluster.task.type, cluster.task.index)

    def init(self, params: Any) -> None:
        """Bring parameters to the server, and make the state of the optimizer there.

        Args:
            params: Pytree of arrays, or a function that returns one, which is compiled.

        Raises:
            RuntimeError: If there are parameters already.
            ValueError: If none of them has a gradient.
        """
        self._must_be_outside("init")
        self._must_run("init")
        with self._lock:
            if self._trainer is not None:
                raise RuntimeError("`init` has been called before: set `state` to replace the parameters.")
            with jax.default_device(self._engine.home):
                self._trainer = self._make_trainer(jax.jit(params)() if _is_function(params) else params)
            trainer, limit = self._trainer, _WAITING_PER_WORKER * len(self._engine.workers)
            self._coordinator.restrict(lambda worker, are_some_gone: trainer.may_take(worker), limit=limit)

    def _make_trainer(self, params: Any) -> Trainer:
        loss, tx, mode, engine = self._loss, self._tx, self._mode, self._engine
        match mode:
            case LocalSGD(outer_optimizer=outer):
                served = ServedParams(params, (lambda trained: ()) if outer is None else outer.init, engine)
                return LocalTrainer(loss, tx, served, mode, engine)
            case Synchronous(backup_workers=backup):
                needed = len(engine.workers) - backup
                return SynchronousTrainer(loss, tx, ServedParams(params, tx.init, engine), needed, engine)
            case Asynchronous():
                return AsynchronousTrainer(loss, tx, ServedParams(params, tx.init, engine))

    def schedule(self, batch: Any) -> RemoteValue:
        """Let a worker train on a batch, and return at once.

        Only if as many as 32 batches for each worker wait already, it waits until one of them is taken.

        Args:
            batch: Pytree of arrays, such as rows and a random key. It is held until a worker has trained on it; NumPy arrays are copied, so
                that their memory may be used for the next batch.

        Returns:
            What comes of it: `result()` waits and gives a `td.StepResult`, or raises the error; `is_ready` tells whether it is there.

        Raises:
            RuntimeError: Before `init`, after `stop`, or in the loss function.
            Exception: The first error of a batch that was scheduled before.
        """
        self._must_be_outside("schedule")
        self._must_run("schedule")
        trainer = self._must_have_trainer("schedule")
        own = jax.tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, batch)
        with self._lock, self._settling_after_errors(trainer):
            # Counted where they wait, so that no interrupt leaves a worker without its turn.
            number = self._coordinator.num_scheduled - self._scheduled_before
            train = functools.partial(trainer.train, number, own)
            return self._coordinator.schedule(train, worker=trainer.worker_for(number))

    def join(self) -> None:
        """Wait until all batches have been trained on.

        A last round that is not complete is applied: of `td.Synchronous` the mean of the gradients that there are; of `td.LocalSGD` the
        mean of the parameters of those workers that have made steps. The next round begins anew, with the first worker.

        Raises:
            RuntimeError: After `stop`, also if another thread calls it meanwhile, or in the loss function.
            Exception: The first error of a batch.
        """
        self._must_be_outside("join")
        self._must_run("join")
        trainer = self._must_have_trainer("join")
        with self._lock, self._settling_after_errors(trainer):
            self._coordinator.join()
            self._settle(trainer)

    def done(self) -> bool:
        """Return whether all batches have been trained on: not as long as another thread schedules some, or waits for them.

        Raises:
            Exception: The first error of a batch; if another thread waits in `join`, that raises it.
        """
        self._must_be_outside("done")
        if self._trainer is None:
            return self._coordinator.done()
        if not self._lock.acquire(blocking=False):
            return False
        try:
            with self._settling_after_errors(self._trainer):
                return self._coordinator.done()
        finally:
            self._lock.release()

    def stop(self) -> None:
        """End the workers' threads, which have some seconds for the batches they are at, and cancel the batches that wait.

        Parameters and statistics stay. What has come of a last round that is not complete is applied, as by `join`, if the threads have
        ended: else when `stop` is called again.
        """
        self._is_stopped = True
        self._coordinator.stop()
        # A signal's handler may stop what its own thread waits for, which applies the last round itself then.
        if self._trainer is not None and self._coordinator.is_idle and self._lock.acquire(timeout=_LAST_S):
            try:
                self._settle(self._trainer)
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop; without an exception, wait for all batches before."""
        try:
            if kind is None and self._trainer is not None and not self._is_stopped:
                self.join()
        finally:
            self.stop()

    @property
    def params(self) -> Any:
        """A copy of the parameters, as of a moment between two updates; of `td.LocalSGD` the global ones."""
        self._must_be_outside("params")
        return self._must_have_trainer("params").served.params

    @property
    def opt_state(self) -> Any:
        """A copy of the optimizer's state; of `td.LocalSGD` the outer one's."""
        self._must_be_outside("opt_state")
        (opt_state,) = fetch(self._must_have_trainer("opt_state").served.opt_state)
        return copy_arrays(opt_state)

    @property
    def state(self) -> dict[str, Any]:
        """A copy of all that a training goes on from, such as for `td.Checkpointer`; set it to go on from another one.

        It has `"params"` and `"opt_state"`, and of `td.LocalSGD` under `"workers"` the states of their optimizers, too. It is set to what
        is like it, in arrays of JAX or NumPy.

        Raises:
            RuntimeError: If a round is not complete, or batches are trained on while it is set: call `join` before.
            ValueError: If it is set to something that is not like it.

        Example:
            >>> import jax.numpy as jnp, optax, tfdist_jax as td
            >>> with td.ParameterServer(lambda w, x: (w * x).sum(), optax.sgd(0.5), workers=2, has_aux=False) as server:
            ...     server.init(jnp.float32(4))
            ...     before = server.state
            ...     _ = server.schedule(jnp.ones(2))
            ...     server.join()
            ...     after, server.state = server.state, before
            >>> float(after["params"]), float(server.params)
            (3.0, 4.0)
        """
        self._must_be_outside("state")
        return self._must_have_trainer("state").state()

    @state.setter
    def state(self, state: Any) -> None:
        self._must_be_outside("state")
        trainer = self._must_have_trainer("state")
        with self._lock:
            if not (self._coordinator.is_idle and trainer.is_settled):
                raise RuntimeError("Batches are trained on, which would change the new state: call `join` before.")
            wanted = trainer.state().keys()
            if not isinstance(state, dict) or state.keys() != wanted:
                came = sorted(state) if isinstance(state, dict) else type(state).__name__
                raise ValueError(f"`state` must be a dict of {sorted(wanted)}, as `state` returns it, got {came}.")
            trainer.load(state)

    @property
    def statistics(self) -> Snapshot:
        """What has happened: batches (`closures`), how stale gradients were, bytes read and sent; `rounds` and gradients `dropped`.

        `td.LocalSGD` reads and sends parameters only where it puts them together.
        """
        return self._engine.statistics.snapshot()

    @contextlib.contextmanager
    def _settling_after_errors(self, trainer: Trainer) -> Iterator[None]:
        """Let no incomplete round be left behind by an error that cancels the rest of it."""
        try:
            yield
        except BaseException:
            if self._coordinator.is_idle:  # Else the main thread was interrupted, and workers still train.
                self._settle(trainer)
            raise

    def _settle(self, trainer: Trainer) -> None:
        self._scheduled_before = self._coordinator.num_scheduled
        trainer.settle()

    def _must_be_outside(self, name: str) -> None:
        if current_worker() is not None:
            raise RuntimeError(
                f"`{name}` is used by what a worker runs, which would wait for itself or depend on others. Use it outside of the loss "
                "function, and give the loss what it needs as part of the batch."
            )

    def _must_run(self, name: str) -> None:
        if self._is_stopped:
            raise RuntimeError(
                f"`{name}` is called after `stop`, when there are no workers any more: make another ParameterServer, and set its `state`."
            )

    def _must_have_trainer(self, name: str) -> Trainer:
        if self._trainer is None:
            raise RuntimeError(f"`{name}` is used before there are parameters: call `init(params)` first.")
        return self._trainer


def _is_function(params: Any) -> bool:
    """Whether it is a function and no model, which may be called, too."""
    return callable(params) and jax.tree_util.all_leaves([params])
