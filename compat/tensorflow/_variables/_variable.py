"""`tf.Variable`: an array that programs read and change, one value for all replicas or one for each."""

import enum
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax import PerReplica, ReduceOp
from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax._internals import computing_now
from tfdist_jax._sharding._placement import local
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._served_storage import update
from tfdist_jax._stateful._state import Merge
from tfdist_jax._stateful._storage import Storage
from tfdist_jax.compat.tensorflow._ops._graph_compat import get_current_name_scope
from tfdist_jax.compat.tensorflow._ops._selection import gather, gather_nd
from tfdist_jax.compat.tensorflow._platform._context import current_strategy, new_storage, replica_context
from tfdist_jax.compat.tensorflow._platform._devices import device_name
from tfdist_jax.compat.tensorflow._platform._errors import InaccessibleTensorError, OutOfRangeError
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._indexed_slices import IndexedSlices
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import Reference, convert_to_tensor, get_static_value, is_tracing
from tfdist_jax.compat.tensorflow._tensors._tensor_text import replicas_text, variable_repr
from tfdist_jax.compat.tensorflow._variables._components import component_storages
from tfdist_jax.compat.tensorflow._variables._scatter import batch_rows, by_indices, by_slices, scattered
from tfdist_jax.compat.tensorflow._variables._variable_creators import (
    ByCreators,
    UnknownInitialValueError,
    note_creation,
)
from tfdist_jax.compat.tensorflow._variables._variable_operators import operate_by_value

if TYPE_CHECKING:
    from tfdist_jax.compat.tensorflow.distribute._replica_context import ReplicaContext


