"""`tf.io.parse_sequence_example` and its kin: examples with lists of features, whose lengths differ."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from google.protobuf.message import DecodeError

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import string as string_type
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.io import _features, _messages
from tfdist_jax.compat.tensorflow.io._example_columns import NAMES, Column, read_feature
from tfdist_jax.compat.tensorflow.io._parsing import SparseRows, as_tensors, fill_up, parse_rows
from tfdist_jax.compat.tensorflow.io._ragged_features import RaggedFeature

Parsed = dict[str, Any]


def parse_sequence_example(
    serialized: Any,
    context_features: Any = None,
    sequence_features: Any = None,
    example_names: Any = None,
    name: str | None = None,
) -> tuple[Parsed, Parsed, Parsed]:
    """Return the tensors of a batch of sequence examples.

    Args:
        serialized: Strings `[N]`, each a `tf.train.SequenceExample`.
        context_features: What is wanted of their contexts; see `parse_example`.
        sequence_features: What is wanted of their lists: `FixedLenSequenceFeature`, `VarLenFeature` for sparse tensors, `RaggedFeature`.
        example_names: Names `[N]` of the examples, for messages.
        name: Unused.

    Returns:
        By key: tensors of the contexts; of the lists `[N, most, ...]`, filled up; and how long each dense list is, `[N]` int64.

    Raises:
        InvalidArgumentError: If a string is no example, or an example has not what is wanted.
        ValueError: If it is not clear what is wanted.
    """
    records = np.asarray(convert_to_tensor(serialized, string_type), object)
    names = None if example_names is None else np.asarray(convert_to_tensor(example_names), object)
    if not records.ndim:
        names = None if names is None else names.reshape(1)
    context, lists, lengths = _parse(records.reshape(-1), context_features, sequence_features, names)
    is_one = not records.ndim
    return as_tensors(context, is_one=is_one), as_tensors(lists, is_one=is_one), as_tensors(lengths, is_one=is_one)


def parse_single_sequence_example(
    serialized: Any,
    context_features: Any = None,
    sequence_features: Any = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[Parsed, Parsed]:
    """Return the tensors of one sequence example: of its context, and of its lists; see `parse_sequence_example`."""
    record = np.asarray(convert_to_tensor(serialized, string_type), object)
    if record.ndim:
        raise ValueError("Input serialized must be a scalar")
    names = None if example_name is None else np.asarray(convert_to_tensor(example_name), object).reshape(1)
    context, lists, _ = _parse(record.reshape(1), context_features, sequence_features, names)
    return as_tensors(context, is_one=True), as_tensors(lists, is_one=True)


def _parse(
    records: np.ndarray, context_features: Any, sequence_features: Any, names: np.ndarray | None
) -> tuple[Parsed, Parsed, Parsed]:
    if not (context_features or sequence_features):
        raise ValueError(
            "Both `context_features` and `sequence_features` argument are None, but at least one should have values."
        )
    said = ["<unknown>"] * len(records) if names is None else [name.decode() for name in names.tolist()]
    describe = lambda row: f"Name: {said[row]}, "
    examples = [_read(record, said[row]) for row, record in enumerate(records.tolist())]
    context: Parsed = {}
    if context_features:
        contexts = [_messages.Example(features=example.context).SerializeToString() for example in examples]
        context = parse_rows(contexts, context_features, describe)
    lists: Parsed = {}
    lengths: Parsed = {}
    for key in sorted(sequence_features or {}):
        feature = sequence_features[key]
        if isinstance(feature, RaggedFeature):
            lists[key] = _read_ragged(examples, key, feature, describe)
            continue
        if not isinstance(feature, _features.FixedLenSequenceFeature | _features.VarLenFeature):
            raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key {key!r} of the lists")
        steps = _Steps.of(examples, key, feature, describe)
        if isinstance(feature, _features.VarLenFeature):
            lists[key] = steps.as_sparse()
        else:
            lists[key] = steps.as_dense(feature)
            lengths[key] = steps.counts
    return context, lists, lengths


def _read_ragged(examples: Sequence[Any], key: str, feature: RaggedFeature, describe: Callable[[int], str]) -> Any:
    """Return the features of a list in all examples as rows, which may be split further."""
    from tfdist_jax.compat.tensorflow.io._ragged_parsing import read_ragged

    found: dict[str, _Steps] = {}

    def column_of(name: str, dtype: Any) -> Column:
        steps = found[name] = _Steps.of(examples, name, _features.VarLenFeature(dtype), describe)
        first = next(iter(found.values()))
        if not np.array_equal(steps.counts, first.counts):
            raise invalid(
                f"Key: {name}.  The lists of {next(iter(found))!r} and {name!r} have different numbers of features."
            )
        return Column(np.ones(len(steps.lengths), np.int8), steps.lengths, steps.values)

    rows = read_ragged(key, feature, column_of)
    return rows.in_lists(next(iter(found.values())).counts)


def _read(record: bytes, name: str) -> Any:
    try:
        return _messages.SequenceExample.FromString(record)
    except DecodeError:
        raise invalid(f"Invalid protocol message input, example id: {name}") from None


@final
@dataclasses.dataclass(frozen=True)
class _Steps:
    """The features of a list in all examples.

    Attributes:
        counts: How many features each example's list has, `[N]`.
        lengths: How many values each feature has, one example's behind the other.
        values: The values.
    """

    counts: np.ndarray
    lengths: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, examples: Sequence[Any], key: str, feature: Any, describe: Callable[[int], str]) -> "_Steps":
        """Read a list of all examples.

        Raises:
            InvalidArgumentError: If it is not there, or holds something else.
        """
        kind = _features.kind_of(feature.dtype)
        is_dense = isinstance(feature, _features.FixedLenSequenceFeature)
        sizes = _features.sizes_of(key, feature) if is_dense else ()
        counts, lengths, values = [], [], [np.empty(0, _features.numpy_type(feature.dtype))]
        for row, example in enumerate(examples):
            found = example.feature_lists.feature_list
            if is_dense and key not in found and not feature.allow_missing:
                raise invalid(
                    f"{describe(row)}Feature list '{key}' is required but could not be found.  Did you mean to include it in "
                    "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults? Give `allow_missing=True`."
                )
            steps = found[key].feature if key in found else ()
            counts.append(len(steps))
            for number, step in enumerate(steps):
                given, length, array = read_feature(step, kind)
                place = f"{describe(row)}Key: {key}, Index: {number}.  "
                if given not in (0, kind):
                    raise invalid(
                        f"{place}Data types don't match. Expected type: {NAMES[kind]}, Actual type: {NAMES[given]}"
                    )
                if is_dense and length != np.prod(sizes, dtype=np.int64):
                    raise invalid(
                        f"{place}Number of values != expected.  values size: {length} but output shape: "
                        f"[{','.join(map(str, sizes))}]"
                    )
                lengths.append(length)
                values.append(array)
        return cls(np.array(counts, np.int64), np.array(lengths, np.int64), np.concatenate(values))

    def as_dense(self, feature: _features.FixedLenSequenceFeature) -> np.ndarray:
        """Return `[N, most, ...]`."""
        return fill_up(self.counts, self.values, _features.sizes_of("", feature), feature)

    def as_sparse(self) -> SparseRows:
        """Return a sparse tensor `[N, most features, most values]`."""
        examples = np.repeat(np.arange(len(self.counts)), self.counts)
        steps = _numbers_within(self.counts)
        places = np.stack(
            [np.repeat(examples, self.lengths), np.repeat(steps, self.lengths), _numbers_within(self.lengths)], 1
        )
        shape = [len(self.counts), int(self.counts.max(initial=0)), int(self.lengths.max(initial=0))]
        return SparseRows(places, self.values, shape)


def _numbers_within(lengths: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... for each of the groups of so many."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
