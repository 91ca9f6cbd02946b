"""Local SGD, and DiLoCo."""

import dataclasses
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from tfdist_jax._coordinator import current_worker, tracing_alone
from tfdist_jax._internals import default_device
from tfdist_jax._parameter_server._engine import Engine
from tfdist_jax._parameter_server._gradients import Loss, StepResult, apply_gradients, make_result, mean_params
from tfdist_jax._parameter_server._modes import LocalSGD
from tfdist_jax._parameter_server._served_trees import (
    ServedParams,
    copy_arrays,
    fetch,
    flatten_batch,
    leaves_like,
    store_trees,
)
from tfdist_jax._parameter_server._trainer import must_be_settled
from tfdist_jax._stateful._served_storage import bring

if TYPE_CHECKING:
    import optax


@final
@dataclasses.dataclass
class _Own:
    """What is a worker's own.

    Attributes:
        opt_state: The state of its optimizer.
        params: Its parameters, trained and frozen ones; None before it has taken those of the servers.
        steps: How many steps it has made since.
        kinds: The kinds of batches for which its step has been traced.
    """

    opt_state: Any
    params: tuple[Any, Any] | None = None
    steps: int = 0
    kinds: set[Any] = dataclasses.field(default_factory=set)


@final
class LocalTrainer:
    """Lets each worker train for itself, and puts their parameters together after some steps of all.

    On the servers are the global parameters, and the state of the outer optimizer.
    """

    def __init__(
        self, loss: Loss, tx: "optax.GradientTransformation", served: ServedParams, mode: LocalSGD, engine: Engine
    ) -> None:
        """Train `served`, each worker with the optimizer `tx`."""
        self.served, self._mode, self._statistics, self._home = served, mode, engine.statistics, engine.home
        opt_state = jax.jit(tx.init)(*fetch(served.trained))
        self._own = [_Own(opt_state) for _ in engine.workers]
        self._lock = threading.Lock()

        def step(params: tuple[Any, Any], opt_state: Any, batch: Any) -> Any:
            trained, frozen = params
            loss_value, aux, grads = loss.mean_and_grads(trained, frozen, batch)
            return (loss_value, aux), apply_gradients(tx, grads, opt_state, trained, loss_value)

        self._step = jax.jit(step)
        self._merge = jax.jit(self._change)

    def may_take(self, worker: int) -> bool:
        """Whether a worker has steps to make before the others' parameters are put together with its own."""
        return self._own[worker].steps < self._mode.sync_every

    def worker_for(self, number: int) -> int | None:
        """Let the workers train on the batches in turn."""
        return number % len(self._own)

    def train(self, number: int, batch: Any) -> StepResult:
        """Make a step of one worker."""
        worker: Any = current_worker()
        own, device = self._own[worker.index], default_device()
        params = self._pull() if own.params is None else own.params
        batch, opt_state = jax.tree.map(lambda leaf: bring(leaf, device), (batch, own.opt_state))
        kind, *_ = flatten_batch(batch)
        if kind not in own.kinds:
            with tracing_alone():
                self._step.trace(params, opt_state, batch)
            own.kinds.add(kind)
        told, (trained, new_state) = self._step(params, opt_state, batch)
        result = make_result(*told)
        leaves_like("opt_state", new_state, own.opt_state)
        with self._lock:
            own.params, own.opt_state, own.steps = (trained, params[1]), new_state, own.steps + 1
            if not any(map(self.may_take, range(len(self._own)))):
                self._synchronize()
        return result

    def _pull(self) -> tuple[Any, Any]:
        params = fetch(self.served.trained, self.served.frozen)
        self._statistics.note(_size_of(params), 0, ())
        return params[0], params[1]

    def _synchronize(self) -> None:
        """Change the global parameters by those of the workers that have made steps, and let all of them go on from there."""
        ready = [own.params[0] for own in self._own if own.params is not None]
        try:
            with jax.default_device(self._home):
                trained, opt_state = self.served.trained, self.served.opt_state
                held = fetch(trained, opt_state)
                new, new_state = self._merge(jax.device_put(ready, self._home), *held)
                store_trees((trained, new), (opt_state, new_state))
        finally:
            for own in self._own:
                own.params, own.steps = None, 0
        self._statistics.note(0, _size_of(ready), ())
        self._statistics.count(rounds=1)

    def _change(self, params: Sequence[Any], trained: Any, opt_state: Any) -> tuple[Any, Any]:
        mean, outer = mean_params(params), self._mode.outer_optimizer
        if outer is None:
            return mean, opt_state
        return apply_gradients(outer, jax.tree.map(jnp.subtract, trained, mean), opt_state, trained)

    @property
    def is_settled(self) -> bool:
        """Whether no worker has made a step that the global parameters do not have."""
        return not any(own.steps for own in self._own)

    def settle(self) -> None:
        """Put together the parameters of the workers that have made steps."""
        with self._lock:
            if not self.is_settled:
                self._synchronize()

    def state(self) -> dict[str, Any]:
        """Return the global parameters, the outer optimizer's state and those of the workers' optimizers."""
        with self._lock:
            must_be_settled(self)
            return {**self.served.state, "workers": copy_arrays([own.opt_state for own in self._own])}

    def load(self, state: Any) -> None:
        """Go on from others."""
        with self._lock:
            leaves_like("workers", state["workers"], [own.opt_state for own in self._own])
            self.served.load(state)
            for own, opt_state in zip(self._own, copy_arrays(state["workers"]), strict=True):
                own.opt_state, own.params = opt_state, None


def _size_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
