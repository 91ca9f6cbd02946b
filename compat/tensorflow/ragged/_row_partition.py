"""How the values of a ragged tensor are split into rows: integers on the host."""

import dataclasses
import functools
from typing import Any, NoReturn, Self, final

import numpy as np

from tfdist_jax._errors import ConcreteValueRequiredError
from tfdist_jax.compat.tensorflow._ops._arguments import value_of
from tfdist_jax.compat.tensorflow._platform._errors import InvalidArgumentError
from tfdist_jax.compat.tensorflow._tensors._composite import StaticPart
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype, int64
from tfdist_jax.compat.tensorflow._tensors._host_values import host_value

NOT_TRACED = (
    "it gets or makes a ragged tensor, whose rows differ in number and length from call to call, but XLA's sizes are fixed when "
    "a function is traced. Pass `ragged.to_tensor()`, with a mask of `ragged.row_lengths()`, for full speed."
)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RowPartition(StaticPart):
    """The places at which values are split into rows.

    Attributes:
        splits: Row `i` has the values from `splits[i]` to `splits[i + 1]`; `[nrows + 1]`, int64 or int32.
        uniform_length: The length that all rows have to have, if they do; None where lengths may differ.
    """

    splits: np.ndarray
    uniform_length: int | None = None

    @classmethod
    def of_lengths(cls, lengths: np.ndarray, dtype: Any = np.int64) -> Self:
        """Return the partition into rows of some lengths."""
        splits = np.zeros(len(lengths) + 1, dtype)
        np.cumsum(lengths, out=splits[1:])
        return cls(splits)

    @classmethod
    def uniform(cls, nrows: int, length: int, dtype: Any = np.int64) -> Self:
        """Return the partition into rows of one length."""
        return cls(np.arange(nrows + 1, dtype=dtype) * np.asarray(length, dtype), int(length))

    @property
    def nrows(self) -> int:
        """How many rows there are."""
        return len(self.splits) - 1

    @property
    def nvals(self) -> int:
        """How many values there are."""
        return int(self.splits[-1])

    @property
    def dtype(self) -> Any:
        """The type of the splits: NumPy's int64 or int32."""
        return self.splits.dtype

    @property
    def starts(self) -> np.ndarray:
        """Where each row begins, `[nrows]`."""
        return self.splits[:-1]

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """How many values each row has, `[nrows]`."""
        return np.diff(self.splits)

    @functools.cached_property
    def rowids(self) -> np.ndarray:
        """The row of each value, `[nvals]`."""
        return np.repeat(np.arange(self.nrows, dtype=self.dtype), self.lengths)

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """The place of each value within its row, `[nvals]`."""
        return np.arange(self.nvals, dtype=self.dtype) - self.starts[self.rowids]

    def as_type(self, dtype: Any) -> "RowPartition":
        """Return the same partition with splits of another type."""
        return self if self.dtype == dtype else RowPartition(self.splits.astype(dtype), self.uniform_length)

    def is_same(self, other: "RowPartition") -> bool:
        """Whether another partition has the same rows."""
        return self is other or np.array_equal(self.splits, other.splits)

    def __tf_tracing_type__(self, context: Any) -> NoReturn:
        """Refuse to be a constant of a program: the function runs as Python."""
        raise ConcreteValueRequiredError(NOT_TRACED)


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers from each start on, so many each, one behind the other."""
    if not len(lengths):
        return np.zeros(0, np.int64)
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)


def integers(value: Any, name: str, *, rank: int = 1) -> np.ndarray:
    """Return an argument of a partition as int64, or as int32 if it is a tensor or an array of that type.

    Raises:
        ValueError: If it is of another type or rank.
    """
    known = value_of(value, NOT_TRACED) if hasattr(value, "aval") else value
    array = np.asarray(known if hasattr(known, "dtype") else _listed(known))
    if array.dtype not in (np.int32, np.int64):
        raise ValueError(f"{name} must have dtype int32 or int64, got {as_dtype(array.dtype).name}")
    if array.ndim != rank:
        raise ValueError(f"Shape {array.shape} must have rank {rank}: `{name}`")
    return array


def _listed(value: Any) -> np.ndarray:
    array = host_value(value, hint=int64)
    return array if array.size else array.astype(np.int64)


def unfit(maker: str, wanted: str, came: Any) -> InvalidArgumentError:
    """Return the error for arguments that make no ragged tensor."""
    return InvalidArgumentError(
        None, None, f"Arguments to {maker} do not form a valid RaggedTensor: wanted {wanted}, got {came}."
    )


def splits_dtype(partitions: Any) -> Any:
    """Return the type that partitions agree on, int64 if there are none.

    Raises:
        ValueError: If they do not agree.
    """
    dtypes = {partition.dtype for partition in partitions}
    if len(dtypes) > 1:
        raise ValueError(
            "Input RaggedTensors have mismatched row_splits dtypes; use RaggedTensor.with_row_splits_dtype() to convert them to "
            f"compatible dtypes, got {sorted(map(str, dtypes))}."
        )
    return dtypes.pop() if dtypes else np.dtype(np.int64)
