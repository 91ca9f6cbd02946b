"""How the workers of a parameter server train together."""

import dataclasses
from typing import TYPE_CHECKING, Any, final

from tfdist_jax._coordinator import check_options

if TYPE_CHECKING:
    import optax


@final
@dataclasses.dataclass(frozen=True)
class Asynchronous:
    """Workers wait for nobody: each takes the next batch, and its gradients are applied to the parameters that there are by then.

    Attributes:
        max_staleness: How many other batches' gradients may be applied, at most, between a worker's reading of the parameters and the
            applying of its own. With 0 batches are trained on one after another, in their order, as by one worker. None for any number.

    Raises:
        ValueError: If it is no such number.

    Example:
        >>> import tfdist_jax as td
        >>> td.Asynchronous(max_staleness=2)
        Asynchronous(max_staleness=2)
    """

    max_staleness: int | None = None

    def __post_init__(self) -> None:
        check_options(self.max_staleness, None)


@final
@dataclasses.dataclass(frozen=True)
class Synchronous:
    """Workers train in rounds: their gradients are of the same parameters, and the mean of those that come first is applied.

    In a round each worker takes one batch. As soon as all but `backup_workers` of them have come, their mean is applied and the next round
    begins. What comes later is dropped; its worker misses rounds as long as it still computes, and no round waits for it.

    Attributes:
        backup_workers: For how many workers, the slowest ones, a round does not wait. With 0 a round is as many batches as there are
            workers, in their order, and equal trainings have equal bits.

    Raises:
        ValueError: If it is no such number.

    Ref: Chen et al. 2016, Revisiting Distributed Synchronous SGD, https://arxiv.org/abs/1604.00981

    Example:
        >>> import tfdist_jax as td
        >>> td.Synchronous(backup_workers=1)
        Synchronous(backup_workers=1)
    """

    backup_workers: int = 0

    def __post_init__(self) -> None:
        _check_number("backup_workers", self.backup_workers, least=0)


@final
@dataclasses.dataclass(frozen=True)
class LocalSGD:
    """Workers train each for itself, and their parameters are put together after some steps: local SGD, or DiLoCo.

    The batches go to the workers in turn. Each has parameters and an optimizer's state of its own. When all have made `sync_every`
    steps, the global parameters minus the mean of the workers' are a gradient for the outer optimizer; all workers go on from what it
    makes of the global parameters, with the states of their optimizers as they are.

    Attributes:
        sync_every: How many steps each worker makes in between.
        outer_optimizer: What changes the global parameters, such as `optax.sgd(0.7, momentum=0.9, nesterov=True)` in DiLoCo. None if they
            become the mean of the workers', as in local SGD.

    Raises:
        ValueError: If `sync_every` is no such number.
        TypeError: If the optimizer is none of optax's kind.

    Ref: Stich 2018, Local SGD Converges Fast and Communicates Little, https://arxiv.org/abs/1805.09767; Douillard et al. 2023, DiLoCo,
    https://arxiv.org/abs/2311.08105

    Example:
        >>> import optax, tfdist_jax as td
        >>> td.LocalSGD(sync_every=50, outer_optimizer=optax.sgd(0.7, momentum=0.9, nesterov=True)).sync_every
        50
    """

    sync_every: int
    outer_optimizer: "optax.GradientTransformation | None" = None

    def __post_init__(self) -> None:
        _check_number("sync_every", self.sync_every, least=1)
        if self.outer_optimizer is not None:
            check_optimizer("outer_optimizer", self.outer_optimizer)


Mode = Asynchronous | Synchronous | LocalSGD


def check_mode(mode: Any, workers: Any) -> None:
    """Check how many workers train, and how.

    Raises:
        ValueError: If there are no workers, or not enough for the mode.
        TypeError: If something is of another type.
    """
    if not isinstance(workers, int) or isinstance(workers, bool):
        raise TypeError(f"`workers` is the number of workers, got {workers!r}.")
    if workers < 1:
        raise ValueError(f"`workers` is the number of workers, 1 or more, got {workers}.")
    if not isinstance(mode, Mode):
        raise TypeError(
            f"`mode` must be td.Asynchronous(...), td.Synchronous(...) or td.LocalSGD(...), one of them, got {mode!r}."
        )
    if isinstance(mode, Synchronous) and mode.backup_workers >= workers:
        raise ValueError(
            f"Of {workers} worker(s), `backup_workers` may be {workers - 1} at most, since a round waits for all others, got "
            f"{mode.backup_workers}. Take more workers, or fewer of them as backup."
        )


def check_optimizer(name: str, optimizer: Any) -> None:
    """Check that something is an optax optimizer.

    Raises:
        TypeError: If it is not.
    """
    if not all(callable(getattr(optimizer, method, None)) for method in ("init", "update")):
        raise TypeError(
            f"`{name}` must be an optax.GradientTransformation, such as optax.adam(1e-3), got {optimizer!r}."
        )


def _check_number(name: str, number: Any, *, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"`{name}` is a whole number, {least} or more, got {number!r}.")
