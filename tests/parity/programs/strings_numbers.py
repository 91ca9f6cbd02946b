"""Strings: numbers that they spell, and texts of numbers."""

import tensorflow as tf
from _facts import error, show

S = tf.strings
NUMBERS = {
    "a truth": True,
    "integers": [1, -2],
    "floats": tf.constant([3.14159, 1e10, float("nan"), float("inf")]),
    "doubles": tf.constant([1e-5, 2.5], tf.float64),
    "complex": tf.constant(1 + 2j),
    "bytes": tf.constant([1, 200], tf.uint8),
    "bfloat16": tf.constant(1.5, tf.bfloat16),
    "half": tf.constant(-1.5, tf.half),
}
for label, value in NUMBERS.items():
    show(label, S.as_string(value))
    for name, options in (
        ("in 8", {"width": 8}),
        ("with zeros", {"width": 8, "fill": "0"}),
        ("to the left", {"width": 8, "fill": "-"}),
        ("with a sign", {"width": 8, "fill": "+"}),
    ):
        show(f"{label} {name}", S.as_string(value, **options))
    for name, options in (
        ("with two digits", {"precision": 2}),
        ("scientific", {"scientific": True}),
        ("shortest", {"shortest": True}),
    ):
        if label in ("a truth", "integers", "bytes"):
            error(f"{label} {name}", lambda value=value, options=options: S.as_string(value, **options))
        else:
            show(f"{label} {name}", S.as_string(value, **options))
show("a string", tf.as_string(tf.constant(["a"])))
show("all options", S.as_string(1.5, precision=3, width=10, fill=" "))
error("two fills", lambda: S.as_string(1, fill="ab"))
error("another fill", lambda: S.as_string(1, fill="x"))
error("both forms", lambda: S.as_string(1.0, scientific=True, shortest=True))

for text in ("1.5", " 2 ", "1e400", "abc", "", "inf", "-nan", "0x10", "1_0", "+3", "1e-50", "-7", "2147483648"):
    for dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
        error(f"{text!r} as {dtype.name}", lambda text=text, dtype=dtype: S.to_number(text, dtype))
show("of a matrix", S.to_number([["1", "2"], ["3", "4.5"]]))
show("of nothing", S.to_number(tf.constant([], tf.string)))
error("one that is none", lambda: S.to_number(["1", "x"], tf.int32))
error("small integers", lambda: S.to_number("1", tf.uint8))

show("format", S.format("x {} y {}", (tf.range(8), "s")))
show("format of strings", S.format("{}", tf.constant(["a", "b"])))
show("format of all", S.format("a % b", [tf.range(10)], placeholder="%", summarize=-1))
show("format of a matrix", S.format("{}", tf.constant([[1.123456789, 2], [3, 4]], tf.float64)))
show("format of a large one", S.format("{}", tf.reshape(tf.range(100), [10, 10])))
show("format of nothing", S.format("no", []))
error("format of too few", lambda: S.format("{} {}", tf.constant(1.5)))
