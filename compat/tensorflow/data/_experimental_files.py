"""`tf.data.experimental`'s functions for files, which are methods by now."""

from collections.abc import Callable
from operator import methodcaller
from typing import Any, final

from tfdist_jax.compat.tensorflow._tensors._dtypes import string
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.io import _record_writer


def save(
    dataset: Dataset,
    path: Any,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: Any = None,
) -> None:
    """Do what `Dataset.save` does."""
    dataset.save(path, compression, shard_func, checkpoint_args)


def load(
    path: Any,
    element_spec: Any = None,
    compression: str | None = None,
    reader_func: Callable[..., Any] | None = None,
) -> Dataset:
    """Return `Dataset.load`."""
    return Dataset.load(path, element_spec, compression, reader_func)


def snapshot(
    path: Any,
    compression: str | None = "AUTO",
    reader_func: Callable[..., Any] | None = None,
    shard_func: Callable[..., Any] | None = None,
) -> Callable[[Dataset], Dataset]:
    """Return `Dataset.snapshot` as a transformation."""
    return methodcaller("snapshot", path, compression, reader_func, shard_func)


@final
class TFRecordWriter:
    """Drop-in for `tf.data.experimental.TFRecordWriter`: writes a dataset of strings to a TFRecord file.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/TFRecordWriter
    """

    def __init__(self, filename: Any, compression_type: str | None = None) -> None:
        """Name the file, and how it is compressed: "", "ZLIB" or "GZIP"."""
        self._filename, self._compression_type = filename, compression_type

    def write(self, dataset: Any) -> None:
        """Write the elements.

        Raises:
            TypeError: If it is no dataset, or its elements are no scalar strings.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"Invalid `dataset.` Expected a `tf.data.Dataset` object but got {type(dataset)}.")
        if dataset.element_spec != TensorSpec(TensorShape([]), string):
            raise TypeError(
                "Invalid `dataset`. Expected a`dataset` that produces scalar `tf.string` elements, but got a dataset which produces "
                f"elements of {dataset.element_spec}."
            )
        with _record_writer.TFRecordWriter(self._filename, self._compression_type) as writer:
            for record in dataset.as_numpy_iterator():
                writer.write(record)
