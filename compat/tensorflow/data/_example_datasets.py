"""`tf.data.experimental.make_batched_features_dataset`: batches of parsed examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfdist_jax.compat.tensorflow.data._csv_datasets import shuffled_and_repeated
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._file_datasets import TFRecordDataset
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE
from tfdist_jax.compat.tensorflow.io._parsing import parse_example


def make_batched_features_dataset(
    file_pattern: Any,
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[..., Dataset] | None = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Make the dataset of batches of the examples in files: dictionaries of features, or pairs of one and the labels.

    Args:
        file_pattern: Patterns of the files' names.
        batch_size: Examples of a batch.
        features: What is wanted of them; see `tf.io.parse_example`.
        reader: Makes a dataset of strings of a file's name: `tf.data.TFRecordDataset` if None.
        label_key: The feature that is the label.
        reader_args: Further arguments of `reader`.
        num_epochs: How often the files are gone over; for ever if None.
        shuffle: Whether files and examples are shuffled.
        shuffle_buffer_size: Examples in the buffer for that.
        shuffle_seed: Its seed.
        prefetch_buffer_size: Batches that are prepared ahead.
        reader_num_threads: Files that are read in turn.
        parser_num_threads: Unused: a batch is parsed as a whole.
        sloppy_ordering: Unused: the order is always the same.
        drop_final_batch: Whether a last batch that is smaller is left out.

    Raises:
        ValueError: If `label_key` is no feature.
        InvalidArgumentError: If there is no such file.
    """
    if label_key is not None and label_key not in features:
        raise ValueError(
            f"The `label_key` provided ({label_key}) must be one of the `features` keys: {list(features)}."
        )
    read, further = reader or TFRecordDataset, reader_args or ()
    threads = None if reader_num_threads == AUTOTUNE else reader_num_threads or 1
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    examples = files.interleave(lambda name: read(name, *further), cycle_length=threads, block_length=1)
    if isinstance(examples.element_spec, tuple):  # Keys and values.
        examples = examples.map(lambda _, value: value)
    examples = shuffled_and_repeated(examples, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    batches = examples.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)

    def parse(serialized: Any) -> Any:
        parsed = parse_example(serialized, features)
        return parsed if label_key is None else (parsed, parsed.pop(label_key))

    return batches.map(parse).prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
