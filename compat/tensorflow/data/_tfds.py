"""What `tensorflow_datasets` has prepared, as our datasets: its own code reads it, without TensorFlow."""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np

from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _cache, _elements, _mapping, _order
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._plan import Plan, Rows, Stream, select
from tfdist_jax.compat.tensorflow.data._planned import Files
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog, SeedSource
from tfdist_jax.compat.tensorflow.data._selections import Repeat
from tfdist_jax.compat.tensorflow.io._records import RecordFile

# Decoding again costs more than keeping what is smaller.
_KEPT_BYTES = 250 << 20


def install(tfds: Any) -> None:
    """Let `tfds.load` and `builder.as_dataset` give our datasets, and `tfds.as_numpy` take them."""
    builder = tfds.core.DatasetBuilder
    if builder.as_dataset is not as_dataset:
        builder.as_dataset = as_dataset
        builder.download_and_prepare = _readable_without_tensorflow(builder.download_and_prepare)
        tfds.as_numpy = _of_ours(tfds.as_numpy)
        # It makes `tf.data.Options` for itself.
        vars(sys.modules[tfds.ReadConfig.__module__])["tf"] = sys.modules[__name__.rpartition(".data.")[0]]


def as_dataset(
    self: Any,
    split: Any = None,
    *,
    batch_size: int | None = None,
    shuffle_files: bool = False,
    decoders: Any = None,
    read_config: Any = None,
    as_supervised: bool = False,
) -> Any:
    """Return the dataset of each split: `tfds.core.DatasetBuilder.as_dataset`, without TensorFlow.

    Args:
        self: The builder.
        split: Names of splits such as `"train[:80%]"`, in any structure; all of them by default.
        batch_size: Elements in a batch; -1 for everything as tensors.
        shuffle_files: Whether files are read in another order in each iteration.
        decoders: Decoders for features that are decoded in another way.
        read_config: A `tfds.ReadConfig`; what tunes TensorFlow's reading has no effect.
        as_supervised: Whether elements are pairs of input and label, instead of dictionaries.

    Returns:
        In the structure of `split`, datasets; or tensors if `batch_size` is -1.
    """
    import tensorflow_datasets as tfds

    config: Any = read_config or tfds.ReadConfig()
    if config.add_tfds_id:
        raise NotImplementedError("`add_tfds_id` is not there. Number the elements with `Dataset.enumerate`.")
    if not self.data_path.exists():
        raise AssertionError(
            f"Dataset {self.name}: there is no data in {self.data_path}. Prepare it with `download_and_prepare()`, or "
            "`tfds.load(..., download=True)`."
        )
    if as_supervised and not self.info.supervised_keys:
        raise ValueError(f"`as_supervised` is true, but {self.name} does not say which features are input and label.")

    def single(split: Any) -> Any:
        plan = _planned(self, split, shuffle_files, decoders, config, as_supervised)
        dataset = Dataset(plan, config.options, Files(len(self.info.splits[split].file_instructions), are_read=True))
        size = plan.cardinality() if batch_size == -1 else batch_size
        if not size:
            return dataset
        batches = dataset.batch(size) if isinstance(plan, Rows) else dataset.padded_batch(size)
        return batches.get_single_element() if batch_size == -1 else batches

    return jax.tree.map(single, {name: name for name in self.info.splits} if split is None else split)


def _planned(builder: Any, split: Any, shuffle_files: bool, decoders: Any, config: Any, as_supervised: bool) -> Plan:
    examples = _examples(builder, split, decoders, config)
    keys = builder.info.supervised_keys if as_supervised else None
    files = _Files.of(builder.info.splits[split].file_instructions, shuffle_files, config)
    spec = _chosen(_elements.map_structure(_spec_of, builder.info.features.get_tensor_info()), keys)
    if decoders is not None:
        first = [_elements.as_arrays(_chosen(examples[i], keys)) for i in range(min(files.count, 2))]
        spec = functools.reduce(functools.partial(_elements.map_structure, _decoded_spec), first, spec)
    kind = LoadRows if all(s.shape.is_fully_defined() for s in _elements.leaves(spec)) else Load
    plan: Plan = kind(builder.name, split, _Examples(examples, keys, spec), files)
    is_small = 0 < (builder.info.dataset_size or 0) <= _KEPT_BYTES
    if config.try_autocache and is_small and not shuffle_files:
        plan = _cache.cached(plan)
    return select(plan, Repeat(-1)) if config.repeat_filenames else plan


def _chosen(example: Any, keys: Any) -> Any:
    return example if keys is None else _elements.map_structure(example.__getitem__, keys)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Examples:
    """Elements by number: the parts of `examples` that `keys` name; all if None."""

    examples: Any
    keys: Any
    spec: Any

    def __getitem__(self, number: int) -> Any:
        return _elements.map_structure(_typed, self.spec, _chosen(self.examples[number], self.keys))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LoadRows(Rows):
    """The examples of a split, all of the same shape."""

    name: str
    split: Any
    examples: _Examples = dataclasses.field(repr=False)
    files: "_Files"

    def get(self, positions: np.ndarray) -> Any:
        return _elements.stack(list(map(self.examples.__getitem__, positions.tolist())))

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        return self.files.order(seed_log)

    def make_spec(self) -> Any:
        return self.examples.spec

    def cardinality(self) -> int:
        return self.files.count

    def at_once(self) -> int:
        return 1  # Decoding is work for each example.


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Load(Stream):
    """The examples of a split, one after the other."""

    name: str
    split: Any
    examples: _Examples = dataclasses.field(repr=False)
    files: "_Files"

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        numbers = itertools.chain.from_iterable(map(np.ndarray.tolist, self.files.order(seed_log)))
        return map(self.examples.__getitem__, numbers)

    def make_spec(self) -> Any:
        return self.examples.spec

    def cardinality(self) -> int:
        return self.files.count


