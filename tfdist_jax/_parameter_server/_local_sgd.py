"""Local SGD, and DiLoCo."""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._coordinator import LocalRounds, LocalWorker, current_worker
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
from tfdist_jax._stateful._worker_copies import WorkerCopies

if TYPE_CHECKING:
    import optax


@final
class LocalTrainer:
    """Lets each worker train for itself, and puts their parameters together after some steps of all.

    On the servers are the global parameters, and the state of the outer optimizer; where workers are processes, their own parameters and
    the states of their optimizers stay there between rounds.
    """

    def __init__(
        self, loss: Loss, tx: "optax.GradientTransformation", served: ServedParams, mode: LocalSGD, engine: Engine
    ) -> None:
        """Train `served`, each worker with the optimizer `tx`; the engine's are `LocalWorker`s."""
        self.served, self._loss, self._tx, self._mode = served, loss, tx, mode
        self._statistics, self._home, self._workers = engine.statistics, engine.home, range(len(engine.workers))
        (storage, *_) = engine.storages
        servers = storage.servers if isinstance(storage, RemoteStorage) else None
        self._slots = WorkerCopies(engine.home, servers=servers)
        self._weights = WorkerCopies(engine.home, slots=self._slots, servers=servers)
        (trained,) = fetch(served.trained)
        self._trained = ServedTree("params", trained, lambda path, array: self._weights)
        self._opt_state = ServedTree("opt_state", jax.jit(tx.init)(trained), lambda path, array: self._slots)
        # Workers' threads end when nobody has the trainer, and must not keep it.
        self._rounds = LocalRounds(len(self._workers), mode.sync_every, weakref.ref(self), engine.statistics)
        for worker in engine.workers:
            if isinstance(worker, LocalWorker):
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
        result = make_result(*self._step(batch))
        self._rounds.add(worker.index)
        return result

    def _train(self, batch: Any) -> tuple[Any, Any]:
        trained = self._trained.read()
        loss, aux, grads = self._loss.mean_and_grads(trained, self.served.frozen.read(), batch)
        trained, opt_state = apply_gradients(self._tx, grads, self._opt_state.read(), trained, loss)
        self._trained.write(trained)
        self._opt_state.write(opt_state)
        return loss, aux

    def combine(self, workers: Sequence[int]) -> None:
        """Change the global parameters by those of workers that have made steps, and let all of them go on from there."""
        present = self._weights.find_reachable(workers)
        ready = [self._own(self._trained, worker) for worker in present]
        size = _size_of(self._own(self._trained, None))
        try:
            if ready:
                with jax.default_device(self._home):
                    trained, opt_state = self.served.trained, self.served.opt_state
                    new, new_state = self._merge(ready, *fetch(trained, opt_state))
                    store_trees((trained, new), (opt_state, new_state))
                    self._set_common(new)
        finally:  # If it has failed, all go on from what there was.
            self._weights.change_common(lambda copies: copies.common)
        self._statistics.note(size * len(workers), size * len(present), ())

    def _own(self, tree: ServedTree, worker: int | None) -> Any:
        """Return what a worker has, or what is common, on the device where it is all put together."""
        return tree.with_arrays([self._weights.bring(cell.stored, worker) for cell in tree.cells])

    def _set_common(self, trained: Any) -> None:
        self._weights.assign(
            (cell, array, {}) for cell, array in zip(self._trained.cells, jax.tree.leaves(trained), strict=True)
        )

    def _change(self, params: Sequence[Any], trained: Any, opt_state: Any) -> tuple[Any, Any]:
        mean, outer = mean_params(params), self._mode.outer_optimizer
        if outer is None:
            return mean, opt_state
        return apply_gradients(outer, jax.tree.map(jnp.subtract, trained, mean), opt_state, trained)

    def forget(self, worker: int, others: Sequence[int]) -> None:
        """Let a worker, whose process has gone, go on from the global parameters, and from the mean of the states of others' optimizers."""
        self._weights.forget(worker)
        self._slots.forget(worker)
        self._slots.share_mean(others)

    @property
    def is_settled(self) -> bool:
        """Whether no worker has made a step that the global parameters do not have."""
        return self._rounds.is_settled

    def settle(self) -> None:
        """Put together the parameters of the workers that have made steps."""
        self._rounds.settle()

    def share(self, workers: Sequence[int]) -> None:
        """Do nothing: `state` tells what each worker's optimizer keeps."""

    def state(self) -> dict[str, Any]:
        """Return the global parameters, the outer optimizer's state and those of the workers' optimizers."""
        must_be_settled(self)
        present = self._slots.find_reachable(self._workers)
        for worker in set(self._workers).difference(present):
            self.forget(worker, present)
        return {
            **self.served.state,
            "workers": copy_arrays([self._own(self._opt_state, worker) for worker in self._workers]),
        }

    def load(self, state: Any) -> None:
        """Go on from others."""
        like = self._opt_state.with_arrays(self._opt_state.cells)
        leaves_like("workers", state["workers"], [like for _ in self._workers])
        self.served.load(state)
        self._set_common(*fetch(self.served.trained))
        of_workers = [jax.tree.leaves(opt_state) for opt_state in copy_arrays(state["workers"])]
        of_cells = zip(self._opt_state.cells, *of_workers, strict=True)
        self._slots.assign((cell, own[0], dict(enumerate(own))) for cell, *own in of_cells)


def _size_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
