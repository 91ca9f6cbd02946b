"""`tf.strings`: what Python's own strings say, for any bytes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax.compat.tensorflow as tf

S = tf.strings
texts = st.lists(st.binary(max_size=6), max_size=5)
words = st.lists(st.text(max_size=6), max_size=5)


def strings(values):
    return tf.constant(values, tf.string, shape=[len(values)])


@settings(deadline=None, max_examples=60)
@given(texts)
def test_any_bytes_stay_what_they_are(values):
    tensor = strings(values)
    assert tensor.numpy().tolist() == values
    assert [part.numpy() for part in tensor] == values
    assert S.bytes_split(tensor).to_list() == [[value[i : i + 1] for i in range(len(value))] for value in values]
    assert S.reduce_join(S.bytes_split(tensor), axis=-1).numpy().tolist() == values


@settings(deadline=None, max_examples=60)
@given(words)
def test_characters_are_pythons(values):
    tensor = strings([value.encode() for value in values])
    assert S.length(tensor, unit="UTF8_CHAR").numpy().tolist() == list(map(len, values))
    decoded = S.unicode_decode(tensor, "UTF-8")
    assert decoded.to_list() == [list(map(ord, value)) for value in values]
    for encoding, codec in (("UTF-8", "utf-8"), ("UTF-16-BE", "utf-16-be"), ("UTF-32-BE", "utf-32-be")):
        encoded = S.unicode_encode(decoded, encoding).numpy().tolist()
        assert encoded == [value.encode(codec) for value in values]
    assert S.unicode_split(tensor, "UTF-8").to_list() == [[c.encode() for c in value] for value in values]


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=8), st.integers(-9, 9), st.integers(-2, 9))
def test_substr_is_a_slice(text, start, length):
    if not -len(text) <= start <= len(text):
        with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(f"pos {start} out of range")):
            S.substr(text, start, length)
        return
    place = start % len(text) if start < 0 else start
    assert S.substr(text, start, length).numpy() == (text[place : place + length] if length >= 0 else text[place:])


@settings(deadline=None, max_examples=60)
@given(texts, st.sampled_from([None, b",", b"ab"]), st.integers(-1, 2))
def test_split_is_pythons(values, separator, most):
    found = S.split(strings(values), separator, most).to_list()
    assert found == [value.split(separator, most) for value in values]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(allow_nan=False) | st.integers(-(2**70), 2**70), min_size=1, max_size=5))
def test_numbers_are_read_as_they_are_written(numbers):
    written = strings([repr(number).encode() for number in numbers])
    np.testing.assert_array_equal(S.to_number(written, tf.float64), np.array(numbers, np.float64))
    with np.errstate(over="ignore"):
        exact = np.array([np.float32(str(number)) for number in numbers])
    np.testing.assert_array_equal(S.to_number(written), exact)
    if all(isinstance(number, int) and -(2**63) <= number < 2**63 for number in numbers):
        np.testing.assert_array_equal(S.to_number(written, tf.int64), numbers)
        assert S.as_string(tf.constant(numbers, tf.int64)).numpy().tolist() == written.numpy().tolist()


def test_float32_is_rounded_once():
    # In the middle of two numbers of float32 once it has been rounded to float64, but a little more than that.
    text = b"1.00000005960464477540"
    assert S.to_number(text).numpy() == np.float32(1 + 2**-23)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: S.join([["a"], ["b", "c"]]), "do not match: [1] vs. [2]"),
        (lambda: S.regex_replace("a", "a", r"\1"), "names group 1"),
        (lambda: S.regex_replace("a", "a", r"\q"), "backslash stands before a digit"),
        (lambda: S.regex_full_match("a", "(?P<x"), "Invalid pattern"),
        (lambda: S.unicode_decode(b"\xff", "UTF-8", errors="strict"), "Invalid formatting"),
        (lambda: S.unicode_decode("a", "UTF-8", errors="quiet"), '"quiet" is not in the list of allowed values'),
        (lambda: S.unicode_transcode("a", "UTF-8", "UTF-8", replacement_char=0xD800), "codepoint range"),
        (lambda: S.to_number("1.5", tf.int32), "could not correctly convert string: 1.5"),
        (lambda: S.substr("abc", [1], [[1]]), "same shape"),
        (lambda: S.unsorted_segment_join(["a"], [[0]], 1), "not a prefix"),
    ],
)
def test_errors_say_what_was_wrong(call, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)):
        call()


def test_every_character_has_the_script_that_tensorflow_says():
    # The first of a script, and what Unicode has added since.
    expected = {
        0x41: 25,
        0x370: 14,
        0x400: 8,
        0x5D0: 19,
        0x627: 2,
        0x905: 10,
        0xAC00: 18,
        0x1E900: 167,
        0x20: 0,
        0x300: 1,
    }
    assert S.unicode_script(list(expected)).numpy().tolist() == list(expected.values())
    assert S.unicode_script([0x11F00, -5, 0x110000]).numpy().tolist() == [103, -1, -1]


def test_strings_of_any_shape():
    matrix = tf.constant([["a", "bc"], ["", "d"]])
    for shape in ([], [0], [2, 0], [1, 1, 1]):
        empty = tf.zeros(shape, tf.string)
        assert S.upper(empty).shape == S.length(empty).shape == tuple(shape)
        assert S.to_hash_bucket_fast(empty, 3).shape == tuple(shape)
    assert S.split(matrix).shape.as_list() == [2, 2, None]
    assert S.reduce_join(matrix, axis=[0]).numpy().tolist() == [b"a", b"bcd"]
