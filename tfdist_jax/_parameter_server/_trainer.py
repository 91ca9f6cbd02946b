"""What the modes of training have in common."""

from typing import Any, Protocol

from tfdist_jax._parameter_server._gradients import StepResult
from tfdist_jax._parameter_server._served_trees import ServedParams


class Trainer(Protocol):
    """Trains on batches, in one of the modes.

    Attributes:
        served: The parameters and the state of what changes them.
    """

    served: ServedParams

    def may_take(self, worker: int) -> bool:
        """Whether a worker may take a batch at present. It is asked again after each batch, and must wait for nothing."""
        ...

    def worker_for(self, number: int) -> int | None:
        """Return which worker is to train on a batch; `number` counts those since rounds began anew. None if any may."""
        ...

    def train(self, number: int, batch: Any) -> StepResult:
        """Train on a batch, as the worker that this thread stands for; `number` is that of `worker_for`."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether nothing has been computed that is yet to be applied."""
        ...

    def settle(self) -> None:
        """Apply what has been computed for a round that is not complete, when no worker trains."""
        ...

    def state(self) -> dict[str, Any]:
        """Return a copy of all that a training goes on from, as of one moment.

        Raises:
            RuntimeError: If it is not settled.
        """
        ...

    def load(self, state: Any) -> None:
        """Go on from another state.

        Raises:
            ValueError: If it is not like the present one.
        """
        ...


def must_be_settled(trainer: Trainer) -> None:
    """Check that nothing is yet to be applied.

    Raises:
        RuntimeError: If something is.
    """
    if not trainer.is_settled:
        raise RuntimeError(
            "A round is not complete, and what workers have computed for it is not in the parameters: call `join` before `state`; after "
            "`stop`, while a worker still trained, `stop` again."
        )
