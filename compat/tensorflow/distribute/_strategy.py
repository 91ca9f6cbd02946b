"""`tf.distribute` strategies: TensorFlow's rules checked here, the work done by the native strategies."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

import tfdist_jax
from tfdist_jax import DATA, PerReplica, ReduceOp as ReduceOp
from tfdist_jax._capture import Discovery
from tfdist_jax._collectives import BUCKET_BYTES
from tfdist_jax._lockstep import LockStep, run_in_lockstep
from tfdist_jax._replica import is_per_replica
from tfdist_jax._replica_state import run_with_cells
from tfdist_jax._state import current_frame
from tfdist_jax.compat.tensorflow._calls import CallCache, as_results
from tfdist_jax.compat.tensorflow._closure_guard import closure_guard
from tfdist_jax.compat.tensorflow._context import (
    LockStepContext,
    OnlyReplicaContext,
    as_reduce_op,
    current_strategy,
    entering_replica,
    entering_scope,
    merging_context,
    replica_context,
)
from tfdist_jax.compat.tensorflow._devices import resolve_devices
from tfdist_jax.compat.tensorflow.distribute._input import (
    DistributedDataset,
    InputContext,
    distribute_from_function,
)


class Strategy:
    """Base of all strategies: `scope`, `run`, `reduce`, `gather` and the distribution of datasets.

    Differs from TensorFlow: a step is traced once for all replicas, not once for each; the replica id inside is
    known only when the step runs.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy
    """

    def __init__(self, native: tfdist_jax.Strategy, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        """Run on the mesh of `native`; gradients smaller than `bucket_bytes` share all-reduces."""
        self.native = native
        self.bucket_bytes = bucket_bytes
        self._programs = CallCache()
        self._own_variables: list[weakref.ref[Any]] = []

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas that share each step."""
        return self.native.num_replicas

    @contextlib.contextmanager
    def scope(self) -> Iterator["Strategy"]:
        """Make variables and models inside belong to this strategy."""
        present = current_strategy()
        if replica_context() is not None:
            raise RuntimeError("A strategy's scope cannot be entered inside `strategy.run`.")
        if present is not None and present is not self:
            raise RuntimeError(
                "Mixing different tf.distribute.Strategy objects: there is already another strategy's scope "
                f"({type(present).__name__}). Leave it before entering this one."
            )
        with entering_scope(self):
            yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """Run `fn` on each replica and return the replicas' results.

        Args:
            fn: The step. `PerReplica` values in its arguments arrive as the replica's own.
            args: Positional arguments.
            kwargs: Keyword arguments.
            options: `tf.distribute.RunOptions`; accepted.

        Returns:
            What `fn` returns, with a `PerReplica` for each tensor; with one replica, the tensors themselves.
        """
        self._require_cross_replica()
        call = (tuple(args), dict(kwargs or {}))
        with entering_scope(self):
            if current_frame() is not None:
                return self._run_in_program(fn, *call)
            guard = closure_guard(fn)
            return self._programs.call(lambda *a, **k: self._run_in_program(fn, a, k), *call, guard=guard)

    def experimental_run_v2(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do as `run`: its name before TensorFlow 2.2."""
        return self.run(fn, args=args, kwargs=kwargs)

    def _run_in_program(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        leaves = jax.tree.leaves((args, kwargs), is_leaf=is_per_replica)
        if any(isinstance(leaf, PerReplica) and leaf.is_uneven for leaf in leaves):
            return self._unwrap(self._run_uneven(fn, args, kwargs))

        def replica(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            with entering_replica(self):
                return as_results(fn(*args, **kwargs))

        own = [variable for ref in self._own_variables if (variable := ref()) is not None]
        return self._unwrap(run_with_cells(replica, (args, kwargs), self.native.mesh, own_cells=own))

    def _run_uneven(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        frame = _program_frame()
        frame.mesh = self.native.mesh

        def make_replica(lockstep: LockStep, i: int) -> Callable[[], Any]:
            own = lambda leaf: leaf.values[i] if isinstance(leaf, PerReplica) else leaf
            mine_args, mine_kwargs = jax.tree.map(own, (args, kwargs), is_leaf=is_per_replica)

            def replica() -> Any:
                with entering_replica(self, LockStepContext(self, lockstep, i)):
                    return as_results(fn(*mine_args, **mine_kwargs))

            return replica

        results = run_in_lockstep(make_replica, frame, self.num_replicas_in_sync)
        return jax.tree.map(lambda *values: PerReplica.uneven(values), *results)

    def _unwrap(self, results: Any) -> Any:
        if self.num_replicas_in_sync > 1:
            return results
        return jax.tree.map(lambda leaf: leaf.values[0], results, is_leaf=is_per_replica)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """Combine the replicas' values into one.

        Args:
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`, or its name.
            value: What `run` returned.
            axis: None, or the axis of each replica's value to reduce too; a mean then counts every element once.
        """
        self._require_cross_replica()
        op = as_reduce_op(reduce_op)
        context = merging_context()
        if context is not None:
            return _reduce_merging(context, op, value, axis)
        if self.num_replicas_in_sync == 1:
            return jax.tree.map(lambda leaf: _reduce_axis(op, leaf, axis), value)
        return self.native.reduce(op, value, axis=axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Join the replicas' values along `axis`, in replica order."""
        self._require_cross_replica()
        return self.native.gather(value, axis=axis)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the values of this process's replicas as a tuple."""
        return self.native.local_results(value)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> DistributedDataset:
        """Split each batch of `dataset` over the replicas."""
        return DistributedDataset(self, dataset)

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Any], options: Any = None) -> Any:
        """Let `dataset_fn` make the dataset of this process; its batches are per replica."""
        return distribute_from_function(self, dataset_fn)

    def experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Give each replica the value that `value_fn` makes for it."""
        from_replica = [value_fn(ValueContext(i, self.num_replicas_in_sync)) for i in range(self.num_replicas_in_sync)]
        values = jax.tree.map(lambda *leaves: PerReplica.uneven([jnp.asarray(leaf) for leaf in leaves]), *from_replica)
        return self._unwrap(jax.tree.map(self._stack_if_even, values, is_leaf=is_per_replica))

    def _stack_if_even(self, value: PerReplica) -> PerReplica:
        if len({(v.shape, v.dtype) for v in value.values}) > 1:
            return value
        return PerReplica(self.stacked(value.values), self.num_replicas_in_sync)

    def mirrored(self, value: Any) -> jax.Array:
        """Copy `value` to every device."""
        # The transfer alone would share memory with the first device's copy, which a later step may give away.
        value = jnp.copy(value) if isinstance(value, jax.Array) else value
        return jax.device_put(value, NamedSharding(self.native.mesh, PartitionSpec()))

    def stacked(self, values: Sequence[Any]) -> jax.Array:
        """Put value `i` on replica `i`: an array `[replicas, ...]` sharded over them."""
        return jax.device_put(jnp.stack(list(values)), NamedSharding(self.native.mesh, PartitionSpec(DATA)))

    def adopt(self, variable: Any) -> None:
        """Note a variable with one value per replica: `run` hands it to its replicas."""
        self._own_variables = [ref for ref in self._own_variables if ref() is not None]
        self._own_variables.append(weakref.ref(variable))

    def _require_cross_replica(self) -> None:
        if replica_context() is not None and not isinstance(replica_context(), OnlyReplicaContext):
            raise RuntimeError("Method requires being in cross-replica context, use get_replica_context().merge_call()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.num_replicas_in_sync} replica(s) on {list(self.native.mesh.devices.flat)}>"


@final
class MirroredStrategy(Strategy):
    """Drop-in for `tf.distribute.MirroredStrategy`: a copy of the variables on each device, batches split.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy
    """

    def __init__(self, devices: Sequence[str] | None = None, cross_device_ops: Any = None) -> None:
        """Use `devices`, such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.

        `cross_device_ops` says how many arrays share an all-reduce; the reduction itself is XLA's.
        """
        chosen = None if devices is None else tuple(resolve_devices(devices))
        options = getattr(cross_device_ops, "bucket_bytes", None)
        super().__init__(tfdist_jax.Mirrored(chosen), bucket_bytes=options or BUCKET_BYTES)


@final
class OneDeviceStrategy(Strategy):
    """Drop-in for `tf.distribute.OneDeviceStrategy`: everything on one device.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/OneDeviceStrategy
    """

    def __init__(self, device: str) -> None:
        """Use `device`, such as "/gpu:0"."""
        (chosen,) = resolve_devices([device])
        super().__init__(tfdist_jax.SingleDevice(chosen))


@final
class DefaultStrategy(Strategy):
    """What `tf.distribute.get_strategy()` returns outside of any scope: one replica, nothing moved."""

    def __init__(self) -> None:
        """Use the first device."""
        super().__init__(tfdist_jax.SingleDevice())

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Change nothing."""
        yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """Call `fn`."""
        with entering_replica(self, OnlyReplicaContext(self)):
            return fn(*args, **(kwargs or {}))

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Return `dataset`."""
        return dataset


@final
class ValueContext:
    """What `experimental_distribute_values_from_function` tells its function about the replica."""

    def __init__(self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1) -> None:
        """Describe one replica."""
        self.replica_id_in_sync_group = replica_id_in_sync_group
        self.num_replicas_in_sync = num_replicas_in_sync


def _program_frame() -> Discovery:
    """Return the frame of the surrounding program."""
    frame = current_frame()
    if not isinstance(frame, Discovery):
        raise RuntimeError("Replicas with uneven batches cannot run inside other replicas.")
    return frame


def _reduce_merging(context: Any, op: Any, value: Any, axis: int | None) -> Any:
    """Reduce inside `merge_call`, where each value is still the replica's own."""
    if axis is not None:
        value = context.all_gather(value, axis)
        return jax.tree.map(lambda leaf: _reduce_axis(op, leaf, axis), value)
    return context.all_reduce(op, value)


def _reduce_axis(op: Any, value: Any, axis: int | None) -> Any:
    if axis is None:
        return value
    return jnp.sum(value, axis) if op is tfdist_jax.ReduceOp.SUM else jnp.mean(value, axis)
