"""Local SGD, and DiLoCo."""

import contextlib
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._coordinator import LocalRounds, current_worker
from tfdist_jax._parameter_server._engine import Engine
from tfdist_jax._parameter_server._gradients import Loss, StepResult, apply_gradients, make_result, mean_params
from tfdist_jax._parameter_server._modes import LocalSGD
from tfdist_jax._parameter_server._served_trees import (
    BatchProgram,
    ServedParams,
    ServedTree,
    copy_arrays,
    fetch,
    leaves_like,
    store_trees,
)
from tfdist_jax._parameter_server._trainer import must_be_settled
from tfdist_jax._stateful._remote_storage import RemoteStorage
from tfdist_jax._stateful._state import CELLS
from tfdist_jax._stateful._worker_copies import WorkerCopies

if TYPE_CHECKING:
    import optax


_SOON_S = 0.001


@final
class LocalTrainer:
    """Lets each worker train for itself, and puts their parameters together after some steps of all.

    On the servers are the global parameters, and the state of the outer optimizer; where workers are processes, their own parameters and
    the states of their optimizers stay there between rounds.
    """

    def __init__(
        self, loss: Loss, tx: "optax.GradientTransformation", served: ServedParams, mode: LocalSGD, engine: Engine
    ) -> None:
        """Train `served`, each of the engine's workers, which are `LocalWorker`s, with the optimizer `tx`."""
        self.served, self._loss, self._tx, self._mode = served, loss, tx, mode
        self._statistics, self._home, self._workers = engine.statistics, engine.home, range(len(engine.workers))
        (storage, *_) = engine.storages
        workers: Sequence[Any] = engine.workers
        servers = storage.servers if isinstance(storage, RemoteStorage) else None
        self._slots = WorkerCopies(engine.home, servers=servers)
        self._weights = WorkerCopies(engine.home, slots=self._slots, servers=servers)
        self._frozen_copies = WorkerCopies(engine.home, servers=servers)
        trained, frozen = fetch(served.trained, served.frozen)
        self._trained = ServedTree("params", trained, lambda path, array: self._weights)
        self._frozen = ServedTree("params", frozen, lambda path, array: self._frozen_copies)
        self._opt_state = ServedTree("opt_state", jax.jit(tx.init)(trained), lambda path, array: self._slots)
        self._rounds = LocalRounds(len(self._workers), mode.sync_every, weakref.ref(self), engine.statistics)
        for worker in workers:
            worker.rounds = self._rounds
        self._step, self._merge = BatchProgram(self._train), jax.jit(self._change)

    def may_take(self, worker: int) -> bool:
        """Whether a worker has steps to make before the others' parameters are put together with its own."""
        return self._rounds.may_take(worker, are_some_gone=False)

    def worker_for(self, number: int) -> int | None:
        """Let the workers train on the batches in turn."""
        return number % len(self._workers)

    def train(self, number: int, batch: Any) -> StepResult:
        """Make a step of one worker."""
        worker: Any = current_worker()
        told = self._step(batch)
        try:
            return make_result(*told)
        finally:
            self._rounds.add(worker.index)

    def _train(self, batch: Any) -> tuple[Any, Any]:
        trained, frozen = self._trained.read(), self._frozen.read()
        loss, aux, grads = self._loss.mean_and_grads(trained, frozen, batch)
        trained, opt_state = apply_gradients(self._tx, grads, self._opt_state.read(), trained, loss)
        self._trained.write(trained)
        self._frozen.write(frozen)  # So that they are where the worker is until the round ends.
        self._opt_state.write(opt_state)
        return loss, aux

    def combine(self, workers: Sequence[int]) -> None:
        """Change the global parameters by those of workers that have made steps, and let all of them go on from there."""
        snapshot = self._weights.snapshot()
        found = self._weights.fetch(snapshot, workers)
        size = sum(copies.common.nbytes for _, copies in snapshot)
        try:
            if found and snapshot:
                with jax.default_device(self._home):
                    trained, opt_state = self.served.trained, self.served.opt_state
                    ready = [trained.with_arrays(arrays) for arrays in found.values()]
                    new, new_state = self._merge(ready, *fetch(trained, opt_state))
                    store_trees((trained, new), (opt_state, new_state))
                    self._weights.replace(snapshot, jax.tree.leaves(new))
        finally:  # If it has failed, all go on from what there was.
            for storage in (self._weights, self._frozen_copies):
                kept = storage.snapshot()
                storage.replace(kept, [copies.common for _, copies in kept])
        self._statistics.note(size * len(workers), size * len(found), ())

    def _change(self, params: Sequence[Any], trained: Any, opt_state: Any) -> tuple[Any, Any]:
        mean, outer = mean_params(params), self._mode.outer_optimizer
        if outer is None:
            return mean, opt_state
        return apply_gradients(outer, jax.tree.map(jnp.subtract, trained, mean), opt_state, trained)

    def forget(self, worker: int, others: Sequence[int]) -> None:
        """Let a worker that is gone or back go on from the global parameters, and from the mean of the states of others' optimizers."""
        self._weights.forget(worker, others)
        self._frozen_copies.forget(worker, others)

    @property
    def is_settled(self) -> bool:
        """Whether no worker has made a step that the global parameters do not have."""
        return self._rounds.is_settled and not self._weights.snapshot()

    def settle(self) -> None:
        """Put together the parameters of the workers that have made steps."""
        self._rounds.settle()

    def share(self, workers: Sequence[int]) -> None:
        """Do nothing: `state` tells what each worker's optimizer keeps."""

    def state(self) -> dict[str, Any]:
        """Return the global parameters, the outer optimizer's state and those of the workers' optimizers."""
        with self._between_steps() as held:
            found = self._slots.fetch(held, self._workers)
            common = [copies.common for _, copies in held]
            of_workers = [self._opt_state.with_arrays(found.get(worker, common)) for worker in self._workers]
            return {**self.served.state, "workers": copy_arrays(of_workers)}

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[list[tuple[Any, Any]]]:
        """Keep rounds from ending, where no worker has made a step in this one; return what the states of optimizers are."""
        while True:
            with self._rounds.lock:
                with CELLS:
                    is_between = not self._weights.snapshot()
                    held = [(cell, cell.stored) for cell in self._opt_state.cells]
                if is_between or not self._rounds.is_settled:
                    must_be_settled(self)
                    yield held
                    return
            time.sleep(_SOON_S)  # A worker has made a step that does not count yet.

    def load(self, state: Any) -> None:
        """Go on from others."""
        like = self._opt_state.with_arrays(self._opt_state.cells)
        leaves_like("workers", state["workers"], [like for _ in self._workers])
        self.served.load(state)
        for tree, copies, served in (
            (self._trained, self._weights, self.served.trained),
            (self._frozen, self._frozen_copies, self.served.frozen),
        ):
            copies.assign(
                (cell, array, {}) for cell, array in zip(tree.cells, jax.tree.leaves(*fetch(served)), strict=True)
            )
        of_workers = [jax.tree.leaves(opt_state) for opt_state in copy_arrays(state["workers"])]
        of_cells = zip(self._opt_state.cells, *of_workers, strict=True)
        self._slots.assign((cell, own[0], dict(enumerate(own))) for cell, *own in of_cells)
