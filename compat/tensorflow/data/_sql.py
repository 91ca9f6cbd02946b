"""`tf.data.experimental.SqlDataset`: the rows that a query finds in a SQLite file."""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from tfdist_jax.compat.tensorflow._ops._arguments import invalid
from tfdist_jax.compat.tensorflow._platform._errors import UnknownError
from tfdist_jax.compat.tensorflow._tensors._dtypes import DType, as_dtype
from tfdist_jax.compat.tensorflow._tensors._shape import TensorShape, TensorSpec
from tfdist_jax.compat.tensorflow.data import _elements
from tfdist_jax.compat.tensorflow.data._file_datasets import FileDataset
from tfdist_jax.compat.tensorflow.data._plan import Uncounted
from tfdist_jax.compat.tensorflow.data._plan_text import Named
from tfdist_jax.compat.tensorflow.data._seed_log import SeedLog

_TYPES = "string int8 int16 int32 int64 uint8 uint16 bool float64"


class SqlDataset(FileDataset):
    """Drop-in for `tf.data.experimental.SqlDataset`.

    Ref: https://www.tensorflow.org/api_docs/python/tf/data/experimental/SqlDataset
    """

    def __init__(self, driver_name: Any, data_source_name: Any, query: Any, output_types: Any) -> None:
        """Plan to run a query; nothing is read yet.

        Args:
            driver_name: "sqlite".
            data_source_name: The file.
            query: The query, in SQL.
            output_types: The type of each column, in a tuple; or of the only one. Integers, bool, float64 and string.

        Raises:
            InvalidArgumentError: If the driver or a type is none of these.
        """
        driver, path, text = (
            _elements.as_arrays(given).item().decode() for given in (driver_name, data_source_name, query)
        )
        if driver != "sqlite":
            raise invalid(f"The database type, {driver}, is not supported by SqlDataset. There is: sqlite.")
        for dtype in map(as_dtype, _elements.leaves(output_types)):
            if dtype.name not in _TYPES.split():
                raise invalid(f"Each of `output_types` must be one of {', '.join(_TYPES.split())}; got {dtype.name}.")
        super().__init__(Query(path, text, _elements.map_structure(as_dtype, output_types)))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Query(Uncounted, Named):
    """The rows that a query finds."""

    called = "SqlDataset"

    data_source_name: str
    query: str
    output_types: Any = dataclasses.field(repr=False)

    def elements(self, seed_log: SeedLog) -> Iterator[Any]:
        types: Sequence[DType] = _elements.leaves(self.output_types)
        # Opened to be read only: SQLite would make a file that is not there.
        address = f"{Path(self.data_source_name).absolute().as_uri()}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
                connection.text_factory = bytes
                rows = connection.execute(self.query)
                if len(rows.description or ()) != len(types):
                    raise invalid(
                        f"The number of columns in query ({len(rows.description or ())}) must match the number of elements in "
                        f"output_types ({len(types)})."
                    )
                for row in rows:
                    yield _elements.rebuilt(self.output_types, map(_as_array, row, types))
        except sqlite3.Error as error:
            raise UnknownError(None, None, f"{self.data_source_name}: {type(error).__name__}: {error}") from None

    def make_spec(self) -> Any:
        return _elements.map_structure(lambda dtype: TensorSpec(TensorShape([]), dtype), self.output_types)


def _as_array(value: Any, dtype: DType) -> Any:
    """Return a column's value as SQLite casts it: nothing is zero or an empty text."""
    if dtype.name == "string":
        text = b"" if value is None else value if isinstance(value, bytes) else str(value).encode()
        return np.array(text, object)
    if dtype.name == "float64":
        return np.float64(_number(value))
    number = int(_number(value))
    if dtype.name == "bool":
        return np.bool_(number != 0)
    kind = np.dtype(dtype.as_numpy_dtype)
    return np.int64(number).astype(kind)


def _number(value: Any) -> float | int:
    if value is None:
        return 0
    if not isinstance(value, bytes):
        return value
    try:
        return float(value)
    except ValueError:
        return 0
