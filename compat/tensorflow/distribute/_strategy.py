"""`tf.distribute` strategies: TensorFlow's rules checked here, the work done by the native strategies."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import jax

import tfdist_jax
from tfdist_jax import Compression, PerReplica, ReduceOp as ReduceOp
from tfdist_jax._errors import DiffersByReplicaError, NotCompilableError
from tfdist_jax._replica import is_per_replica
from tfdist_jax._sharding._collectives import BUCKET_BYTES
from tfdist_jax._sharding._mesh import replicas
from tfdist_jax._sharding._placement import local_replicas, stack_replicas
from tfdist_jax._stateful._capture import CaptureScope
from tfdist_jax._stateful._lockstep import LockStep, run_in_lockstep
from tfdist_jax._stateful._merging import row_counts
from tfdist_jax._stateful._replica_state import run_with_cells
from tfdist_jax._stateful._shape_branches import run_by_shape
from tfdist_jax._stateful._state import current_scope
from tfdist_jax._stateful._storage import MirroredStorage, PerReplicaStorage, Storage
from tfdist_jax._thread_state import restoring_variables
from tfdist_jax.compat.tensorflow._functions._autograph._convert import converted_inside
from tfdist_jax.compat.tensorflow._functions._calls import is_input
from tfdist_jax.compat.tensorflow._functions._closure_guard import closure_guard
from tfdist_jax.compat.tensorflow._functions._execution_plan import (
    ExecutionPlan,
    Way,
    make_uncompiled_plan,
    warn_not_compiled,
)
from tfdist_jax.compat.tensorflow._functions._results import (
    as_replica_results,
    from_spmd_results,
    join_results,
    keep_variables,
)
from tfdist_jax.compat.tensorflow._platform._context import (
    as_reduce_op,
    current_strategy,
    entering_replica,
    entering_scope,
    merging_context,
    replica_context,
)
from tfdist_jax.compat.tensorflow._platform._devices import full_name, resolve_devices
from tfdist_jax.compat.tensorflow._tensors._host import HostTensor
from tfdist_jax.compat.tensorflow._tensors._nest import is_nested
from tfdist_jax.compat.tensorflow._tensors._ordered import in_order, map_in_order, restore_dict_order
from tfdist_jax.compat.tensorflow._tensors._per_replica_strings import (
    UnavailableString,
    has_own_strings,
    per_replica_strings,
)
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor, free_value
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow._variables._variable_creators import UnknownInitialValueError
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import tell_unused_servers
from tfdist_jax.compat.tensorflow.distribute._cross_device_ops import CrossDeviceOps
from tfdist_jax.compat.tensorflow.distribute._eager import NEEDS_VALUES, run_with_values
from tfdist_jax.compat.tensorflow.distribute._execution_contexts import (
    BranchContext,
    LockStepContext,
    OnlyReplicaContext,
    ProgramContext,
)
from tfdist_jax.compat.tensorflow.distribute._extended import StrategyExtended
from tfdist_jax.compat.tensorflow.distribute._input import (
    DistributedDataset,
    InputContext,
    distribute_from_function,
)
from tfdist_jax.compat.tensorflow.distribute._options import (
    CommunicationOptions,
    InputReplicationMode,
    require_instance,
)
from tfdist_jax.compat.tensorflow.distribute._planned_steps import AS_ONE_PROGRAM, PlannedStep, PlannedSteps
from tfdist_jax.compat.tensorflow.distribute._reduction import gather_replicas, reduce_merging, reduce_replicas
from tfdist_jax.compat.tensorflow.distribute._replica_context import refuse_slices


class Strategy:
    """Base of all strategies: `scope`, `run`, `reduce`, `gather` and the distribution of datasets.

    Differs from TensorFlow: a step is traced once for all replicas, not once for each; the replica id inside is
    known only when the step runs.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/Strategy

    Attributes:
        keeps_replica_values: Whether there are variables with a value for each replica, those with ON_READ synchronization.
        parameter_devices: The names of the devices that hold all variables; None where each device has them.
        variable_creator: Makes variables in a way of its own, called as those of `tf.variable_creator_scope`; None if there is none.
    """

    is_default = False
    has_workers = False
    is_first = True
    keeps_replica_values = True
    parameter_devices: tuple[str, ...] | None = None
    variable_creator: Callable[..., Any] | None = None

    def __init__(
        self,
        native: tfdist_jax.Strategy,
        *,
        cross_device_ops: CrossDeviceOps | None = None,
        communication_options: CommunicationOptions | None = None,
        kind: str | None = None,
    ) -> None:
        """Run on the mesh of `native`.

        Args:
            native: Says which devices there are and where variables lie.
            cross_device_ops: How values are reduced, and whether small ones share an all-reduce; XLA's way if None.
            communication_options: How much is reduced together, and whether gradients are compressed.
            kind: The type that the devices' names have, if not their own.
        """
        require_instance(CommunicationOptions, "communication_options", communication_options)
        if cross_device_ops is not None and not isinstance(cross_device_ops, CrossDeviceOps):
            raise TypeError(f"`cross_device_ops` must be a tf.distribute.CrossDeviceOps, got {cross_device_ops!r}.")
        self.native = native
        self._num_replicas = len(replicas(native.mesh))
        self.cross_device_ops = cross_device_ops
        options = communication_options or CommunicationOptions()
        self.bucket_bytes = getattr(cross_device_ops, "bucket_bytes", None) or options.bytes_per_pack or BUCKET_BYTES
        self.compression: Compression | None = options.compression
        if self.compression is not None and cross_device_ops is not None and cross_device_ops.is_own_way:
            raise ValueError(
                f"`cross_device_ops` says itself how values are reduced, and the options that gradients travel as {self.compression}. "
                "Leave one of the two out."
            )
        self._kind = kind
        self._steps = PlannedSteps()
        # The code of steps whose replicas have not communicated when they were traced.
        self._independent: weakref.WeakSet[Any] = weakref.WeakSet()

    @functools.cached_property
    def storage(self) -> Storage:
        """How variables are kept that have the same value for all replicas: a copy on each device."""
        return MirroredStorage(self.native.mesh)

    @functools.cached_property
    def per_replica_storage(self) -> PerReplicaStorage:
        """How variables are kept that have a value for each replica."""
        return PerReplicaStorage(self.native.mesh)

    def storage_for_variable(self, *, has_own_values: bool = False, is_weight: bool = False) -> Storage:
        """Return how a new variable is kept, one that `has_own_values` for replicas or not, and optimizers may change or not."""
        return self.per_replica_storage if has_own_values and self.keeps_replica_values else self.storage

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas that share each step."""
        return self._num_replicas

    @functools.cached_property
    def extended(self) -> StrategyExtended:
        """The lower-level methods."""
        return StrategyExtended(self)

    @property
    def device_names(self) -> tuple[str, ...]:
        """TensorFlow's names of the replicas' devices."""
        return tuple(full_name(device, self._kind) for device in replicas(self.native.mesh))

    @property
    def cluster_resolver(self) -> Any:
        """What knows the other processes: None, since there are none."""
        return None

    @contextlib.contextmanager
    def scope(self) -> Iterator["Strategy"]:
        """Make variables and models inside belong to this strategy."""
        self._must_not_mix()
        if _in_many_replicas():
            raise RuntimeError("A strategy's scope cannot be entered inside `strategy.run`.")
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
        if not isinstance(args, list | tuple):
            raise ValueError(f"positional args must be a list or tuple, got {type(args)}: write `args=(x,)`.")
        call = (tuple(args), dict(kwargs or {}))
        merging = merging_context()
        if merging is not None:
            with entering_replica(self, merging):
                results = fn(*call[0], **call[1])
            merging.own_values += jax.tree.leaves(results)
            return results
        with restoring_variables(), entering_scope(self):
            if current_scope() is not None:
                return self._trace(AS_ONE_PROGRAM, fn, *call)[1]
            return self._run_planned(fn, *call)

    def _run_planned(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        step = self._steps.find(closure_guard(fn))
        if step.plan is None or step.plan.is_compiled:
            program = self._find_program(step, fn, args, kwargs)
            if program is not None:
                return program()
        return self._unwrap(self._run_with_values(fn, args, kwargs))

    def _run_with_values(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a step that cannot be a program, replica by replica."""
        return run_with_values(self, fn, args, kwargs)

    def _find_program(
        self, step: PlannedStep, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[], Any] | None:
        """Return a step's program with this call's tensors; None if the step cannot be one, which is then its plan."""
        plan, program = step.plan or AS_ONE_PROGRAM, None

        @functools.wraps(fn)
        def traced(*args: Any, **kwargs: Any) -> Any:
            nonlocal plan
            plan, results = self._trace(plan, fn, args, kwargs, finish=keep_variables)
            return as_replica_results(keep_variables(results))

        try:
            program = step.programs.bind(traced, args, kwargs)
        except (*NEEDS_VALUES, NotCompilableError, UnknownInitialValueError) as error:
            plan = make_uncompiled_plan(Way.EAGER, error)
            warn_not_compiled(fn, plan)
        # Processes may have lines of their own, but all must run a step in the same way. They agree once.
        if step.plan is None and not self.all_agree(plan.is_compiled) and plan.is_compiled:
            plan = _UNCOMPILED_ELSEWHERE
            warn_not_compiled(fn, plan)
        step.plan = plan
        return program if plan.is_compiled else None

    def execution_plan(self, fn: Callable[..., Any]) -> ExecutionPlan | None:
        """Return how `run` runs a step outside of `tf.function`, and why; None before the first time."""
        return self._steps.plan(closure_guard(fn))

    def experimental_run_v2(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do as `run`: its name before TensorFlow 2.2."""
        return self.run(fn, args=args, kwargs=kwargs)

    def _trace(
        self,
        plan: ExecutionPlan,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        finish: Callable[[Any], Any] = lambda results: results,
    ) -> tuple[ExecutionPlan, Any]:
        """Run a step's replicas inside a program as planned; return the results, and the plan that the step turns out to need.

        `finish` is what becomes of a replica's results while it runs.
        """
        code, step = _code_of(fn), converted_inside(fn)
        fn = lambda *args, **kwargs: finish(step(*args, **kwargs))
        leaves = jax.tree.leaves((args, kwargs), is_leaf=is_per_replica)
        is_even = not any(
            isinstance(leaf, PerReplica) and leaf.is_uneven and not has_own_strings(leaf) for leaf in leaves
        )
        if plan.way is Way.ONE_PROGRAM and (is_even or code in self._independent):
            context = ProgramContext(self) if is_even else BranchContext(self)
            try:
                results = self._run_as_one(context, fn, args, kwargs, leaves)
            except DiffersByReplicaError as error:
                plan = ExecutionPlan(Way.LOCK_STEP, str(error)) if is_even else plan
                self._independent.discard(code)
            else:
                if not context.has_communicated:
                    self._independent.add(code)
                return plan, self._unwrap(results)
        return plan, self._unwrap(self._run_side_by_side(fn, args, kwargs))

    def _run_as_one(
        self, context: ProgramContext, fn: Callable[..., Any], args: Any, kwargs: Any, shared: Sequence[Any]
    ) -> Any:
        def replica(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            args, kwargs = restore_dict_order((args, kwargs))
            with entering_replica(self, context):
                return as_replica_results(fn(*args, **kwargs), shared, context.merged)

        unknown = lambda leaf: UnavailableString() if has_own_strings(leaf) else leaf
        args, kwargs = jax.tree.map(unknown, in_order((args, kwargs)), is_leaf=is_per_replica)
        run = run_with_cells
        if isinstance(context, BranchContext):
            run = functools.partial(run_by_shape, counts=row_counts(shared, self.num_replicas_in_sync))
        results = self.per_replica_storage.with_cells(
            lambda cells: run(replica, (args, kwargs), self.native.mesh, own_cells=cells)
        )
        return from_spmd_results(results, self.num_replicas_in_sync)

    def _run_side_by_side(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        _program_scope().belong_to(self.native.mesh)
        shared = jax.tree.leaves((args, kwargs), is_leaf=is_per_replica)

        def make_replica(lockstep: LockStep, i: int) -> Callable[[], Any]:
            own = lambda leaf: leaf.values[i] if isinstance(leaf, PerReplica) else leaf
            mine_args, mine_kwargs = map_in_order(own, (args, kwargs), is_leaf=is_per_replica)

            context = LockStepContext(self, lockstep, i)

            def replica() -> Any:
                with entering_replica(self, context):
                    return as_replica_results(fn(*mine_args, **mine_kwargs), shared, context.merged)

            return replica

        return join_results(run_in_lockstep(make_replica, row_counts(shared, self.num_replicas_in_sync)))

    def _unwrap(self, results: Any) -> Any:
        if self.num_replicas_in_sync == 1:
            first = lambda leaf: leaf.values[0] if isinstance(leaf, PerReplica) else leaf
            results = jax.tree.map(first, results, is_leaf=is_per_replica)
        return restore_dict_order(results)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """Combine the replicas' values into one.

        Args:
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`, or its name.
            value: What `run` returned.
            axis: None, or the axis of each replica's value to reduce too; a mean then counts every element once.
        """
        self._require_cross_replica()
        op, context = as_reduce_op(reduce_op), merging_context()
        if context is not None:
            return reduce_merging(context, op, value, axis)
        return reduce_replicas(op, value, axis, self.num_replicas_in_sync)

    def gather(self, value: Any, axis: int) -> Any:
        """Join the replicas' values along `axis`, in replica order."""
        self._require_cross_replica()
        refuse_slices(value, "gather")
        context = merging_context()
        return gather_replicas(value, axis) if context is None else context.gather(value, axis)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the values of this process's replicas as a tuple, of a structure as many structures."""
        if not is_nested(value) and not _has_values_of_replicas(value):
            return self._local_values(value)
        count = self.num_replicas_in_sync if merging_context() is not None else len(local_replicas(self.native.mesh))
        leaves, tree = jax.tree.flatten(in_order(value), is_leaf=is_per_replica)
        parts = [own if len(own) == count else own * count for own in map(self._local_values, leaves)]
        return tuple(restore_dict_order(tree.unflatten([own[i] for own in parts])) for i in range(count))

    def unwrap(self, value: Any) -> tuple[Any, ...]:
        """Do as `experimental_local_results`: its name in TensorFlow 1."""
        return self.experimental_local_results(value)

    def _local_values(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Variable):
            strategy = value.distribute_strategy
            has_copies = strategy is not None and strategy.num_replicas_in_sync > 1 and strategy.keeps_replica_values
            return value.values if has_copies else (value,)
        context = merging_context()
        if context is not None and isinstance(value, jax.Array):
            gathered = context.gather(value[None], 0)
            return tuple(gathered[i] for i in range(self.num_replicas_in_sync))
        return tuple(map(free_value, self.native.local_results(value)))

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> DistributedDataset:
        """Split each batch of `dataset` over the replicas."""
        return DistributedDataset(self, dataset, options)

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Any], options: Any = None) -> Any:
        """Let `dataset_fn` make the dataset of this process; its batches are per replica."""
        return distribute_from_function(self, dataset_fn, options)

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], Any],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> Any:
        """Do as `iter(distribute_datasets_from_function(input_fn))`: its name in TensorFlow 1."""
        if replication_mode != InputReplicationMode.PER_WORKER:
            raise ValueError(f"Input replication mode not supported: {replication_mode!r}")
        return iter(self.distribute_datasets_from_function(input_fn))

    def experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Give each replica the value that `value_fn` makes for it; Python's numbers and strings stay what they are."""
        self._require_cross_replica()
        replicas = range(self.num_replicas_in_sync)
        made = [value_fn(ValueContext(i, self.num_replicas_in_sync)) for i in replicas]
        return self._unwrap(jax.tree.map(self._one_for_each, *made, is_leaf=lambda leaf: leaf is None))

    def _one_for_each(self, *values: Any) -> PerReplica:
        if all(isinstance(value, HostTensor) for value in values):
            return per_replica_strings(values)
        if not all(map(is_input, values)):
            return PerReplica.uneven(values)
        return self.stack_if_even(PerReplica.uneven([convert_to_tensor(value) for value in values]))

    def stack_if_even(self, value: PerReplica) -> PerReplica:
        """Hold tensors of one shape and type as one array, sharded over the replicas."""
        if len({(v.shape, v.dtype) for v in value.values}) > 1:
            return value
        return PerReplica(stack_replicas(value.values, self.native.mesh), self.num_replicas_in_sync)

    def experimental_make_numpy_dataset(self, numpy_input: Any, session: Any = None) -> Any:
        """Make a dataset of the rows of NumPy arrays."""
        return Dataset.from_tensor_slices(numpy_input)

    make_experimental_numpy_dataset = experimental_make_numpy_dataset
    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def draw_alike(self) -> None:
        """Let all workers draw the same random numbers from here on; there is one."""

    def all_agree(self, here: bool) -> bool:
        """Return whether something holds in all processes."""
        return here

    def _require_cross_replica(self) -> None:
        self._must_not_mix()
        if _in_many_replicas():
            raise RuntimeError("Method requires being in cross-replica context, use get_replica_context().merge_call()")

    def _must_not_mix(self) -> None:
        present = current_strategy()
        if present is not None and present is not self and not isinstance(present, DefaultStrategy):
            raise RuntimeError(
                "Mixing different tf.distribute.Strategy objects: this is the scope or the `run` of another one "
                f"({type(present).__name__}). Leave it first."
            )

    def __copy__(self) -> "Strategy":
        """Refuse: there would be two strategies for the same variables."""
        raise RuntimeError("Must only deepcopy strategies, or use the same one: a shallow copy would share its state.")

    def __deepcopy__(self, memo: Any) -> "Strategy":
        """Return the strategy itself, to which copies of its variables belong too."""
        return self

    def __reduce__(self) -> Any:
        """Refuse: devices belong to this process."""
        raise TypeError(
            f"cannot pickle {type(self).__name__}: it holds devices of this process. Make it where it is used."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.num_replicas_in_sync} replica(s) on {list(self.native.mesh.devices.flat)}>"


