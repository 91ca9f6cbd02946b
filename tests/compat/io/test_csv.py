"""CSV: Python's writer and this reader agree."""

import csv
import io
import re

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


# Texts of a type, and ones that are odd, or errors.
USUAL = {
    tf.float32: ["1.5", "-2", "3e4", ".5", "1.", " 7 "],
    tf.float64: ["1.5", "-2e-3", "0"],
    tf.int32: ["1", "-2", " 33", "007"],
    tf.int64: ["1", "-99", "12345678901"],
    tf.string: ["a", "bc", "0", "NA", " x ", "nan", "é"],
}
ODD = [
    " ",
    "+1",
    "0x1f",
    "inf",
    "nan",
    "1_0",
    "\t",
    "null",
    '"q"',
    '"',
    "\0",
    "#N/A",
    "true",
    "1e999",
    "9" * 20,
    "\ufeff",
]


@st.composite
def tables(draw):
    types = draw(st.lists(st.sampled_from(list(USUAL)), min_size=1, max_size=4))
    rows = [[draw(st.sampled_from(USUAL[kind])) for kind in types] for _ in range(24)]
    missing, odd = st.lists(st.sampled_from(["", "NA"]), max_size=3), st.lists(st.sampled_from(ODD), max_size=1)
    for text in draw(missing) + draw(odd):
        rows[draw(st.integers(0, 23))][draw(st.integers(0, len(types) - 1))] = text
    if draw(st.integers(0, 9)) == 0:
        rows[5].append("7")
    return types, rows


@settings(max_examples=300, deadline=None)
@given(
    table=tables(),
    delimiter=st.sampled_from([",", ",", ";", "|", " ", "é"]),
    missing=st.sampled_from(["", "NA", "-"]),
    quotes=st.booleans(),
    required=st.sampled_from([False, False, True]),
)
def test_many_lines_are_what_each_is(table, delimiter, missing, quotes, required):
    types, rows = table
    lines = [delimiter.join(row).encode() for row in rows]
    defaults = [tf.constant([] if required else ["zz" if kind == tf.string else 5], kind) for kind in types]
    check_lines(lines, defaults, delimiter, quotes, missing)


@pytest.mark.parametrize("text", ODD)
def test_an_odd_value_among_many_is_what_it_is_alone(text):
    for kind, usual in USUAL.items():
        for place in (0, 20):
            lines = [f"1,{usual[0]}"] * 24
            lines[place] = f"1,{text}"
            check_lines(lines, [[0], tf.constant([], kind)])
            # In the first column, where a file's mark of its encoding would be.
            check_lines([",".join(reversed(line.split(","))) for line in lines], [tf.constant([], kind), [0]])


def check_lines(lines, *how):
    def read(lines):
        try:
            columns = tf.io.decode_csv(lines, *how)
        except tf.errors.InvalidArgumentError as error:
            return re.sub(r"record \d+", "record", error.message)
        return [column.numpy().tolist() for column in columns]

    found, each = read(lines), [read([line]) for line in lines]
    errors = [row for row in each if isinstance(row, str)]
    if errors:
        assert found in errors
    else:
        assert repr(found) == repr([[value for (value,) in column] for column in zip(*each, strict=True)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "1.000000059604644775390625",
            1.0,
        ),  # The middle between 1 and the next number of float32, and what is just beside it.
        ("1.00000005960464477539062500000000001", 1 + 2**-23),
        ("1.00000005960464477539062499999999999", 1.0),
        ("-1.00000005960464477539062500000000001", -1 - 2**-23),
        ("1.000000178813934326171875", 1 + 2**-22),
        ("1.00000017881393432617187499999999999", 1 + 2**-23),
        ("1e39", float("inf")),
        ("inf", float("inf")),
    ],
)
def test_float32_is_rounded_once(text, value):
    (column,) = tf.io.decode_csv([text, " 2.5 "], [[0.0]])
    assert column.numpy().tolist() == [value, 2.5]


def test_a_quote_within_a_value_does_not_take_the_next_line(tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes(b'a"b,1\nc,2\n"d\n""e",3\n')
    dataset = tf.data.experimental.CsvDataset(str(path), ["", 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="line 1: Unquoted fields cannot have quotes"):
        next(dataset.as_numpy_iterator())
    assert list(dataset.ignore_errors().as_numpy_iterator()) == [(b"c", 2), (b'd\n"e', 3)]


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
