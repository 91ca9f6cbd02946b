"""Text files by lines, and files by pieces of equal length."""

import gzip
import os
import pathlib
import tempfile
import zlib

import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
Lines, Pieces = tf.data.TextLineDataset, tf.data.FixedLengthRecordDataset


def values(dataset):
    return [element.numpy() for element in dataset]


def write(name, data):
    pathlib.Path(name).write_bytes(data)
    return name


write("a", b"one\r\ntwo\n\nthree\rx\n last")
write("b", b"1\n2\n")
show("lines", values(Lines("a")))
show("two files", values(Lines(["b", "a"])))
show("two at once", values(Lines(["b", "a"], num_parallel_reads=2)))
show("empty file", values(Lines(write("none", b""))))
show("only an end", values(Lines(write("end", b"\n"))))
show("spec", str(Lines("a").element_spec))
show("gzip", values(Lines(write("g", gzip.compress(b"ab\ncd\n\nef")), "GZIP")))
show("several gzips", values(Lines(write("gg", gzip.compress(b"ab\nc") + gzip.compress(b"d\n")), "GZIP")))
show("zlib", values(Lines(write("z", zlib.compress(b"ab\ncd")), compression_type="ZLIB")))
show("small buffer", values(Lines("a", buffer_size=2)))
show("skipped and filtered", values(Lines("a").skip(1).filter(lambda line: line != "")))
show("batched", values(Lines("a").batch(2)))
show("mapped", values(Lines("a").map(lambda line: line == "two")))
show("as NumPy", list(Lines("b").as_numpy_iterator()))
show("zipped", [tuple(x.numpy() for x in pair) for pair in tf.data.Dataset.zip((Lines("b"), tf.data.Dataset.range(2)))])
error("no such file", lambda: values(Lines("nothing")))
error("no gzip", lambda: values(Lines("a", compression_type="GZIP")))
error("negative buffer", lambda: values(Lines("a", buffer_size=-3)))

write("f", b"HHaabbccF")
show("pieces", values(Pieces("f", 2, 2, 1)))
show("the whole", values(Pieces("f", 9)))
show("pieces of two files", values(Pieces(["f", "f"], 3, 3)))
show("two at once", values(Pieces(["f", "f"], 3, num_parallel_reads=2)))
show("of gzip", values(Pieces(write("fg", gzip.compress(b"HHaabbccF")), 2, 2, 1, compression_type="GZIP")))
show("decoded", [x.numpy().tolist() for x in Pieces("f", 3).map(lambda piece: tf.io.decode_raw(piece, tf.uint8))])
error("pieces that do not fit", lambda: values(Pieces("f", 4, 2, 1)))
error("nor compressed", lambda: values(Pieces("fg", 4, 2, 1, compression_type="GZIP")))
error("too long a header", lambda: values(Pieces("f", 2, 20)))
error("no length", lambda: values(Pieces("f", 0)))
