"""`tf.io.parse_example` and `parse_single_example`: tensors out of serialized examples."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import string as string_type
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._sparse_tensor import SparseTensor
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _features
from tfdist_jax.compat.tensorflow.io._example_columns import NAMES, Column, read_columns
from tfdist_jax.compat.tensorflow.io._ragged_features import RaggedFeature


def parse_example(serialized: Any, features: Any, example_names: Any = None, name: str | None = None) -> dict[str, Any]:
    """Return the tensors of a batch of examples.

    Args:
        serialized: Strings `[N]`, each an example; or one string, whose tensors have no dimension for examples.
        features: What is wanted, by key: `FixedLenFeature`, `VarLenFeature`, `FixedLenSequenceFeature`,
            `SparseFeature` or `RaggedFeature`.
        example_names: Names `[N]` of the examples, for messages.
        name: Unused.

    Returns:
        By key, sorted, tensors `[N, ...]`, sparse tensors and ragged ones.

    Raises:
        InvalidArgumentError: If a string is no example, or an example has not what is wanted.
        ValueError: If it is not clear what is wanted.
    """
    records = np.asarray(convert_to_tensor(serialized, string_type), object)
    if records.ndim > 1:
        raise invalid(f"Expected serialized to be a scalar or vector, got shape: [{','.join(map(str, records.shape))}]")
    names = None if example_names is None else np.ravel(np.asarray(convert_to_tensor(example_names), object)).tolist()
    rows = records.reshape(-1).tolist()
    describe = (lambda row: "Name: <unknown>, ") if names is None else (lambda row: f"Name: {names[row].decode()}, ")
    return as_tensors(parse_rows(rows, features, describe), is_one=not records.ndim)


def parse_single_example(
    serialized: Any, features: Any, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Return the tensors of one example; see `parse_example`.

    Raises:
        ValueError: If it is not one.
    """
    record = np.asarray(convert_to_tensor(serialized, string_type), object)
    if record.ndim:
        raise ValueError("Input serialized must be a scalar")
    return as_tensors(parse_rows([record.item()], features, lambda row: "", is_single=True), is_one=True)


def _parse_together(serialized: Any, features: Any, *names: Any, **more_names: Any) -> dict[str, Any]:
    """Return the dense tensors of the examples of several elements, `[n, ...]` or `[n, N, ...]`."""
    records = np.asarray(serialized, object)
    parsed = parse_rows(records.reshape(-1).tolist(), features, lambda row: "")
    shaped = {key: value.reshape(*records.shape, *value.shape[1:]) for key, value in parsed.items()}
    return {key: convert_to_tensor(value) if value.dtype == object else value for key, value in shaped.items()}


computes_rows(parse_single_example, _parse_together)
computes_rows(parse_example, _parse_together)


@final
@dataclasses.dataclass(frozen=True)
class SparseRows:
    """A sparse tensor's parts: `[n, rank]`, `[n]`, `[rank]`."""

    indices: np.ndarray
    values: np.ndarray
    shape: list[int]


def as_tensors(parsed: Mapping[str, Any], *, is_one: bool = False) -> dict[str, Any]:
    """Return what has been parsed as tensors; those of the only example if `is_one`."""
    return {key: _as_tensor(value, is_one=is_one) for key, value in parsed.items()}


def _as_tensor(value: Any, *, is_one: bool) -> Any:
    if hasattr(value, "as_tensor"):
        return value.as_tensor(is_one=is_one)
    if not isinstance(value, SparseRows):
        return convert_to_tensor(value[0, ...] if is_one else value)
    first = 1 if is_one else 0
    return SparseTensor(value.indices[:, first:], convert_to_tensor(value.values), value.shape[first:])


def parse_rows(records: Sequence[bytes], features: Any, describe: Any, *, is_single: bool = False) -> dict[str, Any]:
    """Return the arrays of examples, and parts of sparse tensors; `describe` begins what is said of one."""
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    columns = read_columns(records, _kinds(features))
    reader = _Reader(columns, len(records), describe, is_single=is_single)
    return {key: reader.read(key, features[key]) for key in sorted(features)}


def _kinds(features: Mapping[str, Any]) -> dict[str, int]:
    """Return the keys whose values are needed, and what they are to hold."""
    kinds: dict[str, int] = {}
    for key, feature in features.items():
        if isinstance(feature, _features.SparseFeature):
            kinds |= dict.fromkeys(index_keys(feature), _features.kind_of("int64"))
            kinds[feature.value_key] = _features.kind_of(feature.dtype)
        elif isinstance(feature, RaggedFeature):
            kinds |= {name: _features.kind_of(dtype) for name, dtype in feature.keys(key).items()}
        elif isinstance(
            feature, _features.FixedLenFeature | _features.VarLenFeature | _features.FixedLenSequenceFeature
        ):
            kinds[key] = _features.kind_of(feature.dtype)
        else:
            raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key {key!r}")
    return kinds


def index_keys(feature: _features.SparseFeature) -> list[str]:
    """Return the keys of a sparse feature's indices."""
    return [feature.index_key] if isinstance(feature.index_key, str) else list(feature.index_key)