def _examples(builder: Any, split: Any, decoders: Any, config: Any) -> Any:
    """Return the examples of a split, in the order of its files, by number."""
    if (config.file_format or builder.info.file_format).value != "tfrecord":
        return builder.as_data_source(split, decoders=decoders, file_format=config.file_format)
    features = builder.info.features
    files = builder.info.splits[split].file_instructions
    return _Decoded(files, functools.partial(features.deserialize_example_np, decoders=decoders))


class _Decoded:
    """Examples in TFRecord files, decoded when they are asked for."""

    def __init__(self, files: Sequence[Any], decode: Callable[[bytes], Any]) -> None:
        self._records = [(RecordFile(file.filename), file.skip) for file in files]
        self._ends = list(itertools.accumulate(file.take for file in files))
        self._decode = decode

    def __getitem__(self, number: int) -> Any:
        at = int(np.searchsorted(self._ends, number, side="right"))
        records, skip = self._records[at]
        return self._decode(records[number - (self._ends[at - 1] if at else 0) + skip])


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Files:
    """The order in which TensorFlow Datasets reads examples: a block of each of several files in turn.

    `starts` holds the number of each file's first example; without a `seed` files keep their order.
    """

    chosen: list[Any]
    starts: dict[Any, int]
    cycle_length: int
    block_length: int
    seed: SeedSource | None

    @classmethod
    def of(cls, files: Sequence[Any], shuffle_files: bool, config: Any) -> "_Files":
        """Return the files that a `tfds.ReadConfig` says."""
        starts = dict(zip(files, itertools.accumulate([0, *(file.take for file in files)]), strict=False))
        source = SeedSource.of_seed(config.shuffle_seed, fixed=config.shuffle_reshuffle_each_iteration is False)
        sort = config.experimental_interleave_sort_fn
        chosen = list(files if sort is None else sort(files))
        if config.input_context is not None:
            chosen = chosen[config.input_context.input_pipeline_id :: config.input_context.num_input_pipelines]
        # The configuration holds a marker of its own where nothing is said.
        cycle = config.interleave_cycle_length if isinstance(config.interleave_cycle_length, int) else 16
        return cls(chosen, starts, cycle, config.interleave_block_length or 1, source if shuffle_files else None)

    def __repr__(self) -> str:
        return f"{len(self.chosen)}{'' if self.seed is None else f' shuffled, seed={self.seed}'}"

    @property
    def count(self) -> int:
        return sum(file.take for file in self.chosen)

    def order(self, seed_log: SeedLog) -> Iterator[np.ndarray]:
        own = seed_log.own_files(self.chosen)
        if self.seed is None:
            return _order.cut(self._in_files_order if own is self.chosen else self._positions(own))
        return _order.cut(self._positions([own[i] for i in seed_log.generator(self.seed).permutation(len(own))]))

    @functools.cached_property
    def _in_files_order(self) -> np.ndarray:
        return self._positions(self.chosen)

    def _positions(self, files: Sequence[Any]) -> np.ndarray:
        parts = (iter(range(self.starts[file], self.starts[file] + file.take)) for file in files)
        return np.fromiter(_mapping.in_turn(parts, self.cycle_length, self.block_length), np.int64)


def _spec_of(info: Any) -> TensorSpec:
    """Return the type that a feature says its tensors have."""
    dtype = np.dtype(info.np_dtype)
    return TensorSpec(TensorShape(info.shape), as_dtype("string" if dtype.kind in "OSU" else dtype))


def _decoded_spec(spec: TensorSpec, value: np.ndarray) -> TensorSpec:
    """Return the type that also fits a value that a decoder of the user's own may have made."""
    found = _elements.spec_of(value)
    if found.shape.rank == spec.shape.rank and value.dtype.kind == np.dtype(spec.dtype.as_numpy_dtype).kind:
        return TensorSpec(_elements.common_shape(spec.shape, found.shape), spec.dtype)
    return found


def _typed(spec: TensorSpec, value: Any) -> np.ndarray:
    return _elements.as_arrays(value) if spec.dtype.name == "string" else np.asarray(value, spec.dtype.as_numpy_dtype)


def _readable_without_tensorflow(prepare: Callable[..., None]) -> Callable[..., None]:
    """Write files that need no TensorFlow, unless another format is asked for."""

    @functools.wraps(prepare)
    def download_and_prepare(self: Any, *, file_format: Any = None, **options: Any) -> None:
        is_default = self.info.file_format is None or self.info.file_format.value == "tfrecord"
        prepare(self, file_format=file_format or ("array_record" if is_default else None), **options)

    return download_and_prepare


def _of_ours(as_numpy: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(as_numpy)
    def as_numpy_of_ours(dataset: Any) -> Any:
        parts = jax.tree.leaves(dataset)
        if all(_elements.is_dataset(part) or isinstance(part, jax.Array | np.ndarray) for part in parts):
            return jax.tree.map(lambda part: _Arrays(part) if _elements.is_dataset(part) else np.asarray(part), dataset)
        return as_numpy(dataset)

    return as_numpy_of_ours


class _Arrays:
    """A dataset as an iterable of NumPy arrays."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return self._dataset.as_numpy_iterator()

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec
