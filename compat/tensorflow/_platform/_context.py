"""Which strategy, and which replica, the running code belongs to."""

import contextlib
import dataclasses
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tfdist_jax import ReduceOp
from tfdist_jax._device_scope import current_device
from tfdist_jax._stateful._storage import Storage, storage_on
from tfdist_jax._thread_state import having

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._replica_context import ReplicaContext
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


def as_reduce_op(op: Any) -> ReduceOp:
    """Accept `tf.distribute.ReduceOp` members and their names in any case, as TensorFlow does."""
    if isinstance(op, ReduceOp):
        return op
    try:
        return ReduceOp(str(op).upper())
    except ValueError:
        raise ValueError(f"A reduction is 'SUM' or 'MEAN', got {op!r}.") from None


@dataclasses.dataclass(frozen=True)
class _Context:
    strategy: "Strategy | None" = None
    replica: "ReplicaContext | None" = None
    merging: "ReplicaContext | None" = None


_NOWHERE = _Context()
_process_wide = _NOWHERE
_current: ContextVar[_Context] = ContextVar("strategy", default=_NOWHERE)


def _entering(context: _Context) -> AbstractContextManager[None]:
    return having(_current, context)


def current_strategy() -> "Strategy | None":
    """Return the strategy in whose scope or run the code is, or None for the default one."""
    return _current.get().strategy or _process_wide.strategy


def binding_strategy() -> "Strategy | None":
    """Return the current strategy if it has devices of its own, which the default one has not."""
    strategy = current_strategy()
    return None if strategy is None or strategy.is_default else strategy


def new_storage(*, on_read: bool = False, is_weight: bool = False) -> Storage:
    """Return how a variable that is made now is kept: as the strategy says, or on the device of `tf.device`.

    Args:
        on_read: Whether each replica has a value of its own.
        is_weight: Whether optimizers may change it: it is trainable, and of a floating type.
    """
    strategy, device = current_strategy(), current_device()
    if strategy is None or (strategy.is_default and device is not None):
        return storage_on(device)
    return strategy.storage_for_variable(has_own_values=on_read, is_weight=is_weight)


def set_current_strategy(strategy: "Strategy | None") -> None:
    """Make `strategy` current for all code from here on; None for the default one.

    Raises:
        RuntimeError: In the scope or `run` of a strategy.
    """
    global _process_wide
    if _current.get() is not _NOWHERE:
        raise RuntimeError("Must not be called inside a strategy scope.")
    _process_wide = _Context(strategy)


def replica_context() -> "ReplicaContext | None":
    """Return the replica that the code runs on, or None outside of `strategy.run`."""
    return _current.get().replica


def merging_context() -> "ReplicaContext | None":
    """Return the replica whose `merge_call` is running, or None."""
    return _current.get().merging


def in_replica() -> bool:
    """Tell whether the code runs once per replica."""
    return _current.get().replica is not None


def entering_scope(strategy: "Strategy | None") -> contextlib.AbstractContextManager[None]:
    """Make `strategy` current, in cross-replica context."""
    return _entering(_Context(strategy))


def entering_replica(strategy: "Strategy", context: "ReplicaContext") -> contextlib.AbstractContextManager[None]:
    """Enter the code of one replica of `strategy`."""
    return _entering(_Context(strategy, context))


def entering_merge(strategy: "Strategy", context: "ReplicaContext") -> contextlib.AbstractContextManager[None]:
    """Enter what a replica's `merge_call` runs: cross-replica code on this replica's values."""
    return _entering(_Context(strategy, None, context))
