"""Synchronous training with backup workers."""

import operator
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax

from tfdist_jax._coordinator import current_worker
from tfdist_jax._parameter_server._engine import Engine
from tfdist_jax._parameter_server._gradients import (
    Loss,
    StepResult,
    Sums,
    apply_gradients,
    make_result,
    mean_and_gradient,
)
from tfdist_jax._parameter_server._served_trees import BatchProgram, ServedParams, fetch, store_trees
from tfdist_jax._parameter_server._trainer import must_be_settled

if TYPE_CHECKING:
    import optax


@final
class SynchronousTrainer:
    """Applies the mean gradient of the batches of a round that come first.

    A worker takes one batch in a round. So a round that waits for all workers has their number of batches, in the order in which these
    were scheduled, whoever takes which.
    """

    def __init__(
        self, loss: Loss, tx: "optax.GradientTransformation", served: ServedParams, needed: int, engine: Engine
    ) -> None:
        """Train `served`, with the optimizer `tx`, on the first `needed` gradients of each round."""
        self.served, self._needed, self._statistics, self._home = served, needed, engine.statistics, engine.home
        self._compute = BatchProgram(lambda batch: loss.sums(served.trained.read(), served.frozen.read(), batch))

        def apply(parts: Sequence[Sums], opt_state: Any, trained: Any) -> tuple[Any, Any]:
            mean, grads = mean_and_gradient(parts)
            return apply_gradients(tx, grads, opt_state, trained, mean)

        self._apply = jax.jit(apply)
        self._lock = threading.Lock()
        self._round = 0
        # The workers that have taken a batch in this round, and what has come of batches, with their numbers.
        self._begun: set[int] = set()
        self._come: list[tuple[int, Sums]] = []

    def may_take(self, worker: int) -> bool:
        """Whether a worker has taken no batch in this round."""
        return worker not in self._begun

    def worker_for(self, number: int) -> int | None:
        """Let any worker train on any batch."""
        return None

    def train(self, number: int, batch: Any) -> StepResult:
        """Compute gradients for the present round."""
        worker: Any = current_worker()
        with self._lock:
            of_round = self._round
            self._begun.add(worker.index)
        try:
            sums, loss, aux = jax.block_until_ready(self._compute(batch))
        except BaseException:
            with self._lock:
                if of_round == self._round:  # Else the round would wait for what never comes.
                    self._begun.discard(worker.index)
            raise
        self._statistics.note(0, sum(leaf.nbytes for leaf in jax.tree.leaves(sums)), ())
        with self._lock:
            if of_round != self._round:
                self._statistics.count(dropped=1)
                return make_result(loss, aux, is_dropped=True)
            self._come.append((number, sums))
            if len(self._come) == self._needed:
                self._end_round()
        return make_result(loss, aux)

    def _end_round(self) -> None:
        come, self._come = sorted(self._come, key=operator.itemgetter(0)), []
        try:
            self._change([sums for _, sums in come])
        finally:
            self._begun.clear()
            self._round += 1

    def _change(self, parts: Sequence[Sums]) -> None:
        trained, opt_state = self.served.trained, self.served.opt_state
        with jax.default_device(self._home):
            new, new_state = self._apply(jax.device_put(parts, self._home), *fetch(opt_state, trained))
            store_trees((trained, new), (opt_state, new_state))
        self._statistics.count(rounds=1)
        self._statistics.note(0, 0, [0])

    @property
    def is_settled(self) -> bool:
        """Whether a round has not begun yet."""
        return not self._begun and not self._come

    def settle(self) -> None:
        """Apply the mean of what has come of a last round."""
        with self._lock:
            if self._come:
                self._end_round()

    def state(self) -> dict[str, Any]:
        """Return the parameters and the optimizer's state."""
        with self._lock:
            must_be_settled(self)
            return self.served.state

    def load(self, state: Any) -> None:
        """Go on from others."""
        self.served.load(state)
