"""The contexts in which replicas run: all as one program, one by one in lock-step, or a single one."""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from tfdist_jax import DATA, Compression, ReduceOp, fused_sum
from tfdist_jax._autodiff._custom_pullback import unseen
from tfdist_jax._errors import DiffersByReplicaError, NewOwnCellsError
from tfdist_jax._sharding._collectives import gather_over, sum_over
from tfdist_jax._sharding._compression import Memory, sum_compressed
from tfdist_jax._stateful._eager_replicas import EagerReplicas
from tfdist_jax._stateful._lockstep import LockStep
from tfdist_jax._stateful._postponed_updates import Scattered, sum_as_laid_out
from tfdist_jax.compat.tensorflow._ops._arguments import compute
from tfdist_jax.compat.tensorflow._ops._binary import truediv
from tfdist_jax.compat.tensorflow.distribute._replica_context import ReplicaContext

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


class ProgramContext(ReplicaContext):
    """The context of all replicas of one SPMD program: which one it is shows when the program runs.

    Attributes:
        has_communicated: Whether the step has called something in which replicas meet.
    """

    has_communicated = False

    def __init__(self, strategy: "Strategy") -> None:
        """Be each replica of `strategy`."""
        super().__init__(strategy, None)

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number: an int32 scalar that is known when the step runs."""
        return jax.lax.axis_index(DATA)

    @property
    def devices(self) -> Sequence[str]:
        """Known only where replicas are traced one by one."""
        raise DiffersByReplicaError("it asks for its replica's device.")

    def from_first_replica(self, value: Any) -> Any:
        """Return replica 0's value everywhere."""
        self._communicate()
        mine = jax.lax.axis_index(DATA) == 0
        return sum_over(jnp.where(mine, value, jnp.zeros_like(value)), DATA)

    def merge_call(self, merge_fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Call `merge_fn(strategy, *args)` in cross-replica context."""
        self._communicate()
        return super().merge_call(merge_fn, args, kwargs)

    def make_own(self, make: Callable[[], bool]) -> None:
        """Make the variables, and let the replicas begin anew if there are any, so that each is given its values of them."""
        if make():
            raise NewOwnCellsError

    def sum_compressed(
        self, method: Compression, arrays: Sequence[jax.Array], memories: Sequence[Memory]
    ) -> tuple[Sequence[jax.Array], Sequence[Memory]]:
        """Return the sums of gradients that travel in a form, and what is kept of them."""
        self._communicate()
        return sum_compressed(method, arrays, memories, (DATA,) if self.num_replicas_in_sync > 1 else ())

    def sum_as_laid_out(self, value: jax.Array, spec: PartitionSpec) -> jax.Array | Scattered:
        """Add values up over the replicas, for a variable that is laid out like this."""
        self._communicate()
        return sum_as_laid_out(value, spec)

    def _communicate(self) -> None:
        self.has_communicated = True

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array], pack_bytes: int) -> list[Any]:
        self._communicate()
        sums = fused_sum(values, bucket_bytes=self._strategy.bucket_bytes, pack_bytes=pack_bytes)
        return sums if op is ReduceOp.SUM else [truediv(total, self.num_replicas_in_sync) for total in sums]

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        self._communicate()
        return gather_over(value, DATA, axis)


@final
class BranchContext(ProgramContext):
    """The context of replicas of one program whose arguments differ in shape: in different branches they cannot meet."""

    def make_once(self, make: Callable[[], Any]) -> Any:
        """Leave it to replicas that are traced side by side: each branch would make an object of its own."""
        raise DiffersByReplicaError("its replicas make variables while their batches differ in size.")

    def make_own(self, make: Callable[[], bool]) -> None:
        """Leave it to them."""
        self.make_once(make)

    def _communicate(self) -> None:
        raise DiffersByReplicaError("its replicas communicate while their batches differ in size.")


class LockStepContext(ReplicaContext):
    """The context of a replica whose part of the batch differs in size from the others'."""

    def __init__(self, strategy: "Strategy", lockstep: "LockStep", replica: int, place: int | None = None) -> None:
        """Be replica number `replica`, meeting the others in `lockstep`, at another `place` there if not all take part."""
        super().__init__(strategy, replica)
        self._lockstep = lockstep
        self._place = replica if place is None else place

    def from_first_replica(self, value: Any) -> Any:
        """Return replica 0's value everywhere."""
        return self._exchange(value, lambda values: [values[0]] * len(values))

    def make_once(self, make: Callable[[], Any]) -> Any:
        """Let the first replica make an object for all."""
        place = self._place_in_lockstep
        return self._lockstep.exchange(place, make() if place == 0 else None, lambda made: [made[0]] * len(made))

    def sum_compressed(
        self, method: Compression, arrays: Sequence[jax.Array], memories: Sequence[Memory]
    ) -> tuple[Sequence[jax.Array], Sequence[Memory]]:
        """Return the sums of gradients as if they had travelled in a form, and what is kept of them."""

        def combine(given: list[Any]) -> list[Any]:
            axes = (DATA,) if len(given) > 1 else ()
            one = lambda given: sum_compressed(method, given[0], given[1], axes)
            results = jax.vmap(one, axis_name=DATA)(jax.tree.map(lambda *each: jnp.stack(each), *given))
            return [jax.tree.map(lambda leaf, i=i: leaf[i], results) for i in range(len(given))]

        return self._exchange((list(arrays), [dict(memory) for memory in memories]), combine)

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array], pack_bytes: int) -> list[Any]:
        def combine(contributions: list[list[jax.Array]]) -> list[list[jax.Array]]:
            sums = [functools.reduce(operator.add, same) for same in zip(*contributions, strict=True)]
            total = sums if op is ReduceOp.SUM else [truediv(s, len(contributions)) for s in sums]
            return [[jnp.copy(value) for value in total] for _ in contributions]

        def pullback(cotangents: Sequence[Any]) -> list[jax.Array]:
            given = [jnp.zeros_like(v) if c is None else c for v, c in zip(values, cotangents, strict=True)]
            return self._all_reduce(op, given, pack_bytes)

        return self._differentiable(values, lambda given: self._exchange(given, combine), pullback)

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        def combine(parts: list[list[jax.Array]]) -> list[list[jax.Array]]:
            return [[compute(jnp.concatenate, [part for (part,) in parts], axis)] for _ in parts]

        def pullback(cotangents: Sequence[Any]) -> list[jax.Array]:
            (total,) = self._all_reduce(ReduceOp.SUM, list(cotangents), 0)
            sizes = self._exchange(value.shape[axis], lambda sizes: [sizes] * len(sizes))
            start = sum(int(size) for size in sizes[: self._place])
            return [jax.lax.slice_in_dim(total, start, start + value.shape[axis], axis=axis)]

        (gathered,) = self._differentiable([value], lambda given: self._exchange(given, combine), pullback)
        return gathered

    def _differentiable(self, values: list[Any], compute: Callable[..., list[Any]], pullback: Any) -> list[Any]:
        """Compute with the replicas' shared trace; backwards the replicas meet again, in `pullback`."""
        if not self._lockstep.is_transformed():
            return unseen(values, lambda: compute(values), pullback)
        meeting = jax.custom_vjp(compute)
        meeting.defvjp(lambda given: (compute(given), None), lambda _, cotangents: (pullback(cotangents),))
        return meeting(values)

    @property
    def _place_in_lockstep(self) -> int:
        """Which of the replicas that run side by side in this process it is."""
        return self._place

    def _exchange(self, value: Any, combine: Callable[[list[Any]], list[Any]]) -> Any:
        return self._lockstep.exchange(self._place, value, combine)


