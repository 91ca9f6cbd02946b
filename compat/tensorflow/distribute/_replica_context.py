"""`tf.distribute.ReplicaContext`: a replica's number and its collectives."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from tfdist_jax import Compression, PerReplica, ReduceOp
from tfdist_jax._runtime import runs_on_cpu
from tfdist_jax._sharding._compression import Memory
from tfdist_jax.compat.tensorflow._ops._arguments import invalid, require
from tfdist_jax.compat.tensorflow._ops._binary import truediv
from tfdist_jax.compat.tensorflow._platform._context import (
    as_reduce_op,
    entering_merge,
    entering_replica,
    replica_context,
)
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices, is_slices
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.distribute._options import check_options_of_call

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


class ReplicaContext:
    """Inside `strategy.run`: this replica's number and its collectives.

    Args of the collectives may be nested structures of tensors; all are differentiable.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext

    Attributes:
        is_updating: Whether the writes of the present code are equal on all replicas.
        own_values: Inside `merge_call`, the values that are the replica's own.
        merged: The results of `merge_call` that are one value for all replicas.
    """

    def __init__(self, strategy: "Strategy", replica_id_in_sync_group: Any) -> None:
        """Be replica number `replica_id_in_sync_group` of `strategy`; a context made by hand is entered with `with`."""
        self._strategy = strategy
        self._replica = replica_id_in_sync_group
        self._entered = contextlib.ExitStack()
        self.is_updating = False
        self.own_values: list[Any] = []
        self.merged: list[Any] = []

    def __enter__(self) -> None:
        """Be the context of the code inside."""
        self._entered.enter_context(entering_replica(self._strategy, self))

    def __exit__(self, *raised: Any) -> None:
        """Be it no longer."""
        self._entered.close()

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
        """This replica's number, an int32 scalar."""
        return convert_to_tensor(self._replica, dtype="int32")

    @property
    def devices(self) -> Sequence[str]:
        """The name of this replica's device, in a sequence."""
        self._must_be_current()
        return [self._strategy.device_names[self._replica]]

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Return the sum or mean of `value` over all replicas."""
        self._must_be_current()
        if any(map(is_slices, jax.tree.leaves(value, is_leaf=is_slices))):
            return jax.tree.map(lambda leaf: self._reduce_rows(reduce_op, leaf, options), value, is_leaf=is_slices)
        leaves, tree = jax.tree.flatten(value)
        tensors = [convert_to_tensor(leaf) for leaf in leaves]
        return tree.unflatten(self.batch_reduce(as_reduce_op(reduce_op), [(each, each) for each in tensors], options))

    def _reduce_rows(self, op: Any, value: Any, options: Any) -> Any:
        if not is_slices(value):
            return self.all_reduce(op, value, options)
        values, indices = self.gather((value.values, value.indices), 0)
        if as_reduce_op(op) is ReduceOp.MEAN:
            values = truediv(values, self.num_replicas_in_sync)
        return IndexedSlices(values, indices, value.dense_shape)

    def batch_reduce(self, op: ReduceOp, pairs: Sequence[tuple[Any, Any]], options: Any = None) -> list[Any]:
        """Reduce tensors, given with their destinations, by the user's own class if there is one."""
        way = self._strategy.cross_device_ops
        if way is None or not way.is_own_way or any(tensor.dtype == jnp.int32 for tensor, _ in pairs):
            return self.reduce(op, [tensor for tensor, _ in pairs], options)
        # The user's class wants to see all replicas' values.
        replicas = range(self.num_replicas_in_sync)
        gathered = [self._all_gather(tensor[None], 0) for tensor, _ in pairs]
        values = [PerReplica.uneven([every[i] for i in replicas]) for every in gathered]
        return way.batch_reduce(op, [(value, where) for value, (_, where) in zip(values, pairs, strict=True)], options)

    def reduce(self, op: ReduceOp, values: Sequence[Any], options: Any = None) -> list[Any]:
        """Reduce tensors by XLA's collectives, also in a `merge_call`."""
        numbers = [require(convert_to_tensor(value), "fci", "all_reduce") for value in values]
        check_options_of_call(options)
        return self._all_reduce(op, numbers, getattr(options, "bytes_per_pack", 0))

    def reduce_onto(self, op: ReduceOp, values: Sequence[Any]) -> list[Any]:
        """Reduce tensors for variables on all devices: TensorFlow asks the user's class unless it is the host."""
        on_host = runs_on_cpu(self._strategy.native.mesh)
        return self.reduce(op, values) if on_host else self.batch_reduce(op, [(value, value) for value in values])

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Return all replicas' values joined along `axis`."""
        self._must_be_current()
        refuse_slices(value, "all_gather")
        check_options_of_call(options)
        return self.gather(value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Do as `all_gather`, also in a `merge_call`."""

        def one(leaf: Any) -> Any:
            tensor = convert_to_tensor(leaf)
            return self._all_gather(tensor, axis_of(tensor, axis))

        return jax.tree.map(one, value)

    def merge_call(self, merge_fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Call `merge_fn(strategy, *args)` in cross-replica context.

        The arguments arrive as this replica's values; `strategy.reduce` and `extended.update` inside combine them
        over the replicas. What comes from no argument and from no `strategy.run` inside is one value for all replicas.
        """
        self._must_be_current()
        self.own_values += jax.tree.leaves((args, kwargs))
        with entering_merge(self._strategy, self):
            results = merge_fn(self._strategy, *args, **(kwargs or {}))
        own = set(map(id, self.own_values))
        self.merged += [
            leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, jax.Array) and id(leaf) not in own
        ]
        return results

    def make_once(self, make: Callable[[], Any]) -> Any:
        """Return what `make` makes, such as a variable: one object for all replicas, which all call this."""
        return make()

    def make_own(self, make: Callable[[], bool]) -> None:
        """Let `make` make variables with a value for each replica, and say if it has, once for all replicas, which all call this."""
        self.make_once(make)

    @contextlib.contextmanager
    def replicated_update(self) -> Iterator[None]:
        """Mark a part of a step whose writes are equal on all replicas, such as an optimizer's update."""
        before, self.is_updating = self.is_updating, True
        try:
            yield
        finally:
            self.is_updating = before

    def from_first_replica(self, value: Any) -> Any:
        """Return replica 0's value everywhere."""
        raise self._not_running()

    def sum_compressed(
        self, method: Compression, arrays: Sequence[jax.Array], memories: Sequence[Memory]
    ) -> tuple[Sequence[jax.Array], Sequence[Memory]]:
        """Return the sums of gradients that travel in a form, and what this replica keeps of them, given what it has kept."""
        raise self._not_running()

    def _all_reduce(self, op: ReduceOp, values: list[jax.Array], pack_bytes: int) -> list[Any]:
        raise self._not_running()

    def _all_gather(self, value: jax.Array, axis: int) -> jax.Array:
        raise self._not_running()

    def _must_be_current(self) -> None:
        if replica_context() is not self:
            raise self._not_running()

    def _not_running(self) -> RuntimeError:
        return RuntimeError(
            "Replicas communicate only while they run: this context is not the one that tf.distribute."
            "get_replica_context() returns inside the present `strategy.run`."
        )


def refuse_slices(structure: Any, method: str) -> None:
    """Refuse to join `tf.IndexedSlices`: rows of one table are no values one behind the other."""
    if any(map(is_slices, jax.tree.leaves(structure, is_leaf=is_slices))):
        raise NotImplementedError(
            f"{method} does not support IndexedSlices: use tf.convert_to_tensor, or gather `values` and `indices`."
        )


def axis_of(tensor: jax.Array, axis: int) -> int:
    """Return the axis along which values like `tensor` are gathered, counted from the front."""
    rank = jnp.ndim(tensor)
    if rank and not -rank <= axis < rank:
        raise invalid(f"Values of shape {tuple(tensor.shape)} have no axis {axis} to be gathered along.")
    return axis % max(rank, 1)
