"""TFRecord files: written and read, compressed, several of them, damaged."""

import gzip
import os
import pathlib
import tempfile
import zlib

import tensorflow as tf
from _facts import error, show

os.chdir(tempfile.mkdtemp())
Records = tf.data.TFRecordDataset


def values(dataset):
    return [element.numpy() for element in dataset]


def write(name, records, *options):
    with tf.io.TFRecordWriter(name, *options) as writer:
        for record in records:
            writer.write(record)
    return name


def damage(name, place, bit=1):
    data = bytearray(pathlib.Path(name).read_bytes())
    data[place] ^= bit
    pathlib.Path(f"{name}-{place}").write_bytes(data)
    return f"{name}-{place}"


def drain(dataset):
    iterator, found = iter(dataset), []
    while True:
        try:
            found.append(next(iterator).numpy())
        except StopIteration:
            return found
        except Exception as raised:
            found.append(type(raised).__name__)


write("some", [b"record%d" % i * i for i in range(5)])
show("bytes of a file", pathlib.Path("some").read_bytes())
show("read", values(Records("some")))
show("spec", str(Records("some").element_spec))
show("cardinality", Records("some").cardinality())
show("is a dataset", isinstance(Records("some"), tf.data.Dataset))
show("empty", values(Records(write("none", []))))
show("no files", values(Records([])))
show("batches", values(Records("some").batch(2)))
show("strings are UTF-8", values(Records(write("text", ["héllo"]))))

for kind, decompress in (("GZIP", gzip.decompress), ("ZLIB", zlib.decompress)):
    write(kind, [b"xy" * 100, b"", b"z"], kind)
    whole = pathlib.Path(write("plain", [b"xy" * 100, b"", b"z"])).read_bytes()
    show(f"{kind} holds the same", decompress(pathlib.Path(kind).read_bytes()) == whole)
    show(f"{kind} read", values(Records(kind, compression_type=kind)))
    show(f"{kind} by tensor", values(Records(kind, compression_type=tf.constant(kind)).take(1)))
    error(f"{kind} as it is", lambda kind=kind: values(Records(kind)))
    error(f"as {kind}", lambda kind=kind: values(Records("some", compression_type=kind)))
options = tf.io.TFRecordOptions("ZLIB", compression_level=9, window_bits=10)
show("options", values(Records(write("own", [b"a" * 50], options), "ZLIB")))
show("what options hold", {name: value for name, value in vars(options).items() if value is not None})
error("no such compression", lambda: tf.io.TFRecordWriter("x", "BZ2"))
error("nor in options", lambda: tf.io.TFRecordOptions("BZ2"))

for i in range(3):
    write(f"part{i}", [b"%d%d" % (i, j) for j in range(3 + i)])
parts = ["part0", "part1", "part2"]
show("one after the other", values(Records(parts)))
show("two at once", values(Records(parts, num_parallel_reads=2)))
show("three at once", values(Records(tf.constant(parts), num_parallel_reads=3)))
show("names in a dataset", values(Records(tf.data.Dataset.from_tensor_slices(parts))))
show("nested names", values(Records([["part0"], ["part1"]])))
show("paths", values(Records([pathlib.Path("part0")])))
show("one path", values(Records(pathlib.Path("part0"))))
show(
    "interleaved", values(tf.data.Dataset.from_tensor_slices(parts).interleave(Records, cycle_length=2, block_length=2))
)
show("flat", values(tf.data.Dataset.from_tensor_slices(parts).flat_map(Records)))
show("shuffled files hold the same", sorted(values(Records(tf.data.Dataset.list_files("part*")))))
error("numbers for names", lambda: Records(3))
error("a dataset of numbers", lambda: Records(tf.data.Dataset.range(3)))
error("none at once", lambda: values(Records(parts, num_parallel_reads=0)))

show("a changed byte of the last record", drain(Records(damage("some", -8))))
show("a changed length of the first", drain(Records(damage("some", 0))))
show("damaged and whole files", drain(Records([damage("some", -8), "part0"])))
error("no such file", lambda: values(Records("nothing")))
pathlib.Path("cut").write_bytes(pathlib.Path("some").read_bytes()[:-6])
show("the end is missing", drain(Records("cut")))

closed = tf.io.TFRecordWriter("closed")
closed.write(b"a")
closed.flush()
show("flushed", os.path.getsize("closed"))
closed.close()
closed.close()
error("write to a closed file", lambda: closed.write(b"b"))
error("a folder that is not there", lambda: tf.io.TFRecordWriter("no/such/x"))
error("a tensor is no record", lambda: tf.io.TFRecordWriter("y").write(tf.constant(b"abc")))
