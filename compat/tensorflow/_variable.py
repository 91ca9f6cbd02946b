"""`tf.Variable`: an array that programs read and change, one value for all replicas or one for each."""

import enum
import operator
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tfdist_jax import _state
from tfdist_jax.compat.tensorflow._context import ReplicaContext, current_strategy, replica_context
from tfdist_jax.compat.tensorflow._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensor import TensorShape, convert_to_tensor


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
class Variable:
    """Drop-in for `tf.Variable`.

    Made in a strategy's scope it lies on all of the strategy's devices. With `synchronization=ON_READ` each replica
    has a value of its own, combined by `aggregation` when it is read outside of `strategy.run`.

    Differs from TensorFlow: the initial value must be known when the variable is made (inside `tf.function` too).
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
        with jax.ensure_compile_time_eval():
            value = convert_to_tensor(initial_value() if callable(initial_value) else initial_value, dtype=dtype)
        if isinstance(value, Tracer):
            raise ValueError(
                "A variable made inside tf.function or strategy.run needs an initial value that is known now, but this "
                "one depends on the function's tensors. Make it from constants and assign the tensor afterwards."
            )
        self._synchronization = VariableSynchronization(synchronization)
        self._aggregation = VariableAggregation(aggregation)
        on_read = self._synchronization is VariableSynchronization.ON_READ
        if trainable and on_read:
            raise ValueError(
                "Synchronization value can be set to VariableSynchronization.ON_READ only for non-trainable "
                "variables. You have specified trainable=True and synchronization=VariableSynchronization.ON_READ."
            )
        self._trainable = not on_read if trainable is None else bool(trainable)
        self._name = name or "Variable"
        self._constraint = constraint
        self._shape, self._dtype = tuple(value.shape), value.dtype
        self._strategy = current_strategy()
        self.per_replica = on_read and self._strategy is not None
        self.stored = self._place(value)

    def _place(self, value: jax.Array) -> jax.Array:
        if self._strategy is None:
            # A variable owns its array: `tf.Variable(x)` must not share memory that a step may reuse.
            with jax.ensure_compile_time_eval():
                return jnp.copy(value)
        if not self.per_replica:
            return self._strategy.mirrored(value)
        self._strategy.adopt(self)
        first_only = self._aggregation is VariableAggregation.SUM
        return self._strategy.stacked(
            [
                value if not i or not first_only else jnp.zeros_like(value)
                for i in range(self._strategy.num_replicas_in_sync)
            ]
        )

    def value(self) -> jax.Array:
        """Return the current value; of a per-replica variable, outside of replicas, the aggregate."""
        value = _state.read(self)
        if not self.per_replica or replica_context() is not None:
            return value
        match self._aggregation:
            case VariableAggregation.SUM:
                return jnp.sum(value, 0, dtype=self._dtype)
            case VariableAggregation.MEAN:
                return jnp.mean(value, 0).astype(self._dtype)
            case VariableAggregation.ONLY_FIRST_REPLICA:
                return value[0]
        raise ValueError(
            "Could not convert from `tf.VariableAggregation` NONE: a variable with synchronization=ON_READ has one "
            "value for each replica. Give it an aggregation, or read it inside `strategy.run`."
        )

    read_value = value
    __jax_array__ = value

    def numpy(self) -> np.ndarray:
        """Return a copy of the value as a NumPy array."""
        return np.array(self.value())

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value; inside `strategy.run`, by what `aggregation` makes of the replicas' values."""
        new = convert_to_tensor(value, dtype=self._dtype)
        if tuple(new.shape) != self._shape:
            raise ValueError(
                f"Cannot assign value to variable '{self.name}': Shape mismatch. The variable shape {self._shape}, and "
                f"the assigned value shape {tuple(new.shape)} are incompatible."
            )
        context = replica_context()
        if context is not None:
            new = self._aggregate(new, context)
        elif self.per_replica:
            new = self._shared_out(new)
        self._write(new)
        return self

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add `delta`; inside `strategy.run`, what `aggregation` makes of the replicas' deltas."""
        return self._change(operator.add, delta)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract `delta`; inside `strategy.run`, what `aggregation` makes of the replicas' deltas."""
        return self._change(operator.sub, delta)

    def _change(self, op: Callable[[Any, Any], Any], delta: Any) -> "Variable":
        delta = convert_to_tensor(delta, dtype=self._dtype)
        context = replica_context()
        if context is not None:
            self._write(op(_state.read(self), self._aggregate(delta, context)))
        elif self.per_replica and self._aggregation is VariableAggregation.SUM:
            raise ValueError(
                "SyncOnReadVariable does not support `assign_add` in cross-replica context when aggregation is set to "
                "`tf.VariableAggregation.SUM`."
            )
        else:
            self.assign(op(self.value(), delta))
        return self

    def _aggregate(self, value: jax.Array, context: ReplicaContext) -> jax.Array:
        if self.per_replica or context.num_replicas_in_sync == 1 or context.is_updating:
            return value
        match self._aggregation:
            case VariableAggregation.NONE:
                raise ValueError(_AGGREGATION_MISSING)
            case VariableAggregation.ONLY_FIRST_REPLICA:
                return context.from_first_replica(value)
            case how:
                return context.all_reduce(how.name, value).astype(self._dtype)

    def _shared_out(self, value: jax.Array) -> jax.Array:
        replicas = self.stored.shape[0]
        if self._aggregation is VariableAggregation.SUM:
            value = (value / replicas).astype(self._dtype)
        return jnp.broadcast_to(value, (replicas, *value.shape))

    def _write(self, value: jax.Array) -> None:
        if _state.current_frame() is None and not isinstance(value, Tracer):
            # Keep the layout, and never share the array with whoever holds `value`.
            value = jax.device_put(jnp.copy(value), self.stored.sharding)
        _state.write(self, value)

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

    def get_shape(self) -> TensorShape:
        """Return `shape`."""
        return self.shape

    def ref(self) -> "VariableReference":
        """Return a hashable reference."""
        return VariableReference(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value(), dtype=dtype)

    def __repr__(self) -> str:
        shown = f"<tf.Variable {self.name!r} shape={self._shape} dtype={self._dtype.name}"
        return f"{shown}>" if _state.current_frame() is not None else f"{shown}, numpy={np.asarray(self.stored)!r}>"

    def __iter__(self) -> Any:
        return iter(self.value())

    def __len__(self) -> int:
        return len(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __float__(self) -> float:
        return float(self.value())

    def __index__(self) -> int:
        return operator.index(self.value())

    def __getitem__(self, key: Any) -> jax.Array:
        return self.value()[key]


@final
class VariableReference:
    """A hashable stand-in for a variable, equal for the same variable only."""

    def __init__(self, variable: Variable) -> None:
        """Refer to `variable`."""
        self._variable = variable

    def deref(self) -> Variable:
        """Return the variable."""
        return self._variable

    def __hash__(self) -> int:
        return id(self._variable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VariableReference) and self._variable is other._variable


_AGGREGATION_MISSING = (
    "You must specify an aggregation method to update a MirroredVariable in Replica Context. You can do so by passing "
    "an explicit value for argument `aggregation` to tf.Variable(..), such as tf.VariableAggregation.SUM: the replicas' "
    "values must become one. Or assign in cross-replica context, inside "
    "`tf.distribute.get_replica_context().merge_call(merge_fn, ..)`."
)


def _binary(name: str) -> Callable[[Variable, Any], Any]:
    op = getattr(operator, name.strip("_"), None) or getattr(operator, name)

    def method(self: Variable, other: Any) -> Any:
        return op(self.value(), other.value() if isinstance(other, Variable) else other)

    return method


def _unary(name: str) -> Callable[[Variable], Any]:
    op = getattr(operator, name)
    return lambda self: op(self.value())


def _reflected(name: str) -> Callable[[Variable, Any], Any]:
    op = getattr(operator, name)
    return lambda self, other: op(other, self.value())


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Variable, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(Variable, f"__r{_name}__", _reflected(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Variable, f"__{_name}__", _binary(f"__{_name}__"))
for _name in ("neg", "abs", "pos", "invert"):
    setattr(Variable, f"__{_name}__", _unary(f"__{_name}__"))
