"""`strategy.extended`: what libraries and optimizers ask of a strategy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from tfdist_jax import PerReplica
from tfdist_jax._replica import is_per_replica
from tfdist_jax._runtime import runs_on_cpu
from tfdist_jax._sharding._placement import local_replicas, put, replicated_sharding
from tfdist_jax.compat.tensorflow._platform._context import (
    as_reduce_op,
    current_strategy,
    entering_replica,
    merging_context,
    replica_context,
)
from tfdist_jax.compat.tensorflow._variables._variable_creators import keeping_whole

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._strategy import Strategy


def _on_each_device(results: Any) -> Any:
    """Return what a `merge_call` has brought to every device: each replica gets a value of its own of it."""
    context = merging_context()
    if context is not None:
        context.own_values += jax.tree.leaves(results)
    return results


@final
class StrategyExtended:
    """The lower-level methods of a strategy.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/StrategyExtended
    """

    def __init__(self, strategy: "Strategy") -> None:
        """Belong to `strategy`."""
        self._strategy = strategy

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do as `strategy.run`."""
        return self._strategy.run(fn, args=args, kwargs=kwargs)

    def reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
        """Return the sum or mean over the replicas, which is on all devices."""
        if not self._asks_own_way(destinations) or not (merging_context() or isinstance(value, PerReplica)):
            result = self._strategy.reduce(reduce_op, value, axis=None)
            return result if isinstance(destinations, str) else _on_each_device(result)
        (result,) = self.batch_reduce_to(reduce_op, [(value, destinations)], options)
        return result

    def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Return the sum or mean of `value` over all replicas, in one; tf-models' explicit reduction calls it."""
        context = replica_context()
        if context is None:
            raise RuntimeError("Method requires being in replica context: call it inside `strategy.run`.")
        return context.all_reduce(reduce_op, value, options)

    def _asks_own_way(self, destinations: Any) -> bool:
        """Whether one value is reduced by the user's class: TensorFlow sums on the host, and to one device, by itself."""
        way = self._strategy.cross_device_ops
        on_host = runs_on_cpu(self._strategy.native.mesh)
        return way is not None and way.is_own_way and not on_host and not isinstance(destinations, str)

    def batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Sequence[Any], options: Any = None) -> list[Any]:
        """Return the sums or means of several values, in one reduction."""
        op, pairs = as_reduce_op(reduce_op), list(value_destination_pairs)
        way, context = self._strategy.cross_device_ops, merging_context()
        own_way = way if way is not None and way.is_own_way else None
        if context is not None:
            results = context.batch_reduce(op, pairs, options)
            return _on_each_device(results) if own_way is None else results
        if own_way is not None:
            return own_way.batch_reduce(op, pairs, options)
        return [self._strategy.reduce(op, value, axis=None) for value, _ in pairs]

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Return a tensor as every device has it; a Python number is one anyway."""
        if isinstance(tensor, int | float):
            return tensor
        way = self._strategy.cross_device_ops
        if way is not None:
            tensor = way.broadcast(tensor, destinations)
        if merging_context() is not None:
            return _on_each_device(tensor)
        return put(jnp.copy(tensor), replicated_sharding(self._strategy.native.mesh))

    def update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn(var, *args)` to update a variable, each copy with its replica's arguments.

        Returns:
            What `fn` returns; with `group=False` as a tuple, one for each copy of the variable.
        """
        result = self._updating(lambda *args, **kwargs: fn(var, *args, **kwargs), args, kwargs or {})
        return result if group else (result,) * self._strategy.num_replicas_in_sync

    def update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn(*args)` on each of the devices of `non_slot_devices`, for variables that belong to no other.

        Returns:
            What `fn` returns; with `group=False` as a tuple, of one for each call unless all are the same object.
        """
        results = tuple(self._updating(fn, args, kwargs or {}) for _ in colocate_with)
        same = all(result is results[0] for result in results)
        return results[0] if group else results[:1] if same else results

    def _updating(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        def update(*args: Any, **kwargs: Any) -> Any:
            context = replica_context()
            with contextlib.nullcontext() if context is None else context.replicated_update():
                return fn(*args, **kwargs)

        merging = merging_context()
        if merging is not None:
            with entering_replica(self._strategy, merging):
                return update(*args, **kwargs)
        if any(map(is_per_replica, jax.tree.leaves((args, kwargs), is_leaf=is_per_replica))):
            return self._strategy.run(update, args=args, kwargs=kwargs)
        return update(*args, **kwargs)

    def read_var(self, v: Any) -> Any:
        """Return a variable's value; of one with a value for each replica, the aggregate."""
        return v.read_value()

    def variable_created_in_scope(self, v: Any) -> bool:
        """Tell whether a variable was made in this strategy's scope."""
        owner = v.distribute_strategy
        return owner is self._strategy or (owner is None and self._strategy.is_default)

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Make variables where another one is, in no parts: all variables of a strategy are on all of its devices.

        Raises:
            RuntimeError: Outside of the strategy's scope.
            ValueError: If the variable is not the strategy's.
        """
        if current_strategy() is not self._strategy and not self._strategy.is_default:
            raise RuntimeError(f'Need to be inside "with strategy.scope()" for {self._strategy}')
        if not hasattr(colocate_with_variable, "distribute_strategy") or not self.variable_created_in_scope(
            colocate_with_variable
        ):
            raise ValueError(
                "`colocate_vars_with` must only be passed a variable created in this tf.distribute.Strategy.scope(), "
                f"not {colocate_with_variable!r}."
            )
        with keeping_whole():
            yield

    def value_container(self, value: Any) -> Any:
        """Return the variable that a component belongs to: itself."""
        return value

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        """Return the devices of variables that belong to no other."""
        return self.parameter_devices

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Names of this process's devices that run replicas."""
        names, own = self._strategy.device_names, local_replicas(self._strategy.native.mesh)
        return tuple(names[i] for i in own)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Names of this process's devices that hold variables."""
        return self._strategy.parameter_devices or self.worker_devices

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds a program of its own."""
        return self._strategy.has_workers

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether programs are compiled for fixed shapes: always, by XLA."""
        return True

    @property
    def experimental_should_init(self) -> bool:
        """Whether this process initialises the variables."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process saves checkpoints: the first one does."""
        return self._strategy.is_first

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries: the first one does."""
        return self._strategy.is_first
