"""Which strategy, and which replica, the running code belongs to."""

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from tfdist_jax import DATA, ReduceOp, fused_sum

if TYPE_CHECKING:
    from tfdist_jax._lockstep import LockStep
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


def as_reduce_op(op: Any) -> ReduceOp:
    """Accept `tf.distribute.ReduceOp` members and their names in any case, as TensorFlow does."""
    if isinstance(op, ReduceOp):
        return op
    try:
        return ReduceOp(str(op).upper())
    except ValueError:
        raise ValueError(f"A reduction is 'SUM' or 'MEAN', got {op!r}.") from None


class ReplicaContext:
    """Inside `strategy.run`: this replica's number and its collectives.

    Args of the collectives may be nested structures of tensors; all are differentiable.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext
    """

    def __init__(self, strategy: "Strategy") -> None:
        """Belong to `strategy`."""
        self._strategy = strategy
        self.is_updating = False

    @property
    def strategy(self) -> "Strategy":
        """The strategy whose `run` is running."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas that run this step together."""
        return self._strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number: an int32 scalar that is known when the step runs."""
        return jax.lax.axis_index(DATA)

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Return the sum or mean of `value` over all replicas."""
        leaves, tree = jax.tree.flatten(value)
        return tree.unflatten(self._all_reduce(as_reduce_op(reduce_op), [jnp.asarray(leaf) for leaf in leaves]))

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Return all replicas' values joined along `axis`."""
        return jax.tree.map(lambda leaf: self._all_gather(jnp.asarray(leaf), axis), value)

    def merge_call(self, merge_fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Call `merge_fn(strategy, *args)` in cross-replica context.

        The arguments arrive as this replica's values; `strategy.reduce` and `extended.update` inside combine them
        over the replicas.
        """
        with _entering(_Context(self._strategy, None, self)):
            return merge_fn(self._strategy, *args, **(kwargs or {}))

    def from_first_replica(self, value: Any) -> Any:
        """Return replica 0's value everywhere."""
        mine = jax.lax.axis_index(DATA) == 0
        return jax.lax.psum(jnp.where(mine, value, jnp.zeros_like(value)), DATA)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Mark a part of a step whose writes are equal on all replicas, such as an optimizer's update."""
        before, self.is_updating = self.is_updating, True
        try:
            yield
        finally:
            self.is_updating = before

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[Any]:
        sums = fused_sum(values, bucket_bytes=self._strategy.bucket_bytes)
        return (
            sums if op is ReduceOp.SUM else [total / self.num_replicas_in_sync for total in sums if total is not None]
        )

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        return jax.lax.all_gather(value, DATA, axis=axis, tiled=True)


@final
class LockStepContext(ReplicaContext):
    """The context of a replica whose part of the batch differs in size from the others'."""

    def __init__(self, strategy: "Strategy", lockstep: "LockStep", replica: int) -> None:
        """Be replica number `replica`, meeting the others in `lockstep`."""
        super().__init__(strategy)
        self._lockstep = lockstep
        self._replica = replica

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number."""
        return jnp.int32(self._replica)

    def from_first_replica(self, value: Any) -> Any:
        """Return replica 0's value everywhere."""
        return self._meet(value, lambda values: [values[0]] * len(values))

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[Any]:
        def combine(contributions: list[list[jax.Array]]) -> list[list[jax.Array]]:
            sums = [functools.reduce(operator.add, same) for same in zip(*contributions, strict=True)]
            total = sums if op is ReduceOp.SUM else [s / len(contributions) for s in sums]
            return [total] * len(contributions)

        return self._meet(values, combine)

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        return self._meet(value, lambda values: [jnp.concatenate(values, axis)] * len(values))

    def _meet(self, value: Any, combine: Callable[[list[Any]], list[Any]]) -> Any:
        return self._lockstep.meet(self._replica, value, combine)


@final
class OnlyReplicaContext(ReplicaContext):
    """The context of the one replica that there is without a strategy: collectives change nothing."""

    @property
    def replica_id_in_sync_group(self) -> Any:
        """Always 0."""
        return 0

    def from_first_replica(self, value: Any) -> Any:
        """Return `value`."""
        return value

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[Any]:
        return values

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        return value


@dataclasses.dataclass(frozen=True)
class _Context:
    strategy: "Strategy | None" = None
    replica: ReplicaContext | None = None
    merging: ReplicaContext | None = None


_NOWHERE = _Context()
_current: ContextVar[_Context] = ContextVar("strategy", default=_NOWHERE)


@contextlib.contextmanager
def _entering(context: _Context) -> Iterator[None]:
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def current_strategy() -> "Strategy | None":
    """Return the strategy in whose scope or run the code is, or None for the default one."""
    return _current.get().strategy


def replica_context() -> ReplicaContext | None:
    """Return the replica that the code runs on, or None outside of `strategy.run`."""
    return _current.get().replica


def merging_context() -> ReplicaContext | None:
    """Return the replica whose `merge_call` is running, or None."""
    return _current.get().merging


def in_replica() -> bool:
    """Tell whether the code runs once per replica."""
    return _current.get().replica is not None


def entering_scope(strategy: "Strategy | None") -> contextlib.AbstractContextManager[None]:
    """Make `strategy` current, in cross-replica context."""
    return _entering(_Context(strategy))


def entering_replica(
    strategy: "Strategy", context: ReplicaContext | None = None
) -> contextlib.AbstractContextManager[None]:
    """Enter the code of one replica of `strategy`; its collectives go over the mesh unless `context` is given."""
    return _entering(_Context(strategy, context or ReplicaContext(strategy)))
