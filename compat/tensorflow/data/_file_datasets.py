"""`tf.data.TFRecordDataset`, `TextLineDataset`, `FixedLengthRecordDataset`: datasets of what files hold."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._tensors._dtypes import as_dtype
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor
from tfdist_jax.compat.tensorflow.data import _file_plans
from tfdist_jax.compat.tensorflow.data._dataset import Dataset
from tfdist_jax.compat.tensorflow.data._options import AUTOTUNE
from tfdist_jax.compat.tensorflow.data._plan import Plan
from tfdist_jax.compat.tensorflow.data._planned import Files, Planned
from tfdist_jax.compat.tensorflow.data._source_plans import ListFiles
from tfdist_jax.compat.tensorflow.io._compression import compression_of


class FileDataset(Dataset):
    """What files hold; what transforms it gives a `Dataset`."""

    def _read(
        self, kind: Callable[..., _file_plans.ReadFiles], filenames: Any, *parameters: Any, **options: Any
    ) -> None:
        names, files = _names_of(filenames)
        super().__init__(kind(names, *parameters, **_checked(**options)), files=files)

    @classmethod
    def _of_all(cls, plan: Plan, datasets: Sequence[Planned]) -> Self:
        return Dataset._of_all(plan, datasets)  # noqa: SLF001 # pyright: ignore[reportReturnType]


class _StringDataset(FileDataset):
    """Strings that end where their form says so.

    Attributes:
        _kind: Its plan.
    """

    _kind: ClassVar[type[_file_plans.ReadRecords | _file_plans.ReadLines]]

    def __init__(
        self,
        filenames: Any,
        compression_type: Any = None,
        buffer_size: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        """Read files.

        Args:
            filenames: Paths, or a dataset of them.
            compression_type: "", "ZLIB" or "GZIP".
            buffer_size: How many bytes are read at once.
            num_parallel_reads: How many files are read at once; their strings come in turn. By default one file comes after the other.
            name: Unused.

        Raises:
            TypeError: If paths are no strings.
            tf.errors.NotFoundError: In an iteration, if there is no such file.
            tf.errors.DataLossError: In an iteration, where a file is damaged.
        """
        self._read(
            self._kind,
            filenames,
            compression_type=compression_type,
            buffer_size=buffer_size,
            num_parallel_reads=num_parallel_reads,
        )


class TFRecordDataset(_StringDataset):
    """Drop-in for `tf.data.TFRecordDataset`: the records of TFRecord files.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/TFRecordDataset
    """

    _kind = _file_plans.ReadRecords


class TextLineDataset(_StringDataset):
    """Drop-in for `tf.data.TextLineDataset`: the lines of text files.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/TextLineDataset
    """

    _kind = _file_plans.ReadLines


class FixedLengthRecordDataset(FileDataset):
    """Drop-in for `tf.data.FixedLengthRecordDataset`: pieces of equal length of files.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/FixedLengthRecordDataset
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: Any,
        header_bytes: Any = None,
        footer_bytes: Any = None,
        buffer_size: Any = None,
        compression_type: Any = None,
        num_parallel_reads: Any = None,
        name: str | None = None,
    ) -> None:
        """Read files; see `TextLineDataset` for the other arguments.

        Args:
            filenames: Paths, or a dataset of them.
            record_bytes: Length of a piece.
            header_bytes: How many bytes at a file's beginning are left out.
            footer_bytes: How many at its end.
            buffer_size: How many bytes are read at once.
            compression_type: "", "ZLIB" or "GZIP".
            num_parallel_reads: How many files are read at once.
            name: Unused.

        Raises:
            tf.errors.InvalidArgumentError: If a length is negative; in an iteration, if pieces do not fill a file.
        """
        lengths = [int(0 if value is None else value) for value in (record_bytes, header_bytes, footer_bytes)]
        if lengths[0] <= 0 or min(lengths) < 0:
            raise invalid(
                f"`record_bytes` must be > 0, `header_bytes` and `footer_bytes` must be >= 0, got {', '.join(map(str, lengths))}."
            )
        self._read(
            _file_plans.ReadPieces,
            filenames,
            *lengths,
            compression_type=compression_type,
            buffer_size=buffer_size,
            num_parallel_reads=num_parallel_reads,
        )


def _names_of(filenames: Any) -> tuple[Plan, Files | None]:
    """Return the plan of files' names, and that they are read."""
    if isinstance(filenames, Planned):
        spec = filenames.element_spec
        if getattr(spec, "dtype", None) != "string":
            got = f"`{spec.dtype!r}` elements" if hasattr(spec, "dtype") else f"{spec}"
            raise TypeError(f"The `filenames` argument must contain `tf.string` elements. Got a dataset of {got}.")
        given = filenames.files
        return filenames._plan, None if given is None else Files(given.count, are_read=True)
    found: list[Any] = []
    _collect(filenames, found)
    wrong = next((name for name in found if not isinstance(name, str | bytes)), None)
    if wrong is not None:
        kind = as_dtype(convert_to_tensor(wrong).dtype)
        raise TypeError(f"The `filenames` argument must contain `tf.string` elements. Got `{kind!r}` elements.")
    names = np.array([name.encode() if isinstance(name, str) else name for name in found], object)
    return ListFiles(names), Files(len(names), are_read=True)


def _collect(filenames: Any, found: list[Any]) -> None:
    """Append the names in a path, a tensor or lists of them."""
    if isinstance(filenames, os.PathLike):
        found.append(os.fspath(filenames))
    elif isinstance(filenames, list | tuple):
        for part in filenames:
            _collect(part, found)
    elif hasattr(filenames, "dtype"):
        found.extend(np.asarray(filenames).ravel().tolist())
    else:
        found.append(filenames)


def _checked(compression_type: Any, buffer_size: Any, num_parallel_reads: Any = None) -> dict[str, Any]:
    buffer_bytes = None if buffer_size is None else int(buffer_size)
    if buffer_bytes is not None and buffer_bytes < 0:
        raise invalid(f"`buffer_size` must be >= 0 (0 == no buffering), got {buffer_size}.")
    reads = None if num_parallel_reads is None else int(num_parallel_reads)
    if reads == AUTOTUNE:
        reads = os.cpu_count() or 1
    if reads is not None and reads <= 0:
        raise invalid(f"`num_parallel_reads` (the `cycle_length`) must be > 0, got {num_parallel_reads}.")
    return {
        "compression_type": compression_of(compression_type),
        "buffer_size": buffer_bytes or None,
        "num_parallel_reads": reads,
    }
