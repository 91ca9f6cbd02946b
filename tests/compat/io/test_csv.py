"""CSV: Python's writer and this reader agree."""

import csv
import io

import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, st.integers(-(2**31), 2**31 - 1), TEXTS), min_size=1, max_size=8))
def test_rows_that_python_writes_are_read(tmp_path_factory, rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "some.csv"
    path.write_bytes(text.getvalue().encode())
    found = list(tf.data.experimental.CsvDataset(str(path), ["", 0, ""]).as_numpy_iterator())
    assert found == [(a.encode(), number, b.encode()) for a, number, b in rows]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=8))
def test_numbers_are_what_python_reads(rows):
    lines = [f"{number!r},{whole}" for number, whole in rows]
    wide = [tf.constant([], tf.float64), tf.constant([], tf.int64)]
    columns = tf.io.decode_csv(lines, wide)
    assert columns[0].numpy().tolist() == [number for number, _ in rows]
    assert columns[1].numpy().tolist() == [whole for _, whole in rows]


def test_errors_name_file_and_line(tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes(b'a,b\n1,"x\ny"\n2\n3,"z"\n')
    iterator = tf.data.experimental.CsvDataset(str(path), [0, ""], header=True).as_numpy_iterator()
    assert next(iterator) == (1, b"x\ny")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"some\.csv, line 4: Expect 2 fields but have 1"):
        next(iterator)
    assert next(iterator) == (3, b"z")


def test_invalid_utf_8_stays_bytes(tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes(b"\xff\xfe,1\n")
    assert list(tf.data.experimental.CsvDataset(str(path), ["", 0]).as_numpy_iterator()) == [(b"\xff\xfe", 1)]
    with pytest.raises(UnicodeDecodeError):
        tf.data.experimental.make_csv_dataset(str(path), 1, header=True)