class VariableSynchronization(enum.Enum):
    """When the replicas' values of a variable are made equal."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How the values that replicas give a variable become one."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


@final
class Variable(metaclass=ByCreators):
    """Drop-in for `tf.Variable`.

    Made in a strategy's scope it lies on all of the strategy's devices, else on the device of `tf.device`, for good. With
    `synchronization=ON_READ` each replica has a value of its own, combined by `aggregation` when it is read outside of `strategy.run`.

    Differs from TensorFlow: `v[1:].assign(...)` and a change of shape are for outside of `tf.function`.
    Ref: https://www.tensorflow.org/api_docs/python/tf/Variable
    """

    __hash__ = None  # pyright: ignore[reportAssignmentType]  As in TensorFlow: `==` compares values; `ref()` gives a key.
    __array_priority__ = 100

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
        shape: Any = None,
        experimental_enable_variable_lifting: bool = True,
    ) -> None:
        """Hold `initial_value`, a tensor-like or a function that returns one."""
        if initial_value is None:
            raise ValueError(
                "The `initial_value` arg to `tf.Variable` must be specified, a tensor or a function giving one."
            )
        value = first_value(initial_value, dtype)
        note_creation(self)
        self._synchronization = VariableSynchronization(0 if synchronization is None else synchronization)
        self._aggregation = VariableAggregation(0 if aggregation is None else aggregation)
        on_read = self._synchronization is VariableSynchronization.ON_READ
        if self._synchronization is VariableSynchronization.NONE and current_strategy() is not None:
            raise ValueError(
                "`NONE` variable synchronization mode is not supported with a tf.distribute.Strategy: take ON_WRITE for one "
                "value on all replicas, or ON_READ for one on each."
            )
        self._trainable = not on_read if trainable is None else bool(trainable)
        scope = get_current_name_scope()
        self._name = f"{scope}/{name or 'Variable'}" if scope else name or "Variable"
        self._constraint = constraint
        self._shape, self._dtype = _declared(shape, value, validate_shape), value.dtype
        self._strategy = current_strategy()
        self._components: tuple[Variable, ...] | None = None
        self.stored: Any = None
        self.storage: Storage = new_storage(
            on_read=on_read, is_weight=self._trainable and jnp.issubdtype(value.dtype, jnp.floating)
        )
        with computing_now():  # Also where replicas make it: the variable outlives their program.
            self.storage.place(self, value)

    def value(self) -> jax.Array:
        """Return the current value; of a per-replica variable, outside of replicas, the aggregate."""
        value = _state.read(self)
        if not self.storage.per_replica or replica_context() is not None:
            return value
        match self._aggregation:
            case VariableAggregation.SUM:
                return local(jnp.sum(value, 0, dtype=self._dtype))
            case VariableAggregation.MEAN:
                return local(jnp.mean(value, 0).astype(self._dtype))
            case VariableAggregation.ONLY_FIRST_REPLICA:
                return local(value[0])
        raise ValueError(
            "Could not convert from `tf.VariableAggregation` NONE: a variable with synchronization=ON_READ has one "
            "value for each replica. Give it an aggregation, or read it inside `strategy.run`."
        )

    read_value = value
    __jax_array__ = value

    def per_replica_value(self) -> PerReplica:
        """Return the replicas' own values."""
        value = _state.read(self)
        return PerReplica(value, value.shape[0])

    def numpy(self) -> np.ndarray:
        """Return a copy of the value as a NumPy array, of a scalar as a NumPy scalar."""
        return np.array(self.value())[()]

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value; inside `strategy.run`, by what `aggregation` makes of the replicas' values."""
        new = convert_to_tensor(value, dtype=self._dtype)
        if tuple(new.shape) != self._shape:
            self._must_accept(new)
        context = self._writing_context()
        if context is not None:
            new = self._aggregate(new, context)
        elif self.storage.per_replica:
            new = self._shared_out(new)
        self._write(new, Merge.LAST)
        return self if read_value else None

    def _must_accept(self, new: jax.Array) -> None:
        if not self._shape.is_compatible_with(tuple(new.shape)):
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable shape {self._shape}, and "
                f"the assigned value shape {tuple(new.shape)} are incompatible."
            )
        if _state.current_scope() is not None and new.shape != _state.read(self).shape:
            raise ConcreteValueRequiredError(
                f"Variable '{self.name}' cannot change its shape inside a compiled function, where shapes are fixed. "
                "Assign outside of tf.function, or keep the largest shape."
            )

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add `delta`; inside `strategy.run`, what `aggregation` makes of the replicas' deltas."""
        return self._change(operator.add, delta, read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract `delta`; inside `strategy.run`, what `aggregation` makes of the replicas' deltas."""
        return self._change(operator.sub, delta, read_value)

    def _change(self, op: Callable[[Any, Any], Any], delta: Any, read_value: bool) -> Any:
        delta = convert_to_tensor(delta, dtype=self._dtype)
        context = self._writing_context()
        if context is not None:
            delta = self._aggregate(delta, context)
            update(lambda: self._write(op(_state.read(self), delta), Merge.SUM_OF_DELTAS), [self])
        elif self.storage.per_replica and self._aggregation is VariableAggregation.SUM:
            raise ValueError(
                "SyncOnReadVariable does not support `assign_add` in cross-replica context when aggregation is set to "
                "`tf.VariableAggregation.SUM`."
            )
        else:
            update(lambda: self.assign(op(self.value(), delta), read_value=False), [self])
        return self if read_value else None

    scatter_add, scatter_sub = by_slices("add"), by_slices("sub")
    scatter_mul, scatter_div = by_slices("mul"), by_slices("div")
    scatter_min, scatter_max = by_slices("min"), by_slices("max")
    scatter_update = by_slices("update")
    scatter_nd_add, scatter_nd_sub = by_indices("add"), by_indices("sub")
    scatter_nd_min, scatter_nd_max = by_indices("min"), by_indices("max")
    scatter_nd_update = by_indices("update")

    def batch_scatter_update(self, sparse_delta: Any, use_locking: bool = False, name: str | None = None) -> Any:
        """Replace rows of the variable, each within its batch: `indices` is `[*batch, n]`."""
        self.scatter("update", batch_rows(sparse_delta), sparse_delta.values)
        return self

    def scatter(self, how: str, indices: jax.Array, updates: jax.Array) -> None:
        """Change parts, as `scattered` does; inside `strategy.run`, those of all replicas as `aggregation` says."""
        context = self._writing_context()
        if context is None and self.storage.per_replica:
            raise NotImplementedError(
                "Scattered updates of a variable with synchronization=ON_READ are made inside `strategy.run`; outside "
                "of it use `assign`."
            )
        aggregated = (
            self._strategy is not None and not self.storage.per_replica and self._aggregation.name in ("SUM", "MEAN")
        )
        if aggregated and how in ("min", "max", "update"):
            raise NotImplementedError(
                f"scatter_{how} does not support the aggregation {self._aggregation.name}: gather the replicas' rows and "
                "use a variable with aggregation NONE or ONLY_FIRST_REPLICA."
            )
        if context is not None:
            indices, updates = self._aggregate_parts(indices, updates, context)
        merge = Merge.SUM_OF_DELTAS if how in ("add", "sub") else Merge.LAST
        update(lambda: self._write(scattered(how, _state.read(self), indices, updates), merge), [self])

    def _writing_context(self) -> "ReplicaContext | None":
        """Return the replica that changes the variable, if any, which must be one of the variable's strategy."""
        strategy = current_strategy()
        if self._strategy is not None and strategy is not None and strategy is not self._strategy:
            raise RuntimeError(
                f"Mixing different tf.distribute.Strategy objects: variable '{self.name}' belongs to {self._strategy}, "
                f"but this is the scope or the `run` of {strategy}."
            )
        return replica_context()

    def _takes_all(self, context: "ReplicaContext") -> bool:
        """Whether each replica's own change counts; without aggregation each changes its own copy."""
        own = self._strategy is None or self.storage.per_replica or self._aggregation is VariableAggregation.NONE
        return own or context.num_replicas_in_sync == 1 or context.is_updating

    def _aggregate_parts(self, indices: Any, updates: Any, context: "ReplicaContext") -> tuple[Any, Any]:
        if self._takes_all(context):
            return indices, updates
        match self._aggregation:
            case VariableAggregation.ONLY_FIRST_REPLICA:
                return context.from_first_replica(indices), context.from_first_replica(updates)
            case how:
                parts = context.all_reduce(how.name, IndexedSlices(updates, indices))
                return parts.indices, parts.values

    def sparse_read(self, indices: Any, name: str | None = None) -> jax.Array:
        """Return the rows with the given numbers."""
        return gather(self, indices)

    def gather_nd(self, indices: Any, name: str | None = None) -> jax.Array:
        """Return the parts that rows of indices into the first axes name."""
        return gather_nd(self, indices)

    def count_up_to(self, limit: int) -> jax.Array:
        """Add 1 to a scalar; return the value before.

        Raises:
            OutOfRangeError: If that would make it larger than `limit`; not inside a compiled function.
        """

        def count() -> jax.Array:
            before = self.value()
            if get_static_value(before) is not None and int(before) >= limit:
                raise OutOfRangeError(None, None, f"Reached limit of {limit}")
            self.assign_add(1)
            return before

        return update(count, [self])

    def _aggregate(self, value: jax.Array, context: "ReplicaContext") -> jax.Array:
        if self._takes_all(context):
            return value
        match self._aggregation:
            case VariableAggregation.ONLY_FIRST_REPLICA:
                return context.from_first_replica(value)
            case how:
                (total,) = context.reduce_onto(ReduceOp(how.name), [value])
                return total.astype(self._dtype)

    def _shared_out(self, value: jax.Array) -> jax.Array:
        replicas = _state.load(self).shape[0]
        if self._aggregation is VariableAggregation.SUM:
            value = (value / replicas).astype(self._dtype)
        return jnp.broadcast_to(value, (replicas, *value.shape))

    def _write(self, value: jax.Array, of_no_strategy: Merge) -> None:
        """Set the value; `of_no_strategy` says what becomes of the replicas' values if no strategy has made the variable."""
        if _state.current_scope() is None:
            if not isinstance(value, Tracer):
                value = jnp.copy(value)  # A variable owns its array.
            elif not is_tracing():
                raise InaccessibleTensorError(
                    f"Variable '{self.name}' was assigned a tensor of a compiled function, which has a value only there. "
                    "Return the tensor from the function, or assign inside of it."
                )
        context = replica_context()
        shared = self._strategy is None and context is not None and not context.is_updating
        _state.write(self, value, merge=of_no_strategy if shared else Merge.SAME)

    @property
    def trainable(self) -> bool:
        """Whether tapes watch the variable on their own."""
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        """When the replicas' values are made equal."""
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """How the replicas' values become one."""
        return self._aggregation

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope the variable was made, or None."""
        return self._strategy

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """The function that optimizers apply to the value after an update, or None."""
        return self._constraint

    @property
    def name(self) -> str:
        """The name, ending in ":0" as TensorFlow's do."""
        return f"{self._name}:0"

    @property
    def shape(self) -> TensorShape:
        """The shape of (one replica's) value."""
        return TensorShape(self._shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def dtype(self) -> Any:
        """The dtype, which never changes."""
        return as_dtype(self._dtype)

    @property
    def values(self) -> tuple["Variable", ...]:
        """The components of a variable that was made in a strategy's scope: a variable for each replica of this process."""
        if self._strategy is None:
            raise AttributeError("Only variables made in the scope of a strategy have `values`, one for each replica.")
        if self._components is None:
            storages = component_storages(self, self._strategy.native.mesh)
            self._components = tuple(self._component(i, storage) for i, storage in storages.items())
        return self._components

    def _component(self, replica: int, storage: Storage) -> "Variable":
        part = object.__new__(Variable)
        vars(part).update(vars(self))
        part._name = f"{self._name}/replica_{replica}" if replica else self._name
        part._strategy, part._components, part.stored, part.storage = None, None, None, storage
        return part

    @property
    def device(self) -> str:
        """The name of the (first) device that holds the value."""
        return self.storage.place_name or device_name(_state.load(self))

    def get_shape(self) -> TensorShape:
        """Return `shape`."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Declare what is known of the shape.

        Raises:
            ValueError: If it is not so.
        """
        self._shape = TensorShape(shape).merge_with(self._shape)

    @property
    def initializer(self) -> None:
        """None: there is no operation that gives the variable its first value, as in TensorFlow's eager mode."""
        return None

    def is_initialized(self, name: str | None = None) -> jax.Array:
        """Return True: a variable has a value from the start."""
        return convert_to_tensor(True)

    def ref(self) -> Reference:
        """Return a hashable reference."""
        return Reference(self)

    def __getattr__(self, name: str) -> Any:
        hint = _NOT_HERE.get(name, "")
        raise AttributeError(f"'Variable' object has no attribute '{name}'{hint}")

    def __deepcopy__(self, memo: Any) -> "Variable":
        twin = object.__new__(Variable)
        vars(twin).update(vars(self))
        twin._components = None
        memo[id(self)] = twin
        twin.storage.adopt(twin, jnp.copy(_state.load(self)))
        return twin

    def __reduce__(self) -> Any:
        """Let pickle keep the value and what it was made with, but no strategy."""
        options = {"trainable": self._trainable, "name": self._name, "dtype": self.dtype.name}
        options |= {"synchronization": self._synchronization, "aggregation": self._aggregation}
        return functools.partial(Variable, **options), (self.numpy(),)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value(), dtype=dtype)

    def __repr__(self) -> str:
        text = functools.partial(variable_repr, shape=self._shape, dtype_name=self._dtype.name)
        if _state.current_scope() is not None:
            return text(self.name)
        if self._strategy is None or not self._strategy.keeps_replica_values:
            return text(self.name, array=np.asarray(_state.load(self)))
        if self._strategy.num_replicas_in_sync == 1:
            return repr(self.values[0])
        return replicas_text(
            "SyncOnReadVariable" if self.storage.per_replica else "MirroredVariable", map(repr, self.values)
        )

    def __iter__(self) -> Any:
        return iter(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the value; eagerly, one that has `assign`, `assign_add` and `assign_sub`."""
        value = self.value()
        part = value[key]
        if isinstance(part, Tracer):
            return part
        # Another array than the stored one, which must not point back here.
        part: Any = jnp.copy(part) if part is value else part
        part.assign = lambda new, **_: self.assign(value.at[key].set(self._like_me(new)))
        part.assign_add = lambda delta, **_: self.assign(value.at[key].add(self._like_me(delta)))
        part.assign_sub = lambda delta, **_: self.assign(value.at[key].add(-self._like_me(delta)))
        return part

    def _like_me(self, value: Any) -> jax.Array:
        return convert_to_tensor(value, dtype=self._dtype)


def first_value(initial_value: Any, dtype: Any) -> jax.Array:
    """Return the value with which a variable starts; inside a function, what it is for the arguments that it is traced for.

    Raises:
        UnknownInitialValueError: If it is not known.
    """
    with computing_now():
        value = convert_to_tensor(initial_value() if callable(initial_value) else initial_value, dtype=dtype)
    value = _state.present_value(value)
    if value is None:
        raise UnknownInitialValueError(
            "A variable made inside tf.function or strategy.run needs an initial value that is known now, but this one "
            "depends on tensors that have no value yet, such as those of a loop, of one replica or of a signature. Make it "
            "from constants and assign the tensor afterwards."
        )
    if value.dtype == object:
        raise NotImplementedError("JAX has no arrays of strings: keep strings in a Python attribute or a tf.constant.")
    return value


def _declared(shape: Any, value: jax.Array, validate: bool) -> TensorShape:
    found = TensorShape(tuple(value.shape))
    if shape is None:
        return found if validate else TensorShape(None)
    wanted = TensorShape(shape)
    if not wanted.is_compatible_with(found):
        raise ValueError(f"The initial value's shape {found} is not compatible with the explicitly given {wanted}.")
    return wanted


_NOT_HERE: dict[str, str] = dict.fromkeys(
    ("handle", "op", "graph"),
    ": a variable is no operation in a graph here. Use the variable itself, `read_value()` or `ref()`.",
)


operate_by_value(Variable, Variable.value, is_changed_in_place=True)
