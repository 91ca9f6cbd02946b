"""`tf.io.TFRecordWriter`: records on their way to a file."""

import zlib
from typing import Any, final

from tfdist_jax.compat.tensorflow._platform._errors import FailedPreconditionError
from tfdist_jax.compat.tensorflow.io import _gfile
from tfdist_jax.compat.tensorflow.io._records import frame

_WINDOW_BITS = {"ZLIB": 0, "GZIP": 16}


@final
class TFRecordOptions:
    """Drop-in for `tf.io.TFRecordOptions`: how records are compressed; None leaves a choice to zlib.

    Ref: https://www.tensorflow.org/api_docs/python/tf/io/TFRecordOptions
    """

    def __init__(
        self,
        compression_type: str | None = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        """Choose a compression: "", "ZLIB" or "GZIP"; the others are zlib's parameters.

        Raises:
            ValueError: If there is no such compression.
        """
        self.compression_type = _checked(compression_type)
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    def make_compressor(self) -> Any:
        """Return what compresses, or None if nothing does."""
        if not self.compression_type:
            return None
        chosen: dict[str, Any] = {
            "level": self.compression_level,
            "method": self.compression_method,
            "memLevel": self.mem_level,
            "strategy": self.compression_strategy,
        }
        bits = _WINDOW_BITS[self.compression_type] + (self.window_bits or zlib.MAX_WBITS)
        return zlib.compressobj(wbits=bits, **{name: value for name, value in chosen.items() if value is not None})


def _checked(compression_type: Any) -> str:
    if compression_type and compression_type not in _WINDOW_BITS:
        raise ValueError(f'Not a valid compression_type: "{compression_type}"')
    return compression_type or ""


@final
class TFRecordWriter:
    """Drop-in for `tf.io.TFRecordWriter`: writes records to a file, one behind the other.

    Ref: https://www.tensorflow.org/api_docs/python/tf/io/TFRecordWriter
    """

    def __init__(self, path: Any, options: TFRecordOptions | str | None = None) -> None:
        """Open a file, local or in a bucket, which loses what it holds.

        Args:
            path: Where it is.
            options: Options, or the name of a compression.

        Raises:
            NotFoundError: If the file cannot be there.
            ValueError: If there is no such compression.
        """
        chosen = options if isinstance(options, TFRecordOptions) else TFRecordOptions(options)
        self._compressor = chosen.make_compressor()
        self._file = _gfile.GFile(path, "wb")
        self._file.write(b"")  # Opens it.
        self._is_closed = False

    def write(self, record: bytes | str) -> None:
        """Append a record: bytes, or a string in UTF-8.

        Raises:
            FailedPreconditionError: If the writer is closed.
            TypeError: If it is neither.
        """
        if self._is_closed:
            raise FailedPreconditionError(None, None, "Writer is closed.")
        if not isinstance(record, bytes | str):
            raise TypeError(f"A record is bytes or a string, got {record!r}. Of a tensor, write `tensor.numpy()`.")
        framed = frame(record.encode() if isinstance(record, str) else record)
        self._file.write(self._compressor.compress(framed) if self._compressor else framed)

    def flush(self) -> None:
        """Write out what is held back."""
        if self._is_closed:
            raise FailedPreconditionError(None, None, "Writer is closed.")
        if self._compressor:
            self._file.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """Write out what is held back, and close the file."""
        if not self._is_closed:
            self._is_closed = True
            if self._compressor:
                self._file.write(self._compressor.flush())
            self._file.close()

    def __enter__(self) -> "TFRecordWriter":
        """Return the writer."""
        return self

    def __exit__(self, *exception: Any) -> None:
        """Close the file."""
        self.close()
