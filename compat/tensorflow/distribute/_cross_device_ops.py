"""`tf.distribute.CrossDeviceOps`: how the replicas' values become one."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from tfdist_jax import PerReplica, ReduceOp
from tfdist_jax._replica import is_per_replica
from tfdist_jax.compat.tensorflow.distribute._options import CommunicationOptions
from tfdist_jax.compat.tensorflow.distribute._reduction import on_one_device

_OWN_WAYS = ("reduce_implementation", "batch_reduce_implementation")


class CrossDeviceOps:
    """Base of the ways to reduce over devices.

    The ones that TensorFlow brings compile to XLA's all-reduce (NCCL on GPU, the interconnect on TPU, gloo or shared
    memory on CPU). A subclass of the user's own is asked with its `reduce_implementation` or
    `batch_reduce_implementation`, on values gathered from all replicas.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/CrossDeviceOps
    """

    bucket_bytes: int | None = None

    @property
    def is_own_way(self) -> bool:
        """Whether the class says itself how values are reduced."""
        return any(getattr(type(self), name) is not getattr(CrossDeviceOps, name) for name in _OWN_WAYS)

    def reduce(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any = None) -> Any:
        """Return the sum or mean of a `PerReplica` value."""
        value = jax.tree.map(on_one_device, per_replica_value, is_leaf=is_per_replica)
        options = options or CommunicationOptions()
        return self.reduce_implementation(ReduceOp(reduce_op), value, destinations, options)

    def batch_reduce(self, reduce_op: Any, value_destination_pairs: Sequence[Any], options: Any = None) -> list[Any]:
        """Return the sums or means of several values, given as pairs of a value and a destination."""
        pairs = [(on_one_device(value), where) for value, where in value_destination_pairs]
        return list(self.batch_reduce_implementation(ReduceOp(reduce_op), pairs, options or CommunicationOptions()))

    def broadcast(self, tensor: Any, destinations: Any) -> Any:
        """Return a tensor as every device has it."""
        return self.broadcast_implementation(tensor, destinations)

    def reduce_implementation(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any) -> Any:
        """Reduce one value; by `batch_reduce_implementation` if only that is written."""
        if type(self).batch_reduce_implementation is not CrossDeviceOps.batch_reduce_implementation:
            (result,) = self.batch_reduce_implementation(reduce_op, [(per_replica_value, destinations)], options)
            return result
        return jax.tree.map(functools.partial(_combined, reduce_op), per_replica_value, is_leaf=is_per_replica)

    def batch_reduce_implementation(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> list[Any]:
        """Reduce several values; one by one if only `reduce_implementation` is written."""
        return [
            self.reduce_implementation(reduce_op, value, where, options) for value, where in value_destination_pairs
        ]

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        """Return the tensor: XLA copies it where it is used."""
        return tensor


def _combined(op: ReduceOp, value: Any) -> Any:
    if not isinstance(value, PerReplica):
        return value
    total = functools.reduce(lambda a, b: a + b, value.values)
    return total if op is ReduceOp.SUM else total / value.num_replicas


class _Packed(CrossDeviceOps):
    """A way that XLA carries out; the number of packs says whether small arrays share an all-reduce."""

    def __init__(self, num_packs: int = 1) -> None:
        """Accept `num_packs`; 0 asks for an all-reduce for each tensor."""
        if num_packs < 0:
            raise ValueError(f"{type(self).__name__} requires num_packs >= 0, but {num_packs} is specified")
        self.bucket_bytes = None if num_packs else 1


@final
class NcclAllReduce(_Packed):
    """Reduce with NCCL, as XLA does on GPU anyway."""


@final
class HierarchicalCopyAllReduce(_Packed):
    """Reduce over the devices' own links; XLA chooses the route."""


@final
class ReductionToOneDevice(CrossDeviceOps):
    """Reduce as XLA does, or with a function of one's own; the result is on every device in any case."""

    def __init__(self, reduce_to_device: Any = None, accumulation_fn: Callable[[Any], Any] | None = None) -> None:
        """Sum with `accumulation_fn`, which takes the list of the replicas' values, if it is given."""
        self._device, self._accumulate = reduce_to_device, accumulation_fn

    @property
    def is_own_way(self) -> bool:
        """Whether there is a function that sums."""
        return self._accumulate is not None

    def reduce_implementation(self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any) -> Any:
        """Sum with the function; a mean divides that by the number of replicas."""
        if self._accumulate is None:
            return super().reduce_implementation(reduce_op, per_replica_value, destinations, options)

        def accumulated(value: Any) -> Any:
            if not isinstance(value, PerReplica) or self._accumulate is None:
                return value
            total = self._accumulate(list(value.values))
            return total if reduce_op is ReduceOp.SUM else total / value.num_replicas

        return jax.tree.map(accumulated, per_replica_value, is_leaf=is_per_replica)
