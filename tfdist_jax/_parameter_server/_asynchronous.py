"""Asynchronous training."""

from typing import TYPE_CHECKING, Any, final

from tfdist_jax._parameter_server._gradients import Loss, StepResult, apply_gradients, make_result
from tfdist_jax._parameter_server._served_trees import BatchProgram, ServedParams
from tfdist_jax._stateful._served_storage import update

if TYPE_CHECKING:
    import optax


@final
class AsynchronousTrainer:
    """Applies each batch's gradients to the parameters that the servers have when they come."""

    is_settled = True

    def __init__(self, loss: Loss, tx: "optax.GradientTransformation", served: ServedParams) -> None:
        """Train `served`, with the optimizer `tx`."""
        self.served, self._loss, self._tx = served, loss, tx
        self._step = BatchProgram(self._train)

    def may_take(self, worker: int) -> bool:
        """Let any worker take a batch."""
        return True

    def worker_for(self, number: int) -> int | None:
        """Let any worker train on any batch."""
        return None

    def train(self, number: int, batch: Any) -> StepResult:
        """Compute gradients, and let the servers apply them."""
        return make_result(*self._step(batch))

    def _train(self, batch: Any) -> tuple[Any, Any]:
        served = self.served
        loss, aux, grads = self._loss.mean_and_grads(served.trained.read(), served.frozen.read(), batch)

        def apply() -> None:
            opt_state, trained = served.opt_state.read(), served.trained.read()
            trained, opt_state = apply_gradients(self._tx, grads, opt_state, trained, loss)
            served.trained.write(trained)
            served.opt_state.write(opt_state)

        update(apply, [*served.trained.cells, *served.opt_state.cells])
        return loss, aux

    def settle(self) -> None:
        """Do nothing: all is applied when it has been computed."""

    def state(self) -> dict[str, Any]:
        """Return the parameters and the optimizer's state."""
        return self.served.state

    def load(self, state: Any) -> None:
        """Go on from others."""
        self.served.load(state)
