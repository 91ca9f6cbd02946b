"""What strings hold: raw numbers, columns, compressed bytes, base64, tensors, JSON."""

import gzip
import zlib

import numpy as np
import tensorflow as tf
from _facts import error, show

raw, csv = tf.io.decode_raw, tf.io.decode_csv
show("bytes", raw(b"abc", tf.uint8))
show("of several", raw(tf.constant([b"abcd", b"efgh"]), tf.int16))
show("big first", raw(b"abcd", tf.int16, little_endian=False))
show("floats", raw(np.float32([1, 2]).tobytes(), tf.float32))
show("halves", raw(np.float16([1.5]).tobytes(), tf.half))
show("complex", raw(np.complex64([1j]).tobytes(), tf.complex64))
show("truths", raw(b"\x00\x01", tf.bool))
show("of a matrix", raw([[b"ab"], [b"cd"]], tf.uint8))
show("filled up", raw([b"ab", b"abcdef"], tf.uint8, fixed_length=4))
show("of nothing", raw(b"", tf.int32))
show("of no strings", raw(tf.constant([], tf.string), tf.uint8))
error("half a number", lambda: raw(b"abc", tf.int16))
error("other lengths", lambda: raw([b"ab", b"abcd"], tf.uint8))
error("a length of half numbers", lambda: raw([b"ab"], tf.int16, fixed_length=3))
error("strings are no numbers", lambda: raw(b"ab", tf.string))

required = tf.constant([], tf.int32)
for label, arguments, options in (
    ("columns", (["1,2.5,a", "3,,b"], [0, 1.0, ""]), {}),
    ("of one line", ("1,2", [[0], [0]]), {}),
    ("of a matrix of lines", ([["1,2"], ["3,4"]], [[0], [0]]), {}),
    ("of no lines", (tf.constant([], tf.string), [[0], [""]]), {}),
    ("another name for nothing", ("1,NA", [[0], [7]]), {"na_value": "NA"}),
    ("quotes", ('"a,b","c""d",e', [[""], [""], [""]]), {}),
    ("an empty string in quotes", ('"",1', [["x"], [0]]), {}),
    ("no quotes", ('"a,b"', [[""], [""]]), {"use_quote_delim": False}),
    ("another delimiter", ("1|2", [[0], [0]]), {"field_delim": "|"}),
    ("chosen", ("1,2,3", [[0], [0]]), {"select_cols": [0, 2]}),
    ("wide numbers", ("5000000000,2", [tf.constant([0], tf.int64), tf.constant([0.0], tf.float64)]), {}),
    ("blanks", (" 1, 2 ", [[0], [0.0]]), {}),
    ("no numbers", ("inf,nan,-1e3", [[0.0]] * 3), {}),
    ("a default string", (",x", [["d"], [""]]), {}),
):
    show(label, csv(*arguments, **options))
for label, arguments, options in (
    ("a value is needed", ("1,", [[0], required]), {}),
    ("no integer", (["1,2", "x,2"], [[0], [0]]), {}),
    ("no float", ("abc", [[0.0]]), {}),
    ("too large", ("5000000000", [[0]]), {}),
    ("with an underscore", ("1_0", [[0]]), {}),
    ("too few", ("1", [[0], [0]]), {}),
    ("too many", ("1,2,3", [[0], [0]]), {}),
    ("an end of line", ("1,2\n", [[0], [0]]), {}),
    ("a quote within", ('a"b,c', [[""], [""]]), {}),
    ("an open quote", ('"ab', [[""]]), {}),
    ("behind a quote", ('"a"b,c', [[""], [""]]), {}),
    ("an empty line", ("", [[1]]), {}),
    ("no columns", ("1", []), {}),
    ("truths are no type", ("True", [tf.constant([True])]), {}),
    ("two defaults", ("1,2", [[0], [0, 1]]), {}),
    ("a long delimiter", ("1,2", [[0], [0]]), {"field_delim": ",,"}),
    ("chosen twice", ("1,2", [[0], [0]]), {"select_cols": [1, 0]}),
):
    error(label, lambda arguments=arguments, options=options: csv(*arguments, **options))

show("zlib", tf.io.decode_compressed(zlib.compress(b"hello"), "ZLIB"))
show("gzip", tf.io.decode_compressed([gzip.compress(b"a"), gzip.compress(b"b")], "GZIP"))
show("not compressed", tf.io.decode_compressed(b"x"))
error("no such compression", lambda: tf.io.decode_compressed(b"x", "BZ2"))

show("base64", tf.io.encode_base64(b"any carnal pleas\xff\xfe"))
show("base64 filled up", tf.io.encode_base64([b"a", b"ab"], pad=True))
show("from base64", tf.io.decode_base64([b"YW55_-8", b"YQ==", b"YWI", b""]))
error("no base64", lambda: tf.io.decode_base64(b"a?b"))
error("of another alphabet", lambda: tf.io.decode_base64(b"+/+/"))
error("too short", lambda: tf.io.decode_base64(b"abcde"))

for value in (
    tf.constant([1.0, 2.0]),
    tf.constant(5, tf.int64),
    tf.constant([b"ab", b"c"]),
    tf.constant([[True, False]]),
    tf.constant([1, 2], tf.uint8),
    tf.constant([1.5], tf.bfloat16),
    tf.constant([1.5], tf.float16),
    tf.constant([1j]),
    tf.zeros([0, 2]),
    tf.constant([2**64 - 1], tf.uint64),
    tf.constant([-1], tf.int8),
):
    name = value.dtype.name
    show(f"{name} serialized", tf.io.serialize_tensor(value))
    parsed = tf.io.parse_tensor(tf.io.serialize_tensor(value), value.dtype)
    show(f"{name} parsed", tf.cast(parsed, tf.float32) if name == "bfloat16" else parsed)
show("one value for three", tf.io.parse_tensor(b"\x08\x01\x12\x04\x12\x02\x08\x03*\x04\x00\x00\x80?", tf.float32))
error("of another type", lambda: tf.io.parse_tensor(tf.io.serialize_tensor(tf.constant([1.0])), tf.int32))
error("no tensor", lambda: tf.io.parse_tensor(b"garbage!", tf.int32))
error("several", lambda: tf.io.parse_tensor([b"a", b"b"], tf.int32))

text = '{"features":{"feature":{"a":{"int64List":{"value":["1","2"]}}}}}'
example = tf.train.Example.FromString(tf.io.decode_json_example(text).numpy())
show("JSON", list(example.features.feature["a"].int64_list.value))
show("JSON of two", len(tf.io.decode_json_example(["{}", '{"features":{}}'])))
error("half JSON", lambda: tf.io.decode_json_example("{"))