@final
class MirroredStrategy(Strategy):
    """Drop-in for `tf.distribute.MirroredStrategy`: a copy of the variables on each device, batches split.

    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: Any = None,
        *,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        """Use `devices`, such as ["/gpu:0", "/gpu:1"]; all of JAX's default devices if None.

        `cross_device_ops` says whether small arrays share an all-reduce; the reduction itself is XLA's, unless its class
        is the user's own. `communication_options` is beyond TensorFlow, as for `MultiWorkerMirroredStrategy`: with its `compression`,
        gradients travel in fewer bytes.
        """
        tell_unused_servers("MirroredStrategy")
        chosen = tuple(jax.local_devices() if devices is None else resolve_devices(devices))
        super().__init__(
            tfdist_jax.Mirrored(chosen), cross_device_ops=cross_device_ops, communication_options=communication_options
        )


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

    is_default = True

    def __init__(self) -> None:
        """Use the first device."""
        super().__init__(tfdist_jax.SingleDevice())

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Change nothing."""
        self._must_not_mix()
        yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """Call `fn`."""
        self._must_not_mix()
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

    def __str__(self) -> str:
        """Describe it."""
        number, count = self.replica_id_in_sync_group, self.num_replicas_in_sync
        return f"tf.distribute.ValueContext(replica id {number}, total replicas in sync: {count})"


_UNCOMPILED_ELSEWHERE = ExecutionPlan(Way.EAGER, "another process could not compile it, and says why in its log.")


def _code_of(fn: Callable[..., Any]) -> Any:
    """Return what stands for all functions that are made by the same lines."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "python_function", fn)
    return getattr(fn, "__code__", type(fn))


def _program_scope() -> CaptureScope:
    """Return the scope of the surrounding program."""
    scope = current_scope()
    if not isinstance(scope, CaptureScope):
        raise RuntimeError("Replicas with uneven batches cannot run inside other replicas.")
    return scope


def _has_values_of_replicas(value: Any) -> bool:
    """Whether a tensor that consists of several arrays, such as a sparse one, holds those of replicas."""
    return not isinstance(value, PerReplica) and any(
        map(is_per_replica, jax.tree.leaves(value, is_leaf=is_per_replica))
    )


def _in_many_replicas() -> bool:
    context = replica_context()
    return context is not None and not isinstance(context, OnlyReplicaContext)
