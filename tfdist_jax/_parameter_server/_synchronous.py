"""Synchronous training with backup workers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax

from tfdist_jax._coordinator import Rounds, current_worker
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
        self.served, self._statistics, self._home = served, engine.statistics, engine.home
        self._compute = BatchProgram(lambda batch: loss.sums(served.trained.read(), served.frozen.read(), batch))

        def apply(parts: Sequence[Sums], opt_state: Any, trained: Any) -> tuple[Any, Any]:
            mean, grads = mean_and_gradient(parts)
            return apply_gradients(tx, grads, opt_state, trained, mean)

        self._apply = jax.jit(apply)
        self._rounds = Rounds(len(engine.workers), needed, self._change, engine.statistics)

    def may_take(self, worker: int) -> bool:
        """Whether a worker has taken no batch in this round."""
        return self._rounds.may_take(worker)

    def worker_for(self, number: int) -> int | None:
        """Let any worker train on any batch."""
        return None

    def train(self, number: int, batch: Any) -> StepResult:
        """Compute gradients for the present round."""
        worker: Any = current_worker()
        self._rounds.begin(worker.index)
        self._rounds.wait()
        try:
            sums, loss, aux = jax.block_until_ready(self._compute(batch))
        except BaseException:
            self._rounds.give_up(worker.index)
            raise
        self._statistics.note(0, sum(leaf.nbytes for leaf in jax.tree.leaves(sums)), ())
        is_dropped = not self._rounds.add(worker.index, number, sums)
        return make_result(loss, aux, is_dropped=is_dropped)

    def _change(self, parts: Sequence[Sums]) -> None:
        trained, opt_state = self.served.trained, self.served.opt_state
        with jax.default_device(self._home):
            new, new_state = self._apply(jax.device_put(parts, self._home), *fetch(opt_state, trained))
            store_trees((trained, new), (opt_state, new_state))
        self._statistics.note(0, 0, [0])

    @property
    def is_settled(self) -> bool:
        """Whether a round has not begun yet."""
        return self._rounds.is_settled

    def settle(self) -> None:
        """Apply the mean of what has come of a last round."""
        self._rounds.settle()

    def state(self) -> dict[str, Any]:
        """Return the parameters and the optimizer's state."""
        with self._rounds.lock:
            must_be_settled(self)
            return self.served.state

    def load(self, state: Any) -> None:
        """Go on from others."""
        self.served.load(state)