@final
class EagerContext(LockStepContext):
    """The context of a replica that runs with values, on a device of its own."""

    def __init__(self, strategy: "Strategy", lockstep: "LockStep", replicas: EagerReplicas, position: int) -> None:
        """Be the one at `position` of this process's `replicas`, on its device."""
        super().__init__(strategy, lockstep, replicas.numbers[position])
        self._replicas, self._position = replicas, position

    @property
    def _place_in_lockstep(self) -> int:
        return self._position

    def _exchange(self, value: Any, combine: Callable[[list[Any]], list[Any]]) -> Any:
        replicas = self._replicas

        def over_all(values: list[Any]) -> list[Any]:
            results = combine(replicas.of_all("communicates", values))
            return [
                jax.device_put(results[i], where) for i, where in zip(replicas.numbers, replicas.devices, strict=True)
            ]

        return self._lockstep.exchange(self._position, value, over_all)


@final
class OnlyReplicaContext(ReplicaContext):
    """The context of the one replica that there is without a strategy: collectives change nothing."""

    def __init__(self, strategy: "Strategy") -> None:
        """Be the replica of `strategy`."""
        super().__init__(strategy, 0)

    @property
    def devices(self) -> Sequence[str]:
        """One device that is not chosen."""
        return ("",)

    def from_first_replica(self, value: Any) -> Any:
        """Return `value`."""
        return value

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array], pack_bytes: int) -> list[Any]:
        return values

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        return value

    def _must_be_current(self) -> None:
        """It is, wherever no other replica runs."""