class _Reader:
    """Makes tensors of columns."""

    def __init__(self, columns: Mapping[str, Column], count: int, describe: Any, *, is_single: bool) -> None:
        self._columns, self._count, self._describe, self._is_single = columns, count, describe, is_single

    def read(self, key: str, feature: Any) -> Any:
        match feature:
            case _features.FixedLenFeature():
                return self._read_fixed(key, feature)
            case _features.VarLenFeature():
                column = self._checked(key, feature.dtype, "Expected type: {1}, Actual type: {0}")
                return _as_sparse(column)
            case _features.FixedLenSequenceFeature():
                return self._read_sequence(key, feature)
            case RaggedFeature():
                return self._read_ragged(key, feature)
        return self._read_sparse(feature)

    def _read_ragged(self, key: str, feature: RaggedFeature) -> Any:
        # Ragged tensors take a fiftieth of the facade's time to start: few programs have them.
        from tfdist_jax.compat.tensorflow.io._ragged_parsing import read_ragged

        types = "Expected type: {1}, Actual type: {0}"
        return read_ragged(key, feature, lambda name, dtype: self._checked(name, dtype, types))

    def _checked(self, key: str, dtype: Any, types: str = "Data type: {0} but expected type: {1}") -> Column:
        """Return a column whose values are of a type."""
        column, kind = self._columns[key], _features.kind_of(dtype)
        is_wrong = (column.kinds != kind) & (column.kinds != 0)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            said = types.format(NAMES[int(column.kinds[row])], NAMES[kind])
            raise invalid(f"{self._place(key, row)}Data types don't match. {said}")
        return column

    def _place(self, key: str, row: Any) -> str:
        return f"Key: {key}.  " if self._is_single else f"{self._describe(row)}Key: {key}, Index: {row}.  "

    def _read_fixed(self, key: str, feature: _features.FixedLenFeature) -> Any:
        sizes, column = _features.sizes_of(key, feature), self._checked(key, feature.dtype)
        default = _features.default_of(feature.default_value, feature.dtype, sizes)
        size = math.prod(sizes)
        is_there, is_fit = column.kinds != 0, column.lengths == size
        if is_there.all() and is_fit.all():
            return column.values.reshape(self._count, *sizes)
        is_wrong = np.where(is_there, ~is_fit, default is None)
        if is_wrong.any():
            raise self._unfit(key, feature, int(np.argmax(is_wrong)))
        values = np.empty((self._count, *sizes), _features.numpy_type(feature.dtype))
        values[...] = default
        values[is_there] = column.values.reshape(-1, *sizes)
        return values

    def _unfit(self, key: str, feature: _features.FixedLenFeature, row: int) -> Exception:
        """Return the error for an example that has not so many values, or none."""
        column, name = self._columns[key], NAMES[_features.kind_of(feature.dtype)]
        if not column.kinds[row]:
            return invalid(
                f"{self._describe(row)}Feature: {key} (data type: {name}) is required but could not be found."
            )
        return invalid(
            f"{self._place(key, row)}Number of {name} values != expected.  Values size: {column.lengths[row]} but output "
            f"shape: [{','.join(map(str, _features.sizes_of(key, feature)))}]"
        )

    def _read_sequence(self, key: str, feature: _features.FixedLenSequenceFeature) -> Any:
        if not feature.allow_missing:
            raise ValueError("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.")
        sizes, column = _features.sizes_of(key, feature), self._checked(key, feature.dtype)
        size = math.prod(sizes)
        wrong = np.flatnonzero(column.lengths % size) if size else []
        if len(wrong):
            raise invalid(
                f"{self._place(key, wrong[0])}Number of {NAMES[_features.kind_of(feature.dtype)]} values is not a multiple of "
                f"stride length. Saw {column.lengths[wrong[0]]} values but output shape is: [?,{','.join(map(str, sizes))}]"
            )
        return fill_up(column.lengths // max(size, 1), column.values, sizes, feature)

    def _read_sparse(self, feature: _features.SparseFeature) -> SparseRows:
        values = self._checked(feature.value_key, feature.dtype)
        indices = [self._checked(key, "int64") for key in index_keys(feature)]
        for key, index in zip(index_keys(feature), indices, strict=True):
            wrong = np.flatnonzero(index.lengths != values.lengths)
            if len(wrong):
                raise ValueError(
                    f"Example {wrong[0]} has {index.lengths[wrong[0]]} indices {key!r} and {values.lengths[wrong[0]]} values "
                    f"{feature.value_key!r}: Dimensions {len(index.values)} and {len(values.values)} are not compatible"
                )
        rows = np.repeat(np.arange(self._count), values.lengths)
        places = np.stack([rows, *(index.values for index in indices)], 1)
        found = values.values
        if not feature.already_sorted:
            order = np.lexsort(places.T[::-1])
            places, found = places[order], found[order]
        sizes = [feature.size] if isinstance(feature.index_key, str) else list(feature.size)
        return SparseRows(places, found, [self._count, *map(int, sizes)])


def _as_sparse(column: Column) -> SparseRows:
    count = len(column.lengths)
    rows = np.repeat(np.arange(count), column.lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(column.lengths) - column.lengths, column.lengths)
    shape = [count, int(column.lengths.max(initial=0))]
    return SparseRows(np.stack([rows, places], 1), column.values, shape)


def fill_up(counts: np.ndarray, values: np.ndarray, sizes: Sequence[int], feature: Any) -> np.ndarray:
    """Return `[N, most, *sizes]`: the tensors of each example, and what fills up behind them."""
    default = _features.default_of(feature.default_value, feature.dtype)
    kind = _features.numpy_type(feature.dtype)
    filled = np.empty((len(counts), int(counts.max(initial=0)), *sizes), kind)
    filled[...] = (b"" if kind is object else 0) if default is None else default
    filled[np.arange(filled.shape[1]) < counts[:, None]] = values.reshape(-1, *sizes)
    return filled
