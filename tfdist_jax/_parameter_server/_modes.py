"""How the workers of a parameter server train together."""

import dataclasses
import operator
from typing import TYPE_CHECKING, Any, final

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
        ValueError: If it is less than 0.
        TypeError: If it is no whole number.

    Example:
        >>> import tfdist_jax as td
        >>> td.Asynchronous(max_staleness=2)
        Asynchronous(max_staleness=2)
    """

    max_staleness: int | None = None

    def __post_init__(self) -> None:
        if self.max_staleness is not None:
            object.__setattr__(self, "max_staleness", whole_number("max_staleness", self.max_staleness, least=0))


@final
@dataclasses.dataclass(frozen=True)
class Synchronous:
    """Workers train in rounds: their gradients are of the same parameters, and the mean of those that come first is applied.

    In a round each worker takes one batch. As soon as all but `backup_workers` of them have come, their mean is applied and the next round
    begins. What comes later is dropped; its worker misses rounds as long as it still computes, and no round waits for it.

    Should the optimizer fail on a round's mean, its error is that of the batch which came last, and so is raised as any batch's. The other
    batches of the round have their results, as if they had been applied, but nothing of the round has been.

    Ref: Chen et al. 2016, Revisiting Distributed Synchronous SGD, https://arxiv.org/abs/1604.00981

    Attributes:
        backup_workers: For how many workers, the slowest ones, a round does not wait. With 0 a round is as many batches as there are
            workers, in their order, and equal trainings have equal bits.

    Raises:
        ValueError: If it is less than 0.
        TypeError: If it is no whole number.

    Example:
        >>> import tfdist_jax as td
        >>> td.Synchronous(backup_workers=1)
        Synchronous(backup_workers=1)
    """

    backup_workers: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "backup_workers", whole_number("backup_workers", self.backup_workers, least=0))


@final
@dataclasses.dataclass(frozen=True)
class LocalSGD:
    """Workers train each for itself, and their parameters are put together after some steps: local SGD, or DiLoCo.

    The batches go to the workers in turn. Each has parameters and an optimizer's state of its own. When all have made `sync_every`
    steps, the global parameters minus the mean of the workers' are a gradient for the outer optimizer; all workers go on from what it
    makes of the global parameters, with the states of their optimizers as they are.

    Should the outer optimizer fail, its error is that of the batch which came last, and so is raised as any batch's. The other batches of
    the round have their results, but the global parameters stay as they are, and all workers go on from these.

    Ref: Stich 2018, Local SGD Converges Fast and Communicates Little, https://arxiv.org/abs/1805.09767; Douillard et al. 2023, DiLoCo,
    https://arxiv.org/abs/2311.08105

    Attributes:
        sync_every: How many steps each worker makes in between.
        outer_optimizer: What changes the global parameters, such as `optax.sgd(0.7, momentum=0.9, nesterov=True)` in DiLoCo. None if they
            become the mean of the workers', as in local SGD. It may want no `value`, since a round has no loss.

    Raises:
        ValueError: If `sync_every` is less than 1.
        TypeError: If it is no whole number, or the optimizer is none of optax's kind.

    Example:
        >>> import optax, tfdist_jax as td
        >>> td.LocalSGD(sync_every=50, outer_optimizer=optax.sgd(0.7, momentum=0.9, nesterov=True)).sync_every
        50
    """

    sync_every: int
    outer_optimizer: "optax.GradientTransformation | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sync_every", whole_number("sync_every", self.sync_every, least=1))
        if self.outer_optimizer is not None:
            check_optimizer("outer_optimizer", self.outer_optimizer)


Mode = Asynchronous | Synchronous | LocalSGD


def check_mode(mode: Any, workers: int) -> None:
    """Check how so many workers train.

    Raises:
        ValueError: If there are not enough for the mode.
        TypeError: If it is none.
    """
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


def whole_number(name: str, number: Any, *, least: int) -> int:
    """Return a number that a program gives, as one of Python's.

    Raises:
        ValueError: If it is less than it may be.
        TypeError: If it is no whole number.
    """
    wanted = f"`{name}` must be a whole number, {least} or more, got {number!r}."
    if isinstance(number, bool):
        raise TypeError(wanted)
    try:
        whole = operator.index(number)
    except TypeError as error:
        raise TypeError(wanted) from error
    if whole < least:
        raise ValueError(wanted)
    return whole
