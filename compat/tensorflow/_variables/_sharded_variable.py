"""`ShardedVariable`: a variable that consists of several ones, which hold parts of its rows."""

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from tfdist_jax._internals import known_value
from tfdist_jax._stateful import _state
from tfdist_jax._stateful._served_storage import update
from tfdist_jax.compat.tensorflow._ops._concat import concat
from tfdist_jax.compat.tensorflow._ops._parts import (
    gather_parts,
    local_indices,
    own_indices,
    part_numbers,
    part_sizes,
)
from tfdist_jax.compat.tensorflow._ops._selection import boolean_mask
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._checks import check_indices
from tfdist_jax.compat.tensorflow._tensors._composite import Composite
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow._variables._scatter import by_slices
from tfdist_jax.compat.tensorflow._variables._variable import Variable
from tfdist_jax.compat.tensorflow._variables._variable_operators import operate_by_value


@final
class ShardedVariable(Composite):
    """Drop-in for TensorFlow's `ShardedVariable`, which `tf.Variable` is under a `ParameterServerStrategy` with a partitioner.

    It is no `tf.Variable`, and takes the place of a tensor. Optimizers and `GradientTape.gradient` get its `variables`.

    Differs from TensorFlow: a value to be assigned has exactly its shape; `tf.is_tensor` is true of it.
    Ref: https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/ParameterServerStrategy#variable_partitioning
    """

    __array_priority__ = 100

    def __init__(self, variables: Sequence[Variable], name: str = "ShardedVariable") -> None:
        """Consist of `variables`, the rows of one following those of another.

        Raises:
            TypeError: If there are none, or something else.
            ValueError: If their types, or their shapes but for the rows, differ.
            IndexError: If they have no rows.
        """
        is_list = isinstance(variables, Sequence) and bool(variables)
        if not is_list or not all(isinstance(variable, Variable) for variable in variables):
            raise TypeError(
                f"Argument `variables` should be a non-empty list of `variables.Variable`s. Received {variables}"
            )
        if len({variable.dtype for variable in variables}) > 1:
            raise ValueError(
                "All elements in argument `variables` must have the same dtype. Received dtypes: "
                f"{[variable.dtype for variable in variables]}"
            )
        if not all(len(variable.shape) for variable in variables):
            raise IndexError("The elements in argument `variables` must have rows, but there are scalars.")
        if len({tuple(variable.shape[1:]) for variable in variables}) > 1:
            raise ValueError(
                "All elements in argument `variables` must have the same shapes except for the first axis. Received shapes: "
                f"{[variable.shape for variable in variables]}"
            )
        self._variables, self._name = variables, name
        self._sizes = [int(variable.shape[0]) for variable in variables]
        self._starts = [sum(self._sizes[:i]) for i in range(len(variables))]

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables that it consists of."""
        return self._variables

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return TensorShape([sum(self._sizes), *self._variables[0].shape[1:]])

    @property
    def dtype(self) -> Any:
        """The type of all parts."""
        return self._variables[0].dtype

    @property
    def name(self) -> str:
        """The name; the parts have names of their own."""
        return self._name

    @property
    def is_sharded_variable(self) -> bool:
        """True, by which TensorFlow's programs know it."""
        return True

    def parts(self) -> list[Any]:
        """Return the variables that it consists of."""
        return list(self._variables)

    def with_parts(self, parts: Sequence[Any]) -> "ShardedVariable":
        """Return what consists of other variables."""
        return ShardedVariable(list(parts))

    def __jax_array__(self) -> jax.Array:
        """Return the value of the whole."""
        with _state.changing():
            return concat([variable.value() for variable in self._variables], 0)

    def numpy(self) -> np.ndarray:
        """Return a copy of the value as a NumPy array."""
        return np.array(self.__jax_array__())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.__jax_array__(), dtype=dtype)

    def __iter__(self) -> Iterator[Variable]:
        """Iterate over the variables that it consists of."""
        return iter(self._variables)

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the value, for which only those variables are read that have it.

        Raises:
            IndexError: If a row is out of range.
            TypeError: If a row or a slice of rows is given by tensors.
        """
        if isinstance(key, bool) or getattr(getattr(key, "dtype", None), "kind", None) == "b":
            if not np.ndim(key):
                raise ValueError("mask cannot be scalar.")
            return boolean_mask(self, key)
        if isinstance(key, tuple) and not key:
            raise IndexError("ShardedVariable: there is no index. Use `tf.convert_to_tensor` for the whole value.")
        first, *rest = key if isinstance(key, tuple) else (key,)
        if first is None or first is Ellipsis:
            return self.__jax_array__()[first, *rest]
        if isinstance(first, slice):
            return self._slice(first, rest)
        if isinstance(first, jax.Array) or not hasattr(first, "__index__"):
            raise TypeError(
                f"ShardedVariable: using Tensor for indexing is not allowed, only integers and slices are, got {first!r}. Use "
                "`tf.gather`, or `tf.nn.embedding_lookup`."
            )
        rows = range(sum(self._sizes))
        try:
            row = rows[first]
        except IndexError:
            raise IndexError(
                f"ShardedVariable: slice index {first} of dimension 0 out of bounds: there are {len(rows)} rows."
            ) from None
        number = bisect.bisect_right(self._starts, row) - 1
        return self._variables[number][row - self._starts[number], *rest]

    def _slice(self, wanted: slice, rest: Sequence[Any]) -> jax.Array:
        if any(isinstance(end, jax.Array) for end in (wanted.start, wanted.stop, wanted.step)):
            raise TypeError(
                "ShardedVariable: using Tensor in slice_spec is not allowed. Use integers, or slice `tf.convert_to_tensor` of it."
            )
        rows = range(sum(self._sizes))[wanted]
        step = 1 if rows.step > 0 else -1
        upwards, found = rows[::step], []
        for variable, start, size in zip(self._variables, self._starts, self._sizes, strict=True):
            own = upwards[bisect.bisect_left(upwards, start) : bisect.bisect_left(upwards, start + size)]
            if own:
                local = slice(own[0] - start, own[-1] - start + 1, own.step)
                found.append(variable[local, *rest] if step > 0 else variable[local][::-1][:, *rest])
        return concat(found[::step], 0) if found else jnp.zeros((0, *self.shape[1:]), self.dtype)[:, *rest]

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Replace the value.

        Raises:
            InvalidArgumentError: If `value` has another shape.
        """
        return self._change(Variable.assign, value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add `delta`.

        Raises:
            InvalidArgumentError: If it has another shape.
        """
        return self._change(Variable.assign_add, delta)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract `delta`.

        Raises:
            InvalidArgumentError: If it has another shape.
        """
        return self._change(Variable.assign_sub, delta)

    def _change(self, change: Callable[[Variable, Any], Any], value: Any) -> "ShardedVariable":
        whole = convert_to_tensor(value, dtype=self.dtype)
        if tuple(whole.shape) != tuple(self.shape):
            raise InvalidArgumentError(
                None,
                None,
                f"Expected a value of the shape {self.shape} for {self!r}, but got {tuple(whole.shape)}.",
            )
        with _state.changing():
            for variable, start, size in zip(self._variables, self._starts, self._sizes, strict=True):
                change(variable, whole[start : start + size])
        return self

    scatter_add, scatter_sub = by_slices("add"), by_slices("sub")
    scatter_mul, scatter_div = by_slices("mul"), by_slices("div")
    scatter_min, scatter_max = by_slices("min"), by_slices("max")
    scatter_update = by_slices("update")

    def scatter(self, how: str, indices: jax.Array, updates: jax.Array) -> None:
        """Change rows, as `Variable.scatter` does, in the parts that have them; `indices` is `[n, 1]`."""
        rows = self._rows(indices[..., 0])
        known = known_value(rows)
        if known is None:
            changes = [(local[:, None], updates) for local in local_indices(rows, self._sizes)]
        else:
            own = own_indices(np.asarray(known), self._sizes)
            changes = [(convert_to_tensor(local)[:, None], updates[places]) for places, local in own]

        def scatter_parts() -> None:
            for variable, (local, values) in zip(self._variables, changes, strict=True):
                if local.size:
                    variable.scatter(how, local, values)

        update(scatter_parts, self._variables)

    def _rows(self, indices: jax.Array) -> jax.Array:
        """Return rows' numbers, if operations on rows can take them."""
        if indices.ndim != 1:
            raise ValueError(
                f"ShardedVariable: indices must be 1D Tensor for sparse operations. Received shape: {tuple(indices.shape)}"
            )
        if self._sizes != part_sizes(sum(self._sizes), len(self._sizes)):
            raise NotImplementedError(
                'scatter_xxx ops are not supported in ShardedVariable that does not conform to "div" sharding: its parts have '
                f"{self._sizes} rows. Change its `variables`."
            )
        check_indices(indices, sum(self._sizes))
        return indices

    def look_up(self, indices: Any) -> jax.Array:
        """Return the rows with the given numbers, `[*indices.shape, *row]`."""
        return gather_parts(self._variables, indices)

    def sparse_read(self, indices: Any, name: str | None = None) -> jax.Array:
        """Return the rows with the given numbers, those of the first part first."""
        rows = self._rows(convert_to_tensor(indices))
        return self.look_up(rows[jnp.argsort(part_numbers(rows, self._sizes), stable=True)])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"'ShardedVariable' object has no attribute {name!r}: ask its `variables`, or `tf.convert_to_tensor` of it."
        )

    def __repr__(self) -> str:
        names = ", ".join(repr(variable.name) for variable in self._variables)
        return f"<ShardedVariable shape={self.shape} dtype={self.dtype.name} of [{names}]>"


operate_by_value(ShardedVariable, ShardedVariable.__jax_array__, is_changed_in_place=False)
ShardedVariable.__hash__ = object.__hash__  # pyright: ignore[reportAttributeAccessIssue]  As in TensorFlow, although `==` compares values.
